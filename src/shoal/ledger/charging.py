"""What a charge must be, and what of it is stored."""

from __future__ import annotations

from shoal.core.errors import InputError, LedgerError, StoredError
from shoal.core.plan import Charge, Plan, Release
from shoal.core.registry import dumps, loads
from shoal.ledger.limits import EACH
from shoal.ledger.reading import Entry
from shoal.ledger.totals import entry_eta, is_step


def check_names(charge: Charge) -> None:
    """Refuse names that cannot be stored, or that stand for many."""
    named = {"subject": charge.subject, "period": charge.period, "requester": charge.requester}
    for field, value in named.items():
        checked_text(value, field)
        if value == EACH:
            raise InputError(f"{field} is '*', which stands for each one; name one")
    if not charge.subject:
        raise InputError("subject is empty; a ledger needs to know whose data is released")
    if charge.key is not None and not checked_text(charge.key, "key"):
        raise InputError("key is empty; leave it out, or give each release its own")


def can_hold(name: str) -> bool:
    """Whether a ledger takes a name of somebody or something, the empty one too."""
    try:
        return checked_text(name, "name") != EACH
    except InputError:
        return False


def checked_text(value: str, field: str) -> str:
    """`value`, refused unless every database stores and returns it as it is."""
    if not isinstance(value, str):
        raise InputError(f"{field} is a {type(value).__name__}; it must be text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{field} holds half a character; give it as proper text") from None
    if "\0" in value:
        raise InputError(f"{field} holds a NUL character, which databases cut off; leave it out")
    return value


def checked_release(release: Release, plan: Plan) -> Release:
    """`release`, refused unless it was made by `plan` with randomness nobody can predict."""
    if release.plan != plan.fingerprint:
        raise InputError("the release was made by another plan than the one that is charged")
    if not release.secure:
        raise InputError("the release is seeded; a ledger takes only releases of system randomness")
    return release


def fields(charge: Charge, release: Release) -> dict[str, str | None]:
    """The columns of a stored charge, apart from its place in the chain."""
    return {
        "plan": charge.plan.fingerprint,
        "subject": charge.subject,
        "period": charge.period,
        "requester": charge.requester,
        "key": charge.key,
        "notion": charge.plan.guarantee.notion,
        "amount": str(charge.plan.guarantee.amount),
        "eta": charged_eta(charge),
        "release": dumps(release, indent=None),
    }


def charged_eta(charge: Charge) -> str | None:
    """The eta a charge spends: of a step of a stream what it tells, of others what the plan says.

    What a stream's plan says beforehand counts for nothing: its noise depends on the outputs.
    """
    eta = charge.eta if is_step(charge.plan) else entry_eta(charge.plan)
    return None if eta is None else str(eta)


def repeated(stored: Entry, charge: Charge) -> Release:
    """The release stored under the charge's key; refused when the key was for something else."""
    asked = {
        "plan": charge.plan.fingerprint,
        "subject": charge.subject,
        "period": charge.period,
    }
    different = [field for field, value in asked.items() if getattr(stored, field) != value]
    if different:
        raise InputError(
            f"key is {charge.key!r}, which was used for a release of another "
            f"{' and '.join(different)}; use a new key for a new release"
        )
    return stored_release(stored)


def stored_release(stored: Entry) -> Release:
    """The release of a stored charge."""
    try:
        release = loads(stored.release)
    except StoredError as error:
        raise LedgerError(
            f"the release of charge {stored.seq} cannot be used: {error}; run ledger verify"
        ) from None
    if not isinstance(release, Release):
        raise LedgerError(f"charge {stored.seq} stores no release; run ledger verify")
    return release
