"""The Day room: a day of contexts, the sensitive ones, what is released and what is believed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.contexts.attack import attack_contexts, attack_events
from shoal.contexts.audit.events import sample_days
from shoal.contexts.checks.task import release_rates
from shoal.contexts.day import DayChain, fit_day
from shoal.core.charge import Rng
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.registry import dumps, loads
from shoal.data.generate import phone_contexts
from shoal.data.positions import MINUTE, slots_of, timed_rows, traces_of
from shoal.data.synthetic.series import FIRST_HOUR
from shoal.events.event import TimeEvent
from shoal.events.secrets import Events
from shoal.events.window import WEEKDAYS
from shoal.noise.primitives import SeededRng
from shoal.studio.bench import NO_PLAN, number, request_of, spec_text, sure, text, texts
from shoal.studio.tables import chosen, count_noun, usual_step
from shoal.studio.work import Say

if TYPE_CHECKING:
    import polars as pl

DAYS, WEEKS = 56, 40  # of a made-up phone
SLOT_MINUTES = 15  # of a day; a week is looked at hour by hour
SPANS = ("day", "week")
NIGHT = "home"  # where a phone lies that is not read
EVENT_KINDS = ("visit", "at_least", "stay", "sequence")
RATE = 8  # slots a second
TRIES = 50  # days looked at for one with something to hide
DAY_MINUTES = 1440
DAY_WORDS = (
    "Grey: how likely a context is. Blue: how often it is shown when it is taken. Dots: one day "
    "that was played; orange rings were hidden. ◆ marks what is sensitive."
)
PRIVATE = {"hospital", "clinic", "doctor", "church", "mosque", "synagogue", "bar", "court"}
SLOTS = (15, 30, 60, 120)  # minutes, where a file decides
MOST_CONTEXTS = 16  # lanes that can be told apart
NOT_DAY = "the plan on the table is not about the contexts of a day"
NO_CALENDAR = "there is no calendar on the table; make a plan first"


def plan(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Return the mechanism that releases most, and a calendar of likely and released contexts."""
    say("learning how a day flows", 0.1)
    day, about = _learn_day(params)
    files = {"day.json": dumps(day)}
    delta = number(params, "delta", 0.1)
    event = params.get("event")
    sensitive = texts(params, "sensitive") if "sensitive" in params else likely_sensitive(day)
    lines = contexts_lines(sensitive) if event is None else event_lines(event)
    spec = spec_text(
        "shoal plan shoal.toml    shoal stream shoal.toml < contexts.jsonl",
        model='file = "day.json"                # how a day flows; an adversary may know it',
        secrets=lines,
        query='kind = "current"',
        privacy=f'belief_delta = {delta!r}\ntime_limit = "8s"',
    )
    request = request_of({"spec": spec, "files": files})
    say("searching for the check that shows most", 0.4)
    with request.limit_time():
        found = request.plan()
    say("looking at random days", 0.8)
    shown = calendar(found, sensitive if event is None else named_contexts(found))
    return {
        "spec": spec,
        "files": files,
        "plan": dumps(found, indent=None),
        "calendar": shown,
        "words": found.explain(),
        "shown": -found.cost,
        "about": about,
        "meaning": meaning(delta) if event is None else event_meaning(found, delta),
    }


def _learn_day(params: Mapping[str, Any]) -> tuple[DayChain, str]:
    """Return the day learned from the user's file, with a description, or a synthetic day."""
    over = text(params, "over", "day")
    if over not in SPANS:
        raise InputError(f"over is {over!r}; it must be one of {', '.join(SPANS)}")
    if not params.get("file"):
        return example_day(over), ""
    if over != "day":
        raise InputError("a file is looked at day by day; a week is for the example alone")
    own = own_days(params)
    return own.chain, own.about


class OwnDays(NamedTuple):
    """The days in a person's file, the chain learned from them, and what was found in words."""

    days: list[list[str | None]]
    chain: DayChain
    about: str


