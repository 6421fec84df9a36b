"""`shoal attack` for context streams: an adversary's belief over one day, naive and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli import show
from shoal.cli.attack import AttackView, Wish, chosen_records, member
from shoal.cli.options import write_chart
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
    from shoal.contexts.attack import ContextCurves
    from shoal.core.plan import Plan
    from shoal.core.records import Sequences
    from shoal.core.task import Model

Contexts = list[list[str]]  # a context per slot, day by day
MOST_ROWS = 24


def view_of(plan: Plan, held: Model | None) -> AttackView:
    """How a day of contexts is attacked."""
    return AttackView(_attack)


def _attack(plan: Plan, data: str, columns: NamedColumns, wish: Wish) -> None:
    member(plan, wish.model)
    days = timed_days(plan, data, columns, wish.who)
    if days is None:
        _, records = chosen_records(plan, data, columns, wish.who)
        days = chained_days(plan, records)
    attack_day(plan, days, wish.seed, as_json=wish.as_json, plot=wish.plot, adversary=wish.model)


def timed_days(plan: Plan, data: str, columns: NamedColumns, who: str | None) -> Contexts | None:
    """The whole days of one person, by the clock; None where rows name no times of day.

    Midnight is no pause, so days that follow each other are told apart by their dates, as
    `shoal fit --slot` and `shoal stream --clock` do.
    """
    import polars as pl

    from shoal.contexts.day import DayChain
    from shoal.contexts.views.fit import Slots, timed_rows, traces_of
    from shoal.data.read import load, matching
    from shoal.data.times import holds_seconds

    day, state, time = plan.task.family[0], columns.state, columns.time
    if state is None or time is None or columns.gap is not None:
        return None
    first = load(matching(data)[0], state=state, series=columns.series, time=time)
    if not (isinstance(day, DayChain) and day.slot_minutes) or holds_seconds(first[time]):
        return None
    rows = timed_rows(data, columns)
    people = rows["person"].unique(maintain_order=True).to_list()
    name = people[0] if who is None else who
    if name not in people:
        raise InputError(f"--who is {name!r}; it must be one of {', '.join(people[:8])}")
    own = rows.filter(pl.col("person") == name)
    found = traces_of(own, Slots(day.start_minute, day.slot_minutes, day.slots)).days
    known = set(day.states)
    whole = [[str(c) for c in trace] for trace in found if set(trace) <= known]
    if not whole:
        raise DataError(
            f"no day of {name!r} has a context of the model in each of its {day.slots} slots; "
            "attack somebody else's with --who, or fit a model with longer slots"
        )
    return whole


def chained_days(plan: Plan, records: Sequences) -> Contexts:
    """The chains of the data that have a reading for each slot of the model's day."""
    slots = plan.task.family[0].tied
    whole = [chain for chain in records.chains if len(chain) == slots]
    if not whole:
        raise DataError(
            f"no chain of the data has the {slots} slots of the model's day; cut the data into "
            "days, with a gap, or fit a day of another length"
        )
    return [[str(records.states[int(state)]) for state in chain] for chain in whole]


def attack_day(
    plan: Plan,
    days: Contexts,
    seed: int,
    *,
    as_json: bool,
    plot: Path | None,
    adversary: int = 0,
) -> None:
    """Runs one whole day of the data through the plan and prints what it gives away.

    `adversary` is the chain of the family that the adversary holds.

    The first day with a sensitive context, where naive masking shows its worst; else the first.
    """
    from shoal.contexts.attack import attack_contexts
    from shoal.noise.primitives import SeededRng

    sensitive = set(secret_names(plan))
    names = next((day for day in days if sensitive & set(day)), days[0])
    curves = attack_contexts(plan, names, SeededRng(seed), adversary=adversary)
    if as_json:
        show.print_json(curves_object(curves))
    else:
        print_curves(plan, curves)
    if plot is not None:
        write_chart(plot, curves_chart(plan, curves), as_json=as_json)


def secret_names(plan: Plan) -> list[str]:
    """The contexts that are sensitive at some slot."""
    from shoal.contexts.checks.task import parts

    day, secrets = parts(plan.task)
    shares = secrets.shares(day)
    return [name for j, name in enumerate(day.states) if shares[:, j].any()]


