"""Releases as black boxes: sequences in, numbers out, many at a time and on several processors."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from shoal.audit.fact_pairs import Draw, Pool
from shoal.core.charge import Rng, SystemRng
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.numbers import positive, significant
from shoal.core.plan import Additive, Plan, Sampler
from shoal.core.records import Sequences
from shoal.mechanisms.lift import entry_eta
from shoal.mechanisms.queries import LinearQuery, linear
from shoal.noise.laplace import is_zero_sum
from shoal.noise.primitives import SeededRng

# sequences released together; the chunks, not the processors, decide the seeds
RELEASED_TOGETHER = 1000
CHUNK_ENTRIES = 2_000_000  # of long sequences, fewer
CALL = 300  # entries that progress counts for the call itself

CANNOT_TRAVEL = (pickle.PicklingError, AttributeError, TypeError, ValueError, RuntimeError, OSError)
LONGEST_QUOTE = 60  # characters of data or outputs quoted in a message

Progress = Callable[[int, int], None]  # how far, of how much: draws in all


class BlackBox(Protocol):
    """A release as the auditor sees it."""

    def draw(self, paths: Ints, seed: int) -> Floats:
        """One output per row of state indices, (rows, numbers)."""
        ...


@dataclass(frozen=True, slots=True)
class PlanBox:
    """A plan's own release, by the code that draws its noise, under seeds."""

    plan: Plan

    @property
    def seeded(self) -> bool:
        """Whether its outputs follow from a seed; mechanisms from outside draw by themselves."""
        return not getattr(self.plan.body, "own_randomness", False)

    def draw(self, paths: Ints, seed: int) -> Floats:
        """Return one output per row of `paths`, as floats of shape (paths, labels).

        `paths` (paths, entries) holds state indices. Additive noise on a sum is drawn for all paths
        at once in exact lattice units; other plans release one path at a time. `seed` has no effect
        on plans with randomness of their own.
        """
        body = self.plan.body
        rng: Rng = SeededRng(seed)
        query = linear(body.query) if type(body) is Additive else None
        if type(body) is not Additive or query is None:
            own = rng if self.seeded else SystemRng()
            rows = [_answer(self.plan, path, own) for path in paths]
            return np.array(rows, dtype=np.float64)
        weights = np.array(query.multiples(), dtype=np.int64)
        answers = _count_states(paths, len(weights)) @ weights
        labels = answers.shape[1]
        if not is_zero_sum(body.noise):
            noise = body.noise.draw(len(paths) * labels, rng).reshape(-1, labels)
        else:
            noise = np.stack([body.noise.draw(labels, rng) for _ in paths])
        ratio = int(query.lattice / body.noise.step)
        return np.asarray((ratio * answers + noise) * float(body.noise.step), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class FunctionBox:
    """A function of one data set: a list of states (as `states` names them) to a number or several.

    A function that takes `rng` is handed a seeded NumPy generator and is then reproducible. None
    for an output, like nan, says that there was none.
    """

    function: Callable[..., Any]
    states: tuple[Any, ...]

    def __post_init__(self) -> None:
        """Refuse a function that cannot be called with one list, and with `rng` when it is seeded.

        Functions without a readable signature are accepted.
        """
        try:
            parameters = inspect.signature(self.function)
        except (TypeError, ValueError):  # builtins have no signature
            return
        try:
            parameters.bind([], **({"rng": None} if self.seeded else {}))
        except TypeError:
            raise InputError(
                f"the black box takes {parameters}; it must take one list of states, and rng if "
                "it draws random numbers"
            ) from None

    def draw(self, paths: Ints, seed: int) -> Floats:
        names = np.fromiter(self.states, dtype=object, count=len(self.states))
        return self.outputs(names[paths].tolist(), seed)

    def outputs(self, data: list[Any], seed: int) -> Floats:
        """One output for each of several data sets, (data sets, numbers)."""
        options = {"rng": np.random.default_rng(seed)} if self.seeded else {}
        rows = [self._call_function(one, options) for one in data]
        try:
            out = np.array(rows, dtype=np.float64).reshape(len(data), -1)
        except (TypeError, ValueError):
            raise InputError(
                "the black box must return a number, or the same number of numbers every time; "
                f"it returned {_shortly(rows[0])}"
            ) from None
        if out.shape[1] == 0:
            raise InputError("the black box returned no number; it must return one or several")
        return out

    def _call_function(self, data: Any, options: dict[str, Any]) -> Any:
        """Return what the function returns for `data`.

        Raises InputError, with the data and the error in short, when the function raises.
        """
        try:
            return self.function(data, **options)
        except Exception as error:  # the function is foreign code and may raise anything
            raise InputError(
                f"the black box failed with {_in_line(error)} (its data was {_shortly(data)}); "
                "it must answer for all data"
            ) from error

    @property
    def seeded(self) -> bool:
        """Whether its randomness is handed to it, so that its outputs follow from a seed."""
        try:
            return "rng" in inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            return False


def as_plan(release: Any) -> Plan | None:
    """`release` where it is a plan; None for functions and black boxes."""
    return release if isinstance(release, Plan) else None


def as_box(release: Any, states: tuple[Any, ...]) -> BlackBox:
    """A plan, a function of one data set, or a black box already."""
    plan = as_plan(release)
    if plan is not None:
        if not isinstance(plan.body, Sampler):
            raise Refused(
                f"{plan.mechanism} is a plan for streams; sampling is for single releases, "
                "so audit it without"
            )
        return PlanBox(plan)
    if hasattr(release, "draw"):
        box: BlackBox = release
        return box
    if callable(release):
        return FunctionBox(release, states)
    raise InputError(f"release is a {type(release).__name__}; it must be a plan or a function")


class Runner:
    """Releases drawn data, on one processor or several, with the same result either way."""

    def __init__(
        self, box: BlackBox, pool: ProcessPoolExecutor | None, progress: Progress | None, total: int
    ) -> None:
        """Set up the draws of `box`; `total` is the number of draws that progress is reported of.

        Without `pool` the box is called in this process.
        """
        self._box, self._pool, self._progress = box, pool, progress
        self._total = total
        self._from, self._until, self._work, self._done = 0, 0, 1, 0
        self._widths: dict[int, int] = {}  # numbers in an output, by the length of the data

    def stage(self, until: int, sizes: Iterable[tuple[int, int]]) -> None:
        """Progress goes up to `until` while data of these sizes (rows, entries) is released."""
        self._from, self._until, self._done = self._until, until, 0
        self._work = max(sum(rows * _work(entries) for rows, entries in sizes), 1)

    def draw(self, data: Pool, count: int, seeds: np.random.SeedSequence) -> Floats:
        """`count` outputs, chunk by chunk, each with seeds of its own for data and releases."""
        most = max(1, min(RELEASED_TOGETHER, CHUNK_ENTRIES // data.entries))
        rows = [min(most, count - start) for start in range(0, count, most)]
        numbers = seeds.generate_state(2 * len(rows), np.uint64).tolist()
        spread = map if self._pool is None else self._pool.map
        released = partial(_draw_and_release, self._box, data.draw)
        outputs = []
        for output in spread(released, rows, numbers[: len(rows)], numbers[len(rows) :]):
            self._check_width(data.entries, output.shape[1])
            outputs.append(output)
            self._tell(len(output) * _work(data.entries))
        return np.vstack(outputs)

    def _check_width(self, entries: int, width: int) -> None:
        """Refuse a box that returns different numbers of values for data of the same length."""
        known = self._widths.setdefault(entries, width)
        if known != width:
            raise InputError(
                f"the black box returned {known} numbers for {entries} entries and then {width}; "
                "it must be the same number of numbers every time"
            )

    def _tell(self, work: int) -> None:
        self._done += work
        if self._progress is not None:
            share = min(self._done / self._work, 1.0)
            self._progress(self._from + round(share * (self._until - self._from)), self._total)


def _draw_and_release(box: BlackBox, draw: Draw, rows: int, data: int, noise: int) -> Floats:
    return box.draw(draw(rows, np.random.default_rng(data)), noise)


def _work(entries: int) -> int:
    return CALL + entries


@contextmanager
def runner(
    box: BlackBox, workers: int, total: int, progress: Progress | None = None
) -> Iterator[Runner]:
    """A runner with `workers` processes, or one where `parallel` says so."""
    if workers <= 1 or not parallel(box):
        yield Runner(box, None, progress, total)
        return
    with ProcessPoolExecutor(workers) as pool:
        try:
            yield Runner(box, pool, progress, total)
        except BrokenProcessPool:
            raise InputError("a process that called the black box died; use one worker") from None


def parallel(box: BlackBox) -> bool:
    """Return whether several processes may call the box: it is seeded and can be pickled.

    A box with its own generator would be copied together with its state. Every copy would draw the
    same noise, and the outputs would not be independent.
    """
    if not getattr(box, "seeded", True):
        return False
    try:
        pickle.dumps(box)
    except CANNOT_TRAVEL:
        return False
    return True


def _count_states(paths: Ints, states: int) -> Ints:
    """How often each state comes in every row, (rows, states)."""
    places = paths + states * np.arange(len(paths))[:, None]
    return np.bincount(places.ravel(), minlength=states * len(paths)).reshape(-1, states)


def _answer(plan: Plan, path: Sequence[int], rng: Rng) -> tuple[float, ...]:
    states = plan.task.query.states
    records = Sequences(states, (np.asarray(path, np.int64),))
    return plan.release(records, rng=rng).values


def _in_line(error: Exception) -> str:
    """The kind of an error and what it says, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _shortly(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…"


# Other people's private releases, in the form the black-box auditor takes.
#
# No other library is imported here: an OpenDP measurement is anything that is called with a
# list and has `map`, `input_metric` and `output_measure`; a mechanism in the manner of diffprivlib
# is anything with `randomise` and `epsilon`.


@dataclass(frozen=True, slots=True)
class MeasurementRelease:
    """An OpenDP measurement as a release of a list of states.

    `values` says what the measurement is handed for each state, such as {"walk": 1, "sit": 0};
    without it the state names themselves.
    """

    measurement: Any
    values: Mapping[str, Any] | None = None
    notion: ClassVar[str] = "entry-dp"  # the claim is about one entry when all others are fixed

    def __call__(self, data: Sequence[str]) -> Any:
        rows = list(data) if self.values is None else [self.values[state] for state in data]
        return self.measurement(rows)

    def claimed(self) -> float:
        """The epsilon the measurement promises when one entry changes its value.

        Refuses metrics for which that is no distance, measures other than pure DP, and
        measurements without a finite promise.
        """
        try:
            return float(entry_eta(self.measurement))
        except OverflowError:  # its map says infinity
            raise InputError(
                "the measurement's privacy map is infinite for one changed entry: it promises "
                "nothing; give claimed= to hold it to a number"
            ) from None


@dataclass(frozen=True, slots=True)
class RandomisedQuery:
    """A query of one number whose exact answer a mechanism with `randomise` makes noisy."""

    mechanism: Any
    query: LinearQuery
    notion: ClassVar[str] = "entry-dp"

    def __post_init__(self) -> None:
        """Refuse a mechanism without `randomise` and a query with more than one number."""
        if not hasattr(self.mechanism, "randomise"):
            raise InputError(
                f"{type(self.mechanism).__name__} has no randomise(value), so it cannot be called"
            )
        if len(self.query.labels) != 1:
            raise InputError(
                f"the query has {len(self.query.labels)} numbers; a mechanism takes one at a time"
            )

    def __call__(self, data: Sequence[str]) -> float:
        weight = {s: row[0] for s, row in zip(self.query.states, self.query.weights, strict=True)}
        answer = sum(weight[state] for state in data)
        exact = int(answer) if self.query.lattice == 1 else float(answer)
        return float(self.mechanism.randomise(exact))

    def claimed(self) -> float:
        """The epsilon the mechanism promises when one entry changes its value.

        Its own epsilon is for answers that are `sensitivity` apart. One entry moves the query by
        up to its Lipschitz constant L, which is ⌈L / sensitivity⌉ times as far: group privacy.
        Refuses mechanisms with a delta: no bound on a log-ratio holds for them.
        """
        delta = float(getattr(self.mechanism, "delta", None) or 0.0)
        if delta > 0:
            raise InputError(
                f"{type(self.mechanism).__name__} has delta = {significant(delta)}, so its claim "
                "limits no log-ratio; give claimed= to hold it to an epsilon"
            )
        epsilon = float(positive(self.mechanism.epsilon, "epsilon of the mechanism"))
        sensitivity = getattr(self.mechanism, "sensitivity", None)
        if sensitivity is None:
            return epsilon
        distance = positive(sensitivity, "sensitivity of the mechanism")
        return math.ceil(self.query.lipschitz / distance) * epsilon
