"""From noise to a plan: what every row of additive noise shares, and the rows that need no law.

Laplace, K-norm and group noise follow from the sensitivity of the query alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

from shoal.core.charge import AsEntryDP, AsGroupDP, Composition, Guarantee, Rng
from shoal.core.codec import Value
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, common_step, positive, significant
from shoal.core.plan import Additive, Answer, Certificate, Error, Noise, Plan, Proof
from shoal.core.progress import no_time_limit
from shoal.core.records import Sequences
from shoal.core.task import Model, Query, Task, moved_together
from shoal.mechanisms.queries import ExternalQuery, linear
from shoal.noise.laplace import LatticeLaplace, ZeroSumLaplace, is_laplace, is_zero_sum
from shoal.noise.primitives import round_up

Found = TypeVar("Found")
CUT_SHORT = "; the search was ended by its time limit, so less noise may be enough"


# What an external mechanism draws, and the entry-level eta its user vouches for.


@dataclass(frozen=True, slots=True, eq=False)
class Measured(Value):
    """A mechanism from outside, called with the entries of all chains in order.

    Entries are handed over as integers when every state is named by one, else as text. The
    mechanism itself is not stored: a loaded plan releases only after `attach`.
    """

    kind = "measured"

    own_randomness: ClassVar[bool] = True  # no seed of ours reaches it
    name: str
    eta: Fraction
    mechanism: Callable[[list[Any]], Any] | None = field(default=None, metadata={"stored": False})

    def draw(self, records: Sequences, rng: Rng) -> Answer:
        """The mechanism's own answer, drawn with its own randomness."""
        if self.mechanism is None:
            raise InputError(
                f"{self.name} is not stored with its plan; attach it again with shoal.attach"
            )
        if not rng.secure:
            raise InputError(f"rng is seeded, but {self.name} draws its own randomness; omit rng")
        answer = self.mechanism(_entries_of_sequences(records))
        answer = answer.tolist() if hasattr(answer, "tolist") else answer  # NumPy's
        values = answer if isinstance(answer, list | tuple) else [answer]
        try:
            exact = [Fraction(value) for value in values]
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{self.name} did not answer with a finite number, or a list of them; nothing "
                "else can be released"
            ) from None
        step = common_step(exact)
        labels = (self.name,) if len(exact) == 1 else tuple(str(i) for i in range(len(exact)))
        multiples = tuple(int(value / step) for value in exact)
        return Answer(labels, multiples, step, "as the mechanism gives it")

    def error(self, confidence: float) -> Error | None:
        """None: only the mechanism knows its error."""
        return None

    def describe(self) -> str:
        return f"{self.name}, {significant(self.eta)}-DP for one entry"


def _entries_of_sequences(records: Sequences) -> list[Any]:
    names: list[Any] = list(records.states)
    if all(re.fullmatch("-?[0-9]+", name) for name in names):
        names = [int(name) for name in names]
    return [names[index] for chain in records.chains for index in chain]


# Queries asked in rounds: each round's question depends on the noisy answers before it.


Answered = tuple[tuple[int, ...], ...]


@runtime_checkable
class InRounds(Protocol):
    """A query whose `labels`, `lipschitz` and answers are those of all rounds together.

    `lipschitz` is the sum over the rounds of the most one entry moves that round's question in
    the l1 norm, for any answers before it.
    """

    @property
    def rounds(self) -> int: ...
    def ask(self, records: Any, answered: Answered) -> tuple[int, ...]:
        """The true answer of the next round in multiples of `lattice`, given earlier answers."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Rounds(Additive):
    """Lattice noise on every round's answer, drawn before the next round is asked.

    Entry-level DP with eta = lipschitz / scale, all rounds together: given the answers before it,
    round r is (L_r / scale)-DP, and such promises add adaptively (Dwork & Roth 2014, Section 3.5).
    """

    kind = "rounds"

    def __post_init__(self) -> None:
        if self.noise.step != self.query.lattice:
            raise InputError(
                f"noise step is {self.noise.step}; queries in rounds need their own lattice "
                f"{self.query.lattice}, on which the next round is asked"
            )

    def draw(self, records: Any, rng: Rng) -> Answer:
        """All rounds' noisy answers, one after the other. Charge the ledger before calling this."""
        assert isinstance(self.query, InRounds)  # `sampler_for` chooses this body for no other
        answered: Answered = ()
        for _ in range(self.query.rounds):
            truth = self.query.ask(records, answered)
            noise = self.noise.draw(len(truth), rng)
            answered += (tuple(t + int(z) for t, z in zip(truth, noise, strict=True)),)
        values = tuple(value for answer in answered for value in answer)
        return Answer(self.query.labels, values, self.noise.step, self.query.unit)


