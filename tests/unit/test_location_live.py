"""Steps in one compiled call: the same as the plain ones on the same words, and nothing kept."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.core.charge import Rng, SystemRng
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.stream import Slot, Step, run_batch
from shoal.ledger.store import open_ledger
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.places.machine import POLICY_SILENT, LocationMachine
from shoal.places.packed import LocationRelease, LocationState
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import measurement
from shoal.places.stream import LocationStream, output
from tests.settling import Settling
from tests.unit.test_location_step import CHAIN, ONE, QUERY, corner_machine, machine_for

DELTA = Fraction(1, 20)
CASES = [(name, delta) for name in ("complete", "radius", "transitions") for delta in (None, DELTA)]


class Given:
    """Words that a test chose, then those of a seed."""

    secure = False

    def __init__(self, words: list[int], seed: int = 5) -> None:
        self._first, self._then, self.read = words, SeededRng(seed), 0

    def words(self, count: int) -> NDArray[np.uint64]:
        self.read += count
        first, self._first = self._first[:count], self._first[count:]
        rest = self._then.words(count - len(first))
        return np.concatenate([np.array(first, dtype=np.uint64), rest])


def same_state(one: LocationState, other: LocationState) -> None:
    assert np.array_equal(one.belief, other.belief)  # to the last bit: sets follow from beliefs
    assert one == other


def both_ways(
    machine: LocationMachine, state: LocationState, place: str, one: Rng, other: Rng
) -> tuple[LocationState, LocationRelease]:
    """The step, compared with drawing and absorbing one after the other."""
    after, release = machine.step(state, place, one)
    z = machine.answer(state, place, other)
    outputs = () if z is None else ((machine, z),)
    plain, shown = machine.absorb(state, outputs, secure=False)
    same_state(after, plain)
    assert release == shown
    assert release.as_dict() == shown.as_dict()
    return after, release


@pytest.mark.parametrize(("name", "delta"), CASES, ids=str)
@pytest.mark.parametrize("epsilon", [ONE, Fraction(7, 3)], ids=str)
def test_one_call_is_the_same_step(name: str, delta: Fraction | None, epsilon: Fraction) -> None:
    machine, state = machine_for(name, delta, epsilon=epsilon), None
    places = np.random.default_rng(1).integers(0, CHAIN.size, 40)
    state = machine.init("14") if delta is None else machine.init()
    repaired = 0
    for seed, place in enumerate(places.tolist()):
        state, release = both_ways(machine, state, str(place), SeededRng(seed), SeededRng(seed))
        repaired += len(release.added) > 0
    assert (repaired > 10) == (name in ("few", "wished"))


@pytest.mark.parametrize("noise", ["laplace", "staircase", "graph-exponential"])
def test_other_noise_is_the_same_step_too(noise: str) -> None:
    machine = machine_for("radius", noise=noise)
    state = machine.init()
    for seed in range(6):
        state, _ = both_ways(machine, state, "14", SeededRng(seed), SeededRng(seed))


@pytest.mark.parametrize("pairs", [[("0", "1"), ("0", "2")], []], ids=["one exposed", "silent"])
def test_repairs_and_silent_policies_are_shown(pairs: list[tuple[str, str]]) -> None:
    """State 3 is far from the joined ones; without any edge only the repair protects."""
    chain = type(CHAIN).of(np.full((4, 4), 0.25), initial=[0.25] * 4)
    query = measurement(chain.states, [(0, 0), (1, 0), (0, 2), (9, 7)], labels=("x", "y"))
    policy = PolicyGraph.of(chain.states, pairs)
    machine = LocationMachine(chain=chain, query=query, places=policy, epsilon=ONE)
    state = machine.init()
    for seed in range(4):
        state, release = both_ways(machine, state, "3", SeededRng(seed), SeededRng(seed))
        assert any("3" in pair for pair in release.added)
        assert (POLICY_SILENT in release.warnings) == (not pairs)


def test_a_model_of_two_states_names_two() -> None:
    chain = type(CHAIN).of([[0.5, 0.5], [0.4, 0.6]], initial=[0.5, 0.5])
    query = measurement(chain.states, [(0, 0), (1, 2)], labels=("x", "y"))
    policy = PolicyGraph.complete(chain.states)
    machine = LocationMachine(chain=chain, query=query, places=policy, epsilon=ONE)
    state = machine.init()
    for seed in range(4):  # two points span a line, so these go the plain way
        state, release = both_ways(machine, state, "0", SeededRng(seed), SeededRng(seed))
        assert len(release.likely) == 2


@pytest.mark.parametrize("delta", [None, DELTA], ids=str)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param([0] * 33, id="undecided at once"),
        pytest.param([2**64 - 1] * 9 + [0] * 24, id="undecided later"),
        pytest.param([0] * 3 + [2**63] * 30, id="undecided before one that is kept"),
        pytest.param([2**64 - 1] * 33, id="all rejected"),
    ],
)
def test_a_draw_that_is_handed_back_is_made_from_the_same_words(
    words: list[int], delta: Fraction | None
) -> None:
    """Words of 0 are too close to tell; words of ones are minus zero, which is rejected."""
    machine = machine_for("radius", delta)
    state, _ = machine.step(machine.init(), "14", SeededRng(9))
    both_ways(machine, state, "14", Given(words), Given(words))


def test_a_step_reads_what_one_draw_reads() -> None:
    machine = machine_for("radius")
    state, _ = machine.step(machine.init(), "14", SeededRng(9))
    one, other = Given([]), Given([])
    machine.step(state, "14", one)
    machine.answer(state, "14", other)
    assert one.read == other.read


def test_lost_beliefs_and_far_outputs_are_the_same_step() -> None:
    machine = corner_machine(Fraction(800))
    lost = LocationState(1, np.zeros(3, np.float32), np.packbits([True] * 3))
    both_ways(machine, lost, machine.query.states[1], SeededRng(1), SeededRng(1))
    wide = corner_machine(Fraction(1, 10**25))
    state, _ = wide.absorb(wide.init(), ())
    both_ways(wide, state, wide.query.states[1], SeededRng(1), SeededRng(1))


@pytest.mark.parametrize(("name", "delta"), CASES, ids=str)
def test_a_step_does_not_depend_on_steps_before_it(name: str, delta: Fraction | None) -> None:
    """A machine that has run for others, and one made anew from the state's JSON, agree."""
    used = machine_for(name, delta)
    state = used.init()
    kept = []
    for seed in range(12):
        kept.append(state)
        state, _ = used.step(state, str(3 * seed % CHAIN.size), SeededRng(seed))
    for before in reversed(kept):
        again = used.step(before, "14", SeededRng(99))
        fresh = machine_for(name, delta).step(before, "14", SeededRng(99))
        same_state(again[0], fresh[0])
        assert again[1] == fresh[1]


