"""One query under every mechanism for tied records, sound or published."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from shoal.core.errors import Refused
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry, Model, Query, Task
from shoal.mechanisms.table import calibrate_and_check, row_named
from studies.report import Figure, Table

# name in the tables, row of the table of mechanisms
PAIRWISE = {
    "no dependence (laplace)": "laplace",
    "group over components": "group",
    "conditional means": "dependent-means",
    "baseline L·ΔQ, L of pairs": "dependent-baseline",
    "published, Eq. 14": "dependent-published",
    "published, Eq. 18": "dependent-published-18",
    "Zhu et al.": "correlated-sensitivity",
}
STANDING = {True: "proved", False: "not proved"}


def plan_or_none(name: str, query: Query, model: Model, epsilon: Fraction) -> Plan | None:
    """The row's plan, or None where it does not apply."""
    task = Task(query=query, secrets=EachEntry(), family=(model,))
    row = row_named(name)
    if row.refuse(task) is not None:
        return None
    try:
        return calibrate_and_check(row, task, epsilon)
    except Refused:
        return None


def all_plans(
    query: Query, pairs: Model, fields: dict[str, Model], epsilon: Fraction
) -> dict[str, Plan]:
    """Every mechanism that applies: by pairwise laws, and by each declared field."""
    found = {title: plan_or_none(row, query, pairs, epsilon) for title, row in PAIRWISE.items()}
    for title, field in fields.items():
        found[title] = plan_or_none("dependent-field", query, field, epsilon)
    return {title: plan for title, plan in found.items() if plan is not None}


def counts_as(plan: Plan) -> float:
    """For how many records one record counts: scale · ε / L."""
    body = plan.body
    assert isinstance(body, Additive)
    return float(body.noise.scale * plan.guarantee.amount / body.query.lipschitz)


def standing(title: str, plan: Plan) -> str:
    """What a plan's promise is worth against an adversary who knows the dependence."""
    if title.startswith("no dependence"):
        return "for independent records only"
    return STANDING[plan.guarantee.proved]


def scale_table(title: str, plans: Sequence[dict[str, Plan]], notes: tuple[str, ...]) -> Table:
    """Fig. 8: for each ε (one dictionary of plans each) the 95 % error, and the records counted.

    "one counts as" is taken at ε = 1, or at the first ε: the published coefficients depend on it.
    """
    epsilons = [float(next(iter(some.values())).guarantee.amount) for some in plans]
    rows: list[tuple[Any, ...]] = []
    for name, last in plans[epsilons.index(1.0) if 1.0 in epsilons else 0].items():
        bounds = []
        for some in plans:
            error = some[name].error()
            bounds.append(None if error is None else error.bound)
        rows.append((name, standing(name, last), counts_as(last), *bounds))
    return Table(
        title=title,
        columns=("mechanism", "promise", "one counts as", *(f"ε = {e:g}" for e in epsilons)),
        rows=tuple(rows),
        notes=notes,
    )


def curves_figure(name: str, table: Table, epsilons: Sequence[Fraction], label: str) -> Figure:
    """The rows of `table` against ε, with their names beside the picture."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        draw_curves(axes, table, [float(e) for e in epsilons])
        axes.set_ylabel(label)
        axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))

    return Figure(name=name, caption=table.title, draw=draw)


def draw_curves(axes: Any, table: Table, epsilons: Sequence[float], *, skip: int = 2) -> None:
    """One line per row of `table`, whose last columns are the values at `epsilons`."""
    for row in table.rows:
        proved = row[1] in ("proved", "for independent records only")
        style = "-" if proved else "--"
        axes.plot(epsilons, row[skip:], style, marker="o", markersize=3, label=row[0])
    axes.set_xscale("log")
    axes.set_xlabel("ε")
    axes.spines[["top", "right"]].set_visible(False)
