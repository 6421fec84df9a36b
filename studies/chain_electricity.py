"""Table 3 of the Pufferfish paper: the relative histogram of a household's electric power.

Power in bins of 200 W, one entry a minute, the matrix fitted without smoothing; a missing minute
starts a new chain. Errors are exact expectations under the noise, summed over the bars (l1).
"""

from __future__ import annotations

from fractions import Fraction

from shoal.chains.fit import fit_chain
from shoal.data.table import Dataset
from shoal.mechanisms.queries import histogram
from studies.chains import as_in_the_paper, entry_task, plan_or_none, unit_scale
from studies.report import Report, Table
from studies.sources import power

EPSILONS = (Fraction(1, 5), Fraction(1), Fraction(5))
ROWS = ("group", "influence-matrix", "markov-quilt-bound", "markov-quilt", "lift")
PAPER = {
    "group": "516.1555, 102.8868, 19.8712",
    "influence-matrix": "n/a",
    "markov-quilt-bound": "0.3369, 0.0614, 0.0113",
    "markov-quilt": "0.1298, 0.0188, 0.0022",
    "lift": "",
}


def run() -> Report:
    """Two tables per data source: errors as in the paper, and scales."""
    tables: list[Table] = []
    for source, data in power():
        tables += list(_tables(source, data))
    return Report(
        name="chain-electricity",
        source="Song, Wang & Chaudhuri 2017, Section 5.3.2 and Table 3.",
        tables=tuple(tables),
    )


def _tables(source: str, data: Dataset) -> tuple[Table, Table]:
    chain = fit_chain(data.sequences(), length=data.longest)
    task = entry_task(histogram(chain.states, relative=True, length=data.total), chain)
    errors, scales = [], []
    for name in ROWS:
        plans = [plan_or_none(name, task, epsilon) for epsilon in EPSILONS]
        costs = [None if plan is None else plan.cost for plan in plans]
        errors.append((name, *costs, PAPER[name]))
        scales.append((name, *(unit_scale(plan) for plan in plans)))
    reached = [unit_scale(as_in_the_paper(chain, epsilon)) for epsilon in EPSILONS]
    width = 2 * chain.size / data.total
    costs = [None if unit is None else unit * width for unit in reached]
    errors.append(("markov-quilt, the paper's ℓ", *costs, ""))
    whole = [width * data.total / float(epsilon) for epsilon in EPSILONS]
    errors.append(("group, the whole series as one chain", *whole, PAPER["group"]))
    heads = tuple(f"ε = {float(epsilon):g}" for epsilon in EPSILONS)
    shape = f"{chain.size} states, {data.total} entries, longest chain {data.longest}"
    return (
        Table(
            title=f"{source}: expected l1 error of the relative power histogram ({shape})",
            columns=("mechanism", *heads, "paper (51 states, 1,000,000 entries)"),
            rows=tuple(errors),
            notes=("exact does not apply: several bars at once over chains this long",),
        ),
        Table(
            title=f"{source}: scale 1/η of a 1-Lipschitz query ({shape})",
            columns=("mechanism", *heads),
            rows=tuple(scales),
        ),
    )