def sampler_for(query: Query, noise: Noise) -> Additive:
    """What draws `query` plus `noise`: in rounds or in steps where the query is asked so."""
    own: Callable[[Noise], Additive] | None = getattr(query, "sampler", None)
    if own is not None:
        return own(noise)
    return Rounds(query, noise) if isinstance(query, InRounds) else Additive(query, noise)


def split_rounds(values: Sequence[int], rounds: int) -> Answered:
    """The answers of all rounds in a row, cut into rounds of equal length."""
    size = len(values) // rounds
    return tuple(tuple(values[r * size : (r + 1) * size]) for r in range(rounds))


# What all rows with additive Laplace noise share: from a scale to a plan, and back.


NOISE_SERVES = ("entry-dp", "group", "pufferfish", "dependent")  # notions of a noisy number


def laplace_plan(
    task: Task,
    mechanism: str,
    guarantee: Guarantee,
    scale: Fraction | float,
    certificate: Certificate,
    *,
    rules: Callable[[Fraction], tuple[Composition, ...]] = lambda eta: (),
) -> Plan:
    """A plan that adds lattice Laplace noise of at least `scale` (in the query's units).

    The scale is rounded up to a rational. Drawn on a lattice that holds every answer, the noise
    has the density of continuous Laplace noise at a subset of its outputs, with one normaliser for
    all answers, so its loss is at most that of the continuous noise. The plan always carries
    `AsEntryDP(eta)`, eta = L / scale, from any calibration, after its mechanism's own `rules`.
    """
    noise = LatticeLaplace(scale=round_up(scale), step=task.query.lattice)
    return noisy_plan(task, mechanism, guarantee, noise, certificate, rules=rules)


def noisy_plan(
    task: Task,
    mechanism: str,
    guarantee: Guarantee,
    noise: Noise,
    certificate: Certificate,
    *,
    rules: Callable[[Fraction], tuple[Composition, ...]] = lambda eta: (),
) -> Plan:
    """A plan that adds `noise`, whose entry-level eta is the query's Lipschitz constant / scale."""
    body = sampler_for(task.query, noise)
    return Plan(
        mechanism=mechanism,
        task=task,
        body=body,
        cost=noise.expected_error() * len(task.query.labels),
        guarantee=guarantee,
        certificate=certificate,
        composition=(*rules(body.eta), AsEntryDP(body.eta)),
    )


def task_guarantee(task: Task, epsilon: Fraction) -> Guarantee:
    """The promise the secrets of `task` ask for, under every model of its family."""
    return Guarantee(
        notion=task.secrets.notion,
        amount=epsilon,
        over=f"{task.secrets.subject}, under every model of the family",
    )


def entry_dp(task: Task, epsilon: Fraction) -> Guarantee:
    """Ordinary differential privacy for one entry, which says nothing about correlation."""
    return Guarantee(notion="entry-dp", amount=epsilon, over="one entry when all others are fixed")


def refuse_noise(task: Task) -> str | None:
    """Why noise cannot serve the task: it has no number, or its secrets ask for another notion.

    None when noise can; a row's own conditions come after this one.
    """
    if task.query.lipschitz == 0:
        return "the query has no number to add noise to: a stream shows states as they are"
    if task.secrets.notion not in NOISE_SERVES:
        return f"the secrets ask for {task.secrets.notion}, which noise on one number does not give"
    return None


def of_each(family: Sequence[Model], row: str, ask: Callable[[Model], Found | str]) -> list[Found]:
    """What every model answers; Refused where one of them has a sentence for the row instead."""
    found = []
    for model in family:
        answer = ask(model)
        if isinstance(answer, str):
            raise Refused(f"{row} does not apply: {answer}")
        found.append(answer)
    return found


