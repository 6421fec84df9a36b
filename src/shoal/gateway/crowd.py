"""Many requests at once: those that come while others are under way are done together.

`Crowd` gathers them on the event loop; `side_by_side` runs their work in one transaction, and
settles their charges together: each piece of work stands still in its charge until the others
stand in theirs, or are done. What one of them does wrong is its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

from shoal.core.charge import Charge, Ledger
from shoal.core.errors import ShoalError
from shoal.core.plan import Release
from shoal.gateway.problems import RETRY, Problem
from shoal.ledger.store import Within

Item = TypeVar("Item")
T = TypeVar("T")

MOST = 64  # requests that share a transaction


class Crowd(Generic[Item, T]):
    """`work` does a group of requests; while `groups` of them are under way, others gather.

    For each item it gives its result, or the error that is this item's alone.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[T | Exception]]],
        *,
        groups: int = 1,
        waiting: int,
    ) -> None:
        self._work, self._groups, self._most = work, groups, waiting
        self._waiting: list[tuple[Item, asyncio.Future[T]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item) -> T:
        """What became of an item; turned away when too many wait already."""
        if len(self._waiting) >= self._most:
            raise Problem(503, f"{len(self._waiting)} requests wait; try again", headers=RETRY)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._begin()
        return await future

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._groups:
            group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            task = asyncio.create_task(self._run(group))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._begin()

    async def _run(self, group: list[tuple[Item, asyncio.Future[T]]]) -> None:
        try:
            told = await self._work([item for item, _ in group])
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            told = [error] * len(group)
        for (_, future), one in zip(group, told, strict=True):
            if future.done():
                continue  # whoever asked is gone
            if isinstance(one, Exception):
                future.set_exception(one)
            else:
                future.set_result(one)


class _Standing(NamedTuple):
    """A piece of work that stands in its charge."""

    place: int
    at: greenlet
    charge: Charge
    sample: Callable[[], Release]


class _Turn:
    """The ledger that a piece of work sees: its charge waits for those of the others."""

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        outcome = getcurrent().parent.switch((charge, sample))
        if isinstance(outcome, Exception):
            raise outcome
        release: Release = outcome
        return release


class Spoiled(Exception):
    """Those at `places` failed after a charge of theirs: nothing may be committed for anybody."""

    def __init__(self, places: Sequence[Any], error: ShoalError | Problem) -> None:
        super().__init__(str(error))
        self.places, self.error = places, error


def side_by_side(
    works: Sequence[Callable[[Ledger], T]], ledger: Within
) -> list[T | ShoalError | Problem]:
    """The results of `works`, in their order, or what each refused.

    Each is given a ledger to charge. Round after round, one charge of everybody who has one is
    judged, drawn and added in the transaction of `ledger`. When somebody fails after a charge,
    `Spoiled` is raised: the caller rolls back and begins again without them.
    """
    results: dict[int, Any] = {}
    standing: list[_Standing] = []
    charged: set[int] = set()

    def go_on(place: int, at: greenlet, given: Any) -> None:
        said = at.switch(given)
        if not at.dead:
            standing.append(_Standing(place, at, *said))
            return
        if isinstance(said, ShoalError | Problem) and place in charged:
            raise Spoiled([place], said)
        results[place] = said

    try:
        for place, work in enumerate(works):
            go_on(place, greenlet(_guarded(work)), _Turn())
        while standing:
            now, standing = standing, []
            for one, outcome in zip(now, _settled(now, ledger), strict=True):
                if isinstance(outcome, Release):
                    charged.add(one.place)
                go_on(one.place, one.at, outcome)
    finally:
        for one in standing:
            one.at.throw()
    return [results[place] for place in range(len(works))]


def _guarded(work: Callable[[Ledger], T]) -> Callable[[Ledger], T | ShoalError | Problem]:
    def run(ledger: Ledger) -> T | ShoalError | Problem:
        try:
            return work(ledger)
        except (ShoalError, Problem) as error:
            return error

    return run


def _settled(standing: list[_Standing], ledger: Within) -> Sequence[Release | ShoalError]:
    """The outcome of everybody's charge; when one cannot be settled, each is by itself."""
    charges = [one.charge for one in standing]
    try:
        return ledger.settle_all(charges, lambda places: [standing[at].sample() for at in places])
    except ShoalError as error:
        if len(standing) == 1:
            return [error]
    return [outcome for one in standing for outcome in _settled([one], ledger)]
