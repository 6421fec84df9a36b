"""Values that show themselves in a notebook, drawn by the studio's views.

    %load_ext shoal.studio.notebook

After that a plan, a release, an audit, a leakage, a stream or a ledger at the end of a cell is a
picture. Without JavaScript, without `anywidget` or without the built views the table of
`_repr_html_` stands in its place.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np

from shoal.additive.lift import Leakage
from shoal.audit.result import Audit
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.contexts.stream import ContextStream
from shoal.core.errors import InputError
from shoal.core.plan import Additive, Plan, Release
from shoal.ledger.store import SqlLedger
from shoal.noise.primitives import SeededRng
from shoal.places.queries import Measurement
from shoal.places.stream import LocationStream
from shoal.studio import props
from shoal.studio.app import static_folder
from shoal.studio.props import Props
from shoal.studio.rooms import budget, day, places

DRAWS = 100  # of noise around nothing: what a release of the plan will be off by


@singledispatch
def view_of(value: Any) -> tuple[str, Props] | None:
    """The view that shows `value`, and its props; None where there is none."""
    return None


@view_of.register
def _(plan: Plan) -> tuple[str, Props] | None:
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
    value = leakage.value if math.isfinite(leakage.value) else None
    return "auditDensities", {
        "promised": float(leakage.eta),
        "lower": value,
        "upper": value,
        "notion": "under correlation",
        "curve": [],
        "belief": [],
        "unit": "",
    }


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


def widget(value: Any) -> Any:
    """The picture of `value` as a widget; refused where it has none."""
    found = view_of(value)
    if found is None:
        raise InputError(f"there is no picture of a {type(value).__name__}")
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise InputError(
            "pictures in notebooks need anywidget; install it with: pip install 'shoal[notebook]'"
        ) from None

    view_name, view_props = found

    class Picture(anywidget.AnyWidget):
        _esm = static_folder() / "views.js"
        view = traitlets.Unicode(view_name).tag(sync=True)
        props = traitlets.Dict(view_props).tag(sync=True)

    return Picture()


def _bundle(value: Any, include: Any = None, exclude: Any = None) -> Any:
    """What the notebook is handed for `value`; None leaves it to `_repr_html_`."""
    try:
        return widget(value)._repr_mimebundle_(include=include, exclude=exclude)
    except InputError:
        return None


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext shoal.studio.notebook`: from now on values show themselves."""
    formatter = shell.display_formatter.mimebundle_formatter
    for kind in view_of.registry:
        if kind is not object:
            formatter.for_type(kind, _bundle)
