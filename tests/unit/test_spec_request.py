"""From a spec to the task it means."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.core.errors import InputError, SpecError, StoredError
from shoal.mechanisms.queries import LinearQuery
from shoal.networks.table import JointTable
from shoal.spec.request import Request, parse_request, read_request

CHAIN = """
[[model]]
kind = "markov-chain"
states = ["sit", "walk"]
transition = [[0.9, 0.1], [0.4, 0.6]]
"""
REST = """
[secrets]
kind = "each-entry"
[query]
kind = "count"
states = "walk"
[privacy]
epsilon = 0.1
"""
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


def parsed(model: str = CHAIN, rest: str = REST, folder: Path = Path()) -> Request:
    return parse_request(model + rest, folder=folder)


def query_of(request: Request) -> LinearQuery:
    assert isinstance(request.task.query, LinearQuery)
    return request.task.query


def test_numbers_are_the_decimals_that_were_typed() -> None:
    assert parsed().epsilon() == Fraction(1, 10)
    weights = REST.replace('"count"\nstates = "walk"', '"sum"\nweights = { walk = 0.1 }')
    assert query_of(parsed(rest=weights)).weights == ((Fraction(0),), (Fraction(1, 10),))


def test_a_chain_starts_stationary_of_any_length_unless_told() -> None:
    (chain,) = parsed().task.family
    assert chain == shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit", "walk"])
    (given,) = parsed(CHAIN + "initial = [0.25, 0.75]\nlength = 9\n").task.family
    assert isinstance(given, shoal.MarkovChain)
    assert given.initial.tolist() == [0.25, 0.75]
    assert given.tied == 9


def test_an_exact_length_is_stated() -> None:
    (given,) = parsed(CHAIN + "length = 9\nexactly = true\n").task.family
    assert isinstance(given, shoal.MarkovChain)
    assert given.exactly
    with pytest.raises(SpecError, match=r'exactly is true and initial is "any"; an exact length'):
        parsed(CHAIN + 'initial = "any"\nlength = 9\nexactly = true\n')
    with pytest.raises(InputError, match="exactly is True, but there is no length"):
        parsed(CHAIN + "exactly = true\n")


def test_any_start_is_all_initial_laws() -> None:
    (family,) = parsed(CHAIN + 'initial = "any"\n').task.family
    assert isinstance(family, AnyInitialLaw)


def test_one_matrix_per_step() -> None:
    steps = CHAIN.replace(
        "[[0.9, 0.1], [0.4, 0.6]]", "[[[0.9, 0.1], [0.4, 0.6]], [[1, 0], [0, 1]]]"
    )
    (chain,) = parsed(steps + "initial = [1, 0]\nlength = 3\n").task.family
    assert isinstance(chain, shoal.MarkovChain)
    assert chain.transition.shape == (2, 2, 2)


def test_order_mixing_and_table() -> None:
    order = """
    [[model]]
    kind = "order-chain"
    states = ["sit", "walk"]
    order = 2
    conditional = [[0.8, 0.2], [0.5, 0.5], [0.6, 0.4], [0.3, 0.7]]
    initial = [0.1, 0.2, 0.3, 0.4]
    """
    (model,) = parsed(order).task.family
    assert isinstance(model, OrderChain)
    assert model.conditional[3].tolist() == [0.3, 0.7]
    mixing = '[[model]]\nkind = "mixing"\nstates = ["sit", "walk"]\npi_min = 0.2\ngap = 0.5\n'
    (summary,) = parsed(mixing).task.family
    assert summary == MixingSummary(pi_min=0.2, gap=0.5)
    table = """
    [[model]]
    kind = "table"
    variables = ["a", "b"]
    domains = [["sit", "walk"], ["sit", "walk"]]
    probability = [[0.1, 0.2], [0.3, 0.4]]
    """
    (law,) = parsed(table).task.family
    assert isinstance(law, JointTable)
    np.testing.assert_array_equal(law.probability, [[0.1, 0.2], [0.3, 0.4]])


def test_an_interval_of_chains() -> None:
    interval = '[[model]]\nkind = "interval"\nstates = ["sit", "walk"]\n'
    bounds = "low = [0.4, 0.5]\nhigh = [0.6, 0.5]\nlength = 9\n"
    (family,) = parsed(interval + bounds).task.family
    assert family == IntervalChains(
        states=("sit", "walk"), low=(0.4, 0.5), high=(0.6, 0.5), length=9
    )
    with pytest.raises(SpecError, match=r"^model\.low holds 1 items; it must be two prob"):
        parsed(interval + "low = [0.4]\nhigh = [0.6, 0.5]\n")
    with pytest.raises(SpecError, match=r"^model: the stay probability of 'sit' is in \[0.7, 0.6"):
        parsed(interval + "low = [0.7, 0.5]\nhigh = [0.6, 0.5]\n")


def test_whole_numbers_may_name_states() -> None:
    chain = CHAIN.replace('["sit", "walk"]', "[0, 1]")
    request = parsed(chain, REST.replace('"walk"', "[1]"))
    assert request.task.query.states == ("0", "1")
    assert request.task.query.labels == ("1",)


def test_shares_use_the_length_of_the_only_model() -> None:
    rest = REST.replace('"count"\nstates = "walk"', '"histogram"\nrelative = true')
    assert query_of(parsed(CHAIN + "length = 8\n", rest)).length == 8
    longer = rest.replace("relative = true", "relative = true\nlength = 20")
    assert query_of(parsed(CHAIN + "length = 8\n", longer)).length == 20
    with pytest.raises(SpecError, match=r"query\.length is missing"):
        parsed(CHAIN, rest)


def test_a_wanted_error_becomes_the_least_budget() -> None:
    rest = REST.replace("epsilon = 0.1", 'error = 50\nconfidence = 0.9\nmechanism = "group"')
    request = parsed(CHAIN + "length = 8\n", rest)
    task = request.task
    wanted = shoal.epsilon_for(
        task.query, task.secrets, task.family, error=50, confidence=0.9, mechanism="group"
    )
    assert request.epsilon() == wanted
    plan = shoal.mechanisms.choose(task, wanted, "group").plan
    error = plan.error(0.9)
    assert error is not None
    assert error.bound <= 50


def test_a_stored_model_is_found_beside_the_spec(tmp_path: Path) -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit", "walk"], length=5)
    (tmp_path / "model.json").write_text(shoal.dumps(chain))
    (tmp_path / "day.toml").write_text('[[model]]\nfile = "model.json"\n' + REST)
    assert read_request(tmp_path / "day.toml").task.family == (chain,)
    wrong = '[[model]]\nfile = "model.json"\nkind = "table"\n'
    with pytest.raises(SpecError, match=r"model\.file is 'model.json', which holds a MarkovChain"):
        parsed(wrong, folder=tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.9", "0.8"),  # a row that does not sum to 1
        ("0.25", "0.26"),  # a law that does not
        ("markov-chain", "warkov-chain"),
        ('"length"', '"lenght"'),
        ("0.9,", '"x",'),
        ('"values"', '"valves"'),
        ('"shape"', '"shipe"'),
        ("float64", "float65"),
        ("float64", "O"),
        ("5", "6"),
        ("shoal/1", "shoal/9"),
        ("{", "["),
    ],
)
def test_an_edited_model_is_refused(tmp_path: Path, old: str, new: str) -> None:
    chain = shoal.MarkovChain.of(
        [[0.9, 0.1], [0.4, 0.6]], states=["sit", "walk"], initial=[0.25, 0.75], length=5
    )
    text = shoal.dumps(chain)
    assert old in text
    (tmp_path / "model.json").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=r"model(\.file)?.*(edited|damaged|schema|not JSON|kind)"):
        parsed('[[model]]\nfile = "model.json"\n', folder=tmp_path)


def test_a_stored_value_of_another_kind_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(shoal.dumps(shoal.EachEntry()))
    with pytest.raises(SpecError, match="holds a EachEntry; it must hold a model"):
        parsed('[[model]]\nfile = "model.json"\n', folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [("none.toml", "does not exist"), (".", "is a folder"), ("bytes.toml", "not text in UTF-8")],
)
def test_a_spec_that_cannot_be_read(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=words):
        read_request(tmp_path / name)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_accepted(path: Path) -> None:
    assert read_request(path).task.family


def test_a_damaged_model_is_an_error_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(SpecError) as caught:
        parsed('[[model]]\nfile = "model.json"\n', folder=tmp_path)
    assert not isinstance(caught.value, StoredError)
    assert "model.json" in str(caught.value)
