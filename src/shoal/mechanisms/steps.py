"""Noise that falls in steps, on one number: less error than an even fall at larger budgets.

    P(noise = k) ∝ exp(-fall · floor((|k| + lead) / width)),   k whole, in lattice steps.

The loss of such noise is a finite maximum for any laws of the answer, evaluated here for the law
that is drawn. It need not fall with the noise, so every law that is tried is evaluated itself; one
that saves less than a twentieth of the error of `exact` is not taken. Proof: steps.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from shoal.core.charge import AsEntryDP, Rng
from shoal.core.codec import Bools, Floats, Ints, Value
from shoal.core.errors import InputError, PromiseBroken
from shoal.core.numbers import significant
from shoal.core.plan import Answer, Error, Plan, Proof
from shoal.core.progress import cut_short, no_time_limit, time_over
from shoal.core.task import Query, Task
from shoal.mechanisms import exact
from shoal.mechanisms.mixture import DEEPEST_LINEAR, WorstOutput, largest_finite, steepest
from shoal.mechanisms.plans import CUT_SHORT, float_below, laplace_body, task_guarantee
from shoal.noise.steps import SteppedNoise, mean_magnitude

NAME = exact.STEPS_NAME
SAVED = 0.05  # of the error of `exact`: less is not worth another kind of noise (ADR 0021)
WIDTHS, APART = (0.6, 2.6), 1.15  # of ε times the scale of `exact`: widths tried, and their ratio
NEARER = 4  # times the shapes beside the best one are looked at
HALVINGS = 9  # of the bracket of a fall: to a five-hundredth of it
HOT = 24  # laws that decided before, looked at first
BITS = 24  # of a fall, rounded down
MOST_WEIGHTS = 2_000_000  # of noise, for every answer and output: 16 MB
DEEPEST_LOG = 750.0  # -log of the smallest double
DEEP_WORK = 20_000_000  # sums of two logarithms one set of laws may cost where doubles end


# What is drawn.


@dataclass(frozen=True, slots=True, eq=False)
class Stepped(Value):
    """query(data) + noise in steps, in whole multiples of the query's lattice."""

    kind = "stepped"

    query: Query
    fall: Fraction
    width: int
    lead: int

    def __post_init__(self) -> None:
        if len(self.query.labels) != 1:
            raise InputError("noise in steps is added to one number")
        _ = self.noise  # which checks its own numbers

    @property
    def noise(self) -> SteppedNoise:
        """The noise in lattice steps."""
        return SteppedNoise(self.fall, self.width, self.lead)

    @property
    def eta(self) -> Fraction:
        """Entry-level DP: fall · ceil(L / width), L how far one entry moves the answer, in steps.

        Rounds up to a multiple of the fall (steps.md, Claim 5).
        """
        return self.noise.ratio_between(max(int(self.query.lipschitz / self.query.lattice), 1))

    def draw(self, records: Any, rng: Rng) -> Answer:
        """One answer. Charge the ledger before calling this."""
        (truth,) = self.query.evaluate(records)
        drawn = (int(truth) + self.noise.draw(rng),)
        return Answer(self.query.labels, drawn, self.query.lattice, self.query.unit)

    def error(self, confidence: float) -> Error:
        """How far the answer may be off: expected, and within a bound at `confidence`."""
        step = float(self.query.lattice)
        return Error(
            expected=self.noise.expected_error() * step,
            bound=float(self.noise.quantile(confidence) * self.query.lattice),
            confidence=confidence,
            unit=self.query.unit,
        )

    def log_likelihood(self, output: tuple[int, ...]) -> Callable[[Ints], Floats]:
        """log P(output | sum) but for a constant, for rows of sums in lattice steps."""
        fall, width, lead = float(self.fall), self.width, self.lead
        return lambda sums: np.asarray(
            -fall * ((np.abs(sums[:, 0] - output[0]) + lead) // width).astype(np.float64)
        )

    def describe(self) -> str:
        """Return in words where and by how much the logarithm of the noise falls, and its
        lattice.
        """
        unit, lattice = self.query.unit, self.query.lattice
        near = significant((self.width - self.lead) * lattice)
        return (
            f"noise whose logarithm falls by {significant(self.fall)} at {near} {unit} from the "
            f"answer and after every further {significant(self.width * lattice)}, on the lattice "
            f"{lattice}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepsCertificate(Proof):
    """What `exact` errs by on the task, in the query's unit, and the entry-level limit.

    `eta` is the larger of ε and what the noise of `exact` has. `cut` says that a time limit ended
    the search: the law is proved, and perhaps not the best.
    """

    kind = "steps-certificate"

    even_error: float
    eta: float
    cut: bool = field(default=False, metadata={"later": True})

    THEOREM: ClassVar[str] = (
        "the exact loss of noise in steps: beyond all answers its ratios repeat with the width of "
        "a step, so it is a finite maximum, evaluated for the law that is drawn (proof in steps.md)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = exact.ASSUMED

    @property
    def theorem(self) -> str:
        return self.THEOREM + CUT_SHORT if self.cut else self.THEOREM


# The row.


def stepped_plan(task: Task, epsilon: Fraction, even: Plan) -> Plan | None:
    """The law in steps of least expected error that was found to keep ε.

    None where none saves a twentieth of the error of `even`, the plan of `exact`.
    """
    noise = laplace_body(even).noise
    limit = max(float_below(epsilon), float(task.query.lipschitz / noise.scale))
    body = _best_law(task, epsilon, float(noise.scale / task.query.lattice), limit)
    if body is None:
        return None
    return Plan(
        mechanism=NAME,
        task=task,
        body=body,
        cost=body.error(0.5).expected,
        guarantee=task_guarantee(task, epsilon),
        certificate=StepsCertificate(even_error=even.cost, eta=limit, cut=cut_short()),
        composition=(AsEntryDP(body.eta),),
    )


def loss(plan: Plan) -> float:
    """The largest log-ratio of an output between two values of an entry, for the law as drawn.

    Rounds up.
    """
    body = stepped_body(plan)
    lines = _loss_lines(plan.task, float_below(plan.guarantee.amount))
    if isinstance(lines, str):
        return math.inf
    law = StepLaw.of(body)
    return max((line.worst(law).value for line in lines), default=0.0)


def stepped_body(plan: Plan) -> Stepped:
    """The body of a plan that draws its task's query with noise in steps; PromiseBroken else."""
    body = plan.body
    if not isinstance(body, Stepped):
        raise PromiseBroken(f"{plan.mechanism} draws a {type(body).__name__}, not noise in steps")
    if body.query != plan.task.query:
        raise PromiseBroken(
            f"the plan of {plan.mechanism} draws another query than its task asks for; "
            "its promise says nothing about that"
        )
    return body


def _loss_lines(task: Task, epsilon: float) -> list[Line] | str:
    """Everything the loss is a maximum over, under all models; or why it is not had."""
    found: list[Line] = []
    for model in task.family:
        laws: Any = model.answer_laws(task.query, task.secrets)
        lines = laws if isinstance(laws, str) else laws.lines(epsilon)
        if isinstance(lines, str):
            return lines
        found.extend(lines)
    return found


# Which law: widths about what `exact` spreads over, each with the largest fall that keeps ε.


def _best_law(task: Task, epsilon: Fraction, scale: float, limit: float) -> Stepped | None:
    """The best law found that saves enough, evaluated as drawn; None for none."""
    budget = float_below(epsilon)
    lines = _loss_lines(task, budget)
    if isinstance(lines, str) or not lines:
        return None
    reach = max(int(task.query.lipschitz / task.query.lattice), 1)
    search = StepSearch(lines, budget * (1 - 2.0**-40), limit, reach)
    law = search.best(scale, mean_magnitude(1 / scale, 1, 0) * (1 - SAVED))
    if law is None:
        return None
    with no_time_limit():
        return next(
            (b for b in _rounded_laws(task.query, law) if search.holds(StepLaw.of(b))), None
        )


def _rounded_laws(query: Query, law: StepLaw) -> Iterator[Stepped]:
    """The law with a fall of few bits, rounded down; and with less and less of it."""
    for less in (0.0, 1e-4, 1e-3, 1e-2):
        wanted = Fraction(law.fall * (1 - less))
        unit = Fraction(2) ** (math.frexp(law.fall)[1] - BITS)
        yield Stepped(query, wanted // unit * unit, law.width, law.lead)


class StepSearch:
    """Laws in steps held against a budget; those that decided before are looked at first."""

    def __init__(self, lines: Sequence[Line], epsilon: float, limit: float, reach: int) -> None:
        self._lines, self._epsilon = lines, epsilon
        self._limit, self._reach = limit, reach
        self._hot: list[Line] = []

    def best(self, scale: float, error: float) -> StepLaw | None:
        """The law of least error, below `error`, that was found; None for none."""
        found, tried = self._among(_shapes(self._epsilon * scale), None, error), 0
        while found is not None and tried < NEARER:  # a shape next to it may be better still
            near = self._among(_beside(found.width, found.lead), found, found.error())
            if near is found:
                break
            found, tried = near, tried + 1
        return found

    def _among(
        self, shapes: Iterable[tuple[int, int]], found: StepLaw | None, error: float
    ) -> StepLaw | None:
        """The best law of these shapes with less than `error`; `found` for none."""
        for width, lead in shapes:
            if time_over():
                break
            law = self._steepest_law(width, lead, error)
            if law is not None:
                found, error = law, law.error()
        return found

    def holds(self, law: StepLaw) -> bool:
        """Whether every set of laws loses at most epsilon."""
        if any(line.worst(law).value > self._epsilon for line in self._hot):
            return False
        for line in self._lines:
            worst = line.worst(law)
            if not worst.value <= self._epsilon:
                self._hot = [line.only(worst), *self._hot[: HOT - 1]]
                return False
        return True

    def _steepest_law(self, width: int, lead: int, error: float) -> StepLaw | None:
        """About the largest fall that holds, if its error is below `error`.

        The loss need not grow with the fall: every fall that is returned was itself evaluated.
        """
        high = self._limit / -(-self._reach // width) * (1 - 2.0**-40)
        if mean_magnitude(high, width, lead) >= error:
            return None
        low = high  # the least fall with an error below the one to beat
        while mean_magnitude(low / 2, width, lead) < error:
            low /= 2
        bottom = low / 2
        for _ in range(40):
            middle = (bottom + low) / 2
            inside = mean_magnitude(middle, width, lead) < error
            bottom, low = (bottom, middle) if inside else (middle, low)
        if not self.holds(StepLaw(low, width, lead)):
            return None
        if self.holds(StepLaw(high, width, lead)):
            return StepLaw(high, width, lead)
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            if self.holds(StepLaw(middle, width, lead)):
                low = middle
            else:
                high = middle
            if time_over():
                break
        return StepLaw(low, width, lead)


def _shapes(spread: float) -> Iterator[tuple[int, int]]:
    """Widths and leads to try, the likeliest first: `spread` is ε times the scale of `exact`."""
    least, most = WIDTHS
    widths = {2, 3}
    wide = max(2.0, least * spread)
    while wide <= max(4.0, most * spread + 1):
        widths.add(round(wide))
        wide *= APART
    middle = 1.6 * spread
    for width in sorted(widths, key=lambda w: (abs(math.log(w / middle)), w)):
        leads = [min(round(share * width), width - 1) for share in (1.0, 0.75, 0.5, 0.25, 0.0)]
        yield from ((width, lead) for lead in dict.fromkeys(leads))


def _beside(width: int, lead: int) -> Iterator[tuple[int, int]]:
    """Shapes that differ by 1."""
    for wider, further in product((-1, 0, 1), repeat=2):
        if (wider or further) and width + wider >= 2 and 0 <= lead + further < width + wider:
            yield width + wider, lead + further


# The loss: a finite maximum over outputs.


class StepLaw(NamedTuple):
    """exp(-fall · floor((|k| + lead) / width)) with the fall as a double."""

    fall: float
    width: int
    lead: int

    @classmethod
    def of(cls, body: Stepped) -> StepLaw:
        return cls(float(body.fall), body.width, body.lead)

    def error(self) -> float:
        """E|k|."""
        return mean_magnitude(self.fall, self.width, self.lead)

    def depth(self, span: int) -> float:
        """-log of the least weight at outputs within a width of answers `span` apart."""
        return self.fall * ((span + self.width - 1 + self.lead) // self.width)


class Line(Protocol):
    """Laws of one number, and what noise in steps on it tells at most."""

    def worst(self, law: StepLaw) -> WorstOutput:
        """The largest loss over secrets and outputs; rounds up."""
        ...

    def only(self, worst: WorstOutput) -> Line:
        """The laws among which that was found, where they are a few of many."""
        ...


def step_density(laws: Floats, values: Ints, law: StepLaw, *, logs: bool) -> Floats | None:
    """log Σ_j laws[..., j] f(u - values[j]) at every output u that decides; None: too many.

    From a width before the least value to a width after the largest: beyond, all densities are
    multiples of those a width nearer, by the same number (steps.md, Claim 1). `laws` are
    logarithms where `logs`.
    """
    outputs = int(values[-1] - values[0]) + 2 * law.width - 1
    if too_many(math.prod(laws.shape[:-1]), len(values), outputs, logs=logs):
        return None
    weights = _density_rows(values.tobytes(), law)
    if not logs:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(laws @ np.exp(weights)))
    out = np.full((*laws.shape[:-1], outputs), -math.inf)
    for place in range(len(values)):
        np.logaddexp(out, laws[..., place, None] + weights[place], out=out)
    return out


def too_many(rows: int, values: int, outputs: int, *, logs: bool) -> bool:
    """Whether so many laws on so many values are not evaluated at so many outputs."""
    return values * outputs > MOST_WEIGHTS or (logs and rows * values * outputs > DEEP_WORK)


@lru_cache(maxsize=32)
def _density_rows(values: bytes, law: StepLaw) -> Floats:
    """log f(u - value), (values, outputs)."""
    answers = np.frombuffer(values, dtype=np.int64)
    outputs = np.arange(answers[0] - law.width + 1, answers[-1] + law.width)
    far = np.abs(outputs[None, :] - answers[:, None])
    return np.asarray(-law.fall * ((far + law.lead) // law.width).astype(np.float64))


def density_slack(values: Ints, law: StepLaw, density: Floats, *, logs: bool) -> float:
    """What rounding in two of those densities can hide from their log-ratio.

    A weight is off by the roundings of the fall, of its product and of an exponential; a sum of n
    products by n; a logarithm by one of its own size, and so is each of n sums of logarithms.
    """
    largest = largest_finite(density)
    own = 4.0 + law.depth(int(values[-1] - values[0]))
    if logs:  # a term may be much smaller than the sum it is in
        return 2.0**-50 * (own + (len(values) + 1) * (DEEPEST_LOG + largest))
    return 2.0**-50 * (own + len(values) + largest)


@dataclass(frozen=True, slots=True, eq=False)
class PlainLine:
    """Laws (secrets, values) as plain doubles on whole `values`, and which pairs are compared.

    `deepest` is how deep a density may be for what was lost to underflow to decide nothing; None
    where nothing was lost. Entries may be off by `roundings` relative errors of 2^-53.
    """

    laws: Floats
    values: Ints
    pairs: Bools
    roundings: float
    deepest: float | None = None

    def worst(self, law: StepLaw) -> WorstOutput:
        """Return the largest log-ratio between two secrets over all outputs under this noise law.

        Rounds up. Infinite when the law is too deep for this line; 0 when no pair is compared.
        """
        if not self.pairs.any():
            return WorstOutput(0.0)
        deep = law.depth(int(self.values[-1] - self.values[0]))
        if self.deepest is not None and deep > self.deepest:
            return WorstOutput(math.inf)
        laws, logs = self.laws, deep > DEEPEST_LINEAR
        if logs:
            with np.errstate(divide="ignore"):
                laws = np.log(laws)
        density = step_density(laws[None], self.values, law, logs=logs)
        if density is None:
            return WorstOutput(math.inf)
        found = steepest(density, None, np.where(self.pairs, 0.0, -math.inf))
        slack = density_slack(self.values, law, density, logs=logs) + self.roundings * 2.0**-52
        return found._replace(value=found.value + slack)

    def only(self, worst: WorstOutput) -> Line:
        two = [worst.secret, worst.other]
        return replace(self, laws=self.laws[two], pairs=np.array([[False, True], [False, False]]))
