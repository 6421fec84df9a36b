"""Events as values and as automata, against their words read path by path."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.errors import InputError
from shoal.events.automaton import beliefs, compile_events, law_of, possible, priors, reached
from shoal.events.event import TimeEvent
from shoal.events.window import SlotClock, window
from tests.event_oracle import happens, paths, random_chain, random_event


def random_case(seed: int) -> tuple[shoal.DayChain, list[TimeEvent]]:
    rng = np.random.default_rng(seed)
    size, slots = int(rng.integers(2, 4)), int(rng.integers(1, 6))
    initial, transitions = random_chain(rng, size, slots)
    events = [random_event(rng, size, slots, 2) for _ in range(int(rng.integers(1, 4)))]
    return shoal.DayChain.of(transitions, initial=initial), events


@pytest.mark.parametrize("seed", range(60))
def test_automaton_says_what_the_words_say(seed: int) -> None:
    day, events = random_case(seed)
    automaton = compile_events(events, law_of(day))
    for path in itertools.product(range(day.size), repeat=day.slots):
        names = [day.states[x] for x in path]
        assert automaton.holds(path).tolist() == [happens(event, names) for event in events]


@pytest.mark.parametrize("seed", range(60))
def test_priors_and_beliefs_are_sums_over_paths(seed: int) -> None:
    day, events = random_case(seed)
    law = law_of(day)
    automaton = compile_events(events, law)
    truth = np.zeros(len(events))
    joint: dict[tuple[int, int, int], np.ndarray] = {}
    mass: dict[tuple[int, int, int], float] = {}
    for path, chance in paths(day.initial, day.transition):
        held = np.array([happens(event, [day.states[x] for x in path]) for event in events])
        truth += chance * held
        for t, (q, x) in enumerate(zip(automaton.follow(path), path, strict=True)):
            joint[t, q, x] = joint.get((t, q, x), np.zeros(len(events))) + chance * held
            mass[t, q, x] = mass.get((t, q, x), 0.0) + chance
    assert priors(automaton, law) == pytest.approx(truth, abs=1e-12)
    assert [event.prior(day) for event in events] == pytest.approx(truth, abs=1e-12)
    found, met = beliefs(automaton, law), reached(automaton, law)
    for (t, q, x), belief in joint.items():
        assert found[t][:, q, x] == pytest.approx(belief / mass[t, q, x], abs=1e-9)
    assert {(t, *map(int, at)) for t, m in enumerate(met) for at in np.argwhere(m)} == set(joint)
    can, fails = possible(automaton, law)
    assert (can == (truth > 0)).all()
    assert (fails | (truth > 1 - 1e-9)).all()


def test_automata_are_small() -> None:
    day = shoal.DayChain.of(np.full((3, 3), 1 / 3), initial=[1 / 3] * 3, slots=100)
    law = law_of(day)

    def most(*events: TimeEvent) -> int:
        return max(compile_events(events, law).sizes)

    assert most(shoal.visit(0)) == 2
    assert most(shoal.at_least(0, 5)) == most(shoal.stay(0, 5)) == 6
    assert most(shoal.sequence(0, 1, 2)) == 4
    assert most(shoal.visit(0) & shoal.visit(0, between=(3, 9))) <= 3
    assert compile_events([shoal.visit(0, between=(3, 9))], law).sizes[:4] == (1, 1, 1, 1)
    assert most(shoal.visit(0), ~shoal.visit(0)) == 2


def test_too_large_an_automaton_is_refused() -> None:
    day = shoal.DayChain.of(np.full((2, 2), 0.5), initial=[0.5, 0.5], slots=200)
    with pytest.raises(shoal.InputError, match="4096; name fewer events, count to less"):
        compile_events(
            [shoal.at_least(0, 20, between=(10 * k, 90 + 10 * k)) for k in range(5)], law_of(day)
        )
    with pytest.raises(shoal.InputError, match="an event counts to 5000"):
        shoal.stay(0, 5000).prior(day)


@pytest.mark.parametrize(
    ("between", "slots"),
    [
        (("mon", "mon"), range(24)),
        (("mon 22:00", "tue 01:30"), range(22, 26)),
        (("22:00", "01:00"), (0, *range(22, 25), *range(46, 48))),
        (("8:00", "09:00"), (8, 32)),
        (("sun 23:00", "mon 01:00"), (0,)),
        (("tue", "tue 24:00"), range(24, 48)),
        ((3, 5), (3, 4, 5)),
    ],
)
def test_windows_by_clock_and_weekday(between: object, slots: object) -> None:
    found = window(between, 48, SlotClock(60))  # type: ignore[arg-type]
    assert np.flatnonzero(found).tolist() == list(slots)  # type: ignore[call-overload]


def test_a_window_holds_every_slot_it_touches() -> None:
    assert np.flatnonzero(window(("8:30", "9:10"), 24, SlotClock(60))).tolist() == [8, 9]
    assert np.flatnonzero(window(("0:10", "0:20"), 24, SlotClock(60))).tolist() == [0]


@pytest.mark.parametrize(
    ("between", "words"),
    [
        ((5, 2), "the first slot comes after the last"),
        (("8:00", 3), "not one of each"),
        (("mon", "18:00"), "name a day in both or in none"),
        (("25:00", "26:00"), "end at 24:00"),
        (("noon", "18:00"), "write a time as"),
        (7, "two slots counted from 0"),
        ((-1, 2), "between is -1"),
    ],
)
def test_windows_badly_written_are_refused(between: object, words: str) -> None:
    with pytest.raises(shoal.InputError, match=words):
        shoal.visit("a", between=between)  # type: ignore[arg-type]


def test_refusals_are_sentences() -> None:
    day = shoal.DayChain.of([[1.0, 0], [0.5, 0.5]], initial=[0.5, 0.5], slots=3)
    with pytest.raises(shoal.InputError, match="no clock; give slot_minutes"):
        shoal.visit("0", between=("mon", "tue")).prior(day)
    with pytest.raises(shoal.InputError, match="an event names 'clinic'"):
        shoal.visit("clinic").prior(day)
    with pytest.raises(shoal.InputError, match="begins at slot 9; the model has slots 0 to 2"):
        shoal.visit("0", between=(9, 9)).prior(day)
    with pytest.raises(shoal.InputError, match="an event needs a length"):
        shoal.visit("0").prior(shoal.MarkovChain.of([[0.5, 0.5], [0.5, 0.5]]))
    with pytest.raises(shoal.InputError, match="two or more"):
        shoal.sequence("0")
    with pytest.raises(shoal.InputError, match="names no state"):
        shoal.visit([])
    with pytest.raises(shoal.InputError, match="is not an event"):
        shoal.visit("0") & "1"  # type: ignore[operator]
    with pytest.raises(shoal.InputError, match="is certain under the model"):
        shoal.Events.of(shoal.visit(["0", "1"])).check((day,))
    with pytest.raises(shoal.InputError, match="is impossible under the model: there is nothing"):
        shoal.Events.of(shoal.sequence("0", "1")).check((day,))
    with pytest.raises(shoal.InputError, match="nothing can be hidden against it"):
        shoal.Events.of((shoal.visit("1"), shoal.sequence("0", "1"))).check((day,))
    with pytest.raises(shoal.InputError, match="name at least one"):
        shoal.Events.of()
    with pytest.raises(shoal.InputError, match="events holds 'clinic'; give an event"):
        shoal.Events.of("clinic")  # type: ignore[arg-type]


def test_events_are_stored_and_compared_by_content() -> None:
    clinic = shoal.visit("clinic", between=("mon", "fri"))
    event = (clinic & ~shoal.stay("home", 3)) | shoal.sequence("A", ["B", "C"], between=(0, 4))
    secrets = shoal.Events.of(event, (clinic, shoal.visit("home")))
    for value in (event, secrets):
        assert shoal.loads(shoal.dumps(value)) == value
    assert ~~clinic == clinic
    assert shoal.visit("clinic") != clinic
    assert shoal.visit("a") | shoal.visit("b") | shoal.visit("c") == shoal.visit("a") | (
        shoal.visit("b") | shoal.visit("c")
    )
    assert clinic.describe() == "at 'clinic' between mon and fri"


def test_a_sparse_chain_has_the_same_priors() -> None:
    matrix = [[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 0.1, 0.9]]
    dense = shoal.MarkovChain.of(matrix, initial=[1, 0, 0], length=6)
    sparse = shoal.places.SparseChain.of(matrix, initial=[1, 0, 0], length=6)
    event = shoal.visit("2", between=(1, 4)) & ~shoal.stay("0", 2)
    assert event.prior(sparse) == pytest.approx(event.prior(dense), abs=1e-15)
    law, own = law_of(sparse), law_of(dense)
    automaton = compile_events([event], law)
    for a, b in zip(reached(automaton, law), reached(automaton, own), strict=True):
        assert (a == b).all()
    assert event.prior(dense, length=3) < event.prior(dense)


def test_contexts_that_are_numbers_are_taken_by_their_labels() -> None:
    day = shoal.DayChain.of(np.full((2, 2, 2), 0.5), initial=[0.5, 0.5])
    named = shoal.SensitiveContexts.of("1", moments={"0": [2]}, groups=[["0", "1"]])
    assert shoal.SensitiveContexts.of([1], moments={0: [2]}, groups=[[0, 1]]) == named
    assert shoal.SensitiveContexts.of(1, never=0) == shoal.SensitiveContexts.of("1", never=["0"])
    shoal.SensitiveContexts.of([0]).check((day,))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": "all"}, "must be 'events' or 'none'"),
        ({"mixture": (1,)}, "one weight for each of the 2 models"),
        ({"mixture": (0, 0)}, "a weight of 0 or more"),
        ({"ahead": "yes"}, "true or false"),
        ({"memory": "none", "ahead": True}, "ahead needs memory"),
        ({"looking": True}, "is not an option of mask"),
    ],
)
def test_wrong_options_of_a_mask_for_events_are_one_sentence(
    options: dict[str, Any], words: str
) -> None:
    day = shoal.DayChain.of(np.full((2, 2, 2), 0.5), initial=[0.5, 0.5])
    with pytest.raises(InputError, match=words):
        shoal.mask([day, day], shoal.Events.of(shoal.visit("1")), delta=0.2, **options)