def own_days(params: Mapping[str, Any]) -> OwnDays:
    """Days of the hours and in slots of the length that most of the file fills."""
    table = timed_rows(text(params, "file"), **chosen(params, "day"))
    contexts = table["context"].drop_nulls().n_unique()
    if not 2 <= contexts <= MOST_CONTEXTS:
        raise InputError(
            f"the column holds {contexts} different contexts; the studio shows 2 to "
            f"{MOST_CONTEXTS}: choose another column"
        )
    slots = slots_of(f"{_slot_minutes(table)}min", _hours(table))
    found = traces_of(table, slots)
    chain = fit_day(found.days, smoothing=1, slot_minutes=slots.minutes, start_minute=slots.start)
    empty = sum(one is None for day in found.days for one in day)
    notes = [
        f"{found.readings:,} rows as {count_noun(len(found.days), 'day', 'days')} of "
        f"{slots.number} slots of {slots.minutes} minutes",
        f"{empty:,} of {len(found.days) * slots.number:,} slots have no reading",
    ]
    if found.further:
        notes.append(f"{found.further:,} rows share a slot with an earlier one, which counts")
    if found.outside:
        notes.append(f"{found.outside:,} rows lie at hours that few days have")
    return OwnDays(found.days, chain, "; ".join(notes))


def _slot_minutes(table: pl.DataFrame) -> int:
    """The length of a slot: the usual time between two rows, rounded up to one of SLOTS."""
    minutes = usual_step(table, "person", "time") / MINUTE
    return next((length for length in SLOTS if length >= minutes), SLOTS[-1])


def _hours(table: pl.DataFrame) -> str:
    """Return the first and last hour at which at least half of the days have a row."""
    import polars as pl

    days = table.select(
        "person", day=pl.col("time") // (MINUTE * DAY_MINUTES),
        hour=pl.col("time") // (60 * MINUTE) % 24,
    ).unique()  # fmt: skip
    counts = days.group_by("hour").len()
    often = counts.filter(pl.col("len") * 2 >= counts["len"].max())["hour"].sort()
    return f"{often[0]:02d}:00-{often[-1] + 1:02d}:00"


def likely_sensitive(day: DayChain) -> list[str]:
    """Return the contexts selected at first: those with private-sounding names, else the rarest."""
    private = [name for name in day.states if set(name.lower().split()) & PRIVATE]
    if private:
        return private
    return [day.states[int(day.marginals().mean(axis=0).argmin())]]


def contexts_lines(sensitive: list[str]) -> str:
    """The lines of a spec that make contexts sensitive at every slot."""
    if not sensitive:
        raise InputError("nothing is ticked as sensitive; tick at least one context")
    return f'kind = "contexts"\nsensitive = {json.dumps(sensitive)}'


def event_lines(event: Any) -> str:
    """The lines of a spec that hide one event: what, where, how often, and when."""
    if not isinstance(event, dict):
        raise InputError("the event must say what happened, where and when")
    kind, places = text(event, "kind", "visit"), texts(event, "contexts")
    if kind not in EVENT_KINDS:
        raise InputError(f"the event is {kind!r}; it must be one of {', '.join(EVENT_KINDS)}")
    if not places:
        raise InputError("the event names no context; choose at least one")
    if kind == "sequence" and len(places) < 2:
        raise InputError("one after the other needs two contexts; choose another one")
    what = [[place] for place in places] if kind == "sequence" else places
    lines = ['kind = "events"', "", "[[secrets.event]]", f"{kind} = {json.dumps(what)}"]
    if kind in ("at_least", "stay"):
        lines.append(f"times = {int(number(event, 'times', 2))}")
    window = event.get("between")
    if window:
        lines.append(f"between = {json.dumps(window)}")
    return "\n".join(lines)


