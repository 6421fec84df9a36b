"""Table 2 of the Pufferfish paper: seconds to find the scale of the noise, ε = 1.

Seconds of one machine beside the paper's (a desktop of 2013): read them as orders of magnitude;
the ratios against plain implementations in one run are in `benchmarks/`.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.chains.exact.windows import kept_laws
from shoal.chains.fit import fit_chain
from shoal.chains.lift.chain import chain_lift
from shoal.chains.model import MarkovChain
from shoal.chains.quilt.influence_matrix import chain_influences
from shoal.chains.quilt.row import chain_quilts
from shoal.core.errors import Refused
from shoal.core.task import Task
from shoal.mechanisms.queries import count, histogram
from shoal.mechanisms.table import row_named
from studies.chains import entry_task, timed
from studies.report import Cell, Report, Table
from studies.sources import activity, power

ROWS = ("influence-matrix", "markov-quilt-bound", "markov-quilt", "exact", "lift")
PAPER = {  # synthetic; activity: cyclists; electricity
    "influence-matrix": "0.00064, n/a, n/a",
    "markov-quilt-bound": "0.00018, 0.0064, 0.0567",
    "markov-quilt": "0.00077, 1.5186, 282.2273",
    "exact": "",
    "lift": "",
}


def run() -> Report:
    """One table: a column per problem."""
    problems = {"synthetic, 2 states, T = 100": _synthetic()}
    for source, data in activity():
        chain = fit_chain(data.sequences(), length=data.longest)
        problems[f"activity, {source}, {chain.size} states"] = _task(chain)
    for source, data in power():
        chain = fit_chain(data.sequences(), length=data.longest)
        problems[f"power, {source}, {chain.size} states"] = _task(chain)
    rows = [
        (name, *(_seconds(name, task) for task in problems.values()), PAPER[name]) for name in ROWS
    ]
    return Report(
        name="chain-speed",
        source="Song, Wang & Chaudhuri 2017, Table 2.",
        tables=(
            Table(
                title="Seconds to find the scale, ε = 1, quickest of three",
                columns=("mechanism", *problems, "paper (synthetic, cyclists, electricity)"),
                rows=tuple(rows),
                notes=(
                    "exact is timed on the count of one state, the others on the histogram",
                    "wall time on a machine shared with other work: orders of magnitude only",
                ),
            ),
        ),
    )


def _synthetic() -> Task:
    return _task(MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], length=100))


def _task(chain: MarkovChain) -> Task:
    return entry_task(histogram(chain.states), chain)


def _seconds(name: str, task: Task) -> Cell:
    row = row_named(name)
    if name == "exact":
        task = entry_task(count(task.query.states, task.query.states[0]), *task.family)

    def work() -> object:
        for kept in (kept_laws, chain_lift, chain_quilts, chain_influences):
            kept.cache_clear()
        return row.calibrate(task, Fraction(1))

    try:
        return None if row.refuse(task) else timed(work)
    except Refused:
        return None