def print_curves(plan: Plan, curves: ContextCurves) -> None:
    """The day in rows: truth, what was shown, and the belief in the context at risk."""
    out = show.console()
    naive, checked = curves.highest_rise()
    out.print(
        f"Showing all but what is sensitive raises a belief by up to {naive:.2f}; "
        f"{plan.mechanism} by up to {checked:.2f} (allowed: {float(plan.guarantee.amount):g})."
    )
    for line in adversary_lines(curves):
        out.print(line)
    rows = []
    step = -(-len(curves.clock) // MOST_ROWS)
    for t in range(0, len(curves.clock), step):
        worst = int((curves.naive[t] - curves.before[t]).argmax())
        rows.append(
            (
                curves.clock[t],
                str(curves.truth[t]),
                curves.outputs[t] or "-",
                curves.contexts[worst],
                f"{curves.before[t, worst]:.2f}",
                f"{curves.naive[t, worst]:.2f}",
                f"{curves.after[t, worst]:.2f}",
            )
        )
    columns = ("slot", "truth", "shown", "belief in", "before", "naive", plan.mechanism)
    out.print(show.table(columns, rows, numbers=(4, 5, 6)))


def adversary_lines(curves: ContextCurves) -> list[str]:
    """What adversaries who know less than the chain come to believe on this day, in sentences."""
    _, checked = curves.highest_rise()
    if curves.labelled:
        return [
            "Somebody unsure of labels, each alike, comes to believe in a sensitive context by up "
            f"to {curves.labelled_rise():.2f} more (covered: states that may be sensitive are "
            "treated as sensitive)."
        ]
    weak = curves.weak_rise()
    alone = "cannot explain this output" if weak is None else f"by up to {weak:.2f} (not promised)"
    return [
        "Somebody who knows only how frequent contexts are, once the chain is published with the "
        f"output: by up to {checked:.2f} (covered); without it, and never learning: {alone}."
    ]


def curves_object(curves: ContextCurves) -> dict[str, Any]:
    """The attack as one JSON object."""
    naive, checked = curves.highest_rise()
    return {
        "slots": list(curves.clock),
        "contexts": list(curves.contexts),
        "truth": list(curves.truth),
        "shown": list(curves.outputs),
        "before": curves.before.tolist(),
        "naive": curves.naive.tolist(),
        "after": curves.after.tolist(),
        "highest_rise": {"naive": naive, "checked": checked},
        "adversaries": {
            "chain": checked,
            "frequencies, chain published": checked,
            "frequencies alone": curves.weak_rise(),
            "sets of labels": curves.labelled_rise() if curves.labelled else None,
        },
        "weak": None if curves.weak is None else curves.weak.tolist(),
        "labelled": {
            name: {"before": before.tolist(), "after": after.tolist()}
            for name, before, after in curves.labelled
        },
    }


def curves_chart(plan: Plan, curves: ContextCurves) -> bytes:
    """A PNG: the belief in each sensitive context over the day, and the line it may not cross."""
    import io

    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.4 * len(curves.contexts) + 0.6), layout="constrained")
    panels = figure.subplots(len(curves.contexts), 1, squeeze=False, sharex=True)
    slots = range(len(curves.clock))
    for column, (name, axes) in enumerate(zip(curves.contexts, panels[:, 0], strict=True)):
        before = curves.before[:, column]
        limit = before + float(plan.guarantee.amount)
        axes.plot(slots, curves.naive[:, column], color="#c8553d", label="naive masking")
        axes.plot(slots, curves.after[:, column], color="#1b7f8c", label=plan.mechanism)
        if curves.weak is not None:
            weak = curves.weak[:, column]
            axes.plot(slots, weak, color="#d9a441", linestyle="--", label="frequencies alone")
        axes.plot(slots, before, color="#7a7a7a", label="before")
        axes.plot(slots, limit, color="#7a7a7a", linestyle=":", label="before + δ")
        axes.set_ylim(-0.02, 1.02)
        axes.set_ylabel(f"belief in {name}")
        axes.spines[["top", "right"]].set_visible(False)
    ticks = list(slots)[:: max(1, len(curves.clock) // 8)]
    panels[-1, 0].set_xticks(ticks, [curves.clock[t] for t in ticks])
    panels[0, 0].legend(frameon=False, ncols=4, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