def keeps_total(query: Query) -> bool:
    """Whether every entry adds the same to the sum of all coordinates, so that it is public."""
    asked = linear(query)
    return (
        asked is not None
        and len(asked.labels) > 1
        and len({sum(row) for row in asked.weights}) == 1
    )


def entry_level(plan: Plan) -> Fraction:
    """The entry-level eta of what a plan draws, not of what it says: L / scale, or what is vouched.

    PromiseBroken where it draws no such thing. An external mechanism has the eta it is held to.
    """
    if isinstance(plan.body, Measured) and isinstance(plan.task.query, ExternalQuery):
        return plan.body.eta
    return additive_body(plan).eta


def additive_body(plan: Plan) -> Additive:
    """The body of a plan that draws its task's query with noise that is (L / scale)-DP on it.

    PromiseBroken tells when it draws something else: nothing would follow from its scale.
    """
    body, query = plan.body, plan.task.query
    if not isinstance(body, Additive):
        raise PromiseBroken(f"{plan.mechanism} draws a {type(body).__name__}, which adds no noise")
    if body.query != query or type(body) is not type(sampler_for(query, body.noise)):
        raise PromiseBroken(
            f"the plan of {plan.mechanism} draws another query than its task asks for; "
            "its promise says nothing about that"
        )
    if not _entry_noise(body.noise, query):
        raise PromiseBroken(
            f"the plan of {plan.mechanism} draws {type(body.noise).__name__} noise, which is not "
            "L / scale private for one entry of this query"
        )
    return body


def laplace_body(plan: Plan) -> Additive:
    """`additive_body` of a plan whose noise is independent Laplace noise; PromiseBroken else."""
    body = additive_body(plan)
    if not is_laplace(body.noise):
        raise PromiseBroken(
            f"{plan.mechanism} speaks about independent Laplace noise only, and this plan draws "
            f"{body.describe()}"
        )
    return body


def entry_rules(plan: Plan) -> tuple[Composition, ...]:
    """What every additive plan adds by: `AsEntryDP` of what it draws."""
    return (AsEntryDP(entry_level(plan)),)


def _entry_noise(noise: Noise, query: Query) -> bool:
    """Whether noise of its scale is (L / scale)-DP for one entry of `query`."""
    if is_zero_sum(noise):
        return keeps_total(query) and noise.dimension == len(query.labels)
    return is_laplace(noise)


