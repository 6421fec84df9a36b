"""`shoal plan`: the least noise that is enough, all mechanisms side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli import options, show
from shoal.core.numbers import ratio, significant

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.core.task import Task
    from shoal.mechanisms.person import Protection
    from shoal.spec.request import Request

app = options.new_app()

LONGEST_BAR = 4  # bars are cut at this multiple of the chosen noise

EXAMPLES = """\b
Examples:
  shoal plan shoal.toml
  shoal plan shoal.toml --json | jq .scale
  shoal plan shoal.toml --compare
  shoal plan shoal.toml --save plan.json --plot noise.png
  shoal plan shoal.toml --export upload.json
"""


@dataclass(frozen=True, slots=True)
class RowComparison:
    """The requested plan, and for every mechanism its plan or the sentence of its refusal.

    With `every` the requested plan is for one such part (a day) of a series and keeps epsilon over
    all parts; the other mechanisms keep it for one release.
    """

    plan: Plan
    epsilon: Fraction
    alternatives: dict[str, Plan | str]
    every: str | None = None

    def standing(self, plan: Plan) -> str:
        """Return how a mechanism's guarantee is established, and for how many releases."""
        from shoal.mechanisms.table import standing

        if self.every is None:
            return standing(plan)
        covers = f"all {self.every}s together" if plan is self.plan else f"one {self.every} only"
        return f"{standing(plan)}, for {covers}"


def compare(task: Task, epsilon: Fraction, mechanism: str, *, every_row: bool) -> RowComparison:
    """Return the requested plan and those of other mechanisms; refused if the requested one is.

    With `every_row` all mechanisms are calibrated, else only those that may need the least noise.
    """
    from shoal.mechanisms.choice import choose
    from shoal.mechanisms.table import MECHANISMS

    choice = choose(task, epsilon, mechanism, prune=not every_row)
    alternatives = choice.alternatives or {mechanism: choice.plan}
    if every_row and not choice.alternatives:
        alternatives = {
            name: choice.plan if name == mechanism else _attempt(task, epsilon, name)
            for name in MECHANISMS
        }
    return RowComparison(choice.plan, epsilon, alternatives)


def comparison_json(comparison: RowComparison, *, cut: bool = False) -> dict[str, Any]:
    """Return the object of `shoal plan --json`; truncated work has no least error."""
    from shoal.core.codec import encode
    from shoal.mechanisms.table import verify_promise

    plan = comparison.plan
    return {
        "mechanism": plan.mechanism,
        "scale": plan.scale,
        "noise": _noise(plan),
        "epsilon": float(comparison.epsilon),
        "loss": verify_promise(plan),
        "cost": plan.cost,
        "usefulness": _useful(plan, cut),
        "guarantee": {
            "notion": plan.guarantee.notion,
            "amount": float(plan.guarantee.amount),
            "over": plan.guarantee.over,
            "proved": plan.guarantee.proved,
            "caveat": plan.guarantee.caveat,
        },
        "certificate": {
            **encode(plan.certificate),
            "theorem": plan.certificate.theorem,
            "assumptions": list(plan.certificate.assumptions),
        },
        "composition": [{**encode(rule), "meaning": rule.describe()} for rule in plan.composition],
        "alternatives": {
            name: {"refused": row}
            if isinstance(row, str)
            else {"scale": row.scale, "cost": row.cost, "standing": comparison.standing(row)}
            for name, row in comparison.alternatives.items()
        },
    }


def _useful(plan: Plan, cut: bool = False) -> dict[str, Any]:
    """Return the plan's error figures for JSON; `cut` leaves out the least possible error.

    `above_least` is the error's relative excess over the least one, None where either is unknown.
    """
    from shoal.mechanisms.usefulness import least_error, usefulness

    found, worst = usefulness(plan), mean_error(plan)
    least = None if cut else least_error(plan)
    return {
        "error": found.error,
        "worst_error": worst,
        "least_error": least,
        "above_least": worst / least - 1 if worst is not None and least else None,
        "answer_spread": found.spread,
        "prior_error": found.prior_error,
        "tells": found.tells,
        "warnings": list(found.warnings),
    }


def mean_error(plan: Plan) -> float | None:
    """Return the mean error of one value, which compares noise of different kinds."""
    error = plan.error()
    return None if error is None else error.expected


