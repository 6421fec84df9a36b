"""What another plan or zone changes for the person of a stream, in sentences to be confirmed."""

from __future__ import annotations

from collections.abc import Collection

from shoal.core.plan import Plan
from shoal.gateway.clock import Clock
from shoal.gateway.problems import Problem

MOST_NAMES = 8  # in a sentence


def check_confirmed(old: Plan, new: Plan, before: Clock, after: Clock, *, confirmed: bool) -> None:
    """Refuse a change of a stream that its person has not confirmed, and say what it changes."""
    found = changes(old, new, before, after)
    if found and not confirmed:
        raise Problem(
            409,
            f"{'; '.join(found)}. Send it again with confirm = true if the person wants that",
            changes=found,
        )


def changes(old: Plan, new: Plan, before: Clock, after: Clock) -> list[str]:
    """Return a sentence for everything that means something else after a change."""
    found = _other_names(old.task.query.states, new.task.query.states)
    if before.zone != after.zone:
        found.append(f"days follow the clock of {after.zone} instead of {before.zone}")
    if (before.slots, before.minutes) != (after.slots, after.minutes) and before.slots:
        found.append(f"a day has {after.slots} slots instead of {before.slots}")
    secret, next_secret = (_sensitive(plan) for plan in (old, new))
    if secret != next_secret:
        found.append(
            f"the sensitive contexts are {_join_names(next_secret)} instead of "
            f"{_join_names(secret)}"
        )
    promise, next_promise = old.guarantee, new.guarantee
    if promise.notion != next_promise.notion:
        found.append(f"the promise is {next_promise.notion} instead of {promise.notion}")
    elif next_promise.amount > promise.amount:
        found.append(
            f"the promise is weaker: {float(next_promise.amount):g} instead of "
            f"{float(promise.amount):g}"
        )
    return found


def _sensitive(plan: Plan) -> frozenset[str]:
    """Return the sensitive contexts of a plan; of places and events there are none by name."""
    return frozenset(getattr(plan.task.secrets, "contexts", None) or ())


def _other_names(old: Collection[str], new: Collection[str]) -> list[str]:
    """Return a sentence when readings name other contexts or places."""
    gone, added = set(old) - set(new), set(new) - set(old)
    parts = [f"{_join_names(added)} are new"] if added else []
    parts += (
        [f"{_join_names(gone)} are no longer known, and readings of them are refused"]
        if gone
        else []
    )
    return [f"of the names a reading may have {' and '.join(parts)}"] if parts else []


def _join_names(names: Collection[str]) -> str:
    shown = [repr(name) for name in sorted(names)]
    more = len(shown) - MOST_NAMES
    return ", ".join(shown[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