def float_below(value: Fraction) -> float:
    """The largest double that is not above `value`: a budget or a scale rounds down."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def eta_above(eta: Fraction) -> float:
    """The least double that is not below `eta`, so that a loss evaluated at it rounds up."""
    nearest = float(eta)
    return nearest if Fraction(nearest) >= eta else math.nextafter(nearest, math.inf)


MOST_PUSHES = 24  # each four times the last, from 2^-42 on: the end is far beyond any rounding


def accepted_scale(
    name: str, loss_at: Callable[[Fraction], float], scale: Fraction, epsilon: Fraction
) -> Fraction:
    """About the least scale, from `scale` on, that the re-check `loss_at` finds to be enough.

    A search accepts a scale by its own evaluation, model by model. A later check looks at all
    of them at the largest scale, may take other windows or begin a fixed point elsewhere, and
    rounds up by another 1e-17 to 1e-13: next to nothing of a loss of 1, and much of a tiny budget.
    Refused where that is all of it.
    """
    push, enough = 2.0**-42, float_below(epsilon)
    for _ in range(MOST_PUSHES):
        with no_time_limit():  # as a later check does
            found = loss_at(scale)
        if found <= enough:
            return scale
        if not math.isfinite(found):
            break
        scale *= Fraction(found / enough) * Fraction(1 + push)
        push *= 4
    raise Refused(f"{name} does not apply: {below_rounding(epsilon)}")


def below_rounding(epsilon: Fraction) -> str:
    """Why a row has nothing for a tiny budget."""
    return (
        f"a budget of {float(epsilon):g} is less than what its own evaluation rounds up by; take "
        "a larger epsilon"
    )


# A mechanism is a row of pure functions; a plan is what a row makes of a task.


class Mechanism(NamedTuple):
    """One row of the table.

    `refuse` is quick and looks only at the shape of the task; `calibrate` may still raise
    `Refused` when its own computation shows that no finite noise is enough. `amount` is epsilon,
    or delta for contexts. `loss` re-evaluates the promise of a finished plan in the same unit,
    from its task and what it draws. `promise` is what a plan of this row may say for a task and an
    amount, and `rules` the theorems that add it to others, from its task and what it draws: nothing
    a plan says about itself is believed. Where its plans serve only part of the data the task
    covers, such as one series, it `narrows` it, and "best" leaves it aside. A `retired` mechanism
    says why it makes no new plans; `loss`, `promise` and `rules` still serve its stored plans.

    Two functions keep "best" from calibrating what cannot win. `beaten_by` names the mechanisms
    that never cost more on a task where they have a plan. `costs_more` says whether the plan for a
    task and an amount is known to cost more than a given cost, before it is calibrated.
    """

    name: str
    refuse: Callable[[Task], str | None]
    calibrate: Callable[[Task, Fraction], Plan]
    loss: Callable[[Plan], float]
    promise: Callable[[Task, Fraction], Guarantee] = task_guarantee
    rules: Callable[[Plan], tuple[Composition, ...]] = entry_rules
    narrows: Callable[[Task], bool] = lambda task: False
    retired: str = ""
    beaten_by: Callable[[Task], tuple[str, ...]] = lambda task: ()
    costs_more: Callable[[Task, Fraction, float], bool] = lambda task, amount, cost: False


# How likely a released value is close: (α, β)-accuracy, read off a plan.


BISECTIONS = 60  # bisections of a probability: a double has no more


def accuracy(plan: Plan, within: Number) -> float:
    """The probability 1 - β that one released value is off by at most α = `within`, rounded down.

    In the query's unit, over the randomness of the noise, for every data set: what
    `plan.error(confidence)` says, turned round. For Laplace noise of scale σ it is
    1 - exp(-α/σ), a little more on a lattice. Liu, Chakraborty & Mittal 2016, Definition 5 and
    Theorem 10, which writes DS/ε for σ.
    """
    wanted = positive(within, "within")
    if plan.error() is None:
        raise Refused(f"a {plan.mechanism} plan cannot state its error, so it has no accuracy")
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _error_bound(plan, middle) <= wanted else (low, middle)
    return low


def accuracy_of_laplace(scale: float, within: float) -> float:
    """1 - exp(-within/scale): the same for Laplace noise on the real line, before any plan."""
    if not (scale > 0 and within > 0):
        raise InputError(f"scale is {scale} and within {within}; both must be greater than 0")
    return -math.expm1(-within / scale)


def _error_bound(plan: Plan, confidence: float) -> float:
    error = plan.error(confidence)
    assert error is not None  # asked for once already
    return error.bound


# Ordinary differential privacy for one entry: what people use today. Proof: laplace.md.


LAPLACE = "laplace"


@dataclass(frozen=True, slots=True, eq=False)
class LaplaceCertificate(Proof):
    """The sensitivity and the scale; epsilon = lipschitz / scale."""

    kind = "laplace-certificate"

    lipschitz: Fraction

    THEOREM: ClassVar[str] = (
        "the Laplace mechanism (Dwork, McSherry, Nissim & Smith 2006, Proposition 1)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "protects one entry only against an adversary for whom the entries are independent, "
        "or who already knows all others; correlation makes it weaker, see `shoal leak`",
    )


def calibrate_laplace(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L/ε: ε-DP for one entry, silent about correlation."""
    lipschitz = task.query.lipschitz
    certificate = LaplaceCertificate(lipschitz)
    return laplace_plan(task, LAPLACE, entry_dp(task, epsilon), lipschitz / epsilon, certificate)


def entry_loss(plan: Plan) -> float:
    """L / scale, the entry-level epsilon of the noise as drawn. Rounds up."""
    return eta_above(entry_level(plan))


LAPLACE_ROW = Mechanism(LAPLACE, refuse_noise, calibrate_laplace, entry_loss, entry_dp)


# K-norm noise for histograms: entry-level DP that keeps the public total. Proof: knorm.md.


KNORM = "knorm"


@dataclass(frozen=True, slots=True, eq=False)
class KNormCertificate(Proof):
    """The l1 sensitivity; every change lies in the plane Σv = 0, where the noise lives too."""

    kind = "k-norm-certificate"

    lipschitz: Fraction

    THEOREM: ClassVar[str] = (
        "the K-norm mechanism (Hardt & Talwar 2010) with K = conv{e_i - e_j}, the sensitivity "
        "hull of a histogram (Xiao 2017, Example 3.1)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "the total number of entries is public",
        "protects one entry only against an adversary for whom the entries are independent, "
        "or who already knows all others; correlation makes it weaker, see `shoal leak`",
    )


