"""The contract of mechanisms and families as public functions: run them on your own.

    shoal.testing.check_mechanism("my-row", [task, other_task])
    shoal.testing.check_family("my-family", {"my-row": [task]})

Each raises AssertionError with a sentence that names the row, the task and what is broken, and
returns nothing when all holds. They hold a plan to what it says about itself and to its own
re-check; whether that re-check is right is for an oracle that shares no code with it.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.core.charge import AsEntryDP
from shoal.core.codec import kind_of
from shoal.core.errors import InputError, Refused
from shoal.core.family import Family, families, plan_act
from shoal.core.numbers import Number, exact
from shoal.core.plan import Plan
from shoal.core.registry import KINDS, dumps, loads
from shoal.core.task import Task
from shoal.mechanisms.table import LOSS_TOLERANCE, MECHANISMS, calibrate_and_check, row_named

# thirds and tenths are no doubles: a rounding that goes the wrong way shows
AMOUNTS: tuple[Number, ...] = (Fraction(1, 3), "0.7", 2)


def check_mechanism(
    row: str, tasks: Iterable[Task], *, amounts: Sequence[Number] = AMOUNTS
) -> None:
    """Hold the row called `row` to the contract on each of `tasks`, which it must take.

    `amounts` are epsilons, or deltas below 1 for contexts, and increase. AssertionError says what
    is broken; InputError that there is nothing to try.
    """
    chosen = row_named(row)
    some = list(tasks)
    sizes = sorted(exact(amount, "amounts") for amount in amounts)
    if not some or not sizes:
        raise InputError(f"there is nothing to try {row!r} on; give tasks that it takes")
    assert chosen.name == row, f"the row of the name {row!r} calls itself {chosen.name!r}"
    for number, task in enumerate(some):
        plans = [calibrate_and_check(chosen, task, amount) for amount in sizes]
        for name, check in CHECKS.items():
            fault = check(plans)
            assert fault is None, f"{row}, task {number} ({task.query.describe()}), {name}: {fault}"


def check_refusal(row: str, task: Task, amount: Number = 1) -> None:
    """Hold the row to refusing `task` in one sentence."""
    early = row_named(row).refuse(task)
    assert early is None or is_sentence(early), f"{row} refuses with no sentence: {early!r}"
    sentence = _refusal(row, task, exact(amount, "amount"))
    assert sentence is not None, f"{row} takes a task it should refuse: {task.query.describe()}"
    assert is_sentence(sentence), f"{row} refuses with no sentence: {sentence!r}"


def _refusal(row: str, task: Task, amount: Fraction) -> str | None:
    try:
        calibrate_and_check(row_named(row), task, amount)
    except Refused as refusal:
        return str(refusal)
    return None


def check_family(
    name: str, tasks: Mapping[str, Sequence[Task]], *, amounts: Sequence[Number] = AMOUNTS
) -> None:
    """Hold the family called `name` to its record, and its rows to the contract on `tasks`.

    `tasks` maps each of its rows to tasks the row takes. Every place of the record must be there,
    every kind must be stored under its own name, and every row that makes plans needs a proof
    beside its code.
    """
    record = next((family for family in families() if family.name == name), None)
    if record is None:
        raise InputError(
            f"family is {name!r}; it must be one of {[family.name for family in families()]}"
        )
    _check_record(record)
    rows = [row for row in record.mechanisms if not row_named(row).retired]
    missing = sorted({*rows} - {*tasks})
    assert not missing, f"{name}: no task tries the row(s) {', '.join(missing)}"
    for row in rows:
        check_proof(row)
        check_mechanism(row, tasks[row], amounts=amounts)


def check_proof(row: str) -> None:
    """Hold the row to a proof file beside its code, `NAME.md` with underscores."""
    calibrate: Any = row_named(row).calibrate
    while isinstance(calibrate, functools.partial):
        calibrate = calibrate.func
    proof = Path(inspect.getfile(calibrate)).with_name(f"{row.replace('-', '_')}.md")
    assert proof.is_file(), f"{row} has no proof file {proof.name} beside its code"
    assert len(proof.read_text()) > 400, f"the proof file {proof.name} hardly says anything"


def is_sentence(reason: str) -> bool:
    """One line that starts in lower case and says something."""
    return reason[:1].islower() and "\n" not in reason and len(reason) >= 20


def with_scale(plan: Plan, scale: Fraction) -> Plan:
    """The same plan with other noise, its promise left as it was."""
    body: Any = plan.body
    return replace(plan, body=replace(body, noise=replace(body.noise, scale=scale)))


def _check_record(record: Family) -> None:
    for kind, part in record.kinds.items():
        assert kind_of(part()) == kind, f"the kind {kind!r} is stored under another name"
        assert KINDS[kind] is part(), f"the kind {kind!r} is stored by another class"
    for audits in (record.plan_audits, record.model_audits):
        for kind, part in audits.items():
            assert callable(part()), f"the audit of {kind!r} cannot be called"
    for row in record.mechanisms:
        assert MECHANISMS[row].name == row, f"the row of the name {row!r} has another name"


# The contract, a check each: plans of one row for one task in order of their amounts, to what is
# broken, or None.


def _promise(plans: list[Plan]) -> str | None:
    for plan in plans:
        amount = float(plan.guarantee.amount)
        if plan.guarantee.proved and not 0 <= _loss(plan) <= amount * (1 + LOSS_TOLERANCE):
            return f"the promise of {amount} is broken: {_loss(plan)}"
    return None


def _storage(plans: list[Plan]) -> str | None:
    for plan in plans:
        again = loads(dumps(plan))
        if again != plan or again.explain() != plan.explain():
            return "a stored plan comes back as another one"
    return None


def _deterministic(plans: list[Plan]) -> str | None:
    plan = plans[-1]
    amount = Fraction(plan.guarantee.amount)
    again = MECHANISMS[plan.mechanism].calibrate(plan.task, amount)
    return None if again == plan else "calibrating twice gives two plans"


def _monotone(plans: list[Plan]) -> str | None:
    cost = math.inf
    for plan in plans:
        if plan.additive is not None and plan.cost > cost * (1 + 1e-9):
            return f"a larger budget is noisier: cost {plan.cost} after {cost}"
        cost = plan.cost
    return None


def _looks_at_noise(plans: list[Plan]) -> str | None:
    plan = plans[-1]
    if plan.additive is None:
        return None
    weaker = with_scale(plan, plan.additive.noise.scale / 2)
    return None if _loss(weaker) > _loss(plan) else "half the noise has no larger loss"


def _adds_up(plans: list[Plan]) -> str | None:
    plan = plans[-1]
    if not plan.composition:
        return "the plan does not say how it adds to others"
    if plan.additive is not None:
        eta = plan.task.query.lipschitz / plan.additive.noise.scale
        if AsEntryDP(eta) not in plan.composition:
            return "additive noise does not count as entry-level privacy L/scale"
    return None


def _lattice(plans: list[Plan]) -> str | None:
    plan = plans[-1]
    body = plan.additive
    if body is None:
        return None
    if (body.query.lattice / body.noise.step).denominator != 1 or body.query != plan.task.query:
        return "the noise lies on a lattice that does not hold every answer"
    return None


def _explains(plans: list[Plan]) -> str | None:
    plan = plans[-1]
    text = plan.explain()
    protected = plan_act("protected", plan)
    parts = [
        plan.task.query.describe(),
        protected(plan) if protected else plan.task.secrets.describe(),
        plan.task.family[0].describe(),
        plan.guarantee.describe(),
        plan.body.describe(),
        plan.certificate.theorem,
        *plan.certificate.assumptions,
        *(rule.describe() for rule in plan.composition),
    ]
    left_out = [part for part in parts if part.rstrip(".") not in text]
    if left_out:
        return f"explain() leaves out: {left_out[0]}"
    if not plan.certificate.assumptions:
        return "the certificate names no assumption"
    if ("CLAIMED, NOT PROVED" in text) == plan.guarantee.proved:
        return "explain() and the guarantee disagree on whether the promise is proved"
    return None


CHECKS: dict[str, Callable[[list[Plan]], str | None]] = {
    "promise": _promise,
    "storage": _storage,
    "determinism": _deterministic,
    "order of budgets": _monotone,
    "re-check": _looks_at_noise,
    "addition": _adds_up,
    "lattice": _lattice,
    "words": _explains,
}


@functools.lru_cache(maxsize=64)
def _loss(plan: Plan) -> float:
    """What the plan's own row measures, once for equal plans."""
    return MECHANISMS[plan.mechanism].loss(plan)
