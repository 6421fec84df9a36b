"""Plans say when their noise leaves nothing: against enumeration, and in words."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.contexts.online import OnlineCertificate
from shoal.core.plan import UselessRelease
from shoal.mechanisms.usefulness import usefulness

MATRIX = [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7]]


def planned(length: int, epsilon: float, query: Any = None, **wish: Any) -> shoal.Plan:
    chain = shoal.MarkovChain.of(MATRIX, states="abc", length=length)
    asked = query or shoal.count("abc", "a")
    return shoal.calibrate(asked, shoal.EachEntry(), chain, epsilon=epsilon, **wish)


@pytest.mark.parametrize("steps", [False, True])
def test_the_variance_of_a_sum_is_that_of_the_joint_law(steps: bool) -> None:
    count = 6
    matrices = [
        np.array(MATRIX) if not steps else np.roll(MATRIX, t, axis=1) for t in range(count - 1)
    ]
    chain = shoal.MarkovChain.of(
        matrices if steps else MATRIX, states="abc", initial=[0.5, 0.3, 0.2], length=count
    )
    weights = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 5.0]])
    mean, square = np.zeros(2), np.zeros(2)
    for path in product(range(3), repeat=count):
        chance = chain.initial[path[0]]
        for t, (x, y) in enumerate(pairwise(path)):
            chance = chance * chain.matrix(t)[x, y]
        total = weights[list(path)].sum(axis=0)
        mean, square = mean + chance * total, square + chance * total**2
    assert chain.sum_variance(weights, count) == pytest.approx(square - mean**2)


def test_long_sums_grow_in_a_straight_line() -> None:
    chain = shoal.MarkovChain.of(MATRIX, states="abc")
    weights = np.eye(3)[:, :1]
    near, far = (float(chain.sum_variance(weights, n)[0]) for n in (4000, 8000))
    assert far / near == pytest.approx(2, rel=0.01)


def test_a_release_that_tells_something_is_not_warned_about() -> None:
    plan = planned(400, 1)
    found = usefulness(plan)
    assert found.tells
    assert found.warnings == ()
    assert found.spread == 400
    assert found.prior_error is not None
    assert found.error is not None
    assert found.error < found.prior_error < 40
    assert "if the model is right, a guess from it alone" in plan.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UselessRelease)
        plan.release(["a", "b"] * 100, rng=1)


def test_less_than_the_public_model_says_is_told() -> None:
    plan = planned(30, 0.5)
    found = usefulness(plan)
    assert not found.tells
    assert "If the model is right, this release says less" in found.warnings[0]
    assert "If the model is right, this release says less" in plan.explain()
    with pytest.warns(UselessRelease, match="If the model is right, this release says less"):
        plan.release(["a", "b"] * 10, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UselessRelease)
        plan.release(["a", "b"] * 10, rng=1)  # once for every plan


def test_noise_as_wide_as_the_answer_is_told() -> None:
    query = shoal.mean("abc", {"a": 1, "b": 0, "c": 0}, length=20, unit="shares")
    found = usefulness(planned(20, 0.05, query))
    assert found.spread == pytest.approx(1)
    assert "The noise is as wide as the answer" in found.warnings[0]
    assert "no two answers are more than 1 apart" in found.warnings[0]


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [(21, "lets the odds between two secrets change by a factor of 1.3e"), (5e-4, "so small that")],
)
def test_odd_budgets_get_a_sentence(epsilon: float, words: str) -> None:
    plan = planned(10, epsilon, mechanism="group")
    assert words in usefulness(plan).warnings[0]
    assert words in plan.explain()
    ordinary = usefulness(planned(10, 20, mechanism="group"))
    assert not any("lets the odds" in word for word in ordinary.warnings)


def test_what_cannot_be_compared_is_not_spoken_of() -> None:
    chain = shoal.MarkovChain.of(MATRIX, states="abc")  # of any length
    plan = shoal.calibrate(shoal.count("abc", "a"), shoal.EachEntry(), chain, epsilon=1)
    found = usefulness(plan)
    assert (found.spread, found.prior_error, found.warnings) == (None, None, ())
    assert found.describe() == ""
    assert "Useful" not in plan.explain()


def test_centres_that_noise_put_on_the_edge_are_told() -> None:
    pytest.importorskip("sklearn")
    from shoal.records.estimators import PrivateKMeans

    rows = np.random.default_rng(1).uniform(0.4, 0.6, size=(40, 2))
    with pytest.warns(UselessRelease, match="coordinates of the centres lie on the edge"):
        found = PrivateKMeans(3, epsilon=0.05, random_state=1).fit(rows)
    assert found.clamped_ == int(np.isin(found.cluster_centers_, (0.0, 1.0)).sum()) > 0


WARNED = r"(this release says less than the model|as wide as the answer)"


def _network(epsilon: float) -> Any:
    ill = [[0.6, 0.4], [0.2, 0.8]]
    people = [f"p{k}" for k in range(8)]
    net = shoal.BayesNet.of(
        {"season": [0.5, 0.5], **dict.fromkeys(people, ill)},
        parents={key: ["season"] for key in people},
        domains={"season": ["cold", "warm"], **{key: ["ill", "well"] for key in people}},
    )
    weights = {name: {"ill": 1, "well": 0} for name in people}
    return shoal.calibrate(
        shoal.variable_sum(net, weights), shoal.EachEntry(), net, epsilon=epsilon
    )


def _contagion(epsilon: float) -> Any:
    crowd = shoal.Contagion.cliques([4] * 30, shoal.networks.exponential_law(1))
    query = shoal.count(crowd.states, crowd.states[-1])
    return shoal.calibrate(query, shoal.EachEntry(), crowd, epsilon=epsilon)


def _ties(epsilon: float) -> Any:
    domain = shoal.records.RecordDomain.named(["no", "yes"])
    law = [[0.4, 0.1], [0.1, 0.4]]
    pairs = [[2 * k, 2 * k + 1] for k in range(50)]
    model = shoal.Dependence.of(domain, 100, pairs, law)
    query = shoal.count(["no", "yes"], "yes")
    return shoal.calibrate(query, shoal.EachEntry(), model, epsilon=epsilon)


def _unlike(epsilon: float) -> Any:
    """As many variables as there are values, but not as many values each."""
    net = shoal.BayesNet.of(
        {"a": [0.5, 0.5], "b": [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], "c": [0.4, 0.6]},
        parents={"b": ["a"]},
        domains={"a": ["0", "1"], "b": ["0", "1", "2"], "c": ["0", "1"]},
    )
    query = shoal.variable_sum(net, {"a": {"1": 1}, "b": {"2": 2}})
    return shoal.calibrate(query, shoal.EachEntry(), net, epsilon=epsilon)


@pytest.mark.parametrize("made", [_network, _unlike, _contagion, _ties])
def test_every_family_compares_its_noise_with_range_and_model(made: Any) -> None:
    poor, good = usefulness(made(0.01)), usefulness(made(10))
    for found in (poor, good):
        assert found.spread is not None
        assert found.prior_error is not None
        assert 0 < found.prior_error <= found.spread / 2
    assert not poor.tells
    assert re.search(WARNED, " ".join(poor.warnings))
    assert good.tells
    assert not good.warnings
    assert "if the model is right, a guess from it alone is off by" in made(10).explain()


def test_the_variance_of_tied_records_is_that_of_their_joint_law() -> None:
    plan = _ties(1)
    found = plan.task.family[0].answer_variance(plan.task.query)
    # a pair of friends adds 0, 1 or 2 with probabilities .4, .2 and .4
    assert found == pytest.approx([50 * 0.8])


def test_a_field_of_ties_is_compared_with_what_its_law_says_alone() -> None:
    """The variance of drawn outcomes beside that of the whole law, loops included."""
    draw = np.random.default_rng(3)
    for number in range(6):
        names = ["a", "b", "c"]
        domain = shoal.records.RecordDomain.points([0, 1, 3], states=names)
        ties = [[0, 1], [1, 2], [0, 2], [3, 4]]
        own = draw.uniform(0.2, 1, (6, 3))
        potential = draw.uniform(0.3, 2, (3, 3))
        field = shoal.records.PairwiseField.of(domain, 6, ties, potential, own=own)
        query = shoal.weighted_sum(names, {"a": 0, "b": 1, "c": 3})
        law = np.zeros((3,) * 6)
        sums = np.zeros_like(law)
        for x in np.ndindex(*law.shape):
            weight = np.prod([own[i, x[i]] for i in range(6)])
            law[x] = weight * np.prod([potential[x[i], x[j]] for i, j in ties])
            sums[x] = sum((0, 1, 3)[value] for value in x)
        law /= law.sum()
        wanted = (law * sums**2).sum() - (law * sums).sum() ** 2
        found = field.answer_variance(query)
        assert found is not None
        assert found[0] == pytest.approx(wanted, rel=0.35), number
    plan = shoal.calibrate(query, shoal.EachEntry(), field, epsilon="0.01")
    assert usefulness(plan).prior_error is not None
    assert not usefulness(plan).tells


def test_numbers_in_bins_and_boxes_have_a_range() -> None:
    groups = shoal.records.RecordGroups(largest=1)
    query = shoal.records.number_mean(low=0, high=4, records=10)
    plan = shoal.calibrate(query, shoal.EachEntry(), groups, epsilon=1)
    assert usefulness(plan).spread == 4
    tiny = shoal.calibrate(query, shoal.EachEntry(), groups, epsilon="0.1")
    assert re.search(WARNED, " ".join(usefulness(tiny).warnings))


def test_a_mean_of_samples_is_no_share_of_what_any_mechanism_could_show() -> None:
    """30.68 of at most 30.35: the histories drawn were lucky, which is no 100 %."""
    numbers = {"spread": 0.3, "histories": 64, "slots": 48}
    above = OnlineCertificate(releases=30.68, most=30.35, **numbers).theorem  # type: ignore[arg-type]
    assert "the most that any causal mechanism could show (at most 30.35 on average)" in above
    assert "%" not in above
    below = OnlineCertificate(releases=29, most=30, **numbers).theorem  # type: ignore[arg-type]
    assert "96.7% of what any causal mechanism could show (at most 30 on average)" in below
