"""`shoal stream` for contexts: a context a line in, what may be shown of it a line out."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.cli.stream import StreamWish
    from shoal.contexts.day import DayChain
    from shoal.contexts.stream import ContextStream
    from shoal.core.charge import Rng
    from shoal.core.plan import Plan


class ContextLines:
    """Lines of contexts: by slot, by day and slot, or by the clock."""

    charged = True

    def __init__(self, plan: Plan, wish: StreamWish) -> None:
        self._plan, self._wish, self._days = plan, wish, Days()
        self._clock = None if wish.clock is None else clock_of(plan)
        if wish.start is not None:
            raise InputError(
                f"--start is {wish.start!r}, but {plan.mechanism} is no plan for places; drop it"
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
        if self._wish.clock is not None and self._clock is not None:
            reading = timed(reading, self._wish.clock, self._clock)
            if reading["slot"] is None:  # at other hours nothing is shown, whatever it is
                return runner, {"day": reading["day"], "slot": None, "shown": None}
        slot, day = reading.get("slot"), reading.get("day")
        if slot is not None and (not isinstance(slot, int) or isinstance(slot, bool)):
            raise InputError(f"slot is {slot!r}; it must be a whole number")
        if day is not None:
            self._days.check(str(day), runner.day)
        day = self._charged_day(runner, day)
        after, shown = runner.read(
            reading.get(self._wish.field),
            slot=slot,
            day=None if day is None else str(day),
            rng=rng,
            ledger=self._wish.ledger,
            subject=self._wish.subject,
        )
        self._days.leave(runner.day, after.day)
        out = {"slot": after.state.slot - 1 if slot is None else slot, "shown": shown}
        return after, ({"day": after.day, **out} if after.day else out)

    def _charged_day(self, runner: ContextStream, day: object) -> object:
        """The day of a line; one that is charged must have a name."""
        if self._wish.ledger is None or day is not None or runner.day:
            return day
        if not self._wish.period:
            raise InputError(
                'the line names no day, which is what a ledger charges; give "day" in it, or '
                "--clock KEY, or --period DAY"
            )
        return self._wish.period

    def doubt(self, runner: ContextStream, reading: dict[str, Any]) -> str:
        """Why a line is suppressed whatever the plan says; empty when it is not."""
        from shoal.core.records import label

        field, states = self._wish.field, self._plan.task.query.states
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
    """The model of a plan whose slots have a length in minutes; refused for any other plan."""
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
    """The reading with its day and slot; slot None at hours the model does not cover.

    Times are ISO text; those with an offset are brought to UTC, as `shoal fit --slot` does.
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
    return {**reading, "day": moment.date().isoformat(), "slot": slot if covered else None}


class Days:
    """The days a stream has left: drawing one of them again would tell about it twice."""

    def __init__(self) -> None:
        self._left: set[str] = set()

    def check(self, day: str, current: str) -> None:
        """Refuses a day that was left, or that lies before the current one where both are dates."""
        if day != current and (day in self._left or _before(day, current)):
            raise InputError(
                f"day is {day!r}, which was left for {current!r}; a day cannot be begun again, so "
                "lines must come in order"
            )

    def leave(self, day: str, current: str) -> None:
        """Notes that a day is over."""
        if day != current:
            self._left.add(day)


def _before(day: str, other: str) -> bool:
    try:
        return date.fromisoformat(day) < date.fromisoformat(other)
    except ValueError:
        return False
