"""JSON for every value that can be stored, with a closed table of kinds.

A frozen dataclass becomes `{"kind": "markov-chain", ...its fields...}`. The kind is what the class
says as a literal (`kind = "markov-chain"`), so a class may be renamed or moved and what is stored
keeps its fingerprint. Only kinds in the table handed to `decode` can be built again, through the
class's own constructor, so every check fires on load too. A stored document wraps one value with
the schema version and its fingerprint, and is refused when either differs.

What is stored stays readable under three rules of a field's metadata: `stored_as` is the name a
renamed field has always been stored under, `later` marks a field that older documents lack, and
`stored: False` one that is no content.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from shoal.core.errors import StoredError

SCHEMA = "shoal/1"
INLINE_SIZE = 256  # larger arrays are stored as base64 with a hash
EDITED = (
    "the fingerprint does not match the content: the document was edited or damaged; "
    "make it again instead of changing it by hand"
)

Json = Any  # what `json.loads` returns


class Fingerprinted(Protocol):
    """What a stored document holds."""

    @property
    def fingerprint(self) -> str: ...


def kind_of(cls: type) -> str:
    """Return the stored name of a class: the literal `kind` in its own body.

    A kind is part of every fingerprint and of the ledger's plans, so it never changes. It is not
    inherited: a subclass that states none cannot be stored.
    """
    kind = cls.__dict__.get("kind")
    if not isinstance(kind, str):
        raise TypeError(
            f"{cls.__name__} is not a kind that can be stored; "
            'state one in its body, as in kind = "markov-chain"'
        )
    return kind


def encode(value: object) -> Json:
    """`value` as plain JSON data; the same value always gives the same data."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": repr(value)}
        case Fraction():
            return {"$fraction": f"{value.numerator}/{value.denominator}"}
        case tuple() | list():
            return [encode(item) for item in value]
        case np.ndarray():
            return _encode_array(value)
    cls: Any = type(value)
    if hasattr(cls, "__dataclass_fields__"):
        found: dict[str, Json] = {"kind": kind_of(cls)}
        for stored_as, name, left_out in _stored_fields(cls):
            item = getattr(value, name)
            if left_out is dataclasses.MISSING or item != left_out:
                found[stored_as] = encode(item)
        return found
    if isinstance(value, Mapping):
        return {"$map": [[encode(key), encode(item)] for key, item in value.items()]}
    raise TypeError(f"{type(value).__name__} is not a kind that can be stored")


@cache
def _stored_fields(cls: Any) -> tuple[tuple[str, str, Any], ...]:
    """The fields that are content: the name each is stored under, its own, and what is left out.

    A field that was renamed keeps the name it has always been stored under; one that was added
    later is written when it says something, so that older documents stay valid.
    """
    return tuple(
        (
            each.metadata.get("stored_as", each.name),
            each.name,
            each.default if each.metadata.get("later") else dataclasses.MISSING,
        )
        for each in dataclasses.fields(cls)
        if each.metadata.get("stored", True)  # an attached mechanism is not content
    )


@cache
def _own_names(cls: Any) -> dict[str, str]:
    return {stored_as: name for stored_as, name, _ in _stored_fields(cls)}


def decode(data: Json, kinds: Mapping[str, type]) -> Any:
    """The value behind `data`, built only from classes in `kinds`. Lists become tuples."""
    if isinstance(data, list):
        return tuple(decode(item, kinds) for item in data)
    if not isinstance(data, dict):
        return data
    if "kind" in data:
        return _build(data, kinds)
    match data:
        case {"$float": str(text)}:
            return float(text)
        case {"$fraction": str(text)}:
            return Fraction(text)
        case {"$map": list(pairs)}:
            return {decode(key, kinds): decode(item, kinds) for key, item in pairs}
        case {"$array": _}:
            return _decode_array(data)
    raise StoredError(f"stored object with keys {sorted(data)} has no kind; was the file edited?")


def dumps(value: Fingerprinted, *, indent: int | None = 2) -> str:
    """A stored document: schema version, fingerprint, value."""
    document = {"schema": SCHEMA, "fingerprint": value.fingerprint, "value": encode(value)}
    return json.dumps(document, indent=indent, ensure_ascii=False)


