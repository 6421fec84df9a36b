"""Charges in batches: what one charge after the other would have done, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

import shoal
from shoal.chains.model import MarkovChain
from shoal.core.charge import Charge
from shoal.core.errors import BudgetError, CannotCompose, InputError, OverBudget
from shoal.core.plan import Answer, Plan, Release
from shoal.core.task import EachEntry
from shoal.jobs import local
from shoal.ledger import open_ledger
from shoal.ledger.charging import Outcome
from shoal.ledger.entries import pack, unpacked
from shoal.ledger.store import SqlLedger
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count
from shoal.noise.primitives import SeededRng
from tests.engine_jobs import days, job, refused, released, spread
from tests.ledger_plans import DATA, group, laplace, with_eta
from tests.ledger_servers import KINDS, fresh_ledger


def settled(
    ledger: SqlLedger, charges: Sequence[Charge], calls: list[list[int]] | None = None
) -> list[Outcome]:
    """The outcomes of a batch; what was drawn is noted in `calls`."""

    def sample(places: list[int]) -> list[Release]:
        if calls is not None:
            calls.append(places)
        return [charges[place].plan.release(DATA) for place in places]

    return ledger.settle_all(charges, sample)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_decides_like_one_charge_after_the_other(kind: str, tmp_path: Path) -> None:
    plans: list[Plan] = [with_eta(Fraction(1, 10)), with_eta(Fraction(1, 4)), laplace("0.1")]
    charges = [
        Charge(
            plan=plans[number % 3],
            subject=f"s{number % 4}",
            period=f"p{number % 2}",
            requester="ab"[number % 5 % 2],
            key=f"k{number}" if number % 3 else None,
        )
        for number in range(60)
    ]

    def limited(where: str) -> SqlLedger:
        ledger = open_ledger(where)
        ledger.limit("0.9")
        ledger.limit("0.5", subject="s1")
        ledger.limit("0.35", requester="*", period="p0")
        ledger.limit("0.2", subject="s2", requester="a")
        return ledger

    one = limited(fresh_ledger(kind, tmp_path))
    many = limited(fresh_ledger(kind, tmp_path))
    wanted: list[str] = []
    for charge in charges:
        try:
            one.settle(charge, partial(charge.plan.release, DATA))
            wanted.append("released")
        except BudgetError as error:
            wanted.append(str(error))
    found = [
        outcome
        for begin in range(0, 60, 25)
        for outcome in settled(many, charges[begin : begin + 25])
    ]
    assert [str(x) if isinstance(x, BudgetError) else "released" for x in found] == wanted
    assert 0 < wanted.count("released") < 60
    assert many.verify().intact
    assert many.verify().charges == wanted.count("released")
    for subject in ("s0", "s1", "s2", "s3"):
        assert many.spent(subject, "p0") == one.spent(subject, "p0")


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_brings_its_value_back_and_samples_nothing(kind: str, tmp_path: Path) -> None:
    plan = laplace("0.1")
    charges = [Charge(plan=plan, subject=f"s{n}", key=f"k{n}") for n in range(1200)]
    with open_ledger(fresh_ledger(kind, tmp_path)) as ledger:
        first = settled(ledger, charges[:700])
        calls: list[list[int]] = []
        second = settled(ledger, charges, calls)
        assert calls == [list(range(700, 1200))]
        assert second[:700] == first
        single = ledger.settle(charges[3], lambda: pytest.fail("drawn again"))
        assert single == first[3]
        assert ledger.verify().charges == 1200
        assert ledger.verify().intact


def test_one_key_twice_in_a_batch_is_one_release(tmp_path: Path) -> None:
    plan = laplace("0.1")
    charge = Charge(plan=plan, subject="s", key="k")
    with open_ledger(tmp_path / "budget.db") as ledger:
        one, two = settled(ledger, [charge, charge])
        assert one == two
        assert ledger.verify().charges == 1
        with pytest.raises(InputError, match="two different releases"):
            settled(
                ledger,
                [
                    Charge(plan=plan, subject="a", key="x"),
                    Charge(plan=plan, subject="b", key="x"),
                ],
            )
        assert ledger.verify().charges == 1


def test_a_failing_sampler_leaves_no_charge_of_the_batch(tmp_path: Path) -> None:
    plan = laplace("0.1")

    def broken(places: list[int]) -> list[Release]:
        raise RuntimeError("no noise today")

    with open_ledger(tmp_path / "budget.db") as ledger:
        with pytest.raises(RuntimeError):
            ledger.settle_all([Charge(plan=plan, subject="s")], broken)
        assert ledger.charges() == []


def test_seeded_releases_and_those_of_other_plans_are_refused(tmp_path: Path) -> None:
    plan, other = laplace("0.1"), laplace("0.2")
    charge = Charge(plan=plan, subject="s")
    with open_ledger(tmp_path / "budget.db") as ledger:
        with pytest.raises(InputError, match="seeded"):
            ledger.settle_all([charge], lambda _: [plan.release(DATA, rng=SeededRng(1))])
        with pytest.raises(InputError, match="another plan"):
            ledger.settle_all([charge], lambda _: [other.release(DATA)])
        assert ledger.charges() == []


def test_refusals_within_a_batch_see_the_charges_before_them(tmp_path: Path) -> None:
    two = laplace("1")
    three = calibrate(
        count(["0", "1", "2"], "1"),
        EachEntry(),
        MarkovChain.of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], length=20),
        epsilon=1,
        mechanism="laplace",
    )  # about other values than `two`, so not about the same data
    with open_ledger(tmp_path / "budget.db") as ledger:
        first, second, third = settled(
            ledger,
            [
                Charge(plan=plan, subject=subject)
                for plan, subject in ((two, "a"), (three, "a"), (three, "b"))
            ],
        )
        assert isinstance(first, Release)
        assert isinstance(second, CannotCompose)
        assert isinstance(third, Release)


def test_what_is_stored_of_a_release_brings_all_of_it_back() -> None:
    plan = laplace("0.1")
    usual = plan.release(DATA)
    other = replace(
        usual, answer=Answer(('"multiples":[', "ü\n"), (-(2**70), 3), Fraction(1, 3), "Einträge")
    )
    mean = calibrate(
        shoal.mean(["0", "1"], {"0": 0, "1": 1}, length=20),
        EachEntry(),
        MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=20),
        epsilon="0.1",
        mechanism="laplace",
    )
    short = mean.release(DATA)
    assert short.answer.entries == len(DATA)
    assert pack(plan, usual) == f"[{usual.answer.multiples[0]}]"
    assert "schema" not in pack(mean, short)
    cases = [(plan, usual), (plan, other), (mean, short), (mean, mean.release(DATA * 2))]
    cases += [(plan, replace(usual, processed=("x",))), (plan, replace(usual, error=None))]
    for made, release in cases:
        assert unpacked(pack(made, release), made) == release


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_run_again_under_its_name_returns_the_stored_values(
    kind: str, tmp_path: Path
) -> None:
    data = spread(days(), tmp_path / "in", 2)
    where = fresh_ledger(kind, tmp_path)
    for number, memory in enumerate((2**29, 30_000)):
        local.run(job(data, tmp_path / f"o{number}", name="monday", ledger=where, memory=memory))
    assert released(tmp_path / "o0").equals(released(tmp_path / "o1"))
    local.run(job(data, tmp_path / "o2", name="tuesday", ledger=where))
    assert not released(tmp_path / "o2").equals(released(tmp_path / "o0"))
    with open_ledger(where) as ledger:
        assert ledger.verify().intact
        assert ledger.verify().charges == 40


def test_subjects_over_their_limit_are_refused_and_the_others_released(tmp_path: Path) -> None:
    data = spread(days(), tmp_path / "in", 2)
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.limit("0.001", subject="u0007")
    report = local.run(job(data, tmp_path / "out", ledger=str(tmp_path / "budget.db")))
    assert report.releases == 19
    assert refused(tmp_path / "out") == {"u0007": "the ledger's limit does not allow it"}
    with open_ledger(tmp_path / "budget.db") as ledger:
        assert ledger.spent("u0007") is None
        (refusal,) = settled(ledger, [Charge(plan=group("1"), subject="u0007")])
        assert isinstance(refusal, OverBudget)
