"""Posteriors, best paths and beliefs over time against the joint law written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal.attacks.beliefs import (
    Beliefs,
    EntriesSeen,
    Seen,
    SumSeen,
    attack,
    belief_over_time,
    entropy,
    laplace_sum,
    most_likely,
    one_number,
    released,
    suppressed,
)
from shoal.chains.families import AnyInitialLaw, OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Additive
from shoal.core.task import EachEntry, Model
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import LinearQuery, count, histogram, weighted_sum
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from shoal.noise.laplace import ZeroSumLaplace
from shoal.noise.primitives import SeededRng
from tests.oracle.enumeration import Law, chain_law, order_law, table_law

CHAIN = MarkovChain.of([[0.5, 0.5, 0.0], [0.1, 0.4, 0.5], [0.7, 0.0, 0.3]], initial=[0.2, 0.5, 0.3])
ORDER = OrderChain(
    states=("0", "1"),
    order=2,
    conditional=np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0, 1]]),
    initial=np.array([0.4, 0.1, 0.3, 0.2]),
)
TABLE = JointTable.of([[[0.3, 0.05], [0.1, 0.05]], [[0.05, 0.2], [0.05, 0.2]]])
MODELS: dict[str, tuple[Model, Callable[[], Law], int]] = {
    "chain": (CHAIN, lambda: chain_law(CHAIN, 5), 5),
    "order": (ORDER, lambda: order_law(ORDER, 6), 6),
    "table": (TABLE, lambda: table_law(TABLE), 3),
}


def queries(model: Model) -> list[LinearQuery]:
    states = model.states
    assert states is not None
    return [
        count(states, states[-1]),
        weighted_sum(states, dict(zip(states, ("-1/2", 1, 2), strict=False))),
        histogram(states),
    ]


def by_hand(law: Law, model: Model, weigh: Callable[[tuple[int, ...]], float]) -> dict[Any, float]:
    """Posterior over whole outcomes."""
    weights = {path: chance * math.exp(weigh(path)) for path, chance in law.items()}
    total = math.fsum(weights.values())
    return {path: weight / total for path, weight in weights.items()}


def marginals(posterior: dict[tuple[int, ...], float], size: int) -> Floats:
    length = len(next(iter(posterior)))
    out = np.zeros((length, size))
    for path, chance in posterior.items():
        for t, state in enumerate(path):
            out[t, state] += chance
    return out


@pytest.mark.parametrize("name", sorted(MODELS))
def test_beliefs_and_best_guesses_match_the_joint_law(name: str) -> None:
    model, law, entries = MODELS[name]
    assert model.states is not None
    for query in queries(model):
        output = tuple(1.5 + 0.5 * i for i in range(len(query.labels)))
        seen = laplace_sum(query, output, 0.8)

        def weigh(path: tuple[int, ...], query: LinearQuery = query, output: Any = output) -> float:
            sums = [sum(query.weights[s][j] for s in path) for j in range(len(query.labels))]
            gaps = [abs(float(c) - float(z)) for c, z in zip(sums, output, strict=True)]
            return -math.fsum(gaps) / 0.8

        posterior = by_hand(law(), model, weigh)
        found = attack(model, [seen], entries)
        assert np.allclose(found.after, marginals(posterior, len(model.states)), atol=1e-12)
        assert np.allclose(found.before, marginals(law(), len(model.states)), atol=1e-12)
        best = most_likely(model, [seen], entries)
        place = tuple(model.states.index(state) for state in best)
        assert posterior[place] == pytest.approx(max(posterior.values()))


def test_many_releases_and_glimpses_add_up() -> None:
    """Two sums, the same one twice, and something seen of single entries."""
    first, second = count(CHAIN.states, "0"), count(CHAIN.states, "2")
    rows = np.log(np.random.default_rng(3).uniform(0.1, 1, (5, 3)))
    seen: list[Seen] = [
        laplace_sum(first, (2.0,), 1.0),
        laplace_sum(first, (3.0,), 2.0),
        laplace_sum(second, (0.5,), 1.5),
        EntriesSeen(rows),
    ]

    def weigh(path: tuple[int, ...]) -> float:
        zeros, twos = path.count(0), path.count(2)
        sums = -abs(zeros - 2) - abs(zeros - 3) / 2 - abs(twos - 0.5) / 1.5
        return sums + sum(float(rows[t, s]) for t, s in enumerate(path))

    posterior = by_hand(chain_law(CHAIN, 5), CHAIN, weigh)
    found = attack(CHAIN, seen, 5)
    assert np.allclose(found.after, marginals(posterior, 3), atol=1e-12)
    evidence = math.fsum(p * math.exp(weigh(path)) for path, p in chain_law(CHAIN, 5).items())
    assert found.log_evidence == pytest.approx(math.log(evidence))
    best = tuple(int(s) for s in most_likely(CHAIN, seen, 5))
    assert posterior[best] == pytest.approx(max(posterior.values()))


def test_chains_with_a_gap_between_them_are_independent() -> None:
    seen = laplace_sum(count(CHAIN.states, "2"), (3.0,), 1.0)
    law = {
        (*a, *b): p * q
        for (a, p), (b, q) in product(chain_law(CHAIN, 3).items(), chain_law(CHAIN, 2).items())
    }
    posterior = by_hand(law, CHAIN, lambda path: -abs(path.count(2) - 3.0))
    found = attack(CHAIN, [seen], [3, 2])
    assert np.allclose(found.after, marginals(posterior, 3), atol=1e-12)


def test_chains_without_entries_say_nothing() -> None:
    """An empty chain before, between or after others changes nothing, and alone is no data."""
    seen = [laplace_sum(count(CHAIN.states, "2"), (3.0,), 1.0)]
    expected = attack(CHAIN, seen, [3, 2])
    for lengths in ([0, 3, 2], [3, 0, 0, 2], [3, 2, 0]):
        found = attack(CHAIN, seen, lengths)
        assert np.allclose(found.after, expected.after, atol=1e-14)
        assert np.allclose(found.before, expected.before, atol=1e-14)
    assert np.allclose(attack(CHAIN, seen, [0, 4]).after, attack(CHAIN, seen, 4).after)
    for nothing in (0, [], [0, 0], -1):
        with pytest.raises(Refused, match="shorter than the model's order"):
            attack(CHAIN, seen, nothing)


def test_one_matrix_per_step_covers_the_beginning_of_its_data() -> None:
    steps = [[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.6, 0.4]]]
    chain = MarkovChain.of(steps, initial=[0.5, 0.5], length=3)
    seen = [laplace_sum(count(chain.states, "1"), (2.0,), 1.0)]
    posterior = by_hand(chain_law(chain, 2), chain, lambda path: -abs(sum(path) - 2.0))
    assert np.allclose(attack(chain, seen, 2).after, marginals(posterior, 2), atol=1e-12)
    for entries in (4, [3, 4]):
        with pytest.raises(Refused, match="longer than the model"):
            attack(chain, seen, entries)


def test_beliefs_too_small_for_a_double_are_not_excluded() -> None:
    """Ten entries that nearly always are 0: a release of 10 with next to no noise."""
    rare = MarkovChain.of([[1 - 1e-90, 1e-90], [1 - 1e-90, 1e-90]], initial=[1 - 1e-90, 1e-90])
    found = attack(rare, [laplace_sum(count("01", "1"), (10.0,), 1e-4)], 10)
    assert np.allclose(found.after[:, 1], 1.0)
    learned = found.largest_change()
    # given a 0 somewhere the answer is off by one: 10,000 against ten rare entries and nine
    assert learned.log_odds == pytest.approx(1e4, rel=1e-3)
    assert found.largest_rise().log_ratio == pytest.approx(90 * math.log(10), rel=1e-9)


def test_a_value_too_rare_for_a_double_before_is_still_learned_about() -> None:
    """P(second entry = b) = 1e-400 before anything is seen, and 1 afterwards."""
    matrix = np.array([[1, 0, 0], [0, 1 - 1e-200, 1e-200], [0, 0, 1]])
    chain = MarkovChain.of(matrix, initial=[1 - 1e-200, 1e-200, 0])
    found = attack(chain, [EntriesSeen(np.array([[0, 0, 0], [-math.inf, -math.inf, 0]]))], 2)
    assert found.after[1, 2] == 1.0
    assert found.before[1, 2] == 0.0
    assert found.largest_rise().log_ratio == pytest.approx(400 * math.log(10), rel=1e-9)


def test_long_chains_recompute_what_they_do_not_keep() -> None:
    """Checkpoints change nothing: a chain of 37 entries against one pass that keeps all."""
    chain = MarkovChain.of([[0.9, 0.1], [0.3, 0.7]])
    seen = laplace_sum(count(chain.states, "1"), (20.0,), 2.0)
    found = attack(chain, [seen], 37)
    states = np.arange(2)
    forward = [chain.initial[:, None] * np.ones((2, 1))]
    for _ in range(36):
        table = np.zeros((2, forward[-1].shape[1] + 1))
        for x in states:
            table += chain.transition[x][:, None] * np.pad(forward[-1][x], (x, 1 - x))
        forward.append(table)
    back = [np.exp(-np.abs(np.arange(38) - 20.0) / 2)[None].repeat(2, axis=0)]
    for t in range(36, -1, -1):
        ahead = back[-1] if t == 36 else chain.transition @ back[-1]
        back.append(np.stack([ahead[x, x : x + forward[t].shape[1]] for x in states]))
    joint = np.array([(a * b).sum(axis=1) for a, b in zip(forward, back[:0:-1], strict=True)])
    assert np.allclose(found.after, joint / joint.sum(axis=1, keepdims=True), atol=1e-12)


def test_belief_over_time_is_the_filter() -> None:
    rows = np.log(np.random.default_rng(4).uniform(0.1, 1, (4, 3)))
    found = belief_over_time(CHAIN, EntriesSeen(rows))
    for t in range(4):
        law = chain_law(CHAIN, t + 1)
        posterior = by_hand(law, CHAIN, lambda p: sum(float(rows[i, s]) for i, s in enumerate(p)))
        assert np.allclose(found[t], marginals(posterior, 3)[t], atol=1e-12)
    assert np.allclose(found[-1], attack(CHAIN, [EntriesSeen(rows)], 4).after[-1])


def test_belief_over_time_of_a_longer_memory_does_not_look_ahead() -> None:
    """Also not among the first entries, which come as one tuple."""
    rows = np.log(np.random.default_rng(5).uniform(0.1, 1, (5, 2)))
    found = belief_over_time(ORDER, EntriesSeen(rows))
    for t in range(5):
        law = order_law(ORDER, t + 1)
        posterior = by_hand(law, ORDER, lambda p: sum(float(rows[i, s]) for i, s in enumerate(p)))
        assert np.allclose(found[t], marginals(posterior, 2)[t], atol=1e-12), t


def test_a_suppressed_stream_is_read_backwards_too() -> None:
    rows = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    chain = MarkovChain.of(rows, states="abs", initial=[1, 0, 0])
    seen = suppressed(("a", None, None), "abs", {"s": 1.0, "b": 0.5})
    found = attack(chain, [seen], 3)
    assert found.after[1, 1] == pytest.approx(1.0)  # only b leads on to a hidden s
    assert found.after[2, 2] == pytest.approx(1.0)


def test_one_bar_of_zero_sum_noise_has_its_own_law() -> None:
    """The marginal used for long histograms is that of the noise as drawn."""
    chain = MarkovChain.of([[0.9, 0.1], [0.3, 0.7]], length=6)
    query = histogram(chain.states)
    plan = calibrate(query, EachEntry(), chain, epsilon=1, mechanism="knorm")
    release = plan.release([0, 0, 1, 1, 0, 0], rng=SeededRng(1))
    whole = attack(chain, [released(plan, release)], 6)
    # with two bars the second is the length less the first, so one tells as much as both
    alone = attack(chain, [one_number(plan, release, 0)], 6)
    assert np.allclose(whole.after, alone.after, atol=1e-9)


def test_one_bar_of_zero_sum_noise_far_out() -> None:
    """P(one of three coordinates is off by g) ∝ Σ q^{|g| + |a| + |g + a|}, in exact fractions.

    At 150 steps of q = 1/8 it is 2^-900 of what it is at 0, where an FFT would see its rounding.
    """
    chain = MarkovChain.of(np.full((3, 3), 1 / 3), length=4)
    query = histogram(chain.states)
    plan = calibrate(query, EachEntry(), chain, epsilon=1, mechanism="knorm")
    scale = Fraction("0.4808983469629878")  # 1 / log 8, to sixteen digits
    noise = ZeroSumLaplace(scale, Fraction(1), 3)
    plan = replace(plan, body=Additive(query, noise))
    release = plan.release([0, 1, 2, 0], rng=SeededRng(1))
    seen = one_number(plan, release, 0)
    gaps = np.array([0, 1, 2, 7, 40, 150])
    found = seen.log_likelihood((gaps + int(release.values[0]))[:, None])

    def log_law(gap: int) -> float:
        total = sum(
            (Fraction(1, 8) ** (gap + abs(a) + abs(gap + a)) for a in range(-gap - 60, 60)),
            Fraction(0),
        )
        return math.log(total.numerator) - math.log(total.denominator)

    expected = np.array([log_law(int(gap)) for gap in gaps])
    assert found - found[0] == pytest.approx(expected - expected[0], rel=1e-9)


@pytest.mark.parametrize(
    "turned",
    [
        MarkovChain.of([[0.7, 0.3], [0.1, 0.9]], states="ba", initial=[0.2, 0.8]),
        Contagion.cliques([3], [0.4, 0.1, 0.2, 0.3], states="ba"),
        JointTable.of([[[0.3, 0.1], [0, 0.1]], [[0.2, 0.1], [0, 0.2]]], domains=["ba"] * 3),
    ],
    ids=["chain", "crowd", "table"],
)
def test_values_are_matched_by_name(turned: Model) -> None:
    """A model that lists the values in another order than the query believes the same."""
    assert turned.states is not None
    one = attack(turned, [laplace_sum(count("ab", "a"), [3.0], 0.3)], 3)
    two = attack(turned, [laplace_sum(count(turned.states, "a"), [3.0], 0.3)], 3)
    assert np.array_equal(one.after, two.after)
    assert one.after[0, 1] > one.before[0, 1]  # "a" is its second value
    with pytest.raises(InputError, match=r"the model has the values \['b', 'a'\]"):
        attack(turned, [laplace_sum(count("ac", "a"), [3.0], 0.3)], 3)


def test_releases_are_attacked_as_they_were_drawn() -> None:
    chain = MarkovChain.of([[0.9, 0.1], [0.3, 0.7]], length=6)
    query = count(chain.states, "1")
    plan = calibrate(query, EachEntry(), chain, epsilon=1)
    other = calibrate(query, EachEntry(), chain, epsilon=2)
    release = plan.release([0, 0, 1, 1, 0, 0], rng=SeededRng(1))
    raised = release.after("non-negative", (Fraction(0),))
    for see in (released, lambda plan, release: one_number(plan, release, 0)):
        with pytest.raises(InputError, match=r"was processed \(non-negative\)"):
            see(plan, raised)
        with pytest.raises(InputError, match="not of this plan"):
            see(other, release)


@pytest.mark.parametrize(
    ("see", "words"),
    [
        (lambda: laplace_sum(count("01", "1"), (math.nan,), 1.0), "must be finite"),
        (lambda: laplace_sum(count("01", "1"), (1.0,), 0.0), "scale is 0.0"),
        (lambda: laplace_sum(count("01", "1"), (1.0,), math.inf), "scale is inf"),
        (lambda: suppressed(("0",), "01", {"0": 1.5}), r"probabilities are in \[0, 1\]"),
        (lambda: suppressed(("2",), "01", {}), "shows '2', which is not one of"),
    ],
    ids=["nan", "no noise", "infinite noise", "probability", "context"],
)
def test_what_nobody_can_have_seen_is_an_error(see: Callable[[], Seen], words: str) -> None:
    with pytest.raises(InputError, match=words):
        see()


@pytest.mark.parametrize("model", [CHAIN, TABLE], ids=["chain", "table"])
def test_likelihoods_that_are_no_numbers_are_an_error(model: Model) -> None:
    assert model.states is not None
    for bad in (math.nan, math.inf):
        rows = np.zeros((3, len(model.states)))
        rows[1, 0] = bad
        with pytest.raises(InputError, match="a likelihood that is no number"):
            attack(model, [EntriesSeen(rows)], 3)


def test_measures_of_what_was_learned() -> None:
    before = np.array([[0.5, 0.5], [0.9, 0.1]])
    after = np.array([[0.8, 0.2], [0.9, 0.1]])
    found = Beliefs(("a", "b"), before, after, 0.0)
    learned = found.largest_change()
    assert learned.log_odds == pytest.approx(math.log(4))
    assert (learned.entry, learned.values) == (0, ("a", "b"))
    assert found.expected_errors() == pytest.approx((0.3, 0.15))
    assert found.entropies()[0] == pytest.approx((1 + entropy(np.array([0.9, 0.1]))) / 2)
    privacy = found.privacy([1, 0])
    assert privacy.correctness == pytest.approx((0.8 + 0.1) / 2)
    assert privacy.accuracy == 0.5
    assert found.privacy([1, 0], [[0, 2], [2, 0]]).correctness == pytest.approx(0.9)
    rise = found.largest_rise()
    assert rise.log_ratio == pytest.approx(math.log(1.6))
    assert (rise.entry, rise.value) == (0, "a")
    assert math.isnan(Beliefs(("a", "b"), before, after).log_evidence)
    with pytest.raises(InputError, match="truth must hold one of the numbers 0 to 1"):
        found.privacy([1])
    with pytest.raises(InputError, match="distance has shape"):
        found.privacy([1, 0], [0.0, 1.0])


def test_certainty_is_an_unlimited_change() -> None:
    found = Beliefs(("a", "b"), np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]]), 0.0)
    assert found.largest_change().log_odds == math.inf
    assert found.entropies()[1] == 0.0


def test_what_cannot_be_attacked_is_refused() -> None:
    query = count("01", "1")
    seen = laplace_sum(query, (1.0,), 1.0)
    with pytest.raises(Refused, match="an adversary holds one law"):
        attack(AnyInitialLaw.of([[0.5, 0.5], [0.5, 0.5]]), [seen], 3)
    with pytest.raises(Refused, match="shorter than the model's order"):
        attack(ORDER, [seen], 1)
    with pytest.raises(Refused, match="several chains of higher order"):
        attack(ORDER, [seen], [3, 3])
    wide = SumSeen(np.array([[0], [1], [10**8]]), lambda sums: np.zeros(len(sums)))
    with pytest.raises(Refused, match="would take"):
        attack(CHAIN, [wide], 100)
    huge = SumSeen(np.array([[0], [1], [2**58]]), lambda sums: np.zeros(len(sums)))
    with pytest.raises(Refused, match="too large for an attack"):
        attack(CHAIN, [huge], 100)
    with pytest.raises(InputError, match="weights for 2 values"):
        attack(CHAIN, [seen], 3)


def test_impossible_sights_are_an_error() -> None:
    chain = MarkovChain.of([[1, 0], [0, 1]], states="ab", initial=[1, 0])
    with pytest.raises(InputError, match="impossible under the model"):
        attack(chain, [suppressed(("b", "b"), "ab", {})], 2)
    with pytest.raises(InputError, match="impossible under the model"):
        most_likely(chain, [suppressed(("b", "b"), "ab", {})], 2)
    with pytest.raises(InputError, match="impossible under the model"):
        belief_over_time(chain, suppressed(("a", "b"), "ab", {}))
    with pytest.raises(InputError, match="number of entries other than 3"):
        attack(chain, [suppressed(("a", "a"), "ab", {})], 3)
    with pytest.raises(InputError, match="output has 1 numbers"):
        laplace_sum(histogram("ab"), (1.0,), 1.0)
