"""Storage: what goes out comes back equal, and nothing else comes back."""

from __future__ import annotations

import ast
import base64
import dataclasses
import inspect
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.chains.model import MarkovChain
from shoal.core import codec
from shoal.core.codec import INLINE_SIZE, Value, decode, encode, kind_of
from shoal.core.errors import StoredError
from shoal.core.family import families
from shoal.core.registry import KINDS, dumps, loads
from tests.examples import examples


def _type_name(value: object) -> str:
    return type(value).__name__


CHAIN = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit", "stand"], length=100)
LARGE = MarkovChain.of(np.full((20, 20), 0.05))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_comes_back_equal(kind: str) -> None:
    values = [value for value in examples() if type(value) is KINDS[kind]]
    assert values, f"no example of {kind!r}: add one to tests/examples.py"
    for value in values:
        again = decode(json.loads(json.dumps(encode(value))), KINDS)
        assert type(again) is type(value)
        assert again == value
        assert encode(again) == encode(value)
        if isinstance(value, Value):
            assert loads(dumps(value)).fingerprint == value.fingerprint


def test_no_two_kinds_share_a_name() -> None:
    kinds = [kind for family in families() for kind in family.kinds]
    assert len(KINDS) == len(kinds) == len(set(KINDS.values()))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_class_states_the_kind_it_is_stored_as(kind: str) -> None:
    assert kind_of(KINDS[kind]) == kind
    assert _literal_kind(KINDS[kind]) == kind


def _literal_kind(cls: type) -> object:
    """The text after `kind =` in the source of a class; None when it is no literal."""
    (body,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    stated = [
        line.value
        for line in body.body
        if isinstance(line, ast.Assign) and [ast.unparse(one) for one in line.targets] == ["kind"]
    ]
    return stated[0].value if stated and isinstance(stated[0], ast.Constant) else None


def test_a_class_that_is_renamed_keeps_its_kind() -> None:
    renamed = type("Anything", (MarkovChain,), {"kind": "markov-chain", "__slots__": ()})
    fields = {each.name: getattr(CHAIN, each.name) for each in dataclasses.fields(CHAIN)}
    assert renamed(**fields).fingerprint == CHAIN.fingerprint


def test_a_kind_is_not_inherited() -> None:
    with pytest.raises(TypeError, match="Heir is not a kind that can be stored; state one in its"):
        kind_of(type("Heir", (MarkovChain,), {}))


@dataclasses.dataclass(frozen=True)
class Renamed:
    """A field whose name changed, and one that was added, since the first document."""

    kind = "renamed"

    scale: int = dataclasses.field(metadata={"stored_as": "spread"})
    added: int = dataclasses.field(default=0, metadata={"later": True})


def test_a_renamed_field_keeps_the_name_it_is_stored_under() -> None:
    old = {"kind": "renamed", "spread": 3}
    assert encode(Renamed(scale=3)) == old
    assert decode(old, {"renamed": Renamed}) == Renamed(scale=3)
    assert encode(Renamed(3, 1)) == {**old, "added": 1}
    assert decode({**old, "added": 1}, {"renamed": Renamed}) == Renamed(3, 1)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        10**40,
        "ä",
        0.1,
        float("inf"),
        float("-inf"),
        Fraction(-2, 3),
        (1, (2, "x")),
        {"a": Fraction(1), "b": (1, 2)},
        {1: "int keys survive"},
    ],
)
def test_plain_values_come_back_equal(value: object) -> None:
    again = decode(json.loads(json.dumps(encode(value))), {})
    assert again == value
    assert type(again) is type(value)


def test_nan_comes_back_as_nan() -> None:
    assert encode(float("nan")) == {"$float": "nan"}
    assert np.isnan(decode(encode(float("nan")), {}))


def test_stored_json_never_holds_the_words_json_forbids() -> None:
    text = json.dumps(encode((float("nan"), float("inf"), np.array([np.inf, np.nan]))))
    assert json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, -0.0, 2.0]),
        np.arange(INLINE_SIZE, dtype=np.int64),
        np.arange(INLINE_SIZE + 1, dtype=np.int64),
        np.array([[True, False]]),
        np.array([np.inf, np.nan, 1.0]),
        np.zeros((0, 3)),
        np.asfortranarray(np.arange(600.0).reshape(20, 30)),
        np.arange(300, dtype=">f8"),
        np.array(2.5),
    ],
    ids=lambda array: f"{array.dtype.str}-{array.shape}",
)
def test_arrays_come_back_bit_for_bit(array: np.ndarray[Any, Any]) -> None:
    again = decode(json.loads(json.dumps(encode(array))), {})
    assert again.shape == array.shape
    assert again.dtype == array.dtype
    assert again.tobytes() == np.ascontiguousarray(array).tobytes()


