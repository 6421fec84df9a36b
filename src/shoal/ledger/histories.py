"""Streams whose outputs together keep one promise: their charges are one chain with one end.

What such a stream promises of events holds for the outputs its filter has followed, and for no
others (places/location_events.md). So a ledger takes an output only after all outputs it holds of
that stream. The n-th output has a key of its own, and says the hash of everything shown before it.
A charge is added only while its subject's chain ends where it ended when the charge was judged, so
no second beginning of the stream comes in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from shoal.core.charge import Charge, output_key
from shoal.core.errors import CannotCompose, InputError, OtherHistory
from shoal.core.plan import Machine, Plan
from shoal.ledger.accounts import Account, Kind
from shoal.ledger.entries import (
    Entry,
    as_written,
    charged_eta,
    checked_text,
    stored_noise,
    stored_step,
)
from shoal.ledger.rules import first_of
from shoal.ledger.totals import whole_promises

SAME_READINGS = (
    "give the readings that were released again, and new ones after the last of them only"
)
STORED_STREAM = "go on with the stored stream (of `shoal stream`: --state)"
OTHER_PERIOD = "name another period, but only if its data is independent of this one's"


def check_step(charge: Charge) -> None:
    """Refuse a charge that says where it stands in a history where none is kept, or the reverse."""
    kept, step = bool(whole_promises(charge.plan)), charge.step
    if kept != (step is not None):
        raise InputError(
            "the plan promises something about all outputs of a stream, so each is charged by the "
            "stream itself: give the ledger to LocationStream.read"
            if kept
            else f"step is given, but {charge.plan.mechanism} keeps no promise about all outputs "
            "of a stream; leave it out"
        )
    if step is None:
        return
    checked_text(step.at, "at")
    if charge.key != _key(charge, step.number) or charge.requester or charge.members:
        raise InputError(
            "an output of a stream has one key, no requester and no members, whoever asks for it; "
            "give the ledger to LocationStream.read"
        )


def unlike_stored(entry: Entry, charge: Charge) -> OtherHistory | None:
    """Return why a stored output of a step is not the one asked for; None where it is.

    A stream that absorbed an output drawn from another law would believe what is not so, and its
    later steps would protect the wrong states. Laws with one finite eta rule no state out.
    """
    if stored_step(entry.value) != charge.step:
        return other_history(charge)
    if entry.eta != charged_eta(charge) or stored_noise(entry.value) != charge.noise:
        return OtherHistory(
            f"the step of {charge.subject!r} in period {charge.period!r} under this key was drawn "
            "with other noise, because its stream had other outputs before it (late readings, or "
            "some left out)",
            (SAME_READINGS, STORED_STREAM, OTHER_PERIOD),
        )
    return None


def out_of_line(
    charge: Charge,
    keyed: Mapping[tuple[str, str], Entry],
    accounts: Mapping[str, Account],
    everybody: Account,
) -> OtherHistory | None:
    """Return the refusal of a step that does not come right after all outputs of its stream.

    `keyed` holds the stored charge under `key_before`, `accounts` what is charged about each
    subject. Outputs that versions up to 0.2 charged are counted too, and nobody can follow them:
    they do not say what they followed.
    """
    step = charge.step
    if step is None:
        return None
    drawn = sum(_outputs(account, charge) for account in (accounts[charge.subject], everybody))
    before = key_before(charge)
    end = step.before if before is None else _history_after(keyed.get((charge.requester, before)))
    return None if step.number == drawn and end == step.before else other_history(charge)


def closed_day(
    charge: Charge, counts: Mapping[Kind, int], plan: Callable[[str], Plan]
) -> CannotCompose | None:
    """Return the refusal of a day that goes on after a release made under what it had shown.

    Such a release was calibrated under the outputs it names, as if slots it calls unread were
    never read (rules.md, section 12). `counts` holds the charges about the subject, `plan` finds
    the plan of a fingerprint. None for single releases and for days without such a release.
    """
    if not isinstance(charge.plan.body, Machine):
        return None
    names = {kind.plan for kind in counts if kind.period == charge.period}
    if all(first_of(plan(name)) is None for name in names):
        return None
    return CannotCompose(
        f"period {charge.period!r} of subject {charge.subject!r} has a release made under what "
        "its stream had shown by then (DayGiven), so the stream takes no further slot of it",
        ("begin the next day", "make such a release once the day is over"),
    )


def key_before(charge: Charge) -> str | None:
    """Return the key of the output before a step of a stream; None where there is none."""
    step = charge.step
    return None if step is None or not step.number else _key(charge, step.number - 1)


def other_history(charge: Charge) -> OtherHistory:
    """Return the refusal of a step that does not follow the stored outputs of its stream."""
    time = "" if charge.step is None else f"step {charge.step.time} of "
    return OtherHistory(
        f"{time}the stream of {charge.subject!r} in period {charge.period!r} does not follow the "
        "outputs the ledger holds of it: they were drawn from other readings (late ones, or some "
        "left out), from another start or by another version of the program, and both together "
        "would tell more of the events than is promised",
        (SAME_READINGS, STORED_STREAM, OTHER_PERIOD),
    )


def _key(charge: Charge, number: int) -> str:
    return output_key(charge.subject, charge.period, charge.plan.fingerprint, number)


def _outputs(account: Account, charge: Charge) -> int:
    """How many outputs of the stream of a charge are stored in an account, whoever asked."""
    own = charge.period, charge.plan.fingerprint
    return sum(n for kind, n in account.counts.items() if (kind.period, kind.plan) == own)


def _history_after(entry: Entry | None) -> str | None:
    """Return the hash of the history after a stored output; None where it does not say."""
    step = None if entry is None else stored_step(entry.value)
    return None if entry is None or step is None else step.after(_multiples(entry))


def _multiples(entry: Entry) -> list[int]:
    with as_written("an output of a stream"):
        listed: list[int] = json.loads(entry.value or "null")["multiples"]
        return listed
