"""Storage and numbers, on values hypothesis makes up."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from shoal.chains.model import MarkovChain
from shoal.core.codec import decode, digest, encode
from shoal.core.numbers import common_step, exact, significant
from shoal.core.plan import Additive
from shoal.core.records import sequences
from shoal.core.registry import KINDS, dumps, loads
from shoal.mechanisms.queries import LinearQuery, weighted_sum
from shoal.networks.table import JointTable
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.primitives import SeededRng

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.fractions(),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)
ARRAYS = arrays.arrays(
    dtype=st.sampled_from([np.float64, np.int64, np.bool_, np.uint8, np.float32]),
    shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
)
NAMES = st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=4, unique=True)


@st.composite
def chains(draw: st.DrawFn) -> MarkovChain:
    names = draw(NAMES)
    size = len(names)
    weight = st.integers(0, 9)
    rows = draw(st.lists(st.lists(weight, min_size=size, max_size=size), min_size=size + 1))
    law = np.array(rows[: size + 1], dtype=float) + np.eye(size + 1, size) + 1e-3
    law /= law.sum(axis=1, keepdims=True)
    length = draw(st.none() | st.integers(1, 10**6))
    return MarkovChain.of(law[:size], states=names, initial=law[size], length=length)


@st.composite
def queries(draw: st.DrawFn) -> LinearQuery:
    names = draw(NAMES)
    weights = draw(
        st.lists(st.fractions(max_denominator=50), min_size=len(names), max_size=len(names)).filter(
            lambda values: len(set(values)) > 1
        )
    )
    return weighted_sum(names, dict(zip(names, weights, strict=True)))


@given(PLAIN)
def test_plain_data_survives_storage(value: Any) -> None:
    text = json.dumps(encode(value))
    assert decode(json.loads(text), {}) == value
    assert digest(json.loads(text)) == digest(encode(value))


@given(ARRAYS)
def test_arrays_survive_storage(array: Any) -> None:
    again = decode(json.loads(json.dumps(encode(array))), {})
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()


@given(chains())
def test_chains_survive_storage(chain: MarkovChain) -> None:
    again = loads(dumps(chain))
    assert again == chain
    assert again.transition.tobytes() == chain.transition.tobytes()


@given(queries(), st.fractions(min_value=Fraction(1, 100), max_value=100))
def test_queries_with_their_noise_survive_storage(query: LinearQuery, scale: Fraction) -> None:
    body = Additive(query, LatticeLaplace(scale=scale, step=query.lattice))
    assert decode(json.loads(json.dumps(encode(body))), KINDS) == body


@given(chains(), chains())
def test_fingerprints_are_equal_exactly_when_the_content_is(a: MarkovChain, b: MarkovChain) -> None:
    same = (
        a.states == b.states
        and a.length == b.length
        and a.transition.tolist() == b.transition.tolist()
        and a.initial.tolist() == b.initial.tolist()
    )
    assert (a == b) == same == (a.fingerprint == b.fingerprint)


@given(arrays.arrays(np.float64, (2, 3), elements=st.integers(0, 9).map(float)))
def test_tables_survive_storage(weights: Any) -> None:
    law = (weights + 1e-6) / (weights + 1e-6).sum()
    table = JointTable.of(law)
    assert loads(dumps(table)) == table


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_means_its_shortest_decimal(value: float) -> None:
    meant = exact(value, "x")
    assert float(meant) == value
    assert meant == Fraction(repr(value))


@given(st.lists(st.fractions(max_denominator=1000), min_size=1, max_size=6))
def test_the_common_step_divides_every_value_and_no_larger_one_does(values: list[Fraction]) -> None:
    step = common_step(values)
    multiples = [value / step for value in values]
    assert step > 0
    assert all(multiple.denominator == 1 for multiple in multiples)
    assert math.gcd(*(int(multiple) for multiple in multiples)) in (0, 1)


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_written_numbers_are_within_four_digits(value: float) -> None:
    written = float(significant(value).replace(",", ""))
    assert abs(written - value) <= 0.5001 * 10 ** (math.floor(math.log10(value)) - 3) or (
        abs(written - value) <= 0.5  # whole numbers above 9,999 keep all their digits
    )


@given(queries(), st.data())
def test_changing_one_entry_moves_the_answer_by_at_most_the_lipschitz_constant(
    query: LinearQuery, data: st.DataObject
) -> None:
    states = st.sampled_from(query.states)
    sequence = data.draw(st.lists(states, min_size=2, max_size=8))
    place = data.draw(st.integers(0, len(sequence) - 1))
    changed = [*sequence[:place], data.draw(states), *sequence[place + 1 :]]
    before, after = (query.evaluate(query.read(s)) for s in (sequence, changed))
    assert abs(before[0] - after[0]) * query.lattice <= query.lipschitz


@given(queries(), st.data())
def test_a_release_is_the_truth_plus_the_noise_drawn(
    query: LinearQuery, data: st.DataObject
) -> None:
    sequence = data.draw(st.lists(st.sampled_from(query.states), min_size=2, max_size=8))
    seed = data.draw(st.integers(0, 99))
    body = Additive(query, LatticeLaplace(scale=query.lattice * 3, step=query.lattice / 2))
    records = sequences(sequence, query.states)
    drawn = int(body.noise.draw(1, SeededRng(seed))[0])
    answer = body.draw(records, SeededRng(seed))
    assert answer.exact[0] == query.evaluate(records)[0] * query.lattice + drawn * query.lattice / 2
