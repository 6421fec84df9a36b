"""Streams begun several times about one path: what all that was shown tells, by all paths.

Cells answer by randomised response (every cell is joined to every other), whose law is written
here. What a ledger drew is noted by time, ε and cell, and Bayes' rule goes over all paths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import shoal
from shoal.core.errors import BudgetError
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.events.event import TimeEvent
from shoal.places.policy import PolicyGraph
from shoal.places.queries import measurement
from shoal.places.rows import GRAPH_ROW
from tests.event_oracle import happens, paths
from tests.settling import Settling


class Town(NamedTuple):
    """Cells in which somebody walks for `steps` steps, and an event to keep secret."""

    initial: Any
    matrix: Any
    steps: int
    event: TimeEvent
    amount: float

    @property
    def cells(self) -> int:
        return len(self.initial)

    def plan(self, epsilon: str, *, watched: bool = True) -> Plan:
        """Randomised response at ε a step; `watched`: less, so that the event stays secret."""
        names = [str(cell) for cell in range(self.cells)]
        chain = shoal.MarkovChain.of(
            self.matrix, initial=self.initial, states=names, length=self.steps
        )
        points = measurement(names, [[cell] for cell in range(self.cells)], step=1)
        policy = PolicyGraph.complete(names)
        if watched:
            policy = policy.watching(shoal.Events.of(self.event), self.amount)
        return GRAPH_ROW.calibrate(
            Task(query=points, secrets=policy, family=(chain,)), Fraction(epsilon)
        )


def town(cells: int, steps: int, stay: float, event: TimeEvent, amount: float = 0.5) -> Town:
    """Cells that are all alike: one stays, or goes to any of the others."""
    matrix = np.full((cells, cells), (1 - stay) / (cells - 1))
    np.fill_diagonal(matrix, stay)
    return Town(np.full(cells, 1 / cells), matrix, steps, event, amount)


class Draw(NamedTuple):
    """An output that was drawn: its step, the ε of its noise, and the cell it shows."""

    time: int
    epsilon: float
    cell: int


def log_odds_moved(where: Town, draws: Iterable[Draw]) -> float:
    """How far all these outputs move the log-odds of the event from their prior."""
    count, shown = where.cells, list(draws)
    sides = [[0.0, 0.0], [0.0, 0.0]]  # without the event and with it: before, and after
    for path, chance in paths(where.initial, [where.matrix] * (where.steps - 1)):
        after = chance
        for time, epsilon, cell in shown:
            if time < where.steps:
                same = math.exp(epsilon) if path[time] == cell else 1.0
                after *= same / (math.exp(epsilon) + count - 1)
        side = sides[happens(where.event, [str(cell) for cell in path])]
        side[0] += chance
        side[1] += after
    (off, off_after), (on, on_after) = sides
    return abs(math.log(on_after / off_after) - math.log(on / off))


@dataclass
class Scripted(Settling):
    """A ledger that charges `ledger` and draws the cells of a script; notes what is drawn.

    `time` is the step that is taken just now. Beyond the script `choose` says what is drawn.
    """

    ledger: Any
    script: Sequence[int] = ()
    choose: Callable[[list[Draw], Draw], int] = lambda draws, draw: 0
    time: int = 0
    draws: list[Draw] = field(default_factory=list)

    def settle(self, charge: Any, sample: Any) -> Any:
        """Charge, with the scripted cell in place of what would be drawn."""
        drawn: list[Draw] = []

        def forced() -> Any:
            place, epsilon = len(self.draws), float(charge.eta or 0)
            scripted = place < len(self.script)
            cell = self.script[place] if scripted else 0
            if not scripted:
                cell = self.choose(self.draws, Draw(self.time, epsilon, 0))
            drawn[:] = [Draw(self.time, epsilon, cell)]
            release = sample()
            return replace(release, answer=replace(release.answer, multiples=(cell,)))

        release = self.ledger.settle(charge, forced)
        self.draws += drawn
        return release


class ByTime(Settling):
    """A ledger as it must not be: a step is known by its time, whatever came before it."""

    def __init__(self) -> None:
        self._stored_outputs: dict[tuple[str, int], Any] = {}
        self.time = 0

    def settle(self, charge: Any, sample: Any) -> Any:
        """Draw each time of a subject once."""
        key = charge.subject, self.time
        if key not in self._stored_outputs:
            self._stored_outputs[key] = sample()
        return self._stored_outputs[key]


def run(plan: Plan, reads: Sequence[int], scripted: Scripted, subject: str) -> list[Any]:
    """What a fresh stream shows that reads where `reads` has a 1; it ends where it is refused."""
    stream, shown = shoal.LocationStream.begin(plan), list[Any]()
    for read in reads:
        scripted.time = stream.state.time
        if isinstance(scripted.ledger, ByTime):
            scripted.ledger.time = stream.state.time
        try:
            stream, release = (
                stream.read("0", ledger=scripted, subject=subject) if read else stream.skip()
            )
        except BudgetError as refusal:
            shown.append(refusal)
            break
        shown.append(release.z)
    return shown


def worst_of_all(
    where: Town, plan: Plan, runs: Sequence[Sequence[int]], ledger: Any, tag: str
) -> float:
    """The farthest that the log-odds are moved, over all outputs of these runs one by one."""
    scripts: list[list[int]] = [[]]
    worst, number = 0.0, 0
    while scripts:
        script, number = scripts.pop(), number + 1
        scripted = Scripted(ledger, script)
        for reads in runs:
            run(plan, reads, scripted, f"{tag}/{number}")
        cells = [draw.cell for draw in scripted.draws]
        for at in range(len(script), len(cells)):
            scripts += [[*cells[:at], other] for other in range(1, where.cells)]
        worst = max(worst, log_odds_moved(where, scripted.draws))
    return worst
