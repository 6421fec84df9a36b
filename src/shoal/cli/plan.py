"""`shoal plan`: the least noise that is enough, all mechanisms side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli import show
from shoal.cli.options import (
    AsJson,
    Force,
    PlotPath,
    SpecPath,
    TimeLimit,
    check_apart,
    check_chart,
    check_output,
    new_app,
)
from shoal.cli.show import CTRL_C, STOPPED, limited

if TYPE_CHECKING:
    from shoal.cli.charts import RowComparison
    from shoal.core.plan import Plan
    from shoal.spec.request import Request

app = new_app()

LONGEST = 4  # bars are cut at this multiple of the chosen noise

EXAMPLES = """\b
Examples:
  shoal plan shoal.toml
  shoal plan shoal.toml --json | jq .scale
  shoal plan shoal.toml --save plan.json --plot noise.png
"""


class PlanView(NamedTuple):
    """How a family shows its rows side by side, what it adds to the JSON, and its own chart."""

    tell: Callable[[RowComparison], None]
    more: Callable[[Plan], dict[str, Any]]
    chart: Callable[[Plan], bytes] | None = None


def _view_of(plan: Plan) -> PlanView | None:
    from shoal.core.registry import plan_hook

    found: PlanView | None = plan_hook("plan", plan)
    return found


@app.command(epilog=EXAMPLES)
def plan(
    spec: SpecPath,
    as_json: AsJson = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Store the plan, for `shoal release`."),
    ] = None,
    plot: PlotPath = None,
    time_limit: TimeLimit = None,
    force: Force = False,
) -> None:
    """Find the least noise that is enough, and explain it.

    Calibrates every mechanism that applies to the spec, without any data, and shows the noise of
    each. The plan that is explained is the one the spec asks for: the least costly proved one, or
    the one it names.
    """
    from shoal.cli.charts import as_json as comparison_json, compare
    from shoal.cli.sources import NamedColumns
    from shoal.spec.request import read_request

    if save is not None:
        check_output(save, force=force)
        check_apart(save, spec)
    check_chart(plot, force=force)
    request = read_request(spec)
    with (
        limited(time_limit) as watch,
        show.working("calibrating"),
        request.limited(time_limit),
    ):
        comparison = compare(request.task, request.epsilon(), request.mechanism)
        if NamedColumns.of(request.data).parts:
            own = request.plan(parts=True)
            rows = {**comparison.alternatives, own.mechanism: own}
            comparison = replace(comparison, plan=own, alternatives=rows)
    if as_json:
        view = _view_of(comparison.plan)
        more = {} if view is None else view.more(comparison.plan)
        show.print_json({**comparison_json(comparison), **more})
    else:
        print_comparison(comparison, request)
    _write(comparison, save, plot, quiet=as_json)
    if watch.cut:
        typer.echo(
            f"NOTE: cut short ({watch.cut}): this is the best of the mechanisms that were done.",
            err=True,
        )
    if watch.cut == CTRL_C:
        raise typer.Exit(STOPPED)


def print_comparison(comparison: RowComparison, request: Request) -> None:
    """The plan in words, then every mechanism's noise as a bar."""
    out = show.console()
    if request.privacy.error is not None:
        out.print(
            f"epsilon = {float(comparison.epsilon):g} is the least budget that keeps each value "
            f"within {float(request.privacy.error):g} {request.task.query.unit}."
        )
        out.print()
    out.print(show.paragraphs(comparison.plan.explain()))
    out.print()
    view = _view_of(comparison.plan)
    (print_noise if view is None else view.tell)(comparison)


def print_noise(comparison: RowComparison) -> None:
    """A table of all mechanisms: scale, bar, standing; refusals below it."""
    from shoal.core.plan import Plan

    out = show.console()
    plans = [p for p in comparison.alternatives.values() if isinstance(p, Plan)]
    cells = _cells(plans, comparison.plan, ascii_only=out.options.ascii_only)
    unit = comparison.plan.task.query.unit
    out.print(f"Noise of every mechanism: its scale, and the mean error of a value, in {unit}:")
    titles = ("mechanism", "scale", "error", "", "promise")
    out.print(show.table(titles, cells, numbers=(1, 2)))
    refused = {n: why for n, why in comparison.alternatives.items() if isinstance(why, str)}
    if refused:
        out.print()
        out.print("These do not apply:")
        out.print(show.paragraphs("\n".join(_reasons(refused))))


def _reasons(refused: dict[str, str]) -> list[str]:
    """ "name: why" for each row refused; rows of one kind with one reason share a line."""
    sharing: dict[tuple[str, str], list[str]] = {}
    for name, why in refused.items():
        reason = why.removeprefix(f"{name} does not apply: ")
        sharing.setdefault((name.partition("-")[0], reason), []).append(name)
    return [
        f"{names[0] if len(names) == 1 else f'{kind}-*'}: {why}"
        for (kind, why), names in sharing.items()
    ]


def _cells(plans: list[Plan], chosen: Plan, *, ascii_only: bool) -> list[tuple[str, ...]]:
    from shoal.additive.choice import standing
    from shoal.cli.charts import error_of, scale_of
    from shoal.core.numbers import significant

    errors = [error_of(plan) or 0.0 for plan in plans]
    # a bar for group privacy at full length would leave no room to tell the others apart
    longest = min(max(errors), LONGEST * (error_of(chosen) or max(errors)))
    return [
        (
            plan.mechanism,
            "–" if (scale := scale_of(plan)) is None else significant(scale),
            significant(error),
            show.bar(error, longest, ascii_only=ascii_only, width=show.HALF),
            ("chosen, " if plan.mechanism == chosen.mechanism else "") + standing(plan),
        )
        for plan, error in zip(plans, errors, strict=True)
    ]


def _chart(comparison: RowComparison) -> bytes:
    view = _view_of(comparison.plan)
    if view is not None and view.chart is not None:
        return view.chart(comparison.plan)
    from shoal.cli.charts import noise_chart

    return noise_chart(comparison)


def _write(comparison: RowComparison, save: Path | None, plot: Path | None, *, quiet: bool) -> None:
    from shoal.core.registry import dumps

    if save is not None or plot is not None:
        from shoal.data.write import atomic_write

        if save is not None:
            atomic_write(save, dumps(comparison.plan) + "\n")
        if plot is not None:
            atomic_write(plot, _chart(comparison))
    if not quiet:
        for path, what in ((save, "plan"), (plot, "chart")):
            if path is not None:
                typer.echo(f"\nThe {what} is in {path}")
