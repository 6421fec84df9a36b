"""Records tied in pairs: domains, ties, where laws come from, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal.core.errors import DataError, InputError
from shoal.core.records import sequences
from shoal.core.registry import dumps, loads
from shoal.networks.bayesnet import BayesNet
from shoal.networks.table import JointTable
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField, field_of_pairs, friend_field
from shoal.records.field_laws import as_network, network_of_field
from shoal.records.pairwise import Dependence
from shoal.records.sources import (
    FriendModel,
    affinity_ties,
    fit_friends,
    independent_blocks,
    pairs_of_counts,
    pairs_of_network,
    pairs_of_table,
)

LINE = RecordDomain.points([0, 1, 3])
SKEW = np.array([[4, 1, 0], [2, 3, 1], [0, 1, 8]]) / 20


def test_points_have_their_own_labels_distances_and_diameter() -> None:
    assert LINE.states == ("0", "1", "3")
    assert LINE.distances().tolist() == [[0, 1, 3], [1, 0, 2], [3, 2, 0]]
    assert (LINE.diameter, LINE.width, LINE.size) == (3, 0, 3)
    assert RecordDomain.named(["low", "high"]).centres.ravel().tolist() == [0, 1]
    assert RecordDomain.named(["5", "2"]).centres.ravel().tolist() == [5, 2]
    assert RecordDomain.points([[0, 0], [1, 2]]).states is None


def test_an_interval_is_cut_into_cells_and_distances_are_the_farthest() -> None:
    cut = RecordDomain.interval(0, 1, cells=4)
    assert cut.states is None
    assert cut.width == 0.25
    assert cut.diameter == 1
    assert cut.distances()[0].tolist() == [0.25, 0.5, 0.75, 1]
    box = RecordDomain.box([0, 0], [1, 2], cells=2)
    assert box.size == 4
    assert box.diameter == 3
    assert box.cell_of([[0.1, 0.1], [0.9, 1.9], [0.5, 1.0]]).tolist() == [0, 3, 0]
    assert cut.cell_of([0, 0.25, 0.3, 1]).tolist() == [0, 0, 1, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RecordDomain(low=np.zeros(3), high=np.zeros(3)), "low has shape"),
        (lambda: RecordDomain(low=np.ones((1, 1)), high=np.zeros((1, 1))), "low above high"),
        (lambda: RecordDomain.points([0, np.inf], states="ab"), "not finite"),
        (lambda: RecordDomain.points([0, 1], states="abc"), "3 states name 2 values"),
        (lambda: RecordDomain.box([0, 0], [1, 1], cells=100), "100 cells on each of 2 axes"),
        (lambda: RecordDomain.interval(1, 1, cells=2), "each low below its high"),
        (
            lambda: RecordDomain(low=[[0.0], [1.0]], high=[[1.0], [2.0]], states=("a", "b")),  # type: ignore[arg-type]
            "wider than a point",
        ),
        (lambda: LINE.cell_of([2]), "outside the domain"),
        (lambda: LINE.cell_of([[1, 2]]), "the domain has 1 coordinates"),
    ],
    ids=["shape", "order", "finite", "names", "many", "empty", "named-cells", "outside", "axes"],
)
def test_domains_that_are_none_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_ties_may_come_in_any_order_and_direction() -> None:
    forth = Dependence.of(LINE, 3, [[2, 1], [0, 1]], SKEW)
    assert forth.ties.tolist() == [[0, 1], [1, 2]]
    assert forth.pair(2, 1) == pytest.approx(SKEW)
    assert forth.pair(1, 2) == pytest.approx(SKEW.T)
    assert forth.pair(0, 1) == pytest.approx(SKEW)
    assert forth.pair(0, 2) is None
    near = forth.neighbours()
    both = forth.conditionals()
    for record, other, law in zip(*near, strict=True):
        joint = forth.pair(int(record), int(other))
        assert joint is not None
        assert both[law] * joint.sum(axis=1, keepdims=True) == pytest.approx(joint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ties": [[1, 0]]}, "the smaller first"),
        ({"ties": [[0, 5]]}, r"outside 0 … 2"),
        ({"ties": [[0, 0]]}, r"ties holds \[0, 0\]; a tie must name two records"),
        ({"ties": [[0, 1], [0, 1]], "law_of": [0, 0]}, "none twice"),
        ({"ties": [[0, 1, 2]]}, "pairs of record numbers"),
        ({"law_of": [1]}, "names a law that is not there"),
        ({"law_of": [0, 0]}, "1 ties need one each"),
        ({"laws": np.full((1, 2, 2), 0.25)}, "a domain of 3 values needs"),
        ({"laws": np.full((1, 3, 3), 0.2)}, "sums to 1.8"),
        ({"records": 0}, "records is 0"),
    ],
    ids=["turned", "outside", "self", "twice", "triple", "law", "count", "size", "sum", "none"],
)
def test_a_dependence_that_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    plain = {"domain": LINE, "records": 3, "ties": [[0, 1]], "law_of": [0], "laws": SKEW[None]}
    with pytest.raises(InputError, match=message):
        Dependence(**{**plain, **change})


def test_components_degrees_and_sizes() -> None:
    model = Dependence.of(LINE, 7, [[0, 1], [1, 2], [3, 4]], SKEW)
    assert model.components().tolist() == [0, 0, 0, 1, 1, 2, 3]
    assert model.component_sizes().tolist() == [3, 3, 3, 2, 2, 1, 1]
    assert (model.tied, model.dependence_size) == (3, 3)
    chain = Dependence.of(LINE, 5, [[i, i + 1] for i in range(4)], SKEW)
    assert (chain.tied, chain.dependence_size) == (5, 3)
    alone = Dependence.of(LINE, 4, np.zeros((0, 2)), SKEW)
    assert (alone.tied, alone.dependence_size) == (1, 1)


def test_a_part_is_made_of_whole_components() -> None:
    model = Dependence.of(LINE, 5, [[0, 1], [1, 2], [4, 3]], SKEW)
    part = model.part([4, 3])
    assert part.pair(0, 1) == pytest.approx(SKEW)
    assert model.part([2, 1, 0]).pair(2, 1) == pytest.approx(SKEW)
    with pytest.raises(InputError, match="records has 0 but not 1, which ties link to it"):
        model.part([0, 2, 3, 4])
    for wrong in ([], [0, 0], [9]):
        with pytest.raises(InputError, match="records names"):
            model.part(wrong)


def test_data_holds_one_value_per_record() -> None:
    model = Dependence.of(LINE, 3, [[0, 1]], SKEW)
    model.admit(sequences(["0", "1", "3"], LINE.states or ()))
    model.admit(np.zeros((3, 2)))
    for wrong in (sequences(["0", "1"], LINE.states or ()), np.zeros((4, 2))):
        with pytest.raises(DataError, match="the model ties 3 records"):
            model.admit(wrong)


def test_ties_agree_when_they_give_a_record_one_law() -> None:
    symmetric = (SKEW + SKEW.T) / 2
    assert Dependence.of(LINE, 3, [[0, 1], [1, 2]], symmetric).agrees()
    assert not Dependence.of(LINE, 3, [[0, 1], [1, 2]], SKEW).agrees()


def test_a_table_gives_its_pairs_and_keeps_joint_dependence_in_mind() -> None:
    law = np.zeros((2, 2, 2, 2))
    for a, b, c in product((0, 1), repeat=3):
        law[a, b, a ^ b, c] = 0.1 if c else 0.15
    table = JointTable.of(law)
    assert independent_blocks(table) == ((0, 1, 2), (3,))
    model = pairs_of_table(table)
    assert model.ties.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert model.laws == pytest.approx(np.full((3, 2, 2), 0.25))
    assert model.tied == 3


def test_rare_values_are_no_reason_to_call_variables_independent() -> None:
    """P(X1 = 1) = 1e-13, and then X2 = 1 for sure: far from independent."""
    table = JointTable.of([[0.5, 0.5 - 1e-13], [0.0, 1e-13]])
    assert independent_blocks(table) == ((0, 1),)


def test_a_network_gives_the_pairs_of_its_components() -> None:
    net = BayesNet.of(
        {"a": [0.7, 0.3], "b": [[0.9, 0.1], [0.2, 0.8]], "c": [0.5, 0.5]}, parents={"b": ["a"]}
    )
    model = pairs_of_network(net)
    assert model.ties.tolist() == [[0, 1]]
    assert model.laws[0] == pytest.approx(np.array([[0.63, 0.07], [0.06, 0.24]]))


def test_counts_are_smoothed_and_have_no_direction() -> None:
    model = pairs_of_counts(LINE, [0, 1, 3, 3], [[0, 1], [2, 3]], smoothing=0.5)
    expected = np.full((3, 3), 0.5)
    expected[0, 1] = expected[1, 0] = 1.5
    expected[2, 2] = 2.5
    assert model.laws[0] == pytest.approx(expected / expected.sum())
    kinds = pairs_of_counts(
        LINE, [[0, 1, 3], [0, 0, 3]], [[0, 1], [1, 2]], smoothing=1, kinds=[0, 1]
    )
    assert len(kinds.laws) == 2
    assert kinds.agrees() is False
    with pytest.raises(InputError, match="smoothing is 0"):
        pairs_of_counts(LINE, [0, 1], [[0, 1]], smoothing=0)
    with pytest.raises(InputError, match="kinds does not number"):
        pairs_of_counts(LINE, [0, 1], [[0, 1]], smoothing=1, kinds=[-1])


def test_the_friend_model_is_eq_26_normalised() -> None:
    model = FriendModel(b=0.5, c=2)
    law = model.pair_law(LINE)
    given = law / law.sum(axis=1, keepdims=True)
    for x, y in product(range(3), repeat=2):
        apart = abs(float(LINE.low[x, 0] - LINE.low[y, 0]))
        assert given[x, y] == pytest.approx(model.front(LINE)[x] * (apart + 0.5) ** -2)
    ties = model.ties(LINE, 4, [[0, 1], [1, 2], [3, 1]])
    assert ties.agrees()
    independent = FriendModel(b=1, c=0).pair_law(LINE)
    assert independent == pytest.approx(np.full((3, 3), 1 / 9))
    for wrong in ({"b": 0}, {"c": -1}, {"b": float("nan")}):
        with pytest.raises(InputError, match="it must be"):
            FriendModel(**wrong)


def test_a_fit_finds_the_friend_model_that_made_the_data() -> None:
    domain = RecordDomain.interval(0, 1, cells=20)
    made = FriendModel(b=0.1, c=1.5)
    law = made.pair_law(domain).ravel()
    rng = np.random.default_rng(4)
    drawn = rng.choice(law.size, 20_000, p=law)
    values = domain.centres[np.stack(np.divmod(drawn, 20), axis=1).ravel(), 0]
    edges = np.arange(40_000).reshape(-1, 2)
    found = fit_friends(domain, values, edges)
    assert found.pair_law(domain) == pytest.approx(made.pair_law(domain), rel=0.15)
    with pytest.raises(InputError, match="edges is empty"):
        fit_friends(domain, values, [])


def test_profiles_that_point_the_same_way_are_tied() -> None:
    profiles = np.array([[1, 1, 0], [2, 2, 0], [0, 0, 1], [0, 0.1, 1], [0, 0, 0]])
    assert affinity_ties(profiles).tolist() == [[0, 1], [2, 3]]
    with pytest.raises(InputError, match="more than 1 pairs"):
        affinity_ties(profiles, most=1)
    many = np.random.default_rng(0).normal(size=(2500, 4))
    ties = affinity_ties(many, least=0.99)
    unit = many / np.linalg.norm(many, axis=1, keepdims=True)
    assert len(ties) == int((np.triu(unit @ unit.T, 1) > 0.99).sum())


def test_a_million_ties_fit_in_little_memory() -> None:
    rng = np.random.default_rng(1)
    edges = np.unique(np.sort(rng.integers(0, 100_000, (1_010_000, 2)), axis=1), axis=0)
    edges = edges[edges[:, 0] < edges[:, 1]][:1_000_000]
    domain = RecordDomain.interval(0, 1, cells=20)
    model = FriendModel().ties(domain, 100_000, edges)
    assert model.ties.nbytes + model.law_of.nbytes + model.laws.nbytes < 13_000_000
    assert model.tied is not None
    assert model.tied > 99_000


def test_models_survive_storage() -> None:
    ties = FriendModel().ties(RecordDomain.interval(0, 1, cells=6), 4, [[0, 1], [2, 3]])
    field = friend_field(FriendModel(), LINE, 4, [[0, 1], [1, 2]])
    for model in (ties, field, LINE, FriendModel(b=2)):
        assert loads(dumps(model)) == model
        assert hash(loads(dumps(model))) == hash(model)
    assert "4 records with 2 pairwise ties, at most 2 in one component" in ties.describe()


def test_fields_are_checked_and_written_out() -> None:
    tie = np.array([[2.0, 1, 1], [1, 2, 1], [1, 1, 3]])
    field = PairwiseField.of(LINE, 3, [[1, 0], [2, 1]], tie, own=[1, 2, 1])
    law = np.einsum("a,b,c,ab,bc->abc", *[np.array([1.0, 2, 1])] * 3, tie, tie)
    assert field.table().probability == pytest.approx(law / law.sum())
    assert field.forest
    assert field.part([0, 1, 2]).table() == field.table()
    assert not PairwiseField.of(LINE, 3, [[0, 1], [1, 2], [0, 2]], tie).forest
    with pytest.raises(InputError, match="negative or not finite"):
        PairwiseField.of(LINE, 2, [[0, 1]], -tie)
    with pytest.raises(InputError, match="own has shape"):
        PairwiseField.of(LINE, 2, [[0, 1]], tie, own=[1, 2])
    with pytest.raises(InputError, match="more than 16777216 outcomes"):
        PairwiseField.of(LINE, 40, [[0, 1]], tie).table()
    clash = np.array([[[1.0, 0], [0, 0]], [[0, 0], [0, 1.0]]])
    with pytest.raises(InputError, match="leave no outcome possible"):
        PairwiseField.of(RecordDomain.named("ab"), 3, [[0, 1], [1, 2]], clash, [0, 1]).table()


def test_pairs_with_loops_or_contradictions_decide_no_field() -> None:
    symmetric = (SKEW + SKEW.T) / 2
    with pytest.raises(InputError, match="the ties form a loop"):
        field_of_pairs(Dependence.of(LINE, 3, [[0, 1], [1, 2], [0, 2]], symmetric))
    with pytest.raises(InputError, match="give it different laws"):
        field_of_pairs(Dependence.of(LINE, 3, [[0, 1], [1, 2]], SKEW))


def test_a_forest_is_a_network_with_the_same_law() -> None:
    rng = np.random.default_rng(2)
    ties = [[3, 1], [1, 0], [1, 4]]
    tables = rng.gamma(1.0, size=(3, 3, 3))
    field = PairwiseField.of(LINE, 6, ties, tables, [0, 1, 2], own=rng.gamma(1.0, size=(6, 3)))
    network = network_of_field(field)
    assert as_network(field) == network
    assert network.as_table().probability == pytest.approx(field.table().probability)
    loop = PairwiseField.of(LINE, 3, [[0, 1], [1, 2], [0, 2]], tables[0])
    assert as_network(loop) == loop.table()
    with pytest.raises(InputError, match="the ties form a loop"):
        network_of_field(loop)
    large = PairwiseField.of(LINE, 300, [[0, 1]], tables[0])
    assert as_network(large) == large