def play(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """One made-up day, run through the plan and through naive hiding."""
    found = sure(loads(str(params.get("plan") or "{}")), Plan, NO_PLAN)
    say("playing a day", 0.3)
    rng = SeededRng(int(number(params, "seed", 1)))
    drawn: dict[str, Any] = sure(params.get("calendar"), dict, NO_CALENDAR)
    truth: Sequence[str | None]
    sensitive = set(texts(drawn, "sensitive"))
    if params.get("file"):
        truth = _own_day(own_days(params).days, sensitive, int(number(params, "seed", 1)))
    else:
        truth = _telling_day(found, sensitive, rng)
    curves, outputs, rises = played_day(found, truth, rng)
    shown = {**drawn, "played": outputs, "truth": list(truth)}
    return {"player": player(shown, curves), "rises": list(rises)}


def _own_day(days: list[list[str | None]], sensitive: set[str], number: int) -> list[str | None]:
    """A day of the file, one after the other: first those on which there is something to hide."""
    ordered = sorted(days, key=lambda day: (not sensitive & set(day), day.count(None)))
    telling = sum(bool(sensitive & set(day)) for day in ordered)
    return ordered[(number - 1) % max(1, telling or len(ordered))]


def _telling_day(found: Plan, sensitive: set[str], rng: SeededRng) -> tuple[str, ...]:
    """Return a synthetic day with something to hide, if one is drawn within a few tries."""
    day, events = _day_of_plan(found), _events_of_plan(found) if hides_events(found) else ()
    for _ in range(TRIES):
        path = day.sample(rng)
        truth = tuple(day.states[at] for at in path)
        if any(_has_happened(event, day, path) for event in events):
            break
        if not events and sensitive & set(truth):
            break
    return truth


def _has_happened(event: TimeEvent, day: DayChain, path: Any) -> bool:
    """Whether the event is true of a path: whether it is certain where only that path can be."""
    only = np.eye(len(day.states))[np.asarray(path)]
    onward = np.repeat(only[1:, None, :], len(day.states), axis=1)
    return event.prior(replace(day, initial=only[0], transition=onward)) > 0.5


def played_day(
    found: Plan, truth: Sequence[str | None], rng: Rng
) -> tuple[list[dict[str, Any]], list[str | None], tuple[float, float]]:
    """Belief curves of a day run through the plan, what was shown, and rises: naive, promised."""
    amount = float(found.guarantee.amount)
    if hides_events(found):
        events = attack_events(found, truth, rng)
        clock = clock_of(_day_of_plan(found))
        curves = [
            curves_of(clock, e.event, np.full(len(clock), e.before), e.naive, e.after, amount)
            for e in events.events
        ]
        naive = max(float(one.naive.max()) - one.before for one in events.events)
        after = max(float(one.after.max()) - one.before for one in events.events)
        return curves, list(events.outputs), (naive, after)
    played = attack_contexts(found, truth, rng)
    curves = [
        curves_of(played.clock, f"at {name}", before, naive, after, amount)
        for name, before, naive, after in zip(
            played.contexts, played.before.T, played.naive.T, played.after.T, strict=True
        )
    ]
    return curves, list(played.outputs), played.highest_rise()


def player(shown: dict[str, Any], curves: list[dict[str, Any]]) -> dict[str, Any]:
    """Props of a day that can be played slot by slot: its calendar over the belief curves."""
    caption = "What somebody who knows how your days flow believes: "
    panes = [{"view": "dayCalendar", "props": shown, "caption": DAY_WORDS}] + [
        {"view": "beliefCurves", "props": one, "caption": f"{caption}{one['what']}."}
        for one in curves
    ]
    return {
        "per": "slot",
        "count": len(shown["slots"]),
        "slots": shown["slots"],
        "rate": RATE,
        "autoplay": False,
        "start": len(shown["slots"]) - 1,
        "columns": [{"title": "", "panes": panes}],
    }


def clock_of(day: DayChain) -> list[str]:
    """When each slot begins: a time, with the day of the week where there are several."""
    if day.slots * day.slot_minutes <= DAY_MINUTES:
        return [day.clock(t) for t in range(day.slots)]
    begins = [day.start_minute + t * day.slot_minutes for t in range(day.slots)]
    return [
        f"{WEEKDAYS[minute // DAY_MINUTES % 7].capitalize()} "
        f"{minute % DAY_MINUTES // 60:02d}:{minute % 60:02d}"
        for minute in begins
    ]


def calendar(found: Plan, sensitive: list[str]) -> dict[str, Any]:
    """Props of the calendar: how likely each context is, and how often it is shown."""
    day = _day_of_plan(found)
    prior = day.marginals()
    events = hides_events(found)
    rates = np.minimum(sample_days(found)[0], prior) if events else release_rates(found)
    share = np.where(prior > 0, rates / np.where(prior > 0, prior, 1), np.nan)
    return {
        "contexts": list(day.states),
        "sensitive": sensitive,
        "slots": clock_of(day),
        "prior": prior.tolist(),
        "shown": [[None if np.isnan(one) else float(one) for one in row] for row in share],
    }


def curves_of(
    slots: Sequence[str], what: str, before: Floats, naive: Floats, after: Floats, amount: float
) -> dict[str, Any]:
    """Props of one belief: before, with naive hiding, under the plan, and what is promised."""
    curves = (
        ("before", "prior", before), ("just hiding it", "naive", naive),
        ("the check", "promised", after),
    )  # fmt: skip
    return {
        "slots": list(slots),
        "what": what,
        "bound": np.minimum(before + amount, 1).tolist(),
        "curves": [
            {"name": name, "kind": kind, "values": values.tolist()} for name, kind, values in curves
        ],
    }


def named_contexts(found: Plan) -> list[str]:
    """The contexts that the events of a plan name."""
    return sorted(set().union(*(event.states() for event in _events_of_plan(found))))


def event_meaning(found: Plan, delta: float) -> str:
    """Return what δ means for an event, with the belief before any release."""
    day = _day_of_plan(found)
    events_text = "; ".join(
        f"{event.describe()} ({event.prior(day):.0%} likely anyway)"
        for event in _events_of_plan(found)
    )
    return (
        f"Whatever is shown, nobody's belief in this rises by more than {delta:.0%}: "
        f"{events_text}. The contexts it names may be shown where that tells little new."
    )


def meaning(delta: float) -> str:
    """Return what δ means, in words."""
    return (
        f"Whatever is shown, nobody's belief that you are somewhere sensitive rises by more than "
        f"{delta:.0%} above what everybody expects at that hour anyway. It does not hide what "
        "everybody expects: home at midnight may be shown."
    )


def example_day(over: str = "day") -> DayChain:
    """A day of a made-up phone, or its whole week, hour by hour from Monday on."""
    week = over == "week"
    made = phone_contexts(7 * WEEKS if week else DAYS, 1, slot_minutes=SLOT_MINUTES)
    days = [[made.states[at] for at in one] for group in made.chains for one in group]
    slots = max(map(len, days))
    whole = [day for day in days if len(day) == slots]
    if not week:
        day = fit_day(whole, states=made.states, smoothing=1)
        return replace(day, slot_minutes=SLOT_MINUTES, start_minute=FIRST_HOUR * 60)
    hours = [[NIGHT] * FIRST_HOUR + day[:: 60 // SLOT_MINUTES] for day in whole]
    weeks = [list(chain(*hours[first : first + 7])) for first in range(0, len(hours) - 6, 7)]
    return replace(fit_day(weeks, states=made.states, smoothing=1), slot_minutes=60)


def hides_events(found: Plan) -> bool:
    """Whether a plan is about events, so that it decides slot by slot and has no fixed rates."""
    return found.mechanism == "mask-online"


def _events_of_plan(found: Plan) -> Sequence[TimeEvent]:
    secrets = sure(found.task.secrets, Events, "the plan on the table hides no event")
    return secrets.all_events()


def _day_of_plan(found: Plan) -> DayChain:
    return sure(found.task.family[0], DayChain, NOT_DAY)