def test_large_arrays_are_stored_as_base64_with_a_hash() -> None:
    stored = json.loads(dumps(LARGE))["value"]["transition"]
    assert set(stored) == {"$array", "shape", "base64", "sha256"}
    assert loads(dumps(LARGE)) == LARGE
    assert "values" in json.loads(dumps(CHAIN))["value"]["transition"]


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, MarkovChain, b"x"], ids=_type_name)
def test_what_is_not_a_stored_kind_is_a_programming_error(value: object) -> None:
    with pytest.raises(TypeError, match="is not a kind that can be stored"):
        encode(value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "{}", '{"schema": "shoal/1", "value": 1}', "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_what_is_not_a_document_is_refused(text: str) -> None:
    with pytest.raises(StoredError, match="is not JSON with schema, fingerprint and value"):
        loads(text)


def test_another_schema_is_refused_by_name() -> None:
    text = dumps(CHAIN).replace('"shoal/1"', '"shoal/2"')
    with pytest.raises(StoredError, match="schema is 'shoal/2'; this program reads 'shoal/1'"):
        loads(text)


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a number": lambda v: v["initial"]["values"].__setitem__(0, 0.7),
    "a length": lambda v: v.__setitem__("length", 1000),
    "a state": lambda v: v["states"].__setitem__(0, "walk"),
    "a kind": lambda v: v.__setitem__("kind", "any-initial-law"),
    "a missing field": lambda v: v.pop("initial"),
    "an extra field": lambda v: v.__setitem__("note", "hello"),
    "a field of nonsense": lambda v: v.__setitem__("states", 5),
    "a list for a kind": lambda v: v.__setitem__("kind", ["markov-chain"]),
    "a damaged array": lambda v: v["transition"].pop("shape"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_document_is_refused(edit: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(dumps(CHAIN))
    edit(document["value"])
    with pytest.raises(StoredError, match="the document was edited or damaged; make it again"):
        loads(json.dumps(document))


def test_a_changed_fingerprint_is_refused() -> None:
    text = dumps(CHAIN).replace(CHAIN.fingerprint, "0" * 64)
    with pytest.raises(StoredError, match="the fingerprint does not match the content"):
        loads(text)


def test_formatting_alone_is_no_edit() -> None:
    assert loads(json.dumps(json.loads(dumps(CHAIN)), indent=7)) == CHAIN
    assert loads(dumps(CHAIN, indent=None)) == CHAIN


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "unknown kind": (
        lambda v: v.__setitem__("kind", "os-system"),
        "kind 'os-system' is not one this program can load",
    ),
    "kind that is no text": (
        lambda v: v.__setitem__("kind", ["plan"]),
        r"kind \['plan'\] is not one this program can load",
    ),
    "no kind": (
        lambda v: v["initial"].pop("$array"),
        r"stored object with keys \['shape', 'values'\] has no kind; was the file edited\?",
    ),
    "other fields": (
        lambda v: v.__setitem__("note", 1),
        "a stored markov-chain has fields .*'note'.*, not its own",
    ),
    "rows that do not sum to 1": (
        lambda v: v["initial"].__setitem__("values", [0.5, 0.6]),
        "cannot be built: initial sums to 1.1",
    ),
    "a damaged array": (lambda v: v["initial"].pop("shape"), "cannot be built"),
    "too few numbers": (
        lambda v: v["initial"].__setitem__("values", [1.0]),
        "cannot be built: cannot reshape",
    ),
    "division by zero": (
        lambda v: v.__setitem__("length", {"$fraction": "1/0"}),
        "cannot be built",
    ),
    "a type of array": (
        lambda v: v["initial"].__setitem__("$array", "complex128"),
        "stored array of type complex128; only numbers and booleans can be loaded",
    ),
    "an array of objects": (
        lambda v: v["initial"].__setitem__("$array", "object"),
        "stored array of type object",
    ),
    "no type of array": (lambda v: v["initial"].__setitem__("$array", "zzz"), "cannot be built"),
}


@pytest.mark.parametrize(("edit", "message"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_fingerprint_still_meets_every_check(
    edit: Callable[[dict[str, Any]], Any], message: str
) -> None:
    document = json.loads(dumps(CHAIN))
    edit(document["value"])
    document["fingerprint"] = codec.digest(document["value"])
    with pytest.raises(StoredError, match=message):
        loads(json.dumps(document))


@pytest.mark.parametrize("damage", ["flipped", "cut", "not base64", "no hash"])
def test_a_damaged_large_array_is_refused(damage: str) -> None:
    document = json.loads(dumps(LARGE))
    array = document["value"]["transition"]
    raw = bytearray(base64.b64decode(array["base64"]))
    raw[3] ^= 1
    match damage:
        case "flipped":
            array["base64"] = base64.b64encode(raw).decode()
        case "cut":
            array["base64"] = array["base64"][:-8]
        case "not base64":
            array["base64"] = "a"
        case _:
            del array["sha256"]
    document["fingerprint"] = codec.digest(document["value"])
    with pytest.raises(StoredError, match=r"does not match its hash|cannot be built"):
        loads(json.dumps(document))


def test_a_value_that_says_more_than_its_class_keeps_is_refused() -> None:
    document = json.loads(dumps(CHAIN))
    document["value"]["length"] = True  # JSON for 1 to Python, but not what a chain writes
    document["fingerprint"] = codec.digest(document["value"])
    with pytest.raises(StoredError, match="length is True; it must be a whole number"):
        loads(json.dumps(document))
    document["value"]["length"] = 100
    document["value"]["initial"]["values"] = [float("nan"), 1.0]
    document["fingerprint"] = codec.digest(document["value"])
    with pytest.raises(StoredError, match="not finite"):
        loads(json.dumps(document))


def test_a_document_may_hold_only_a_fingerprinted_value() -> None:
    document = {"schema": "shoal/1", "fingerprint": codec.digest([1]), "value": [1]}
    with pytest.raises(StoredError, match="the fingerprint does not match"):
        loads(json.dumps(document))


@dataclasses.dataclass(frozen=True)
class Attached:
    """Content, and something attached that is none."""

    kind = "attached"

    name: str
    tool: object = dataclasses.field(default=None, metadata={"stored": False})


def test_what_is_only_attached_is_not_stored() -> None:
    data = encode(Attached("x", tool=object()))
    assert data == {"kind": "attached", "name": "x"}
    assert decode(data, {"attached": Attached}) == Attached("x")
