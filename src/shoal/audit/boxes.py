"""Releases as black boxes: sequences in, numbers out, many at a time and on several processors."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from shoal.core.additive import Additive
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan, Sampler
from shoal.core.records import Sequences
from shoal.core.rng import Rng, SystemRng
from shoal.core.value import Floats, Ints
from shoal.mechanisms.external import Measured
from shoal.noise.bits import SeededRng
from shoal.noise.laplace import LatticeLaplace
from shoal.queries.linear import LinearQuery

CHUNK = 1000  # sequences released together; the chunks, not the processors, decide the seeds

CANNOT_TRAVEL = (pickle.PicklingError, AttributeError, TypeError, ValueError, RuntimeError, OSError)
LONGEST = 60  # characters of data or outputs quoted in a message

Progress = Callable[[int, int], None]  # sequences done, sequences in all


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
        return not isinstance(self.plan.body, Measured)

    def draw(self, paths: Ints, seed: int) -> Floats:
        body = self.plan.body
        query = body.query if isinstance(body, Additive) else self.plan.task.query
        rng: Rng = SeededRng(seed)
        if type(body) is not Additive or not isinstance(query, LinearQuery):
            own = rng if self.seeded else SystemRng()
            rows = [_answer(self.plan, path, own) for path in paths]
            return np.array(rows, dtype=np.float64)
        weights = np.array(query.multiples(), dtype=np.int64)
        answers = weights[paths].sum(axis=1)
        labels = answers.shape[1]
        if isinstance(body.noise, LatticeLaplace):
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
        return self.outputs([[self.states[i] for i in path] for path in paths], seed)

    def outputs(self, data: list[Any], seed: int) -> Floats:
        """One output for each of several data sets, (data sets, numbers)."""
        options = {"rng": np.random.default_rng(seed)} if self.seeded else {}
        rows = [self._called(one, options) for one in data]
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

    def _called(self, data: Any, options: dict[str, Any]) -> Any:
        try:
            return self.function(data, **options)
        except Exception as error:  # whatever somebody else's code does
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


def as_box(release: Any, states: tuple[Any, ...]) -> BlackBox:
    """A plan, a function of one data set, or a black box already."""
    if isinstance(release, Plan):
        if not isinstance(release.body, Sampler):
            raise Refused(
                f"{release.mechanism} is a plan for streams; sampling is for single releases, "
                "so audit it without"
            )
        return PlanBox(release)
    if hasattr(release, "draw"):
        box: BlackBox = release
        return box
    if callable(release):
        return FunctionBox(release, states)
    raise InputError(f"release is a {type(release).__name__}; it must be a plan or a function")


class Runner:
    """Releases many data sets, on one processor or several, with the same result either way."""

    def __init__(
        self, box: BlackBox, pool: ProcessPoolExecutor | None, progress: Progress | None, total: int
    ) -> None:
        self._box, self._pool, self._progress = box, pool, progress
        self._done, self._total = 0, total
        self._widths: dict[int, int] = {}  # numbers in an output, by the length of the data

    def draw(self, paths: Ints, seeds: np.random.SeedSequence) -> Floats:
        """The outputs of `paths`, chunk by chunk, each chunk under its own seed."""
        chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
        entries = paths.shape[1]
        numbers = [int(s) for s in seeds.generate_state(len(chunks), np.uint64)]
        spread = map if self._pool is None else self._pool.map
        outputs = []
        for rows in spread(self._box.draw, chunks, numbers):
            outputs.append(rows)
            self._done += len(rows)
            if self._widths.setdefault(entries, rows.shape[1]) != rows.shape[1]:
                raise InputError(
                    f"the black box returned {self._widths[entries]} numbers for {entries} entries "
                    f"and then {rows.shape[1]}; it must be the same number of numbers every time"
                )
            if self._progress is not None:
                self._progress(self._done, self._total)
        return np.vstack(outputs)


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
    """Whether several processes may call the box: it is seeded, and can be sent to another.

    A box with a generator of its own would be copied with it, and every copy would draw the same
    noise again: outputs that look independent and are not prove nothing.
    """
    return getattr(box, "seeded", True) and _travels(box)


def _travels(box: BlackBox) -> bool:
    try:
        pickle.dumps(box)
    except CANNOT_TRAVEL:
        return False
    return True


def _answer(plan: Plan, path: Sequence[int], rng: Rng) -> tuple[float, ...]:
    states = plan.task.query.states
    records = Sequences(states, (np.asarray(path, np.int64),))
    return plan.release(records, rng=rng).values


def _in_line(error: Exception) -> str:
    """The kind of an error and what it says, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _shortly(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
