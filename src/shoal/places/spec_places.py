"""Places in a spec: by name, or from a file of points of interest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from shoal.spec.fields import PLACED, number, one_or_more, state, text

LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(km|m)")


def place_in_words(value: object) -> tuple[float, float] | tuple[str, ...]:
    """A latitude and longitude, or the names of states."""
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("place", "it must be [latitude, longitude], or a list of states")
    if len(value) == 2 and not any(isinstance(item, str) for item in value):
        return float(number(value[0])), float(number(value[1]))
    return tuple(state(item) for item in value)


@dataclass(frozen=True, slots=True)
class PointsFile:
    """[secrets.places] with `from`: a file of points of interest, and which of them look alike.

    `within` is in km. `table` is the file's content, which `PolicySecrets.read_files` reads.
    """

    file: str
    same: str | None = None
    within: Fraction | None = None
    only: tuple[str, ...] | None = None
    table: Any = None


def named_places(value: object) -> dict[str, Any] | PointsFile:
    """Return places by name, or with a text `from` the file that holds them."""
    if not isinstance(value, dict) or not value:
        raise PydanticCustomError("places", "it must be a table of names, or have from = FILE")
    if not isinstance(value.get("from"), str):
        return {text(name): _check_inside(name, place_in_words, at) for name, at in value.items()}
    unknown = next((key for key in value if key not in ("from", "same", "within", "only")), None)
    if unknown is not None:
        rule = "places from a file take from, same, within and only; drop it"
        raise _error_with_key(unknown, value[unknown], rule)
    return PointsFile(
        text(value["from"]),
        None if "same" not in value else _check_inside("same", text, value["same"]),
        None if "within" not in value else _check_inside("within", length_km, value["within"]),
        None if "only" not in value else _check_inside("only", one_or_more, value["only"]),
    )


def length_km(value: object) -> Fraction:
    """Return a length such as "1 km" or "400 m" in km."""
    found = LENGTH.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or not float(found[1]):
        raise PydanticCustomError("length", 'it must be a length such as "1 km" or "400 m"')
    return Fraction(found[1]) / (1 if found[2] == "km" else 1000)


def _check_inside(key: str, check: Callable[[object], Any], value: object) -> Any:
    """Return `check(value)`; an error names the key inside the table."""
    try:
        return check(value)
    except PydanticCustomError as error:
        raise _error_with_key(key, value, str(error)) from None


def _error_with_key(key: str, value: object, rule: str) -> PydanticCustomError:
    context = {"place": f".{key}", "shown": value, "rule": rule}
    return PydanticCustomError(PLACED, "{rule}", context)


_AT = {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 1}
NamedPlaces = Annotated[
    Any,
    PlainValidator(named_places),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object", "additionalProperties": _AT, "minProperties": 1},
                {
                    "type": "object",
                    "properties": {
                        "from": {"type": "string", "minLength": 1},
                        "same": {"type": "string", "minLength": 1},
                        "within": {"type": "string", "pattern": f"^{LENGTH.pattern}$"},
                        "only": {
                            "anyOf": [
                                {"type": "string"},
                                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                            ]
                        },
                    },
                    "required": ["from"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
