"""Results as tables, charts and HTML: one function a kind, for notebooks and further work."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from fractions import Fraction
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.audit.result import Audit
from shoal.contexts.stream import ContextStream
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.plan import Plan, Release, Releases, Stream
from shoal.data.frames import like
from shoal.ledger.budget import Budget, running_eta
from shoal.mechanisms.choice import Choice
from shoal.mechanisms.lift import Leakage
from shoal.mechanisms.table import standing

if TYPE_CHECKING:
    import polars as pl

TableRows = list[dict[str, Any]]
CHOSEN, OTHER, ALARM = "#1b7f8c", "#b7c4cc", "#c8553d"
MOST_ROWS_SHOWN = 20  # of a table in HTML
MOST_NAMES, MOST_BARS, MOST_LINES = 25, 120, 12  # that a chart of 6.4 inches holds
CHARACTERS = 84  # of names side by side under such a chart


def frame_of(value: Any, library: str | None = None) -> Any:
    """The table of `value` in a library: the one asked for, or the one its data came in."""
    import polars as pl

    rows = _looks(value).rows(value)
    table = pl.DataFrame(rows, infer_schema_length=None)
    return like(table, library or getattr(value, "library", None))


def axes_of(value: Any, ax: Any = None) -> Any:
    """The axes `value` is drawn on."""
    if find_spec("matplotlib") is None:
        raise InputError(
            "plot needs matplotlib, which is not installed; install it with "
            "`pip install 'shoal[plot]'`"
        )
    draw = _looks(value).chart
    ax = _new_axes() if ax is None else ax
    draw(value, ax)
    return ax


def _new_axes() -> Any:
    """Axes of a figure of their own; in a notebook one that is shown by itself."""
    if "ipykernel" in sys.modules:
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=(6.4, 3.2), layout="constrained")[1]
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 3.2), layout="constrained").subplots()


def png_of(value: Any) -> bytes:
    """The chart as a PNG."""
    buffer = io.BytesIO()
    axes_of(value).figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def html_of(value: Any) -> str:
    """A caption in words, the table, and what is promised."""
    looks = _looks(value)
    table: pl.DataFrame = frame_of(value, "polars")
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(item)}</td>" for item in row) + "</tr>"
        for row in table.head(MOST_ROWS_SHOWN).iter_rows()
    )
    left = table.height - MOST_ROWS_SHOWN
    more = f"<tr><td colspan={table.width}>… {left:,} more</td></tr>" if left > 0 else ""
    return (
        f"<div><p><b>{escape(looks.caption(value))}</b></p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}{more}</tbody></table><p>{escape(looks.foot(value))}</p></div>"
    )


def _cell(item: Any) -> str:
    return escape(
        significant(item) if isinstance(item, float) else "" if item is None else str(item)
    )


def _release_rows(release: Release) -> TableRows:
    """Return one row per value: label, value, its bounds at the stated confidence, and unit."""
    off = None if release.error is None else release.error.bound
    rows: TableRows = []
    for label, value in release.as_dict().items():
        low, high = (None, None) if off is None else (value - off, value + off)
        own = {"label": label, "value": value, "low": low, "high": high}
        rows.append({**own, "unit": release.answer.unit})
    return rows


def _releases_rows(releases: Releases) -> TableRows:
    return [{"series": name, **row} for name, one in releases.items() for row in _release_rows(one)]


def _choice_rows(choice: Choice) -> TableRows:
    """Return one row per mechanism that was tried: its figures, or why it was refused."""
    found: TableRows = []
    for name, row in choice.alternatives.items():
        plan = row if isinstance(row, Plan) else None
        found.append(
            {
                "mechanism": name,
                "chosen": name == choice.plan.mechanism,
                "scale": plan and plan.scale,
                "error": plan and getattr(plan.error(), "expected", None),
                "cost": plan and plan.cost,
                "promise": plan and standing(plan),
                "proved": plan and plan.guarantee.proved,
                "refused": row if isinstance(row, str) else None,
            }
        )
    return found or _choice_rows(Choice(choice.plan, {choice.plan.mechanism: choice.plan}))


def _plan_rows(plan: Plan) -> TableRows:
    lines = [line.partition(":") for line in plan.explain().splitlines()]
    return [{"": title, "plan": text.strip()} for title, _, text in lines]


def _audit_rows(audit: Audit) -> TableRows:
    names = ("mechanism", "promised", "lower", "upper", "entry_level", "holds")
    return [{name: getattr(audit, name) for name in names}]


def _leakage_rows(found: Leakage) -> TableRows:
    return [{"claimed": float(found.eta), "true": found.value, "odds": found.factor}]


def _ledger_rows(ledger: Any) -> TableRows:
    """One row a charge, oldest first."""
    rows: TableRows = []
    names = ("at", "subject", "period", "part", "requester")
    for seq, entry in enumerate(ledger.charges(), 1):
        promise = ledger.plan(entry.plan).guarantee
        rows.append(
            {
                "seq": seq,
                **{name: getattr(entry, name) for name in names},
                "notion": promise.notion,
                "amount": float(promise.amount),
                "eta": None if entry.eta is None else float(Fraction(entry.eta)),
                "plan": entry.plan[:12],
            }
        )
    return rows


def _stream_rows(stream: Stream) -> TableRows:
    """What a stream showed, slot by slot; for streams of places where it stands."""
    if isinstance(stream, ContextStream):
        outputs = [*stream.earlier, stream.shown] if stream.state.slot else []
        return [{"slot": slot, "shown": shown} for slot, shown in enumerate(outputs)]
    state = stream.state
    names = getattr(state, "__slots__", ()) or vars(state)
    plain = {name: getattr(state, name) for name in names if not name.startswith("_")}
    return [{name: item for name, item in plain.items() if isinstance(item, int | float | str)}]


def _budget_rows(found: Budget) -> TableRows:
    """Return one row per pace of releases: their number, eta, epsilon and errors."""
    return [
        {
            "every": pace.every,
            "releases": pace.releases,
            "entries": pace.entries,
            "eta_each": float(pace.eta),
            "epsilon_all": pace.epsilon,
            "error": getattr(pace.error, "expected", None),
            "bound": getattr(pace.error, "bound", None),
            "unit": pace.plan.task.query.unit,
        }
        for pace in found.paces
    ]


def _release_chart(release: Release, ax: Any) -> None:
    """Draw the values of a release as bars with their error bounds."""
    bound = None if release.error is None else release.error.bound
    places = range(len(release.values))
    ax.bar(places, release.values, color=CHOSEN)
    if bound is not None:
        ax.errorbar(places, release.values, yerr=bound, fmt="none", ecolor="#555555", capsize=3)
    ax.axhline(0, color="black", linewidth=0.6)
    _name_places(ax, release.answer.labels)
    ax.set_ylabel(release.answer.unit)
    ax.set_title(f"{release.mechanism}, {_interval(release)}", fontsize=9)


def _name_places(ax: Any, names: Sequence[str], first: float = 0.0) -> None:
    """Names under their places: turned where they would meet, and only some of very many.

    Words that all names begin with stand under the axis, once.
    """
    least, most = min(names), max(names)
    alike = next((n for n in range(len(least)) if most[: n + 1] != least[: n + 1]), len(least))
    common = least[: least.rfind(" ", 0, alike) + 1] if len(names) > 1 else ""
    if common:
        names = [name[len(common) :] for name in names]
        ax.set_xlabel(common.strip())
    every = -(-len(names) // MOST_NAMES)
    places = range(0, len(names), every)
    ax.set_xticks([first + place for place in places], [names[place] for place in places])
    if sum(len(names[place]) + 2 for place in places) > CHARACTERS:
        ax.tick_params(axis="x", labelsize=7)
        for name in ax.get_xticklabels():
            name.set(rotation=45, ha="right", rotation_mode="anchor")


def _releases_chart(releases: Releases, ax: Any) -> None:
    """Draw several releases side by side, by `_many_chart` when there are too many bars."""
    first, names = _first(releases), list(releases)
    if len(releases) == 1:
        _release_chart(first, ax)
        return
    labels = first.answer.labels
    if len(labels) * len(names) > MOST_BARS:
        _many_chart(releases, ax)
        return
    width = 0.8 / len(labels)
    for place, label in enumerate(labels):
        at = [number + place * width for number in range(len(names))]
        heights = [one.values[place] for one in releases.values()]
        bounds = [0.0 if one.error is None else one.error.bound for one in releases.values()]
        bars = {"width": width, "label": label, "color": CHOSEN if len(labels) == 1 else None}
        ax.bar(at, heights, **bars, yerr=bounds, ecolor="#999999", error_kw={"elinewidth": 0.8})
    ax.axhline(0, color="black", linewidth=0.6)
    _name_places(ax, names, 0.4 - width / 2)
    ax.set_ylabel(first.answer.unit)
    ax.set_title(f"{first.mechanism}, {_interval(first)}", fontsize=9)
    if len(labels) > 1:
        ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _many_chart(releases: Releases, ax: Any) -> None:
    """One value each: a line with its interval. Several: a row a value, darker where it is more."""
    first, names = _first(releases), list(releases)
    values = [[one.values[row] for one in releases.values()] for row in range(len(first.values))]
    ax.set_title(f"{first.mechanism}, {_interval(first)}", fontsize=9)
    _name_places(ax, names)
    if len(values) == 1:
        bounds = [0.0 if one.error is None else one.error.bound for one in releases.values()]
        low, high = ([v + s * b for v, b in zip(values[0], bounds, strict=True)] for s in (-1, 1))
        ax.plot(values[0], color=CHOSEN, marker=".", linewidth=0.8)
        ax.fill_between(range(len(names)), low, high, color=CHOSEN, alpha=0.2, linewidth=0)
        ax.set_ylabel(first.answer.unit)
        return
    drawn = ax.imshow(values, aspect="auto", cmap="viridis", interpolation="nearest")
    every = -(-len(values) // MOST_NAMES)
    ax.set_yticks(range(0, len(values), every), first.answer.labels[::every], fontsize=7)
    ax.figure.colorbar(drawn, ax=ax, label=first.answer.unit)


def _choice_chart(choice: Choice, ax: Any) -> None:
    """Draw the mean error of every mechanism that has one, on a logarithmic axis."""
    rows = [row for row in _choice_rows(choice) if row["error"] is not None]
    colours = [CHOSEN if row["chosen"] else OTHER for row in rows]
    names = [f"{row['mechanism']}\n{row['promise']}" for row in rows]
    ax.barh(names, [row["error"] for row in rows], color=colours)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlabel(f"mean error of a value, {choice.plan.task.query.unit}")


def _plan_chart(plan: Plan, ax: Any) -> None:
    """The chance that a value is off by more than so much."""
    error = plan.error()
    if error is None:
        raise InputError(f"{plan.mechanism} states no error, so there is no chart of it")
    shares = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]
    bounds = [found.bound for share in shares if (found := plan.error(share)) is not None]
    ax.plot(bounds, [1 - share for share in shares], color=CHOSEN, marker="o")
    ax.set_xlabel(f"off by more than, {error.unit}")
    ax.set_ylabel("probability")
    ax.set_ylim(0, None)


def _audit_chart(audit: Audit, ax: Any) -> None:
    """Draw the measured loss against the promised one; an infinite loss at ten times the
    promise.
    """
    top = audit.upper if audit.upper < float("inf") else (audit.promised or 1) * 10
    ax.barh(["measured"], [top], color=CHOSEN if audit.holds else ALARM)
    if audit.promised is not None:
        ax.axvline(audit.promised, color="black", linestyle="--", label="promised")
        ax.legend(fontsize=8)
    ax.set_xlabel("loss (log-odds)")


def _leakage_chart(found: Leakage, ax: Any) -> None:
    top = found.value if found.value < float("inf") else 10 * float(found.eta)
    ax.barh(["claimed", "true"], [float(found.eta), top], color=[OTHER, ALARM])
    ax.invert_yaxis()
    ax.set_xlabel("loss (log-odds)")


def draw_spending(charges: Sequence[Any], ax: Any) -> None:
    """What every account has spent after each of its charges: the largest Σ η over any entry."""
    accounts: dict[tuple[str, str], list[Any]] = {}
    for entry in charges:
        if entry.eta is not None:
            accounts.setdefault((entry.subject, entry.period), []).append(entry)
    for names, own in accounts.items():
        times = [datetime.fromisoformat(entry.at) for entry in own]
        spent = [float(eta) for eta in running_eta(own)]
        label = " / ".join(filter(None, names))
        ax.step(times, spent, where="post", marker=".", label=label)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time of the charge")
    ax.set_ylabel("entry-level eta spent")
    ax.tick_params(axis="x", rotation=20, labelsize=8)
    if 0 < len(accounts) <= MOST_LINES:
        ax.legend(fontsize=8, frameon=False)
    else:
        none = "no charge has an entry-level eta"
        ax.set_title(f"{len(accounts):,} accounts" if accounts else none, fontsize=9)


def _stream_chart(stream: Stream, ax: Any) -> None:
    """Draw which context was shown at each slot; refused when nothing was shown."""
    rows = _stream_rows(stream)
    shown = [row.get("shown") for row in rows]
    if not any(shown):
        raise InputError("the stream has shown nothing yet; there is nothing to draw")
    names = sorted({name for name in shown if name is not None})
    at = [slot for slot, name in enumerate(shown) if name is not None]
    ax.scatter(at, [names.index(shown[slot]) for slot in at], marker="s", color=CHOSEN)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlim(-1, len(shown))
    ax.set_xlabel("slot")


def _budget_chart(found: Budget, ax: Any) -> None:
    """Draw the mean error of each pace of releases, on a logarithmic axis."""
    rows = _budget_rows(found)
    names = [f"{row['every']} ({row['releases']:,})" for row in rows]
    errors = [row["error"] or 0.0 for row in rows]
    bars = ax.bar(names, errors, color=CHOSEN)
    ax.bar_label(bars, labels=[significant(error, 3) for error in errors], fontsize=8)
    ax.set_yscale("log")
    ax.margins(y=0.12)
    ax.set_xlabel("one release every … (how many)")
    ax.set_ylabel(f"mean error of a value, {rows[0]['unit']}")
    ax.set_title(f"epsilon = {significant(found.epsilon)} for all releases together", fontsize=9)


def _interval(release: Release) -> str:
    confidence = 0 if release.error is None else release.error.confidence
    return f"{confidence:.0%} intervals" if confidence else "no stated error"


def _release_foot(release: Release) -> str:
    warning = "" if release.secure else " The noise was seeded: it protects nothing."
    return release.guarantee.describe() + warning


def _ledger_foot(ledger: Any) -> str:
    return "; ".join(limit.describe() for limit in ledger.limits()) or "No limit is set."


class Looks(NamedTuple):
    """How one kind is shown: the rows of its table, its chart, the words above and below."""

    rows: Callable[[Any], TableRows]
    chart: Callable[[Any, Any], None]
    caption: Callable[[Any], str]
    foot: Callable[[Any], str]


LOOKS = {
    "Release": Looks(
        _release_rows, _release_chart, lambda one: f"Release by {one.mechanism}", _release_foot
    ),
    "Releases": Looks(
        _releases_rows,
        _releases_chart,
        lambda several: f"{len(several)} releases by {_first(several).mechanism}",
        lambda several: _release_foot(_first(several)),
    ),
    "Choice": Looks(
        _choice_rows,
        _choice_chart,
        lambda choice: f"{choice.plan.mechanism} is chosen",
        lambda choice: choice.plan.guarantee.describe(),
    ),
    "Plan": Looks(_plan_rows, _plan_chart, repr, lambda plan: ""),
    "Audit": Looks(_audit_rows, _audit_chart, lambda audit: "Audit", Audit.describe),
    "Leakage": Looks(
        _leakage_rows,
        _leakage_chart,
        lambda found: "What an ordinary private release really leaks",
        Leakage.describe,
    ),
    "SqlLedger": Looks(
        _ledger_rows,
        lambda ledger, ax: draw_spending(ledger.charges(), ax),
        lambda ledger: "Ledger",
        _ledger_foot,
    ),
    "Stream": Looks(
        _stream_rows,
        _stream_chart,
        lambda stream: f"Stream by {stream.plan.mechanism}",
        lambda stream: stream.plan.guarantee.describe(),
    ),
    "Budget": Looks(
        _budget_rows,
        _budget_chart,
        lambda found: "A budget over parts of one series",
        lambda found: found.describe().replace("\n", " "),
    ),
}


def _first(releases: Releases) -> Release:
    return next(iter(releases.values()))


def _looks(value: Any) -> Looks:
    """Those of the class of `value`, or of the nearest class it is made from."""
    for kind in type(value).__mro__:
        if kind.__name__ in LOOKS:
            return LOOKS[kind.__name__]
    if hasattr(value, "shown_rows"):  # a family's value that shows itself
        return Looks(
            lambda one: list(one.shown_rows()),
            lambda one, ax: one.draw(ax),
            lambda one: str(one.describe()),
            lambda one: "",
        )
    raise InputError(f"a {type(value).__name__} is not shown as a table or a chart")