def test_states_and_releases_cannot_be_changed() -> None:
    machine = machine_for("radius", DELTA)
    state, _ = machine.step(machine.init(), "14", SeededRng(1))
    after, release = machine.step(state, "14", SeededRng(2))
    for array in (after.belief, after.support):
        assert array.base is None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(FrozenInstanceError):
        release.time = 5  # type: ignore[misc]
    assert type(release) is LocationRelease
    made = LocationRelease(
        **{name: getattr(release, name) for name in LocationRelease.__dataclass_fields__}
    )
    assert made == release
    assert json.dumps(made.as_dict()) == json.dumps(release.as_dict())


def plan_with(delta: Fraction | None) -> Plan:
    query = measurement(CHAIN.states, QUERY.values.tolist(), labels=("x", "y"))
    policy = PolicyGraph.complete(CHAIN.states)
    secrets = policy if delta is None else LocationSet(policy=policy, delta=delta)
    return calibrate(query, secrets, CHAIN, epsilon=1, mechanism="location-knorm")


class Again(Settling):
    """A ledger whose transactions have to start again: only the last draw counts."""

    def __init__(self) -> None:
        self.etas: list[Any] = []

    def settle(self, charge: Any, sample: Any) -> Any:
        self.etas.append(charge.eta)
        return sample()

    def transact(self, work: Any) -> Any:
        super().transact(work)
        return super().transact(work)


