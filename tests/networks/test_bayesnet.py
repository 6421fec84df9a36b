"""Bayesian networks: checks, laws by elimination, samples, and networks of other software."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from shoal.core.errors import DataError, InputError, Refused
from shoal.core.records import sequences
from shoal.core.registry import dumps, loads
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import Factor, plan_elimination, sum_product
from shoal.networks.graph import topological_order
from shoal.noise.primitives import SeededRng
from tests.contract.network_tasks import clinic, household
from tests.networks.models import joint_of, random_network

RAIN = {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]}


@pytest.mark.parametrize("seed", range(8))
def test_laws_of_any_set_given_any_event(seed: int) -> None:
    net = random_network(seed, 5, values=3, zeros=0.2, density=0.5)
    law = joint_of(net)
    assert net.as_table().probability == pytest.approx(law, abs=1e-12)
    rng = np.random.default_rng(seed)
    for _ in range(6):
        keep = sorted(rng.choice(5, size=rng.integers(1, 4), replace=False).tolist())
        given = int(rng.integers(5))
        values = ["0", "2"]
        event = np.isin(np.indices(law.shape)[given], [0, 2])
        held = np.where(event, law, 0.0)
        if held.sum() <= 0:
            continue
        names = [f"v{v}" for v in reversed(keep)]
        expected = held.sum(axis=tuple(a for a in range(5) if a not in keep)).transpose()
        found = net.law(*names, where={f"v{given}": values})
        assert found == pytest.approx(expected / held.sum(), abs=1e-12)
        assert net.probability({f"v{given}": values}) == pytest.approx(held.sum(), abs=1e-12)


def test_a_path_given_by_order_and_a_greedy_one_agree() -> None:
    net = random_network(4, 7, density=0.4)
    factors = net.factors()
    for keep in itertools.combinations(range(7), 2):
        assert sum_product(factors, net.sizes, keep, net.elimination_order) == pytest.approx(
            sum_product(factors, net.sizes, keep), abs=1e-13
        )


def test_a_clear_refusal_instead_of_an_endless_run() -> None:
    """Sixty binary variables tied in a grid too wide for any elimination."""
    side = 30
    scopes = tuple((i, side + j) for i in range(side) for j in range(side))
    sizes = (2,) * (2 * side)
    assert plan_elimination(scopes, sizes, ()).largest > 2**25
    factors = [Factor(scope, np.full((2, 2), 0.5)) for scope in scopes]
    with pytest.raises(Refused, match="at most 33554432 are handled: ask about fewer variables"):
        sum_product(factors, sizes, ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parents": {"rain": ["wet"], "wet": ["rain"]}}, "has shape|parents form a cycle"),
        ({"parents": {"wet": ["snow"]}}, "'wet' has the parent 'snow', which is no variable"),
        ({"parents": {"wet": ["wet"]}}, "each other variable once"),
        ({"parents": {"snow": []}}, "parents names 'snow', which has no table"),
        ({"tables": {"rain": [0.8, 0.3]}}, "sums to 1.1"),
        ({"tables": {**RAIN, "wet": [[0.9, 0.1]]}, "parents": {"wet": ["rain"]}}, "shape"),
        ({"domains": {"rain": ["no", "no"]}}, "names 'no' twice"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"tables": RAIN, "parents": {"wet": ["rain"]}, **change}
    tables = arguments.pop("tables")
    if set(tables) == {"rain"}:
        arguments["parents"] = {}
    with pytest.raises(InputError, match=message):
        BayesNet.of(tables, **arguments)


def test_a_cycle_is_named() -> None:
    table = [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(InputError, match="parents form a cycle"):
        BayesNet.of({"a": table, "b": table}, parents={"a": ["b"], "b": ["a"]})
    assert topological_order([[1], [0]]) is None


def test_impossible_events_and_unknown_names() -> None:
    net = household()
    with pytest.raises(InputError, match="variable 'aunt' is not one of"):
        net.law("mother", where={"aunt": "ill"})
    with pytest.raises(InputError, match="has no value 'dead'"):
        net.probability({"mother": "dead"})
    with pytest.raises(InputError, match="name each variable once"):
        net.law("mother", "mother")
    sure = BayesNet.of({"a": [1.0, 0.0]})
    with pytest.raises(InputError, match="has probability 0"):
        sure.law("a", where={"a": "1"})


def test_samples_follow_the_law() -> None:
    """20,000 draws: each of 32 outcomes within 5 standard deviations."""
    net = household()
    law = joint_of(net)
    counts = np.zeros(law.shape)
    for row in net.sample(SeededRng(7), 20_000):
        counts[tuple(("well", "ill").index(value) for value in row)] += 1
    deviation = np.sqrt(20_000 * law * (1 - law)) + 1e-9
    assert np.abs(counts - 20_000 * law).max() <= (5 * deviation).max()
    assert (np.abs(counts - 20_000 * law) <= 5 * deviation + 5).all()
    assert len(net.sample(SeededRng(1))) == 5


def test_samples_never_leave_the_support() -> None:
    net = BayesNet.of(
        {"a": [0.5, 0.5, 0.0], "b": [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]}, parents={"b": ["a"]}
    )
    assert set(net.sample(SeededRng(3), 500)) == {("0", "1"), ("1", "0")}


def test_data_must_hold_one_value_per_variable() -> None:
    net = clinic()
    states = ["young", "old", "no", "yes", "none", "some", "bad"]
    net.admit(sequences(["old", "no", "bad"], states))
    with pytest.raises(DataError, match="exactly one value for each"):
        net.admit(sequences(["old", "no"], states))
    with pytest.raises(DataError, match="not one of its own"):
        net.admit(sequences(["old", "bad", "no"], states))


def test_stored_and_loaded_again() -> None:
    for net in (household(), clinic()):
        again = loads(dumps(net))
        assert again == net
        assert again.law(net.variables[0]) == pytest.approx(net.law(net.variables[0]), abs=0)


def test_components_and_words() -> None:
    net = household()
    assert net.parts == ((0, 1, 2, 3), (4,))
    assert (net.tied, net.records, net.states) == (4, 5, ("well", "ill"))
    assert clinic().states is None
    assert net.describe() == "a Bayesian network of 5 variables, at most 4 of them tied together"


def test_from_pgmpy() -> None:
    pgmpy = pytest.importorskip("pgmpy.models")
    from pgmpy.factors.discrete import TabularCPD

    source = clinic()
    model = pgmpy.DiscreteBayesianNetwork(
        [("age", "smokes"), ("age", "cough"), ("smokes", "cough")]
    )
    for name, domain, own, table in zip(
        source.variables, source.domains, source.parents, source.tables, strict=True
    ):
        columns = np.moveaxis(table, -1, 0).reshape(len(domain), -1)
        sizes = [len(source.domains[source.number(p)]) for p in own]
        names = {n: list(source.domains[source.number(n)]) for n in (name, *own)}
        law = TabularCPD(name, len(domain), columns, list(own) or None, sizes or None, names)
        model.add_cpds(law)
    found = BayesNet.from_object(model)
    for name in source.variables:
        assert found.law(name) == pytest.approx(source.law(name), abs=1e-15)
    assert found.law("age", "cough") == pytest.approx(source.law("age", "cough"), abs=1e-15)


class Cpt:
    """What pyAgrum's CPTs look like: names with the variable first, axes in reverse."""

    def __init__(self, names: list[str], array: np.ndarray) -> None:
        self.names, self._array = tuple(names), array

    def toarray(self) -> np.ndarray:
        return self._array


class PyAgrumLike:
    """The methods of a pyAgrum network that are used."""

    def __init__(self, net: BayesNet) -> None:
        self._net = net

    def names(self) -> set[str]:
        return set(self._net.variables)

    def cpt(self, name: str) -> Cpt:
        v = self._net.number(name)
        return Cpt([name, *reversed(self._net.parents[v])], self._net.tables[v])

    def variable(self, name: str) -> Any:
        labels = self._net.domains[self._net.number(name)]
        return type("Variable", (), {"labels": lambda self: labels})()


def test_from_an_object_like_pyagrum() -> None:
    source = clinic()
    found = BayesNet.from_object(PyAgrumLike(source))
    for one, two in itertools.permutations(source.variables, 2):
        assert found.law(one, two) == pytest.approx(source.law(one, two), abs=1e-15)


def test_other_objects_are_refused() -> None:
    with pytest.raises(InputError, match="network is a list; it must have pgmpy's get_cpds"):
        BayesNet.from_object([])
