"""What a process remembers of a ledger, so that a charge reads only what came since."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection

from shoal.core.plan import Plan
from shoal.ledger.accounts import EACH, Account, LedgerPolicy
from shoal.ledger.entries import stored_plan

MAX_CACHED_PLANS = 1024  # stored plans kept built, so that they are not read again for every charge
MAX_CACHED_ACCOUNTS = 20_000  # subjects whose account is kept


class LedgerView(NamedTuple):
    """What one transaction read: the rules, the charges about everybody and about its subjects."""

    policy: LedgerPolicy
    everybody: Account
    accounts: dict[str, Account]


@dataclass(slots=True)
class LedgerCache:
    """What this process knows of a ledger. A transaction checks each account before it is used."""

    policy: LedgerPolicy | None = None
    everybody: Account = field(default_factory=Account)
    accounts: OrderedDict[str, Account] = field(default_factory=OrderedDict)
    plans: dict[str, Plan] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)  # plans whose documents are committed
    confirmed: set[str] = field(default_factory=set)  # plans whose promise was checked

    def keep(self, subject: str, account: Account) -> None:
        """Remember an account; those that were not used for longest are forgotten."""
        if subject == EACH:
            self.everybody = account
            return
        self.accounts[subject] = account
        self.accounts.move_to_end(subject)
        while len(self.accounts) > MAX_CACHED_ACCOUNTS:
            self.accounts.popitem(last=False)

    def plan(self, connection: Connection, name: str) -> Plan:
        """Return the stored plan, built once per process."""
        found = self.plans.get(name)
        return self.keep_plan(stored_plan(connection, name)) if found is None else found

    def keep_plan(self, plan: Plan) -> Plan:
        """Keep a plan that was built already."""
        if len(self.plans) >= MAX_CACHED_PLANS:
            self.plans.clear()
        self.plans[plan.fingerprint] = plan
        return plan