@pytest.mark.parametrize("delta", [None, DELTA], ids=str)
def test_a_charged_step_is_the_same_step(delta: Fraction | None) -> None:
    plan, ledger = plan_with(delta), Again()
    stream = LocationStream.begin(plan)
    for seed in range(8):
        rng, again = SeededRng(seed), SeededRng(seed)
        noise = stream.machine.prior(stream.state).noise
        (result,) = run_batch([Step(stream, Slot(subject="ann"), 14)], ledger, rng)
        stream.machine.step(stream.state, "14", again)
        plain = stream.machine.step(stream.state, "14", again)
        stream = result.after()
        assert stream.shown == plain[1]
        same_state(stream.state, plain[0])
        assert ledger.etas[-1] == noise.eta


def test_what_an_earlier_charge_stored_is_absorbed_instead() -> None:
    class Before(Settling):
        def settle(self, charge: Any, sample: Any) -> Any:
            return output(charge.plan, (1, 2))

    stream, _ = LocationStream.begin(plan_with(DELTA)).read("14", rng=SeededRng(1))
    wanted = stream.machine.absorb(stream.state, ((stream.machine, (1, 2)),))
    (result,) = run_batch([Step(stream, Slot(subject="ann"), 14)], Before())
    assert result.stream.shown == wanted[1]
    same_state(result.stream.state, wanted[0])


@pytest.mark.parametrize("delta", [None, DELTA], ids=["support", "location set"])
def test_a_charged_step_goes_through_few_modules(tmp_path: Path, delta: Fraction | None) -> None:
    """Five of places, the others of the ledger and of the core it stands on."""
    plan = plan_with(delta)
    touched = set[str]()

    def watch(frame: Any, event: str, arg: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("shoal."):
            touched.add(name)

    with open_ledger(tmp_path / "ledger.db") as ledger:
        for subject, steps in (("bob", 9), ("ann", 8)):  # somebody has been where ann comes to
            stream = LocationStream.begin(plan)
            for _ in range(steps):
                stream, _ = stream.read("14", ledger=ledger, subject=subject)
        before = sys.getprofile()
        sys.setprofile(watch)
        try:
            stream.read("14", ledger=ledger, subject="ann")
        finally:
            sys.setprofile(before)
    own = {name for name in touched if name.startswith("shoal.places.")}
    names = ("machine", "queries", "runtime", "step", "stream")
    assert own == {f"shoal.places.{name}" for name in names}
    assert len(touched) <= 25, sorted(touched)


@pytest.mark.parametrize("delta", [None, DELTA], ids=["support", "location set"])
@pytest.mark.parametrize("length", [1, 3])
def test_a_stream_ends_with_its_model(length: int, delta: Fraction | None) -> None:
    """Also where compiled code takes the steps, and the same states are possible again."""
    policy = PolicyGraph.complete(CHAIN.states)
    secrets = policy if delta is None else LocationSet(policy=policy, delta=delta)
    chain = replace(CHAIN, length=length)
    machine = LocationMachine(chain=chain, query=QUERY, places=secrets, epsilon=Fraction(1))
    state, rng = machine.init(), SeededRng(3)
    for _ in range(length):
        state, release = machine.step(state, "14", rng)
        assert release.z is not None
    for observed in ("14", None):
        with pytest.raises(InputError, match=rf"step {length + 1} is beyond length {length} of"):
            machine.step(state, observed, rng)


def test_old_names_of_a_release_warn() -> None:
    machine = machine_for("radius")
    _, release = machine.step(machine.init(), "14", SeededRng(1))
    with pytest.warns(DeprecationWarning, match="about_now is now loss_here"):
        assert release.about_now == release.loss_here
    with pytest.warns(DeprecationWarning, match="about_all is now loss_path"):
        assert release.about_all == release.loss_path


def test_a_forked_child_draws_other_noise() -> None:
    machine = machine_for("radius", DELTA)
    state, _ = machine.step(machine.init(), "14", SystemRng())

    def outputs() -> list[Any]:
        return [machine.step(state, "14", SystemRng())[1].z for _ in range(40)]

    outputs()
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(send, json.dumps(outputs()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = [tuple(z) for z in json.loads(os.read(receive, 10**4))]
    os.close(receive)
    os.close(send)
    assert len(theirs) == 40
    assert theirs != outputs()


def test_coordinates_are_the_query_points() -> None:
    """What the tests above rely on: the map is one where compiled code applies."""
    assert QUERY.points.shape == (CHAIN.size, 2)
