"""Whole persons as secrets: all entries of a series at once, and their price. Proof: group.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from shoal.core.codec import Value
from shoal.core.errors import DataError, InputError, PromiseBroken, Refused
from shoal.core.numbers import significant
from shoal.core.plan import CONFIDENCE, Error, Plan
from shoal.core.task import EachEntry, Model, Secrets, Task, each_entry
from shoal.mechanisms.choice import choose
from shoal.mechanisms.plans import GROUP, GROUP_ROW
from shoal.mechanisms.table import calibrate_and_check, standing


@dataclass(frozen=True, slots=True, eq=False)
class EachPerson(Value):
    """For every person, each pair of series they may have must stay indistinguishable.

    A person is one series of the data: all entries that a model ties together. Different series are
    independent, and how many there are and how long each one is are public.
    """

    kind = "each-person"
    whole_series: ClassVar[bool] = True

    @property
    def notion(self) -> str:
        """Group privacy over all entries of a series, under any law."""
        return "group"

    @property
    def subject(self) -> str:
        return "all entries of any single person"

    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse models that are not about series of entries."""
        for model in family:
            if not of_series(model):
                raise InputError(
                    f"secrets are each-person, and a model is {model.describe()}, which has no "
                    "series of one person; use each-entry, where a record or variable is a person"
                )

    def tied_under(self, model: Model) -> int | None:
        """Every entry of a series that the model covers; None when it covers any length."""
        return model.tied

    def describe(self) -> str:
        return "all that any one person contributed: every entry of one series, whatever they are"


def each_person(secrets: Secrets) -> bool:
    """Return whether the secrets are whole series, all of them."""
    return bool(getattr(secrets, "whole_series", False))


def check_persons(task: Task, entries: Mapping[str, int]) -> None:
    """Refuse a person with more entries, in all chains together, than the noise is made for.

    `entries` holds how many each person has. A gap cuts a series into chains, each of which may be
    as long as the model's; the person is all of them. Secrets about entries have no such limit.
    """
    most = task.tied
    if most is None or not each_person(task.secrets):
        return
    for name, count in entries.items():
        if count > most:
            raise DataError(
                f"series {name!r} has more entries in all its chains than length {most} of the "
                "model, and each-person hides all of them; give the model that length, or cut "
                "the data"
            )


def of_series(model: Model) -> bool:
    """Return whether a model is about series, each with a number of entries or without an end."""
    return hasattr(model, "length")


@dataclass(frozen=True, slots=True)
class Protection:
    """What hiding costs: the plan that hides it with its error, or a sentence why there is none.

    `entries` is how many entries of one person are hidden at once.
    """

    what: str
    epsilon: Fraction
    entries: int | None
    found: Plan | str

    @property
    def error(self) -> Error | None:
        """The error of one value at the usual confidence."""
        return None if isinstance(self.found, str) else self.found.error(CONFIDENCE)

    def describe(self) -> str:
        """The price in one sentence."""
        if isinstance(self.found, str):
            return f"Each {self.what}: not hidden by finite noise, because {self.found}."
        how_far = "by an error it does not state" if self.error is None else self.error.describe()
        promise = standing(self.found)
        own = self.found.mechanism + ("" if promise.startswith("proved") else f", {promise}")
        hidden = "hidden" if self.what == "entry" else f"hidden with up to {self.entries:,} entries"
        return (
            f"Each {self.what}: {hidden} at epsilon = {significant(self.epsilon)}, where a value "
            f"is {how_far} ({own})."
        )


def prices(plan: Plan) -> tuple[Protection, ...]:
    """What hiding each entry and hiding each person costs at the epsilon of `plan`.

    Of plans that add noise to an answer about series; empty for others. The plan itself is the
    price of what its own secrets are, and the other one is calibrated.
    """
    task = plan.task
    if plan.additive is None or not all(map(of_series, task.family)):
        return ()
    if not (each_entry(task.secrets) or each_person(task.secrets)):
        return ()
    amount = plan.guarantee.amount
    whole = replace(task, secrets=EachPerson())
    entry: Plan | str = plan
    if each_person(task.secrets):
        entry = _least(replace(task, secrets=EachEntry()), amount)
    person = plan if plan.mechanism == GROUP else _of_person(whole, amount)
    return (
        Protection("entry", amount, 1, entry),
        Protection("person", amount, whole.tied, person),
    )


def _least(task: Task, epsilon: Fraction) -> Plan | str:
    try:
        return choose(task, epsilon, prune=True).plan
    except (Refused, PromiseBroken, InputError) as why:
        return str(why)


def _of_person(task: Task, epsilon: Fraction) -> Plan | str:
    try:
        return calibrate_and_check(GROUP_ROW, task, epsilon)
    except Refused as why:
        return str(why).removeprefix(f"{GROUP} does not apply: ")