def _attempt(task: Task, epsilon: Fraction, mechanism: str) -> Plan | str:
    """Return the plan that this mechanism makes, or the sentence of its refusal."""
    from shoal.core.errors import InputError, PromiseBroken, Refused
    from shoal.core.family import out_of_scope
    from shoal.mechanisms.choice import choose

    foreign = out_of_scope(mechanism, task)
    if foreign is not None:
        return foreign
    try:
        return choose(task, epsilon, mechanism).plan
    except (Refused, InputError, PromiseBroken) as refusal:
        return str(refusal)


def _noise(plan: Plan) -> dict[str, Any] | None:
    """Return the noise law of a plan for JSON, as exact ratios.

    None for mechanisms other than additive noise and "steps".
    """
    from shoal.core.codec import kind_of

    if plan.additive is None:
        if plan.mechanism != "steps":
            return None
        body: Any = plan.body
        law = {"fall": ratio(body.fall), "width": body.width, "lead": body.lead}
        return {"kind": "steps", "step": ratio(body.query.lattice), **law}
    noise = plan.additive.noise
    kind = {"lattice-laplace": "discrete-laplace"}.get(kind_of(type(noise)), kind_of(type(noise)))
    return {"kind": kind, "step": ratio(noise.step), "scale": ratio(noise.scale)}


class PlanView(NamedTuple):
    """How a family prints its mechanisms side by side, what it adds to the JSON, and its chart."""

    tell: Callable[[RowComparison], None]
    more: Callable[[Plan], dict[str, Any]]
    chart: Callable[[Plan], bytes] | None = None


@app.command(epilog=EXAMPLES)
def plan(
    spec: options.SpecPath,
    as_json: options.AsJson = False,
    save: Annotated[
        Path | None, options.option("FILE", "Store the plan, for `shoal release`.", "--save")
    ] = None,
    export: Annotated[
        Path | None,
        options.option("FILE", "Store the spec with its models, for `shoal serve put-plan`."),
    ] = None,
    plot: options.PlotPath = None,
    time_limit: options.TimeLimit = None,
    compare_all: Annotated[
        bool, options.flag("--compare", "Calibrate every mechanism, not only those that may win.")
    ] = False,
    force: options.Force = False,
) -> None:
    """Find the least noise that is enough, and explain it.

    Works without any data. The plan that is explained is the one the spec asks for: the least
    costly proved one, or the one it names. Mechanisms that are known to need more noise are not
    calibrated; with --compare the noise of each is shown.
    """
    from shoal.core.family import plan_act
    from shoal.core.registry import dumps
    from shoal.spec.request import read_request

    if save is not None:
        show.check_output(save, force=force)
        show.check_apart(save, spec)
    if export is not None:
        show.check_output(export, force=force)
        show.check_apart(export, spec)
    show.check_chart(plot, force=force)
    request = read_request(spec)
    exported = None if export is None else _export_request(spec)
    limit = show.limit_time(time_limit)
    with limit as watch, show.working("calibrating"), request.limit_time(time_limit):
        comparison = compare(
            request.task, request.epsilon(), request.mechanism, every_row=compare_all
        )
        if request.data is not None and request.data.parts:
            own = request.plan(parts=True)
            rows = {**comparison.alternatives, own.mechanism: own}
            every = request.data.every
            comparison = replace(comparison, plan=own, alternatives=rows, every=every)
        asked = _prices(comparison)
    if comparison.every is None and not watch.cut:
        from shoal.cli.plan_cache import keep_plan

        keep_plan(request, comparison.plan)
    view: PlanView | None = plan_act("show_plan", comparison.plan)
    if as_json:
        more = {} if view is None else view.more(comparison.plan)
        costs = {"prices": [_price_json(price) for price in asked]} if asked else {}
        show.print_json({**comparison_json(comparison, cut=bool(watch.cut)), **more, **costs})
    else:
        _print(comparison, request, print_noise if view is None else view.tell)
        _print_prices(asked)
    if save is not None:
        from shoal.data.write import atomic_write

        atomic_write(save, dumps(comparison.plan) + "\n")
        if not as_json:
            typer.echo(f"\nThe plan is in {save}")
    if export is not None and exported is not None:
        from shoal.data.write import atomic_write

        atomic_write(export, exported)
        if not as_json:
            typer.echo(f"\nThe spec with its models is in {export}")
    if plot is not None:
        from shoal.cli.charts import noise_chart

        draw = (view and view.chart) or (lambda _: noise_chart(comparison))
        show.write_chart(plot, draw(comparison.plan), as_json=as_json)
    show.say_cut(watch, "this is the best of the mechanisms that were done")


