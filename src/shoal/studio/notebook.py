"""Values that show themselves in a notebook, drawn by the studio's views.

    %load_ext shoal.studio.notebook

After that a plan, a release, an audit, a leakage, a policy, a stream or a ledger at the end of a
cell is a picture, and `play(plan, readings)` plays a stream. Without JavaScript, without
`anywidget` or without the built views the table of `_repr_html_` stands in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from html import escape
from typing import Any

import numpy as np

from shoal.audit.result import Audit
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.contexts.stream import ContextStream
from shoal.core.charge import Rng, SystemRng
from shoal.core.errors import InputError
from shoal.core.plan import Additive, Plan, Release
from shoal.ledger.store import SqlLedger
from shoal.mechanisms.lift import Leakage
from shoal.noise.primitives import SeededRng
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement
from shoal.places.stream import LocationStream
from shoal.studio import props
from shoal.studio.props import Props, static_folder
from shoal.studio.rooms import budget, day, places, ties

MOST_STATES_DRAWN = 400  # most places of a policy that is drawn as a graph
DRAWS = 100  # of noise around nothing: what a release of the plan will be off by


@singledispatch
def view_of(value: Any) -> tuple[str, Props] | None:
    """Return the name of the view that shows `value`, and its props; None where there is none."""
    return None


@view_of.register
def _(plan: Plan) -> tuple[str, Props] | None:
    """Return the view of a plan: simulated noise, a belief map or a calendar; None for others."""
    if isinstance(plan.body, Additive):
        rng, labels = SeededRng(1), plan.task.query.labels
        step = float(plan.body.noise.step)
        noise = [
            [step * int(z) for z in plan.body.noise.draw(len(labels), rng)] for _ in range(DRAWS)
        ]
        return "noisePreview", props.noise_preview(plan, noise, [0.0] * len(labels))
    if isinstance(plan.task.query, Measurement):
        return "beliefMap", places.policy_map(plan)
    secrets = plan.task.secrets
    if day.hides_events(plan):
        return "dayCalendar", day.calendar(plan, day.named_contexts(plan))
    if isinstance(plan.task.family[0], DayChain) and isinstance(secrets, SensitiveContexts):
        names = sorted({name for names, _ in secrets.facts(1) for name in names})
        return "dayCalendar", day.calendar(plan, names)
    return None


@view_of.register
def _(release: Release) -> tuple[str, Props] | None:
    answer = release.answer
    shown = {"labels": list(answer.labels), "unit": answer.unit, "truth": None}
    return "noisePreview", {**shown, "simulated": [list(release.values)]}


@view_of.register
def _(audit: Audit) -> tuple[str, Props] | None:
    return "auditDensities", props.audit_densities(audit)


@view_of.register
def _(leakage: Leakage) -> tuple[str, Props] | None:
    return "auditDensities", props.leak_props(leakage)


@view_of.register
def _(stream: LocationStream) -> tuple[str, Props] | None:
    drawn = {**places.policy_map(stream.plan), "edges": []}
    belief = np.asarray(stream.state.belief, dtype=float)
    if len(belief) != len(drawn["cells"]):  # hidden states that are no cells have no picture
        return None
    return "beliefMap", {**drawn, "belief": belief.tolist()}


@view_of.register
def _(stream: ContextStream) -> tuple[str, Props] | None:
    found = view_of(stream.plan)
    if found is None:
        return None
    shown = [*stream.earlier, stream.shown] if stream.state.slot else []
    return found[0], {**found[1], "played": shown}


@view_of.register
def _(ledger: SqlLedger) -> tuple[str, Props] | None:
    return "budgetLine", budget.budget_line(ledger.charges(), ledger)


@view_of.register
def _(policy: PolicyGraph) -> tuple[str, Props] | None:
    if policy.size > MOST_STATES_DRAWN:
        return None
    drawn = ties.tie_graph(policy.states, policy.all_edges().tolist())
    return "tieGraph", {**drawn, "what": "more others it must look like"}


@view_of.register
def _(policy: LocationSet) -> tuple[str, Props] | None:
    return view_of(policy.policy)


def play(
    plan: Plan, readings: Sequence[Any], *, truth: bool = False, rng: Rng | None = None
) -> Any:
    """Return a widget that plays `readings` through `plan` step by step, with the beliefs.

    A notebook stores what it shows. With `truth` it contains the true places or contexts and the
    beliefs under naive hiding; without, only what was released.
    """
    if isinstance(plan.task.query, Measurement):
        panes = places.played_track(plan, readings, rng, truth=truth)
        shown = places.player([{"title": "", "panes": panes}], len(readings))
    else:
        shown = _played_day(plan, readings, truth, rng or SystemRng())
    still = f"<p>{len(readings)} {shown['per']}s, to be played where JavaScript runs.</p>"
    return _picture("player", shown, still + plan._repr_html_())


def _played_day(plan: Plan, readings: Sequence[Any], truth: bool, rng: Rng) -> Props:
    """Return the props of a day played through the plan; refused when the plan makes no stream.

    Without `truth`, the true contexts and the curve of naive hiding are left out.
    """
    found = view_of(plan)
    if found is None or found[0] != "dayCalendar":
        raise InputError(f"{plan.mechanism} makes no stream; only steps and slots can be played")
    curves, outputs, _ = day.played_day(plan, readings, rng)
    drawn = {**found[1], "played": outputs}
    if truth:
        return day.player({**drawn, "truth": list(readings)}, curves)
    for one in curves:  # what naive hiding would tell follows the truth
        one["curves"] = [curve for curve in one["curves"] if curve["kind"] != "naive"]
    return day.player(drawn, curves)


def widget(value: Any) -> Any:
    """Return the picture of `value` as a widget; refused where it has none."""
    found = view_of(value)
    if found is None:
        raise InputError(f"there is no picture of a {type(value).__name__}")
    return _picture(*found, _still(value))


def _still(value: Any) -> str:
    """Return the HTML shown where no JavaScript runs: a table, or the description in words."""
    if hasattr(value, "_repr_html_"):
        return str(value._repr_html_())
    if isinstance(value, SqlLedger):
        rows = budget.accounts_of(value)
        body = "".join(
            f"<tr><td>{escape(row['subject'])}</td><td>{escape(row['period'])}</td>"
            f"<td>{'' if row['spent'] is None else format(row['spent'], '.4g')}</td>"
            f"<td>{'' if row['left'] is None else format(row['left'], '.4g')}</td></tr>"
            for row in rows
        )
        head = "<tr><th>subject</th><th>period</th><th>spent</th><th>left</th></tr>"
        return f"<table>{head}{body}</table>"
    plan = getattr(value, "plan", None)
    if isinstance(plan, Plan):  # of a stream
        return str(plan._repr_html_())
    words = value.describe() if hasattr(value, "describe") else type(value).__name__
    return f"<p>{escape(words)}</p>"


def _picture(view_name: str, view_props: Props, still: str) -> Any:
    """Return an anywidget of the view with these props; `still` is its HTML without JavaScript.

    Refused when anywidget is not installed.
    """
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise InputError(
            "pictures in notebooks need anywidget; install it with: pip install 'shoal[notebook]'"
        ) from None

    class Picture(anywidget.AnyWidget):
        _esm = static_folder() / "views.js"
        view = traitlets.Unicode(view_name).tag(sync=True)
        props = traitlets.Dict(view_props).tag(sync=True)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """The widget, and beside it what a page without JavaScript shows."""
            made = super()._repr_mimebundle_(**options)
            data, about = made if isinstance(made, tuple) else (made, {})
            return {**(data or {}), "text/html": still}, about

    return Picture()


def _bundle(value: Any, include: Any = None, exclude: Any = None) -> Any:
    """Return the notebook's representation of `value`; None leaves it to `_repr_html_`."""
    try:
        return widget(value)._repr_mimebundle_(include=include, exclude=exclude)
    except InputError:
        return None


def load_ipython_extension(shell: Any) -> None:
    """Register the pictures for `%load_ext shoal.studio.notebook`."""
    formatter = shell.display_formatter.mimebundle_formatter
    for kind in view_of.registry:
        if kind is not object:
            formatter.for_type(kind, _bundle)
