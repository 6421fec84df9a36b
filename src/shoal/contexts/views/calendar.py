"""A suppression plan as a calendar of the day, and all checks side by side."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from shoal.cli import show
from shoal.cli.plan import PlanView

if TYPE_CHECKING:
    from shoal.cli.plan import RowComparison
    from shoal.contexts.day import DayChain
    from shoal.core.plan import Plan

WIDE = 120  # columns of a terminal with room for long bars and three contexts of a slot
MOST_ROWS = 24  # longer days are shown in stretches of several slots


def shows_contexts(plan: Plan) -> bool:
    """Whether a plan is a stream of contexts, which has a calendar instead of noise."""
    return plan.mechanism.startswith("mask-")


def hides_events(plan: Plan) -> bool:
    """Whether a plan is about events, so that its calendar shows the belief in each."""
    return plan.mechanism == "mask-online"


def print_calendar(comparison: RowComparison) -> None:
    """The checks side by side, then the day of the chosen one."""
    out = show.console()
    slots = comparison.plan.task.family[0].tied or 1
    wide = out.width >= WIDE
    out.print(f"Contexts shown on average, of {slots} slots:")
    out.print(
        show.table(
            ("check", "shown", "", "highest rise", "promise"),
            _checks(comparison, slots, wide=wide, ascii_only=out.options.ascii_only),
            numbers=(1, 3),
        )
    )
    out.print()
    out.print(delta_words(comparison.plan))
    out.print()
    events, last = hides_events(comparison.plan), "suppressed because"
    if events:
        last = "belief in each event, over random days"
        for number, (words, prior) in enumerate(event_priors(comparison.plan), 1):
            out.print(f"Event {number}: {words}; {prior:.1%} likely before anything is shown.")
        out.print("The day: how often a slot is shown, as what, and what is believed after it:")
    else:
        out.print("The day: how often a slot is shown, as what, and why not more often:")
    rows = [
        _cells(row, wide=wide, ascii_only=out.options.ascii_only)
        for row in day_rows(comparison.plan)
    ]
    out.print(show.table(("from", "shown", "", "mostly", last), rows, numbers=(1,)))


def delta_words(plan: Plan) -> str:
    """What the amount means, before somebody is surprised."""
    amount = float(plan.guarantee.amount)
    if plan.guarantee.notion != "delta-privacy":
        return (
            f"epsilon = {amount:g} bounds how far outputs move the odds of each event, not how "
            "often anything is shown; contexts an event names may be shown."
        )
    if hides_events(plan):
        return (
            f"delta = {amount:g} bounds how far outputs raise the belief in each event; contexts "
            "that an event names may be shown where that tells little new."
        )
    return (
        f"delta = {amount:g} bounds how far outputs raise a belief above what everybody expects "
        "anyway: where a sensitive context is already likely it may be shown often. Ask for more "
        'with never = ["home"] (never shown at all), or with events ("at some time today").'
    )


def event_priors(plan: Plan) -> list[tuple[str, float]]:
    """The events of a plan in words, with what everybody believes before any output."""
    from shoal.events.secrets import Events

    secrets, day = plan.task.secrets, plan.task.family[0]
    assert isinstance(secrets, Events)
    return [(event.describe(), event.prior(day)) for event in secrets.all_events()]


def calendar_object(plan: Plan) -> list[dict[str, Any]]:
    """The calendar for `shoal plan --json`: one object per slot."""
    return day_rows(plan, longest=10**9)


def day_rows(plan: Plan, longest: int = MOST_ROWS) -> list[dict[str, Any]]:
    """Stretches of the day: when, how likely shown, the likeliest shown contexts, and why not."""
    day, rates, why, curves = _day_of(plan)
    prior = day.marginals()
    size = -(-day.slots // longest)
    rows = []
    for first in range(0, day.slots, size):
        slots = range(first, min(first + size, day.slots))
        missing: dict[str, float] = defaultdict(float)
        contexts: dict[str, float] = defaultdict(float)
        for t in slots:
            for j, name in enumerate(day.states):
                contexts[name] += float(rates[t, j]) / len(slots)
                if why[t][j]:
                    missing[why[t][j]] += float(prior[t, j] - rates[t, j]) / len(slots)
        rows.append(
            {
                "from": day.clock(first),
                "slot": first,
                "shown": float(sum(contexts.values())),
                "contexts": dict(_largest(contexts)[:3]),
                "reasons": dict(_largest(missing)),
                **({} if curves is None else {"beliefs": _spans(curves[:, slots[-1]])}),
            }
        )
    return rows


def _day_of(plan: Plan) -> tuple[DayChain, Any, list[list[str]], Any]:
    """The day, how often each context is shown, why not more often, and beliefs in events."""
    from shoal.contexts.checks.choice import reasons, shown_rates
    from shoal.contexts.day import DayChain

    day = plan.task.family[0]
    assert isinstance(day, DayChain)
    if not hides_events(plan):
        return day, shown_rates(plan), reasons(plan), None
    from shoal.contexts.audit.events import sampled_days

    rates, curves = sampled_days(plan)
    return day, rates, [["hides an event"] * day.size] * day.slots, curves


def _spans(beliefs: Any) -> list[dict[str, float]]:
    """The least, mean and greatest belief in each event over the sampled days."""
    columns = zip(beliefs.min(axis=0), beliefs.mean(axis=0), beliefs.max(axis=0), strict=True)
    return [{"least": float(a), "mean": float(b), "most": float(c)} for a, b, c in columns]


def _largest(shares: dict[str, float]) -> list[tuple[str, float]]:
    """What matters, the largest share first."""
    return sorted(((n, p) for n, p in shares.items() if p > 0.005), key=lambda item: -item[1])


def _checks(
    comparison: RowComparison, slots: int, *, wide: bool, ascii_only: bool
) -> list[tuple[str, ...]]:
    from shoal.additive.choice import standing
    from shoal.core.numbers import significant
    from shoal.core.plan import Plan

    cells: list[tuple[str, ...]] = []
    width = show.BAR_WIDTH if wide else show.HALF // 2
    for name, plan in comparison.alternatives.items():
        if isinstance(plan, Plan) and shows_contexts(plan):
            chosen = "chosen, " if name == comparison.plan.mechanism else ""
            rise = getattr(plan.certificate, "rise", float(plan.guarantee.amount))
            cells.append(
                (
                    name,
                    significant(-plan.cost),
                    show.bar(-plan.cost, slots, ascii_only=ascii_only, width=width),
                    significant(rise),
                    chosen + standing(plan),
                )
            )
    return cells


def _cells(row: dict[str, Any], *, wide: bool, ascii_only: bool) -> tuple[str, ...]:
    width, contexts = (show.BAR_WIDTH, 3) if wide else (show.HALF // 2, 2)
    mostly = list(row["contexts"].items())[:contexts]
    return (
        row["from"],
        f"{row['shown']:.0%}",
        show.bar(row["shown"], 1.0, ascii_only=ascii_only, width=width),
        ", ".join(f"{name} {share:.0%}" for name, share in mostly),
        ", ".join(f"{name} {share:.0%}" for name, share in row["reasons"].items())
        if "beliefs" not in row
        else ", ".join(f"{span['least']:.0%} to {span['most']:.0%}" for span in row["beliefs"]),
    )


def day_chart(plan: Plan) -> bytes:
    """A PNG: how often each context is shown over the day, and the beliefs in events if any."""
    import io

    from matplotlib.figure import Figure

    rows = day_rows(plan, longest=96)
    names = list(dict.fromkeys(name for row in rows for name in row["contexts"]))
    events = event_priors(plan) if hides_events(plan) else []
    figure = Figure(figsize=(9, 3 + 2 * bool(events)), layout="constrained")
    panels = figure.subplots(1 + bool(events), 1, squeeze=False, sharex=True)[:, 0]
    places, bottom = range(len(rows)), [0.0] * len(rows)
    for name in names:
        heights = [row["contexts"].get(name, 0.0) for row in rows]
        panels[0].bar(places, heights, bottom=bottom, width=1.0, label=name)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    rest = [max(row["shown"] - drawn, 0.0) for row, drawn in zip(rows, bottom, strict=True)]
    if max(rest) > 0.005:
        panels[0].bar(places, rest, bottom=bottom, width=1.0, color="#b7c4cc", label="others")
    panels[0].set_ylim(0, 1.15)
    panels[0].set_ylabel("share of days shown")
    panels[-1].set_xlabel("slot of the day that begins at")
    for number, (words, prior) in enumerate(events):
        spans = [row["beliefs"][number] for row in rows]
        mean = panels[1].plot(places, [span["mean"] for span in spans], label=words)[0]
        low, high = ([span[key] for span in spans] for key in ("least", "most"))
        panels[1].fill_between(places, low, high, color=mean.get_color(), alpha=0.2)
        panels[1].axhline(prior, color=mean.get_color(), linestyle=":")
        panels[1].set_ylabel("belief")
        panels[1].set_ylim(0, 1)
    ticks = list(places)[:: max(1, len(rows) // 8)]
    panels[-1].set_xticks(ticks, [rows[t]["from"] for t in ticks])
    for axes in panels:
        axes.legend(frameon=False, fontsize="small", ncols=4)
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


PLAN = PlanView(print_calendar, lambda plan: {"calendar": calendar_object(plan)}, day_chart)
