"""Tasks, guarantees, rules of addition and releases: the words of the vocabulary."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from shoal.chains.families import AnyInitialLaw, MixingSummary
from shoal.chains.model import MarkovChain
from shoal.core.charge import NOTIONS, Alone, AsEntryDP, Guarantee, PerStep, SameQuilts
from shoal.core.errors import DataError, InputError
from shoal.core.plan import Answer, Error, Release
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.queries import count

TWO = [[0.8, 0.2], [0.3, 0.7]]
QUERY = count("ab", "b")


def task(*family: Any) -> Task:
    return Task(query=QUERY, secrets=EachEntry(), family=family)


def test_a_family_needs_a_model() -> None:
    with pytest.raises(InputError, match="the family holds no model; give at least one"):
        task()


@pytest.mark.parametrize("states", ["ba", "ac", "abc"])
def test_query_and_models_must_name_the_same_states_in_order(states: str) -> None:
    size = len(states)
    chain = MarkovChain.of([[1 / size] * size] * size, states=states)
    with pytest.raises(InputError, match="they must be the same, in the same order"):
        task(chain)


def test_a_model_without_names_goes_with_every_query() -> None:
    assert task(MixingSummary(pi_min=0.1, gap=0.5, length=7)).tied == 7


def test_the_longest_model_decides_how_many_entries_are_tied() -> None:
    short, long = (MarkovChain.of(TWO, states="ab", length=n) for n in (3, 9))
    assert task(short, long).tied == task(long, short).tied == 9
    assert task(short, AnyInitialLaw.of(TWO, states="ab")).tied is None


def test_data_must_suit_every_model_of_the_family() -> None:
    short, long = (MarkovChain.of(TWO, states="ab", length=n) for n in (3, 9))
    assert task(short, long).read(["a", "b", "b"]).total == 3
    for family in ((short, long), (long, short)):
        with pytest.raises(DataError, match="the longest chain of the data exceeds length 3"):
            task(*family).read(["a"] * 4)
    # several chains: each short enough, however many there are
    assert task(short, long).read([["a", "b", "b"]] * 5).total == 15


def test_messages_about_data_do_not_tell_its_length() -> None:
    short = MarkovChain.of(TWO, states="ab", length=3)
    with pytest.raises(DataError) as caught:
        task(short).read(["a"] * 41)
    assert "41" not in str(caught.value)


def test_only_known_notions_with_positive_amounts_can_be_promised() -> None:
    with pytest.raises(InputError, match="notion is 'perfect'; it must be one of"):
        Guarantee(notion="perfect", amount=Fraction(1), over="all")
    with pytest.raises(InputError, match="guarantee amount is 0; it must be greater than 0"):
        Guarantee(notion="group", amount=Fraction(0), over="all")
    with pytest.raises(InputError, match="a guarantee that is not proved needs a caveat"):
        Guarantee(notion="group", amount=Fraction(1), over="all", proved=False)


def test_each_notion_gives_itself_and_only_group_gives_others() -> None:
    for notion in NOTIONS:
        promise = Guarantee(notion=notion, amount=Fraction(1), over="x")
        given = {other for other in NOTIONS if promise.gives(other)}
        more = {"entry-dp", "pufferfish", "dependent"} if notion == "group" else set()
        assert given == {notion} | more


def test_a_promise_is_told_in_a_sentence() -> None:
    promise = Guarantee(notion="pufferfish", amount=Fraction(1), over="any single entry")
    assert promise.describe() == (
        "no output changes the odds between two values of what is protected (any single entry) "
        "by more than a factor of 2.718 (pufferfish, epsilon = 1)."
    )
    belief = Guarantee(notion="delta-privacy", amount=Fraction(1, 10), over="being in hospital")
    assert belief.describe() == "no output raises the belief in being in hospital by more than 0.1."
    claimed = replace(promise, proved=False, caveat="pairs miss joint effects")
    assert claimed.describe().endswith(" CLAIMED, NOT PROVED: pairs miss joint effects.")
    huge = replace(promise, amount=Fraction(10**6))
    assert "a factor of 1.014e+304" in huge.describe()


def test_rules_of_addition_describe_themselves() -> None:
    assert "eta = 0.25" in AsEntryDP(Fraction(1, 4)).describe()
    assert "same Markov quilts" in SameQuilts("k", Fraction(1)).describe()
    assert "per step" in PerStep(Fraction(1)).describe()
    assert Alone("they may").describe().endswith("about the same data: they may")
    with pytest.raises(InputError, match="eta is 0; it must be greater than 0"):
        AsEntryDP(Fraction(0))


def released(*values: int, step: Fraction = Fraction(1, 3)) -> Release:
    return Release(
        answer=Answer(tuple("abc"[: len(values)]), values, step, "entries"),
        plan="0" * 64,
        mechanism="group",
        guarantee=Guarantee(notion="group", amount=Fraction(1), over="x"),
        error=Error(1.0, 2.0, 0.95, "entries"),
        secure=True,
    )


def test_an_answer_keeps_exact_values_and_offers_floats() -> None:
    answer = released(1, -2, 6).answer
    assert answer.exact == (Fraction(1, 3), Fraction(-2, 3), Fraction(2))
    assert answer.values == (1 / 3, -2 / 3, 2.0)
    assert released(1, -2, 6).as_dict() == {"a": 1 / 3, "b": -2 / 3, "c": 2.0}


def test_processing_replaces_the_values_exactly_and_leaves_its_name() -> None:
    before = released(1, -2)
    after = before.after("halved", tuple(v / 2 for v in before.answer.exact))
    assert after.answer.exact == (Fraction(1, 6), Fraction(-1, 3))
    assert after.processed == ("halved",)
    assert after.after("again", after.answer.exact).processed == ("halved", "again")
    assert replace(after, answer=before.answer, processed=()) == before


def test_an_error_is_told_with_its_unit() -> None:
    error = Error(expected=3.96, bound=12, confidence=0.95, unit="entries")
    assert error.describe() == (
        "off by 3.96 entries on average, within ±12 entries with probability 95%"
    )
