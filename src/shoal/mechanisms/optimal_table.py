"""The best release of one small number of any kind: a table of laws. Proof: optimal_table.md.

    P(output = o | answer = a) = weights[a][o] / whole,   found by a linear program,

whose largest expected error over all answers is the least there is. What the program's solver says
is never believed: its numbers are rounded to whole ones, mixed with the law that ignores the answer
until every ratio is proved, and drawn exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, permutations
from typing import Any, ClassVar, NamedTuple

import numpy as np

from shoal.core.charge import AsEntryDP, Composition, Rng
from shoal.core.codec import Floats, Ints, Value
from shoal.core.errors import DataError, InputError, PromiseBroken, Refused
from shoal.core.numbers import significant
from shoal.core.plan import Answer, Error, Plan, Proof
from shoal.core.progress import LAST_EVALUATION, evaluation_in_time, time_left
from shoal.core.task import Query, Task
from shoal.mechanisms import exact
from shoal.mechanisms.answer_laws import AnswerWeights, ValueWeights, answer_weights
from shoal.mechanisms.exact import TABLE, narrows, refuse_table
from shoal.mechanisms.plans import entry_level, float_below, task_guarantee
from shoal.noise.primitives import uniform_below

WHOLE = 2**48  # what the weights of a law add up to: one random word decides a draw
KEPT_BACK = 1e-7  # of epsilon, for the solver's tolerance
SHARES_MIXED_IN = tuple(
    10.0**-n for n in (8, 7, 6, 5, 4, 3, 2, 1)
)  # of the law that ignores the answer
QUICK = 17  # answers of a program that takes a few hundredths of a second
LARGEST_LOG_RATIO = 30.0  # log-ratios the program is given: e^30 is beyond what its solver resolves
LEAST_ETA = Fraction(1, 10**9)  # a rule of addition needs one above 0
FRACTION_BITS = 256  # of a probability when two are compared: far below any that is drawn


@dataclass(frozen=True, slots=True, eq=False)
class Tabulated(Value):
    """For each answer, in lattice steps, the weights of the outputs, which are the answers too.

    `entries` is how many entries the data must have, in one series; with `shorter` the most.
    """

    kind = "tabulated"

    query: Query
    answers: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]
    entries: int
    shorter: bool = field(default=False, metadata={"later": True})
    _sums: dict[int, list[int]] = field(
        init=False, repr=False, default_factory=dict, metadata={"stored": False}
    )

    def __post_init__(self) -> None:
        """Refuse a table that is no law of the output for each answer.

        There must be two answers or more, in increasing order, and one row of as many whole numbers
        for each, not below 0, with the sum WHOLE.
        """
        count = len(self.answers)
        if count < 2 or any(a >= b for a, b in zip(self.answers, self.answers[1:], strict=False)):
            raise InputError("answers must be two or more, in increasing order")
        if len(self.weights) != count or any(len(row) != count for row in self.weights):
            raise InputError(f"weights must be {count} rows of {count}, one for each answer")
        for row in self.weights:
            if any(type(w) is not int or w < 0 for w in row) or sum(row) != WHOLE:
                raise InputError(f"each row of weights must be whole, not below 0, and sum {WHOLE}")
        if type(self.shorter) is not bool:
            raise InputError(f"shorter is {self.shorter!r}; it must be True or False")
        if type(self.entries) is not int or self.entries < 1:
            raise InputError(f"entries is {self.entries!r}; it must be a whole number above 0")
        for answer, row in zip(self.answers, self.weights, strict=True):
            self._sums[answer] = list(accumulate(row))

    def draw(self, records: Any, rng: Rng) -> Answer:
        """One output by the law of the true answer. Charge the ledger before calling this."""
        fits = records.total <= self.entries if self.shorter else records.total == self.entries
        if len(records.chains) != 1 or not fits:
            size = "at most " if self.shorter else ""
            raise DataError(
                f"the table is about one series of {size}{self.entries} entries; give just that, "
                "or calibrate with mechanism 'exact', which takes several ones"
            )
        (truth,) = self.query.evaluate(records)
        place = bisect_right(self._sums[truth], uniform_below(WHOLE, rng))
        chosen = (self.answers[place],)
        return Answer(self.query.labels, chosen, self.query.lattice, self.query.unit)

    def error(self, confidence: float) -> Error:
        """The error at the answer where it is largest: expected, and at `confidence`."""
        step = float(self.query.lattice)
        return Error(
            expected=math.nextafter(float(max(self.errors())) * step, math.inf),
            bound=max(self._quantile(a, confidence) for a in self.answers) * step,
            confidence=confidence,
            unit=self.query.unit,
        )

    @property
    def eta(self) -> Fraction | None:
        """Entry-level DP: max over outputs, and answers at most L apart, of log P(o|a)/P(o|a').

        Rounds up. None where an output is possible at one of them and not at the other.
        """
        reach = self.query.lipschitz / self.query.lattice
        pairs = [
            pair
            for (one, top), (two, bottom) in permutations(
                zip(self.answers, self.weights, strict=True), 2
            )
            if abs(one - two) <= reach
            for pair in zip(top, bottom, strict=True)
        ]
        if any(above and not below for above, below in pairs):
            return None
        worst = max((Fraction(above, below) for above, below in pairs if below), default=1)
        return max(Fraction(_log_up(max(Fraction(worst), Fraction(1)))), LEAST_ETA)

    def errors(self) -> list[Fraction]:
        """E|output - a| for every answer a, in lattice steps."""
        return [
            Fraction(sum(w * abs(o - a) for o, w in zip(self.answers, row, strict=True)), WHOLE)
            for a, row in zip(self.answers, self.weights, strict=True)
        ]

    def mean_error(self, task: Task) -> float:
        """The expected error under the models of `task`, in the query's unit."""
        errors = np.array([float(error) for error in self.errors()])
        prior = answer_weights(task, self.shorter).prior()
        return float(prior @ errors) * float(self.query.lattice)

    def log_likelihood(self, output: tuple[int, ...]) -> Callable[[Ints], Floats]:
        """log P(output | sum) for rows of sums in lattice steps; -inf for sums no answer has."""
        place = self.answers.index(output[0])
        with np.errstate(divide="ignore"):
            log_weights = np.log([float(row[place] / WHOLE) for row in self.weights])
        logs = dict(zip(self.answers, log_weights.tolist(), strict=True))
        return lambda sums: np.array([logs.get(int(total), -math.inf) for total in sums[:, 0]])

    def _quantile(self, answer: int, confidence: float) -> int:
        """The least distance within which the output is with at least this probability."""
        row = self.weights[self.answers.index(answer)]
        mass = Fraction(0)
        for distance, weight in sorted(
            (abs(o - answer), w) for o, w in zip(self.answers, row, strict=True)
        ):
            mass += weight
            if mass >= Fraction(confidence) * WHOLE:
                return distance
        return self.answers[-1] - self.answers[0]

    def describe(self) -> str:
        """Return in words how many answers the table has and its mean error at the worst of
        them.
        """
        size = f" over at most {self.entries} entries" if self.shorter else ""
        return (
            f"a law of the output for each of {len(self.answers)} answers{size}, off by "
            f"{significant(max(self.errors()) * self.query.lattice)} {self.query.unit} on average "
            "at the worst answer"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimalTableCertificate(Proof):
    """What the program said, in the query's unit: the least worst-case error of such a table, and
    `any_release` what no release of the answer is proved to be below, whatever it tells of one
    entry to somebody who knows all others. `eta` limits that here; `mixed` is the share of the law
    that ignores the answer."""

    kind = "optimal-table-certificate"

    least_error: float
    any_release: float
    eta: float
    mixed: float

    THEOREM: ClassVar[str] = (
        "a table of laws keeps epsilon iff every output's probabilities under two secrets are "
        "within a factor of e^epsilon, which was checked in whole numbers; its largest expected "
        "error over the answers is the least a linear program allows (proof in optimal_table.md)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "the data follows one of the family's laws, and is one series of a size the table is for",
        "nothing else about the same data is released, or it is added up as entry-level DP",
    )


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """The table whose largest expected error is least, certified after rounding."""
    shorter = narrows(task)
    weights = answer_weights(task, shorter)
    limit = _entry_limit(task, epsilon)
    found = _program(task, float_below(epsilon), limit, shorter)
    body, mixed = _certify_table(task, weights, shorter, found.table, (float_below(epsilon), limit))
    step = float(task.query.lattice)
    certificate = OptimalTableCertificate(
        least_error=found.error * step,
        any_release=least_error(task, epsilon),
        eta=limit,
        mixed=mixed,
    )
    assert body.eta is not None  # rounding leaves no weight at 0
    return Plan(
        mechanism=TABLE,
        task=task,
        body=body,
        cost=body.error(0.5).expected,
        guarantee=task_guarantee(task, epsilon),
        certificate=certificate,
        composition=(AsEntryDP(body.eta),),
    )


def loss(plan: Plan) -> float:
    """The largest log-ratio of an output between two values of an entry, in whole numbers.

    inf where an output is possible under one value and not under the other. Rounds up.
    """
    body = _table_of(plan)
    if body.shorter and not narrows(plan.task):
        raise PromiseBroken("the table is about data of several sizes, and a model fixes the size")
    weights = answer_weights(plan.task, body.shorter)
    if (body.answers, body.entries) != (weights.answers, weights.entries):
        raise PromiseBroken("the table is about other answers than the task's data can have")
    return _table_loss(body, weights)


def rules(plan: Plan) -> tuple[Composition, ...]:
    """Entry-level DP of the largest log-ratio between answers one entry can be apart."""
    eta = _table_of(plan).eta
    if eta is None:
        raise PromiseBroken("an output of the table tells two answers one entry apart for certain")
    return (AsEntryDP(eta),)


def least_error(task: Task, epsilon: Fraction) -> float:
    """A worst-case error that no release of the answer that keeps ε is below, in the query's unit.

    That of data of the largest size alone: what serves every size serves that one.
    Proved by the dual of the program (optimal_table.md, Claim 7), about a millionth below the
    least. Rounds down. The task is one the row takes.
    """
    found = _program(task, float_below(epsilon), None, False)
    return found.proved * float(task.query.lattice) * (1 - 2.0**-50)


def least_known(plan: Plan) -> float | None:
    """`least_error` of the plan's task and promise where it is found at once; None elsewhere.

    Only of promises of one number that protect what the task's secrets ask for.
    """
    task, promise = plan.task, plan.guarantee
    fits = promise.proved and promise.gives(task.secrets.notion) and refuse_table(task) is None
    if not fits or len(answer_weights(task).answers) > QUICK:
        return None
    return least_error(task, promise.amount)


def _table_of(plan: Plan) -> Tabulated:
    """Return the table that a plan draws; PromiseBroken when it is no table or of another query."""
    body = plan.body
    if not isinstance(body, Tabulated):
        raise PromiseBroken(f"{plan.mechanism} draws a {type(body).__name__}, which is no table")
    if body.query != plan.task.query:
        raise PromiseBroken(
            f"the plan of {plan.mechanism} draws another query than its task asks for; "
            "its promise says nothing about that"
        )
    return body


def _entry_limit(task: Task, epsilon: Fraction) -> float:
    """The entry-level eta the table may have: ε, or that of `exact` where it is larger."""
    limit = float_below(epsilon)
    with suppress(Refused):  # where no noise is enough a table may be
        limit = max(limit, float(entry_level(exact.calibrate(task, epsilon))))
    return min(limit, LARGEST_LOG_RATIO)


# The promise, in whole numbers.


def _table_loss(body: Tabulated, weights: AnswerWeights) -> float:
    columns = list(zip(*body.weights, strict=True))
    return max((_entry_loss(law, columns) for law in weights.laws), default=0.0)


def _entry_loss(law: ValueWeights, columns: list[tuple[int, ...]]) -> float:
    """The loss about one entry: over outputs, the largest probability over the least."""
    if len(law.rows) < 2:
        return 0.0
    worst = Fraction(1)
    for column in columns:
        chances = [
            (sum(map(int.__mul__, row, column)) << FRACTION_BITS) // total
            for row, total in zip(law.rows, law.totals, strict=True)
        ]
        low, high = min(chances), max(chances)
        if low == 0 and high > 0:
            return math.inf
        if low > 0:
            worst = max(worst, Fraction(high + 1, low))  # each is cut off below its last bit
    return _log_up(worst) + 8.0 * law.error if worst > 1 or law.error else 0.0


def _log_up(ratio: Fraction) -> float:
    """log(ratio) of a ratio of at least 1; rounds up."""
    nearest = math.nextafter(float(ratio), math.inf)
    return math.nextafter(math.log(nearest) * (1.0 + 2.0**-51), math.inf)


def _certify_table(
    task: Task,
    weights: AnswerWeights,
    shorter: bool,
    table: Floats,
    within: tuple[float, float],
) -> tuple[Tabulated, float]:
    """The table in whole numbers, with as little mixed in as proves its promise.

    `within` are the loss and the entry-level eta it may have.
    """
    epsilon, limit = within
    for share in SHARES_MIXED_IN:
        body = _round_table(task, weights, shorter, (1 - share) * table + share / len(table))
        if body.eta is not None and body.eta <= limit and _table_loss(body, weights) <= epsilon:
            return body, share
    level = np.full_like(table, 1 / len(table))
    return _round_table(
        task, weights, shorter, level
    ), 1.0  # tells nothing, so it keeps every promise


def _round_table(task: Task, weights: AnswerWeights, shorter: bool, table: Floats) -> Tabulated:
    """Each row in whole numbers that add up to WHOLE; what is left over goes to its largest."""
    rows = []
    for law in table:
        whole = [max(int(share * WHOLE), 1) for share in law / law.sum()]
        whole[int(np.argmax(law))] += WHOLE - sum(whole)
        rows.append(tuple(whole))
    return Tabulated(task.query, weights.answers, tuple(rows), weights.entries, shorter)


# The linear program.


class BestTable(NamedTuple):
    """The solver's table, (answers, outputs), and its largest expected error in lattice steps.

    No table of any kind has one below `proved`; 0 where the entry level is limited.
    """

    table: Floats
    error: float
    proved: float = 0.0


@lru_cache(maxsize=64)
def _program(task: Task, epsilon: float, limit: float | None, shorter: bool) -> BestTable:
    """min t with E|output - a| ≤ t for every answer a; then the least error under the prior.

    p[a, o] ≥ 0 with rows that add up to 1; for every entry, two values of it and every output
    Σ_a (P(a | x) - e^ε P(a | x')) p[a, o] ≤ 0; p[a, o] ≤ e^limit p[a', o] for answers one entry can
    be apart, unless `limit` is None. With `shorter` for the entries of every smaller size of data
    too. Solved by HiGHS.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

    weights = answer_weights(task, shorter)
    count = len(weights.answers)
    rows = _comparisons(task, weights, epsilon, limit)
    private = kron(eye_array(count), csr_array(rows))
    far = np.abs(np.subtract.outer(weights.answers, weights.answers)).astype(np.float64)
    # variables run over outputs, and over answers within each; the largest error comes last
    errors = hstack([csr_array(np.diag(far[:, o])) for o in range(count)])
    below = vstack([private, errors])
    least = csr_array(([-1.0] * count, (range(private.shape[0], below.shape[0]), [0] * count)))
    whole = kron(np.ones((1, count)), eye_array(count))
    matrix = hstack([below, csr_array(least, shape=(below.shape[0], 1))]).tocsr()
    equal = hstack([whole, csr_array((count, 1))]).tocsr()
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    left = time_left()
    tight |= {} if left is None else {"time_limit": left + LAST_EVALUATION}
    fixed = {"A_ub": matrix, "b_ub": np.zeros(below.shape[0]), "A_eq": equal, "options": tight}
    fixed |= {"b_eq": np.ones(count), "method": "highs"}
    target = np.zeros(count * count + 1)
    target[-1] = 1.0
    first = linprog(target, bounds=(0, None), **fixed)
    evaluation_in_time("the linear program")
    if first.x is None:
        raise Refused(
            f"{TABLE} does not apply: the linear program was not solved ({first.message})"
        )
    most = float(first.x[-1])
    usual = np.append((weights.prior()[:, None] * far).T.ravel(), 0.0)
    bounds = [(0, None)] * (count * count) + [(0, most * (1 + 1e-9) + 1e-12)]
    second = linprog(usual, bounds=bounds, **fixed)
    evaluation_in_time("the linear program")
    chosen = (first if second.x is None else second).x[:-1]
    table = np.maximum(chosen.reshape(count, count).T, 0.0)
    proved = 0.0
    if limit is None:
        prices = np.maximum(-first.ineqlin.marginals, 0.0)
        unsure = max((law.error for law in weights.laws), default=0.0)
        proved = _dual_bound(rows, far, prices, epsilon, unsure)
    return BestTable(table / table.sum(axis=1, keepdims=True), most, proved)


def _dual_bound(rows: Floats, far: Floats, prices: Floats, epsilon: float, unsure: float) -> float:
    """A lower bound of the program's value from any `prices` that are not negative; rounds down.

    Σ_a min_o (z[a] |o - a| + Σ_r y[o, r] R[r, a]), Σ z ≤ 1, with rows R no larger than the true
    P(a | x) - e^ε P(a | x'): those given are by at most `below` (optimal_table.md, Claim 7).
    """
    count, kinds = len(far), len(rows)
    if epsilon > LARGEST_LOG_RATIO:
        return 0.0
    prices = prices / max(float(prices[-count:].sum()) * (1 + 2.0**-50 * count), 1.0)
    y, z = prices[:-count].reshape(count, kinds), prices[-count:]
    below = (1 + math.exp(epsilon)) * (4e-14 + 8.0 * unsure)
    total = z * far + y @ rows - below * y.sum(axis=1, keepdims=True)
    sizes = z * far + y @ np.abs(rows) + below * y.sum(axis=1, keepdims=True)
    total -= (kinds + 8) * 2.0**-51 * sizes
    least = total.min(axis=0)
    return max(float(least.sum() - count * 2.0**-51 * np.abs(least).sum()), 0.0)


def _comparisons(task: Task, weights: AnswerWeights, epsilon: float, limit: float | None) -> Floats:
    """The rows c with Σ_a c[a] p[a, o] ≤ 0 for every output o; nothing is kept back for a bound."""
    kept = 0.0 if limit is None else KEPT_BACK
    factor = math.exp(min(epsilon * (1 - kept), LARGEST_LOG_RATIO))
    rows = [np.zeros(len(weights.answers))]
    for law in weights.laws:
        chances = law.as_floats()
        rows += [
            one - factor * two
            for i, one in enumerate(chances)
            for j, two in enumerate(chances)
            if i != j
        ]
    if limit is not None:
        reach = task.query.lipschitz / task.query.lattice
        near = np.abs(np.subtract.outer(weights.answers, weights.answers))
        for a, b in np.argwhere((near > 0) & (near <= float(reach))):
            row = np.zeros(len(weights.answers))
            row[a], row[b] = 1.0, -math.exp(limit * (1 - KEPT_BACK))
            rows.append(row)
    return np.unique(np.round(np.array(rows), 14), axis=0)
