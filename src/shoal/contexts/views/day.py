"""What the commands show of a day: a plan as a calendar, a stream by lines, a fitted chain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli import show
from shoal.cli.charts import _figure, _png
from shoal.cli.fit import NOT_PRIVATE, note_one_series, note_twins
from shoal.cli.plan import PlanView
from shoal.cli.show import check_output
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    from shoal.cli.plan import RowComparison
    from shoal.cli.sources import NamedColumns
    from shoal.cli.stream import StreamOptions
    from shoal.contexts.day import DayChain
    from shoal.contexts.stream import ContextStream
    from shoal.core.charge import Rng
    from shoal.core.plan import Plan
    from shoal.data.positions import Traces

WIDE = 120  # columns of a terminal with room for long bars and three contexts of a slot
MOST_STRETCHES = 24  # longer days are shown in stretches of several slots


def hides_events(plan: Plan) -> bool:
    """Return whether a plan protects events, so that its calendar shows the belief in each."""
    return plan.mechanism == "mask-online"


def print_calendar(comparison: RowComparison) -> None:
    """Print the checks side by side, then the day of the chosen one."""
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
    """Return a sentence that says what the amount bounds and what it does not."""
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
    """Return the events of a plan in words, with the belief before any output."""
    from shoal.events.secrets import Events

    secrets, day = plan.task.secrets, plan.task.family[0]
    assert isinstance(secrets, Events)
    return [(event.describe(), event.prior(day)) for event in secrets.all_events()]


def day_rows(plan: Plan, longest: int = MOST_STRETCHES) -> list[dict[str, Any]]:
    """Return one row per stretch of the day: time, share released, likely contexts, and why not."""
    day, rates, why, curves = _day_of(plan)
    prior = day.marginals()
    size = -(-day.slots // longest)
    rows = []
    for first in range(0, day.slots, size):
        slots = range(first, min(first + size, day.slots))
        missing: dict[str, float] = defaultdict(float)
        contexts: dict[str, float] = defaultdict(float)
        for t, (j, name) in product(slots, enumerate(day.states)):
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
    """Return the day, release rates, reasons for suppression, and beliefs in events."""
    from shoal.contexts.checks.task import release_rates, suppression_reasons
    from shoal.contexts.day import DayChain

    day = plan.task.family[0]
    assert isinstance(day, DayChain)
    if not hides_events(plan):
        return day, release_rates(plan), suppression_reasons(plan), None
    from shoal.contexts.audit.events import sample_days

    rates, curves = sample_days(plan)
    return day, rates, [["hides an event"] * day.size] * day.slots, curves


def _spans(beliefs: Any) -> list[dict[str, float]]:
    """Return the least, mean and greatest belief in each event over the sampled days."""
    columns = zip(beliefs.min(axis=0), beliefs.mean(axis=0), beliefs.max(axis=0), strict=True)
    return [{"least": float(a), "mean": float(b), "most": float(c)} for a, b, c in columns]


def _largest(shares: dict[str, float]) -> list[tuple[str, float]]:
    """Return shares above half a percent, the largest first."""
    return sorted(((n, p) for n, p in shares.items() if p > 0.005), key=lambda item: -item[1])


def _checks(
    comparison: RowComparison, slots: int, *, wide: bool, ascii_only: bool
) -> list[tuple[str, ...]]:
    """Return the table rows of the checks that were compared."""
    from shoal.core.numbers import significant
    from shoal.core.plan import Plan
    from shoal.mechanisms.table import standing

    width = show.BAR_WIDTH if wide else show.HALF // 2
    return [
        (
            name,
            significant(-plan.cost),
            show.bar(-plan.cost, slots, ascii_only=ascii_only, width=width),
            significant(getattr(plan.certificate, "rise", float(plan.guarantee.amount))),
            ("chosen, " if name == comparison.plan.mechanism else "") + standing(plan),
        )
        for name, plan in comparison.alternatives.items()
        if isinstance(plan, Plan) and plan.mechanism.startswith("mask-")
    ]


def _cells(row: dict[str, Any], *, wide: bool, ascii_only: bool) -> tuple[str, ...]:
    """Return the table cells of one stretch of the day."""
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
    """Return a PNG of how often each context is released, and of beliefs in events if any."""
    rows = day_rows(plan, longest=96)
    names = list(dict.fromkeys(name for row in rows for name in row["contexts"]))
    events = event_priors(plan) if hides_events(plan) else []
    figure, panels = slot_panels([row["from"] for row in rows], 1 + bool(events), 2.0, 1.0)
    positions, bottom = range(len(rows)), [0.0] * len(rows)
    for name in names:
        heights = [row["contexts"].get(name, 0.0) for row in rows]
        panels[0].bar(positions, heights, bottom=bottom, width=1.0, label=name)
        bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
    rest = [max(row["shown"] - drawn, 0.0) for row, drawn in zip(rows, bottom, strict=True)]
    if max(rest) > 0.005:
        panels[0].bar(positions, rest, bottom=bottom, width=1.0, color="#b7c4cc", label="others")
    panels[0].set_ylim(0, 1.15)
    panels[0].set_ylabel("share of days shown")
    panels[-1].set_xlabel("slot of the day that begins at")
    for number, (words, prior) in enumerate(events):
        spans = [row["beliefs"][number] for row in rows]
        mean = panels[1].plot(positions, [span["mean"] for span in spans], label=words)[0]
        low, high = ([span[key] for span in spans] for key in ("least", "most"))
        panels[1].fill_between(positions, low, high, color=mean.get_color(), alpha=0.2)
        panels[1].axhline(prior, color=mean.get_color(), linestyle=":")
        panels[1].set_ylabel("belief")
        panels[1].set_ylim(0, 1)
    for axes in panels:
        axes.legend(frameon=False, fontsize="small", ncols=4)
    return _png(figure)


def slot_panels(clock: Sequence[str], count: int, each: float, more: float) -> tuple[Any, Any]:
    """Return a figure and its panels above each other, over the slots of a day."""
    figure = _figure(9, each * count + more)
    panels = figure.subplots(count, 1, squeeze=False, sharex=True)[:, 0]
    ticks = range(0, len(clock), max(1, len(clock) // 8))
    panels[-1].set_xticks(list(ticks), [clock[t] for t in ticks])
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def calendar_object(plan: Plan) -> dict[str, Any]:
    """Return the calendar for `shoal plan --json`: one object per slot."""
    return {"calendar": day_rows(plan, longest=10**9)}


PLAN: PlanView = PlanView(print_calendar, calendar_object, day_chart)


class ContextLines:
    """Reads lines of contexts by slot, by day and slot, or by the clock."""

    charged = True

    def __init__(self, plan: Plan, options: StreamOptions) -> None:
        """Check the options of the stream; refuse --start, which is for places."""
        self._plan, self._options = plan, options
        self._clock = None if options.clock is None else clock_of(plan)
        if options.start is not None:
            raise InputError(
                f"--start is {options.start!r}, but {plan.mechanism} is no plan for places; drop it"
            )

    def begin(self) -> ContextStream:
        from shoal.contexts.stream import ContextStream

        return ContextStream.begin(self._plan)

    def goes_on(self, stored: Plan) -> bool:
        from shoal.contexts.stream import goes_on

        return goes_on(stored, self._plan)

    def step(
        self, runner: ContextStream, reading: dict[str, Any], rng: Rng
    ) -> tuple[ContextStream, dict[str, Any]]:
        """Advance the stream by one line and return what to print."""
        if self._options.clock is not None and self._clock is not None:
            reading = timed(reading, self._options.clock, self._clock)
            if reading["slot"] is None:  # at other hours nothing is released
                return runner, {"day": reading["day"], "slot": None, "shown": None}
        slot, day = reading.get("slot"), reading.get("day")
        day = self._charged_day(runner, day)
        after, shown = runner.read(
            reading.get(self._options.field),
            slot=slot,
            day=None if day is None else str(day),
            rng=rng,
            ledger=self._options.ledger,
            subject=self._options.subject,
            covers=reading.get("covers") if self._clock is not None else None,
        )
        out = {"slot": after.state.slot - 1 if slot is None else slot, "shown": shown}
        return after, ({"day": after.day, **out} if after.day else out)

    def _charged_day(self, runner: ContextStream, day: object) -> object:
        """Return the day of a line; refuse a charged line without a day."""
        if self._options.ledger is None or day is not None or runner.day:
            return day
        if not self._options.period:
            raise InputError(
                'the line names no day, which is what a ledger charges; give "day" in it, or '
                "--clock KEY, or --period DAY"
            )
        return self._options.period

    def doubt(self, runner: ContextStream, reading: dict[str, Any]) -> str:
        """Return why a line is suppressed whatever the plan says; empty when it is not."""
        from shoal.core.records import label

        field, states = self._options.field, self._plan.task.query.states
        if field not in reading:
            others = [key for key in reading if key not in ("slot", "day", "time", "id")]
            return (
                f"it has no key {field!r}, so it counts as missing; rename {others[0]!r} to "
                f"{field!r}, or give --field {others[0]}"
                if others
                else ""
            )
        if reading[field] is None or label(reading[field]) in states:
            return ""
        return (
            f"{field} is {reading[field]!r}, which is not one of the model's contexts "
            f"({', '.join(map(str, states))}), so it is suppressed; correct it, or fit the model "
            "again"
        )


def clock_of(plan: Plan) -> DayChain:
    """Return the model of a plan whose slots have a length in minutes; refuse any other plan."""
    from shoal.contexts.day import DayChain

    model = plan.task.family[0]
    if not isinstance(model, DayChain):
        raise InputError("--clock is for the contexts of a day; drop it for other streams")
    if not model.slot_minutes:
        raise InputError(
            "--clock needs a model whose slots have a length; give slot_minutes and start_minute "
            "in the spec, or the slot in each line"
        )
    return model


def timed(reading: dict[str, Any], key: str, model: DayChain) -> dict[str, Any]:
    """Return the reading with its day and slot; slot None at hours the model does not cover.

    Times are ISO text; those with an offset are converted to UTC, as `shoal fit --slot` does, and
    the reading says when that day lies, in microseconds since 1970 (`covers`).
    """
    text = reading.get(key)
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise InputError(
            f"{key} is {text!r}; it must be a time such as '2024-05-01T08:30', since --clock names "
            "it"
        )
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    minute = 60 * moment.hour + moment.minute
    slot = (minute - model.start_minute) // model.slot_minutes
    covered = 0 <= slot < model.slots
    named: dict[str, Any] = {
        "day": moment.date().isoformat(),
        "slot": slot if covered else None,
        "covers": None,
    }
    if moment.tzinfo is not None and moment.year >= 1970:
        midnight = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
        begins = round(midnight.timestamp()) * 1_000_000
        named["covers"] = begins, begins + 86_400_000_000
    return {**reading, **named}


def fit_contexts(
    data: str,
    out: Path,
    columns: NamedColumns,
    options: dict[str, Any],
    *,
    as_json: bool,
    force: bool,
) -> None:
    """Fit, store and report the chain of a day.

    `options` say how a day is cut ("slot", "hours") and how counts are smoothed ("smoothing",
    "spread").
    """
    from shoal.contexts.day import fit_day
    from shoal.core.registry import dumps
    from shoal.data.positions import slots_of, timed_rows, traces_of
    from shoal.data.times import parse_duration
    from shoal.data.write import atomic_write

    if columns.state is None or columns.time is None:
        raise InputError("--slot needs the columns of contexts and times; name --state and --time")
    if columns.gap is not None:
        raise InputError("--gap does not go with --slot: slots without a reading are left out")
    if out.suffix.lower() != ".json":
        raise InputError(f"--out is {str(out)!r}; a model is written as .json")
    check_output(out, force=force)
    parse_duration(options["slot"], "--slot")  # a bare number on the command line is refused
    slots = slots_of(options["slot"], options["hours"], dashes="--")
    with show.working("reading"):
        rows = timed_rows(data, **columns.named)
        found = traces_of(rows, slots)
    with show.working("fitting"):
        try:
            chain = fit_day(
                found.days,
                smoothing=options["smoothing"],
                spread=options["spread"],
                slot_minutes=slots.minutes,
                start_minute=slots.start,
            )
        except DataError as error:
            raise DataError(str(error).replace("hours ", "--hours ")) from None
    note_one_series(columns.series, rows["person"].n_unique())
    note_twins(rows["context"].drop_nulls().unique().sort())
    atomic_write(out, dumps(chain) + "\n")
    _report_fit(out, chain, found, as_json=as_json)


def _report_fit(out: Path, chain: DayChain, found: Traces, *, as_json: bool) -> None:
    """Print what was read and where the model is, as a JSON object or as text."""
    missing = sum(context is None for day in found.days for context in day)
    if as_json:
        show.print_json(
            {
                "path": str(out),
                "states": list(chain.states),
                "days": len(found.days),
                "slots": chain.slots,
                "slot_minutes": chain.slot_minutes,
                "start_minute": chain.start_minute,
                "rows": found.readings,
                "rows_outside": found.outside,
                "rows_further": found.further,
                "slots_missing": missing,
                "private": False,
            }
        )
        return
    cells = len(found.days) * chain.slots
    screen = show.console()
    screen.print(f"Read {found.readings:,} rows as {len(found.days):,} day(s).")
    screen.print(f"Model in {out}: {chain.describe()}.")
    screen.print(f"{missing:,} of {cells:,} slots have no reading.")
    if found.further:
        screen.print(f"{found.further:,} rows share a slot with an earlier one, which counts.")
    if found.outside:
        screen.print(f"{found.outside:,} rows lie at other hours and were left out.")
    screen.print()
    screen.print(NOT_PRIVATE)
    screen.print(f'In a spec:\n  [[model]]\n  file = "{out.name}"')
