"""Every mechanism audited on random tasks: the true loss never exceeds the promise.

The audit itself is held against the joint law written out, so this judges both.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from shoal.audit.exact import audit
from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.core.errors import Refused
from shoal.core.plan import Additive, Plan
from shoal.core.task import Task
from shoal.events.pairs import SecretPairs
from shoal.mechanisms.queries import LinearQuery
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.table import JointTable
from tests.contexts import test_audit as suppression, test_audit_events as events
from tests.networks import test_audit as networks
from tests.oracle import (
    test_audit_places as places,
    test_optimal_table as table,
    test_steps as steps,
)
from tests.oracle.audit_tasks import LONGEST, report, tasks
from tests.oracle.enumeration import entry_loss, event_loss, laws
from tests.records import test_audit as ties

ROUNDING = 1e-9
STREAMS = ("mask-", "location-")  # other secrets than these tasks have; audited by themselves
APART = (  # for other models: tests/records/test_audit.py
    *table.ROWS,  # adds no noise: tests/oracle/test_optimal_table.py
    *steps.ROWS,  # noise of another law: tests/oracle/test_steps.py
    "correlated-sensitivity",
    "dependent-baseline",
    "dependent-field",
    "dependent-published",
    "dependent-published-18",
    "share",  # cuts rides without noise: tests/share/test_enumeration.py
)
ROWS = sorted(
    name
    for name, row in MECHANISMS.items()
    if not (row.retired or name.startswith(STREAMS) or name in APART)
)


def plans(row: str, wanted: int, seed: int) -> list[Plan]:
    """The row's plans for the first `wanted` random tasks it accepts."""
    found: list[Plan] = []
    for tried, (task, amount) in enumerate(tasks(seed)):
        if len(found) == wanted:
            return found
        assert tried < 60 * wanted + 400, f"{row} accepted {len(found)} of {tried} tasks"
        if MECHANISMS[row].refuse(task) is None:
            try:
                found.append(calibrate_and_check(MECHANISMS[row], task, amount))
            except Refused:
                continue
    return found


def oracle(task: Task, noise: Any) -> float:
    """The largest loss over the laws that can be written out."""
    query = task.query
    assert isinstance(query, LinearQuery)
    worst = 0.0
    for model in task.family:
        if isinstance(model, MixingSummary):
            continue
        if isinstance(task.secrets, SecretPairs):
            assert isinstance(model, JointTable)
            pairs = [(a.mapping(), b.mapping()) for a, b in task.secrets.pairs]
            worst = max(worst, event_loss(model, pairs, query, noise))
        else:
            shortest = model.order if isinstance(model, OrderChain) else 1
            worst = max(
                [worst]
                + [
                    entry_loss(law, query, noise)
                    for law in laws(model, LONGEST)
                    if len(next(iter(law))) >= shortest
                ]
            )
    return worst


def written_out(task: Task) -> bool:
    """Whether `oracle` is the loss itself, not only a lower bound."""
    open_ended = (AnyInitialLaw, IntervalChains, MixingSummary)
    return not any(isinstance(model, open_ended) for model in task.family)


def check(row: str, wanted: int, seed: int) -> dict[str, float]:
    """Audits `wanted` plans of a row and returns the figures."""
    shares, exact = [], 0
    for plan in plans(row, wanted, seed):
        found = audit(plan)
        assert isinstance(plan.body, Additive)
        truth = oracle(plan.task, plan.body.noise)
        where = f"{row} on {plan.task.family} at {plan.guarantee.amount}"
        assert truth <= found.upper + ROUNDING, where
        assert found.lower <= found.upper + ROUNDING, where
        if written_out(plan.task):
            assert found.exact, where
            assert math.isclose(found.loss, truth, rel_tol=ROUNDING, abs_tol=ROUNDING), where
        assert found.holds, where
        assert not found.violated, where
        exact += found.exact
        shares.append(found.lower / float(plan.guarantee.amount))
    return {"mean": sum(shares) / len(shares), "max": max(shares), "exact": exact / len(shares)}


def largest(row: str, wanted: int, seed: int) -> float:
    """The largest share of a promise that was lost; prints all figures."""
    figures = check(row, wanted, seed)
    report(row, wanted, figures)
    return figures["max"]


def allowed(row: str) -> float:
    """Entry-level rows promise nothing about dependence, and may lose more than their ε."""
    return math.inf if row in ("laplace", "knorm") else 1 + ROUNDING


@pytest.mark.parametrize("row", ROWS)
def test_no_random_audit_breaks_a_promise(row: str) -> None:
    assert largest(row, 30, seed=20) <= allowed(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_no_random_audit_breaks_a_promise_in_many(row: str) -> None:
    assert largest(row, 200, seed=21) <= allowed(row)


def test_every_mechanism_is_audited_on_random_tasks() -> None:
    """A row added to the table without such an audit fails here."""
    audited = {*ROWS, *places.ROWS, *ties.ROWS, *networks.ROWS, *suppression.SOUND, *events.ROWS}
    audited |= {*table.ROWS, *steps.ROWS}
    audited.add("share")  # every output of histories, enumerated: tests/share/test_enumeration.py
    retired = {name for name, row in MECHANISMS.items() if row.retired}
    # mask-sensitive promises nothing, and is found out
    assert set(MECHANISMS) - audited - retired == {"mask-sensitive"}


def test_the_exact_mechanism_is_tight() -> None:
    """Where noise is needed at all, the true loss is the promise to nine digits."""
    tight = 0
    for plan in plans("exact", 30, seed=22):
        assert isinstance(plan.body, Additive)
        found = audit(plan)
        assert found.exact
        least = plan.task.query.lattice / 64
        if plan.body.noise.scale > 2 * least:  # else no noise was needed
            assert found.loss == pytest.approx(float(plan.guarantee.amount), rel=1e-9)
            tight += 1
    assert tight >= 20


def test_the_check_finds_a_broken_plan() -> None:
    """Noise of an exact plan divided by 1.01 is found out every time."""
    from dataclasses import replace

    for plan in plans("exact", 10, seed=23):
        assert isinstance(plan.body, Additive)
        if plan.body.noise.scale <= plan.task.query.lattice / 32:
            continue
        noise: Any = plan.body.noise
        less = replace(plan.body, noise=replace(noise, scale=noise.scale / Fraction(101, 100)))
        found = audit(replace(plan, body=less))
        assert found.violated
        assert found.verdict == "VIOLATED"
        assert found.witness is not None
        assert found.witness.log_ratio > float(plan.guarantee.amount)
