"""`shoal attack` for context streams: an adversary's belief over one day, naive and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.cli import show
from shoal.cli.attack import AttackOptions, AttackView, chosen_records, member
from shoal.cli.leak import StreamLeak
from shoal.cli.show import write_chart
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import significant
from shoal.events.secrets import Events

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
    from shoal.contexts.attack import ContextCurves, EventCurves
    from shoal.core.plan import Plan
    from shoal.core.records import Sequences
    from shoal.core.task import Model, Secrets
    from shoal.events.event import TimeEvent
    from shoal.spec.request import Request

Contexts = list[list[str | None]]  # a context per slot, day by day; None where it was not read
MOST_SLOTS_LISTED = 24  # of a table: longer days are shown every few slots


def view_of(plan: Plan, held: Model | None) -> AttackView:
    """Return how `shoal attack` shows a plan of contexts."""
    return AttackView(_attack, ("secrets",))


class DayShown(NamedTuple):
    """What an attack on one day reports: lines, a table, a JSON object and chart panels.

    `cells` returns those of one slot, under `columns`; columns from `first` on are numbers.
    `panels` are titles and curves over the slots.
    """

    lines: list[str]
    columns: Sequence[str]
    cells: Callable[[int], list[str]]
    first: int
    found: dict[str, Any]
    panels: list[tuple[str, dict[str, Any]]]


def _attack(plan: Plan, data: str, columns: NamedColumns, options: AttackOptions) -> None:
    """Run one whole day of the data through the plan and print what it gives away.

    The first day with a sensitive context, where naive masking shows its worst; else the fullest.
    """
    from shoal.contexts.attack import attack_contexts, attack_events
    from shoal.noise.primitives import SeededRng

    member(plan, options.model)
    days = timed_days(plan, data, columns, options.who)
    if days is None:
        _, records = chosen_records(plan, data, columns, options.who)
        days = chained_days(plan, records)
    events = asked_events(options.secrets)
    sensitive = set(secret_names(plan)).union(*(event.states() for event in events or ()))
    fullest = max(days, key=lambda day: sum(context is not None for context in day))
    names = next((day for day in days if sensitive & set(day)), fullest)
    rng = SeededRng(options.seed)
    if isinstance(plan.task.secrets, Events):
        curves = attack_events(plan, names, rng, adversary=options.model, events=events or ())
        shown = events_shown(plan, curves)
    else:
        day = attack_contexts(plan, names, rng, adversary=options.model, events=events)
        curves, shown = day, contexts_shown(plan, day)
    if options.as_json:
        show.print_json(shown.found)
    else:
        out = show.console()
        for line in shown.lines:
            out.print(line)
        out.print(_day_table(curves, shown))
    if options.plot is not None:
        write_chart(options.plot, belief_chart(curves.clock, shown.panels), as_json=options.as_json)


def asked_events(secrets: Secrets | None) -> tuple[TimeEvent, ...] | None:
    """Return the events that another spec names; None without one."""
    from shoal.core.task import as_events

    found = None if secrets is None else as_events(secrets)
    if secrets is not None and found is None:
        raise InputError("--secrets names no events; give a spec with [[secrets.event]]")
    return None if found is None else found.all_events()


def timed_days(plan: Plan, data: str, columns: NamedColumns, who: str | None) -> Contexts | None:
    """Return the whole days of one person by the clock; None where rows have no times of day.

    Midnight is no pause, so days that follow each other are told apart by their dates, as
    `shoal fit --slot` and `shoal stream --clock` do.
    """
    import polars as pl

    from shoal.contexts.day import DayChain
    from shoal.data.positions import Slots, timed_rows, traces_of
    from shoal.data.read import load, matching
    from shoal.data.times import holds_seconds

    day, state, time = plan.task.family[0], columns.state, columns.time
    if state is None or time is None or columns.gap is not None:
        return None
    first = load(matching(data)[0], state=state, series=columns.series, time=time)
    if not (isinstance(day, DayChain) and day.slot_minutes) or holds_seconds(first[time]):
        return None
    rows = timed_rows(data, **columns.named)
    people = rows["person"].unique(maintain_order=True).to_list()
    name = people[0] if who is None else who
    if name not in people:
        raise InputError(f"--who is {name!r}; it must be one of {', '.join(people[:8])}")
    own = rows.filter(pl.col("person") == name)
    found = traces_of(own, Slots(day.start_minute, day.slot_minutes, day.slots)).days
    known = {*day.states, None}
    read = [list(trace) for trace in found if set(trace) <= known and set(trace) != {None}]
    if not read:
        raise DataError(
            f"no day of {name!r} holds contexts of the model only; attack somebody else's with "
            "--who, or fit a model on these contexts"
        )
    return read


def chained_days(plan: Plan, records: Sequences) -> Contexts:
    """Return the chains of the data that have a reading for each slot of the model's day."""
    slots = plan.task.family[0].tied
    whole = [chain for chain in records.chains if len(chain) == slots]
    if not whole:
        raise DataError(
            f"no chain of the data has the {slots} slots of the model's day; cut the data into "
            "days, with a gap, or fit a day of another length"
        )
    return [[str(records.states[int(state)]) for state in chain] for chain in whole]