def _export_request(spec: Path) -> str:
    """Return the body of a request that makes this plan in a gateway, as JSON."""
    import json

    from shoal.spec.inline import inline_spec

    return json.dumps({"spec": inline_spec(spec)}, ensure_ascii=False) + "\n"


def _print(
    comparison: RowComparison, request: Request, tell: Callable[[RowComparison], None]
) -> None:
    """Print the plan in words, then every mechanism's noise in the family's own form."""
    out = show.console()
    if request.privacy.error is not None:
        out.print(
            f"epsilon = {float(comparison.epsilon):g} is the least budget that keeps each value "
            f"within {float(request.privacy.error):g} {request.task.query.unit}."
        )
        out.print()
    out.print(show.paragraphs(comparison.plan.explain()))
    out.print()
    tell(comparison)


def _prices(comparison: RowComparison) -> tuple[Protection, ...]:
    """Return what hiding each entry and each person costs; empty for plans about parts."""
    from shoal.mechanisms.person import prices

    return () if comparison.every is not None else prices(comparison.plan)


def _print_prices(asked: tuple[Protection, ...]) -> None:
    """Print one sentence for each price."""
    if asked:
        out = show.console()
        out.print()
        out.print(show.paragraphs("\n".join(price.describe() for price in asked)))


def _price_json(price: Protection) -> dict[str, Any]:
    """Return a price for JSON; the error of one value is None where nothing hides it."""
    refused = price.found if isinstance(price.found, str) else None
    error = price.error
    return {
        "hides": f"each {price.what}",
        "entries": price.entries,
        "mechanism": None if isinstance(price.found, str) else price.found.mechanism,
        "error": None if error is None else error.expected,
        "refused": refused,
    }


def print_noise(comparison: RowComparison) -> None:
    """Print a table of all mechanisms: scale, bar, standing; refusals below it."""
    from shoal.core.plan import Plan

    out = show.console()
    plans = [p for p in comparison.alternatives.values() if isinstance(p, Plan)]
    cells = _table_cells(plans, comparison, ascii_only=out.options.ascii_only)
    unit = comparison.plan.task.query.unit
    out.print(f"Noise of every mechanism: its scale, and the mean error of a value, in {unit}:")
    titles = ("mechanism", "scale", "error", "", "promise")
    out.print(show.table(titles, cells, numbers=(1, 2)))
    print_refusals(comparison)


def print_refusals(comparison: RowComparison, prefix: str = "") -> None:
    """Print each mechanism with this prefix that does not apply, and the reason."""
    out = show.console()
    alternatives = comparison.alternatives.items()
    refused = {n: why for n, why in alternatives if isinstance(why, str) and n.startswith(prefix)}
    if refused:
        out.print()
        out.print("These do not apply, or were not calibrated:")
        out.print(show.paragraphs("\n".join(_reasons(refused))))


def _reasons(refused: dict[str, str]) -> list[str]:
    """Return a line "name: why" per refused mechanism; those of one kind and reason share one."""
    sharing: dict[tuple[str, str], list[str]] = {}
    for name, why in refused.items():
        reason = why.removeprefix(f"{name} does not apply: ")
        sharing.setdefault((name.partition("-")[0], reason), []).append(name)
    return [
        f"{names[0] if len(names) == 1 else f'{kind}-*'}: {why}"
        for (kind, why), names in sharing.items()
    ]


def _table_cells(
    plans: list[Plan], comparison: RowComparison, *, ascii_only: bool
) -> list[tuple[str, ...]]:
    """Return the table's rows: mechanism, scale, mean error, bar and standing of each plan.

    Bars longer than LONGEST_BAR times the chosen plan's are cut.
    """
    chosen = comparison.plan
    errors = [mean_error(plan) or 0.0 for plan in plans]
    # a bar for group privacy at full length would leave no room to tell the others apart
    longest = min(max(errors), LONGEST_BAR * (mean_error(chosen) or max(errors)))
    return [
        (
            plan.mechanism,
            "–" if plan.scale is None else significant(plan.scale),
            significant(error),
            show.bar(error, longest, ascii_only=ascii_only, width=show.HALF),
            ("chosen, " if plan.mechanism == chosen.mechanism else "") + comparison.standing(plan),
        )
        for plan, error in zip(plans, errors, strict=True)
    ]
