"""A suppression plan as a calendar of the day, and all checks side by side."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from shoal.cli import show
from shoal.cli.plan import PlanView

if TYPE_CHECKING:
    from shoal.cli.charts import RowComparison
    from shoal.core.plan import Plan

WIDE = 120  # columns of a terminal with room for long bars and three contexts of a slot
MOST_ROWS = 24  # longer days are shown in stretches of several slots


def shows_contexts(plan: Plan) -> bool:
    """Whether a plan is a stream of contexts, which has a calendar instead of noise."""
    return plan.guarantee.notion == "delta-privacy"


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
    out.print("The day: how often a slot is shown, as what, and why not more often:")
    rows = [
        _cells(row, wide=wide, ascii_only=out.options.ascii_only)
        for row in day_rows(comparison.plan)
    ]
    out.print(show.table(("from", "shown", "", "mostly", "suppressed because"), rows, numbers=(1,)))


def calendar_object(plan: Plan) -> list[dict[str, Any]]:
    """The calendar for `shoal plan --json`: one object per slot."""
    return day_rows(plan, longest=10**9)


def day_rows(plan: Plan, longest: int = MOST_ROWS) -> list[dict[str, Any]]:
    """Stretches of the day: when, how likely shown, the likeliest shown contexts, and why not."""
    from shoal.contexts.checks.choice import reasons, shown_rates
    from shoal.contexts.checks.task import parts

    day, _ = parts(plan.task)
    rates, prior, why = shown_rates(plan), day.marginals(), reasons(plan)
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
            }
        )
    return rows


def _largest(shares: dict[str, float]) -> list[tuple[str, float]]:
    """What matters, the largest share first."""
    return sorted(((n, p) for n, p in shares.items() if p > 0.005), key=lambda item: -item[1])


def _checks(
    comparison: RowComparison, slots: int, *, wide: bool, ascii_only: bool
) -> list[tuple[str, ...]]:
    from shoal.cli.charts import standing
    from shoal.core.numbers import significant
    from shoal.core.plan import Plan

    cells: list[tuple[str, ...]] = []
    width = show.BAR_WIDTH if wide else show.HALF // 2
    for name, plan in comparison.alternatives.items():
        if isinstance(plan, Plan) and shows_contexts(plan):
            chosen = "chosen, " if name == comparison.plan.mechanism else ""
            rise = getattr(plan.certificate, "rise", 0.0)
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
        ", ".join(f"{name} {share:.0%}" for name, share in row["reasons"].items()),
    )


PLAN = PlanView(print_calendar, lambda plan: {"calendar": calendar_object(plan)})
