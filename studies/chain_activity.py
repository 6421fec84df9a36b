"""Table 1 of the Pufferfish paper: relative activity histograms of persons and of groups.

One matrix is fitted to all people together, without smoothing, gaps over 10 minutes cut. The
paper's groups (cyclists, older women, overweight women) are not in our data, so people are ranked
by the share of time they move and cut into thirds. Errors are exact expectations under the noise,
summed over the bars (l1).
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.chains.fit import fit_chain
from shoal.chains.model import MarkovChain
from shoal.core.plan import Plan
from shoal.data.table import Dataset
from shoal.mechanisms.queries import count, histogram
from studies.chains import as_in_the_paper, entry_task, plan_or_none, unit_scale
from studies.report import Report, Table
from studies.sources import activity

EPSILONS = (Fraction(1, 5), Fraction(1), Fraction(5))
MOVING = {"walk", "walking", "run", "running", "bicycling", "cycle", "move", "exercise"}
ROWS = ("group", "influence-matrix", "markov-quilt-bound", "markov-quilt", "lift")
PAPER = {  # aggregate and individual error: cyclists, older women, overweight women
    "person-level DP": "0.2918, 0.8746, 0.4763 / n/a",
    "group": "0.0834, 0.1138, 0.0458 / 2.3157, 1.7860, 1.1492",
    "influence-matrix": "n/a / n/a",
    "markov-quilt-bound": "0.0107, 0.0156, 0.0048 / 0.6319, 0.2790, 0.1967",
    "markov-quilt": "0.0074, 0.0098, 0.0033 / 0.4077, 0.1742, 0.1316",
    "lift": "",
}


class Group(NamedTuple):
    """A third of the people: entries of each, and the longest chain among them."""

    name: str
    totals: tuple[int, ...]
    longest: int

    @property
    def total(self) -> int:
        return sum(self.totals)


def run() -> Report:
    """Two tables per data source."""
    tables: list[Table] = []
    for source, data in activity():
        tables += [_scales(source, data), _errors(source, data)]
    return Report(
        name="chain-activity",
        source="Song, Wang & Chaudhuri 2017, Section 5.3.1 and Table 1.",
        tables=tuple(tables),
    )


def _scales(source: str, data: Dataset) -> Table:
    """The scale for a 1-Lipschitz query of any length, per mechanism and epsilon."""
    chain = fit_chain(data.sequences())
    task = entry_task(count(chain.states, chain.states[0]), chain)
    lifted = entry_task(histogram(chain.states), chain)
    rows = []
    for name in ("markov-quilt-bound", "markov-quilt", "lift"):
        asked = lifted if name == "lift" else task
        scales = [unit_scale(plan_or_none(name, asked, epsilon)) for epsilon in EPSILONS]
        rows.append((name, *scales))
    return Table(
        title=f"{source}: scale 1/η of a 1-Lipschitz query, {chain.size} states, any length",
        columns=("mechanism", *(f"ε = {float(epsilon):g}" for epsilon in EPSILONS)),
        rows=tuple(rows),
        notes=("lift in the Hamming metric: it serves every entry-level DP mechanism",),
    )


def _errors(source: str, data: Dataset) -> Table:
    chain = fit_chain(data.sequences())
    groups = _groups(data)
    cells: dict[str, list[float | None]] = {name: [] for name in PAPER}
    paper_way: list[float | None] = []
    for group in groups:
        own = MarkovChain(
            states=chain.states,
            transition=chain.transition,
            initial=chain.initial,
            length=group.longest,
        )
        task = entry_task(histogram(chain.states, relative=True, length=group.total), own)
        cells["person-level DP"] += [chain.size * 2 * max(group.totals) / group.total, None]
        for name in ROWS:
            cells[name] += _both(plan_or_none(name, task, Fraction(1)), group)
        reached = unit_scale(as_in_the_paper(own, Fraction(1)))
        paper_way += _both_at(reached, chain.size, group)
    rows = [(name, *values, PAPER[name]) for name, values in cells.items()]
    rows.append(("markov-quilt, the paper's ℓ", *paper_way, ""))
    people = ", ".join(f"{group.name} {len(group.totals)}" for group in groups)
    columns = [f"{group.name} {kind}" for group in groups for kind in ("agg", "indi")]
    return Table(
        title=f"{source}: expected l1 error of relative activity histograms, ε = 1",
        columns=("mechanism", *columns, "paper (agg / indi)"),
        rows=tuple(rows),
        notes=(
            f"people ranked by the share of time they move and cut into thirds: {people}",
            "agg: one histogram for the group; indi: the average over its people",
            "exact does not apply: several bars at once over chains this long",
        ),
    )


def _groups(data: Dataset) -> tuple[Group, ...]:
    """People in three equal groups by the share of entries in which they move."""
    moving = np.array([state in MOVING for state in data.states])
    shares, totals, longest = [], [], []
    for chains in data.chains:
        entries = np.concatenate(chains)
        shares.append(float(moving[entries].mean()))
        totals.append(len(entries))
        longest.append(max(map(len, chains)))
    thirds = np.array_split(np.argsort(shares, kind="stable"), 3)
    names = ("least active", "middle", "most active")
    return tuple(
        Group(name, tuple(totals[i] for i in third), max(longest[i] for i in third))
        for name, third in zip(names, thirds, strict=True)
    )


def _both(plan: Plan | None, group: Group) -> list[float | None]:
    """Aggregate and average individual error of a plan made for the group's histogram."""
    if plan is None:
        return [None, None]
    per_person = [plan.cost * group.total / own for own in group.totals]
    return [plan.cost, sum(per_person) / len(per_person)]


def _both_at(unit: float | None, size: int, group: Group) -> list[float | None]:
    """The same from a scale for a 1-Lipschitz query: a histogram is 2/total-Lipschitz."""
    if unit is None:
        return [None, None]
    per_person = [size * 2 * unit / own for own in group.totals]
    return [size * 2 * unit / group.total, sum(per_person) / len(per_person)]
