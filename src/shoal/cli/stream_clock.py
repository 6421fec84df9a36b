"""Days of `shoal stream`: each is begun once, and a line may name it by a time."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.models.day import DayChain


def clock_of(plan: Plan) -> DayChain:
    """The model of a plan whose slots have a length in minutes; refused for any other plan."""
    from shoal.models.day import DayChain

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

    def enter(self, day: str, current: str) -> None:
        """Refuses a day that was left, or that lies before the current one where both are dates."""
        if day == current:
            return
        if day in self._left or _before(day, current):
            raise InputError(
                f"day is {day!r}, which was left for {current!r}; a day cannot be begun again, so "
                "lines must come in order"
            )
        self._left.add(current)


def _before(day: str, other: str) -> bool:
    try:
        return date.fromisoformat(day) < date.fromisoformat(other)
    except ValueError:
        return False