def digest(data: Json) -> str:
    """SHA-256, in hex, of plain JSON data written in one canonical way."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def loads(text: str, kinds: Mapping[str, type]) -> Any:
    """The value of a stored document; refused when damaged, edited or of another schema."""
    try:
        document = json.loads(text)
        schema, fingerprint, data = (document[key] for key in ("schema", "fingerprint", "value"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StoredError(
            "the document is not JSON with schema, fingerprint and value; store it with shoal.dumps"
        ) from None
    if schema != SCHEMA:
        raise StoredError(f"schema is {schema!r}; this program reads {SCHEMA!r}")
    # checked before any value is built, so that an edited document is reported as edited
    if digest(data) != fingerprint:
        raise StoredError(EDITED)
    try:
        value = decode(data, kinds)
    except StoredError:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoredError(f"the document holds a value that cannot be built: {error}") from None
    if getattr(value, "fingerprint", None) != fingerprint:
        raise StoredError(EDITED)
    return value


def _build(data: dict[str, Json], kinds: Mapping[str, type]) -> Any:
    """Return the value of the class in `kinds` that `data["kind"]` names.

    Raises StoredError for an unknown kind and for fields the class does not have.
    """
    kind = data["kind"]
    cls = kinds.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise StoredError(f"kind {kind!r} is not one this program can load")
    own = _own_names(cls)
    fields = {own.get(key, key): decode(item, kinds) for key, item in data.items() if key != "kind"}
    try:
        return cls(**fields)
    except TypeError:
        raise StoredError(f"a stored {kind} has fields {sorted(fields)}, not its own") from None


def _encode_array(array: np.ndarray[Any, Any]) -> Json:
    """Return an array as JSON data: a list if small and finite, else base64 with its SHA-256.

    The bytes are in C order and little-endian.
    """
    header: dict[str, Json] = {"$array": str(array.dtype), "shape": list(array.shape)}
    finite = array.dtype.kind in "biu" or bool(np.isfinite(array).all())
    if array.size <= INLINE_SIZE and finite:
        return {**header, "values": array.ravel().tolist()}
    raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    text = base64.b64encode(raw).decode()
    return {**header, "base64": text, "sha256": hashlib.sha256(raw).hexdigest()}


def _decode_array(data: dict[str, Json]) -> np.ndarray[Any, Any]:
    """Return the array of its JSON data; the inverse of `_encode_array`.

    Raises StoredError for other types than booleans, integers and floats, and for a wrong hash.
    """
    dtype = np.dtype(cast(str, data["$array"]))
    if dtype.kind not in "biuf":
        raise StoredError(f"stored array of type {dtype}; only numbers and booleans can be loaded")
    if "values" in data:
        return np.array(data["values"], dtype=dtype).reshape(data["shape"])
    raw = base64.b64decode(data["base64"])
    if hashlib.sha256(raw).hexdigest() != data["sha256"]:
        raise StoredError("a stored array does not match its hash: the document is damaged")
    array = np.frombuffer(raw, dtype=dtype.newbyteorder("<")).astype(dtype)
    return array.reshape(data["shape"])


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Value:
    """A frozen dataclass compared and hashed by the fingerprint of its content."""

    __slots__ = ("_fingerprint",)
    _fingerprint: str

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of the canonical JSON of the whole value."""
        try:
            return self._fingerprint
        except AttributeError:
            content = digest(encode(self))
            object.__setattr__(self, "_fingerprint", content)
            return content

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value):
            return NotImplemented
        return type(self) is type(other) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@cache
def _maker(cls: Any) -> Callable[..., Any]:
    """A function of a class's fields that sets its slots one after the other, written out.

    As dataclasses write constructors out: a loop over the slots takes twice as long.
    """
    names = [field.name for field in dataclasses.fields(cls)]
    scope: dict[str, Any] = {"new": object.__new__, "cls": cls}
    scope |= {f"put_{name}": getattr(cls, name).__set__ for name in names}
    body = "".join(f"    put_{name}(value, {name})\n" for name in names)
    head = f"def make({', '.join(names)}):\n    value = new(cls)\n"
    exec(f"{head}{body}    return value", scope)
    return cast("Callable[..., Any]", scope["make"])


def build_unchecked(cls: Any, *fields: Any) -> Any:
    """A frozen value of fields known to be right, in their order: passes the constructor by.

    For what is made at every step of a stream: a fifth of the constructor's time.
    """
    return _maker(cls)(*fields)


def as_read_only(values: npt.ArrayLike, dtype: type[np.generic] = np.float64) -> npt.NDArray[Any]:
    """Return a read-only copy of `values` as a C-ordered array of `dtype`."""
    array = np.array(values, dtype=dtype, order="C", copy=True)
    array.setflags(write=False)
    return array