def secret_names(plan: Plan) -> list[str]:
    """Return the contexts that are sensitive at some slot, or that an event names."""
    from shoal.contexts.checks.task import day_and_secrets

    if isinstance(plan.task.secrets, Events):
        return sorted(set().union(*(e.states() for e in plan.task.secrets.all_events())))
    day, secrets = day_and_secrets(plan.task)
    shares = secrets.shares(day)
    return [name for j, name in enumerate(day.states) if shares[:, j].any()]


def _day_table(curves: EventCurves, shown: DayShown) -> Any:
    """Return a table with truth, output and beliefs, one row every few slots."""
    clock, outputs = curves.clock, curves.outputs
    rows = [
        (clock[t], str(curves.truth[t] or "not read"), outputs[t] or "-", *shown.cells(t))
        for t in range(0, len(clock), -(-len(clock) // MOST_SLOTS_LISTED))
    ]
    names = ("slot", "truth", "shown", *shown.columns)
    return show.table(names, rows, numbers=tuple(range(shown.first, len(names))))


def contexts_shown(plan: Plan, curves: ContextCurves) -> DayShown:
    """Report the belief in the context at risk, by the plan and by naive masking."""
    naive, checked = curves.highest_rise()
    amount, three = float(plan.guarantee.amount), (curves.before, curves.naive, curves.after)

    def cells(t: int) -> list[str]:
        worst = int((curves.naive[t] - curves.before[t]).argmax())
        return [curves.contexts[worst], *(f"{curve[t, worst]:.2f}" for curve in three)]

    lines = [
        f"Showing all but what is sensitive raises a belief by up to {naive:.2f}; "
        f"{plan.mechanism} by up to {checked:.2f} (allowed: {amount:g}).",
        _lesser_line(curves, checked),
    ]
    lines += [
        f"This stream hides each single slot at delta = {amount:g}; that one was {curve.event} at "
        f"all on this day it shows: {curve.before:.2f} -> {curve.after[-1]:.2f} (naive masking "
        f"{curve.naive[-1]:.2f}; not promised: ask for it with [[secrets.event]])."
        for curve in curves.events
    ]
    panels = []
    for column, name in enumerate(curves.contexts):
        before = curves.before[:, column]
        beliefs = {
            "naive masking": curves.naive[:, column],
            plan.mechanism: curves.after[:, column],
            "before": before,
            "before + δ": before + amount,
        }
        if curves.weak is not None:
            beliefs["frequencies alone"] = curves.weak[:, column]
        panels.append((f"belief in {name}", beliefs))
    columns = ("belief in", "before", "naive", plan.mechanism)
    return DayShown(lines, columns, cells, 4, _contexts_object(curves), panels)


def events_shown(plan: Plan, curves: EventCurves) -> DayShown:
    """Report the belief in each event over the day, by the plan and by naive masking."""
    lines, panels = [], []
    for number, curve in enumerate(curves.events, 1):
        lines.append(
            f"That one was {curve.event}: {curve.before:.2f} before; hiding just the contexts it "
            f"names leads to {curve.naive.max():.2f} at most, {plan.mechanism} to "
            f"{curve.after.max():.2f}."
        )
        before = curve.before + 0 * curve.after
        beliefs = {"naive masking": curve.naive, plan.mechanism: curve.after, "before": before}
        if plan.guarantee.notion == "delta-privacy":
            beliefs["before + δ"] = before + float(plan.guarantee.amount)
        panels.append((f"belief in event {number}", beliefs))
    numbers = range(1, len(curves.events) + 1)
    columns = [f"event {i} {which}" for i in numbers for which in ("naive", "plan")]
    both = [belief for curve in curves.events for belief in (curve.naive, curve.after)]
    cells = lambda t: [f"{belief[t]:.2f}" for belief in both]  # noqa: E731
    return DayShown(lines, columns, cells, 3, _played_object(curves), panels)


def _lesser_line(curves: ContextCurves, checked: float) -> str:
    """Return a sentence about an adversary who knows less than the chain."""
    if curves.labelled:
        return (
            "Somebody unsure of labels, each alike, comes to believe in a sensitive context by up "
            f"to {curves.labelled_rise():.2f} more (covered: states that may be sensitive are "
            "treated as sensitive)."
        )
    weak = curves.weak_rise()
    alone = "cannot explain this output" if weak is None else f"by up to {weak:.2f} (not promised)"
    return (
        "Somebody who knows only how frequent contexts are, once the chain is published with the "
        f"output: by up to {checked:.2f} (covered); without it, and never learning: {alone}."
    )


def _played_object(curves: EventCurves) -> dict[str, Any]:
    """Return the day, its outputs and the beliefs in events as a JSON object."""
    return {
        "slots": list(curves.clock),
        "truth": list(curves.truth),
        "shown": list(curves.outputs),
        "events": [
            {
                "event": curve.event,
                "before": curve.before,
                "naive": curve.naive.tolist(),
                "after": curve.after.tolist(),
            }
            for curve in curves.events
        ],
    }


def _contexts_object(curves: ContextCurves) -> dict[str, Any]:
    """Return the attack as one JSON object."""
    naive, checked = curves.highest_rise()
    return {
        **_played_object(curves),
        "contexts": list(curves.contexts),
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


STYLES: dict[str, dict[str, str]] = {
    "naive masking": {"color": "#c8553d"},
    "frequencies alone": {"color": "#d9a441", "linestyle": "--"},
    "before": {"color": "#7a7a7a"},
    "before + δ": {"color": "#7a7a7a", "linestyle": ":"},
}


def belief_chart(clock: tuple[str, ...], panels: list[tuple[str, dict[str, Any]]]) -> bytes:
    """Return a PNG with curves of beliefs over the slots of a day, one panel each."""
    from shoal.cli.charts import _png
    from shoal.contexts.views.day import slot_panels

    figure, panel_axes = slot_panels(clock, len(panels), 2.4, 0.6)
    for (title, lines), axes in zip(panels, panel_axes, strict=True):
        for name, line in lines.items():
            style: Any = STYLES.get(name, {"color": "#1b7f8c"})
            axes.plot(range(len(clock)), line, label=name, **style)
        axes.set_ylim(-0.02, 1.02)
        axes.set_ylabel(title)
    panel_axes[0].legend(frameon=False, ncols=4, fontsize="small")
    return _png(figure)


NAIVE = "mask-sensitive"


def _leak_of_events(request: Request) -> StreamLeak:
    """Report what suppressing exactly the contexts that events name gives away."""
    from shoal.contexts.attack import naive_event_rises

    task, amount = request.task, request.epsilon()
    with show.working("measuring"):
        found = naive_event_rises(task, amount)
    plain = show.console().options.ascii_only
    sentence = "; ".join(
        f"the belief in having been {name} goes from {before:.2f} up to {most:.2f}"
        for name, before, most in found
    )
    rows = [
        (name, f"{before:.2f} -> {most:.2f}", show.bar(most, 1.0, ascii_only=plain))
        for name, before, most in found
    ]
    rises = [most - before for _, before, most in found]
    unit = "belief_delta" if task.secrets.notion == "delta-privacy" else "epsilon"
    return StreamLeak(
        {
            unit: float(amount),
            "mechanism": NAIVE,
            "events": [{"event": n, "before": b, "most": m} for n, b, m in found],
            "in_words": sentence,
        },
        (
            "Hiding exactly the contexts that events name and showing all others is what people "
            "try first. The gap itself tells:",
            f"On 24 random days {sentence}. `shoal plan` finds what can be shown safely.",
        ),
        ("event", "belief", ""),
        rows,
        ([name for name, *_ in found], rises, float(amount)),
    )


def leak_of_contexts(request: Request, eta: str | None) -> StreamLeak:
    """Report what suppressing exactly the sensitive contexts gives away."""
    from shoal.contexts.checks.task import MaskCertificate
    from shoal.mechanisms.choice import choose

    if eta is not None:
        raise InputError(
            f"--eta is {eta}, but contexts are hidden without noise, so there is no epsilon; drop "
            "it: what may be learned is privacy.belief_delta"
        )
    task, delta = request.task, request.epsilon()
    if isinstance(task.secrets, Events):
        return _leak_of_events(request)
    with show.working("measuring"):
        plan = choose(task, delta, NAIVE).plan
    measured = plan.certificate
    assert isinstance(measured, MaskCertificate)
    wanted, models = float(delta), [model.describe() for model in task.family]
    sentence = (
        f"some output raises the belief in a sensitive context by {significant(measured.rise)}, "
        f"where at most {wanted:g} is wanted; {plan.guarantee.caveat}"
    )
    words = (
        "Hiding exactly the sensitive contexts and showing all others is what people try first. "
        "The gap itself tells, and so do the contexts before and after it:",
        f"Under {' and '.join(models)}, {sentence}. It shows {significant(measured.releases)} of "
        f"{measured.slots} slots on average; `shoal plan` finds what can be shown safely.",
    )
    plain = show.console().options.ascii_only
    bars = (
        ("wanted (privacy.belief_delta)", wanted),
        ("over all outputs of a day", measured.rise),
    )
    rows = [
        (name, significant(value), show.bar(value, 1.0, ascii_only=plain)) for name, value in bars
    ]
    return StreamLeak(
        {
            "belief_delta": wanted,
            "mechanism": NAIVE,
            "promised": {"delta": wanted, "over": task.secrets.subject},
            "rise": measured.rise,
            "breached": measured.breached,
            "shown": measured.releases,
            "slots": measured.slots,
            "models": models,
            "in_words": sentence,
        },
        words,
        ("", "rise of belief", ""),
        rows,
        (["measured"], [measured.rise], wanted),
    )