def least_error_noise(query: Query, scale: Fraction | float) -> Noise:
    """The noise of least error that is (L / scale)-DP for one entry: zero-sum where it applies."""
    if keeps_total(query):
        return ZeroSumLaplace(round_up(scale), query.lattice, len(query.labels))
    return LatticeLaplace(round_up(scale), query.lattice)


def refuse_knorm(task: Task) -> str | None:
    if not keeps_total(task.query):
        return "the answer has no public total; K-norm noise here is for histograms of all states"
    return refuse_noise(task)


def calibrate_knorm(task: Task, epsilon: Fraction) -> Plan:
    """Zero-sum Laplace noise of scale L/ε: ε-DP for one entry, silent about correlation."""
    lipschitz = task.query.lipschitz
    noise = least_error_noise(task.query, lipschitz / epsilon)
    return noisy_plan(task, KNORM, entry_dp(task, epsilon), noise, KNormCertificate(lipschitz))


KNORM_ROW = Mechanism(KNORM, refuse_knorm, calibrate_knorm, entry_loss, entry_dp)


# Group privacy: noise for all tied entries at once. Proof: group.md.


GROUP = "group"


@dataclass(frozen=True, slots=True, eq=False)
class GroupCertificate(Proof):
    """The number of entries that may change together, and what one of them moves.

    `moved` is what all of them move together, where that is less than their number times one.
    """

    kind = "group-certificate"

    tied: int
    lipschitz: Fraction
    moved: Fraction | None = field(default=None, metadata={"later": True})

    @property
    def theorem(self) -> str:
        most = f"{self.tied} × {self.lipschitz}" if self.moved is None else str(self.moved)
        return (
            f"group privacy: changing all {self.tied} tied entries moves the answer by at most "
            f"{most} (Song, Wang & Chaudhuri 2017, Section 3.1)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"no more than {self.tied} entries depend on each other; separate chains are "
            "independent. Nothing is assumed about how they depend",
        )


def refuse_group(task: Task) -> str | None:
    if task.tied is None:
        return "a model of any length ties unlimited entries together; give it a length"
    return refuse_noise(task)


def calibrate_group(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale Δ/ε, Δ what n tied entries move: sound under any law."""
    tied, lipschitz = tied_entries(task), task.query.lipschitz
    moved = moved_together(task.query, tied)
    certificate = GroupCertificate(tied, lipschitz, None if moved == tied * lipschitz else moved)
    return laplace_plan(
        task,
        GROUP,
        group_promise(task, epsilon),
        moved / epsilon,
        certificate,
        rules=lambda eta: (AsGroupDP(moved * eta / lipschitz),),
    )


def group_promise(task: Task, epsilon: Fraction) -> Guarantee:
    """Group privacy for as many entries as the task ties together."""
    over = f"any or all of {tied_entries(task)} tied entries"
    return Guarantee(notion="group", amount=epsilon, over=over)


def group_rules(plan: Plan) -> tuple[Composition, ...]:
    """Δ/scale for all n tied entries at once, and eta for one."""
    return (AsGroupDP(together(plan, tied_entries(plan.task))), *entry_rules(plan))


def group_loss(plan: Plan) -> float:
    """Δ/scale, Δ what the tied entries of the plan's own task move. Rounds up."""
    return eta_above(together(plan, tied_entries(plan.task)))


def together(plan: Plan, entries: int) -> Fraction:
    """What a plan tells about up to `entries` entries at once: at most `entries` times its eta."""
    eta, query = entry_level(plan), plan.task.query
    return eta * min(Fraction(entries), moved_together(query, entries) / query.lipschitz)


def tied_entries(task: Task) -> int:
    """n, the most entries that depend on each other; refused where there is no limit."""
    if task.tied is None:
        raise Refused(f"{GROUP} does not apply: {refuse_group(task)}")
    return task.tied


GROUP_ROW = Mechanism(GROUP, refuse_group, calibrate_group, group_loss, group_promise, group_rules)
