"""One sentence for each broken rule of a spec: the key, its value, the rule, the fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from shoal.spec.fields import PLACED, Section
from shoal.spec.request import PARTS, DataSection, PrivacySection, kinds_of, section_of, spec_class

Place = tuple[str | int, ...]

_TYPES = {
    "string_type": "it must be text in quotes",
    "bool_type": "it must be true or false",
    "list_type": "it must be a list",
    "dict_type": "it must be a table of keys and values",
    "model_type": "it must be a table of keys and values",
    "model_attributes_type": "it must be a table of keys and values",
    "too_short": "it must not be empty",
}


def sentence(error: ValidationError, document: Mapping[str, Any]) -> str:
    """Return the sentence for the first broken rule.

    An unknown key comes before anything else: it is often the misspelling of a missing one.
    """
    problems = error.errors(include_url=False)
    first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    return _sentence_for(first, document)


def key_path(place: Place, document: Mapping[str, Any]) -> str:
    """Return the key as a person finds it in the file, such as `model[1].transition`.

    Lists are counted from 0; the only model of a spec is plain `model`.
    """
    path = ""
    for step in _without_kind(place):
        if isinstance(step, str):
            path += f".{step}" if path else step
        elif not (path == "model" and len(document["model"]) == 1):
            path += f"[{step}]"
    return path


def as_toml(value: object) -> str:
    """Return a value as TOML writes it, shortened."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= 60 else value[:57] + "...")
        case int() | float() | Decimal():
            return str(value)
        case []:
            return "an empty list"
        case list():
            return f"a list of {len(value)}"
        case Mapping():
            return "a table"
    return repr(value)


def _sentence_for(problem: Any, document: Mapping[str, Any]) -> str:
    """Return the sentence for one pydantic error: the key, its value and the rule it breaks."""
    place: Place = problem["loc"]
    path = key_path(place, document) or "the spec"
    value = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return _unknown_key(place, path)
        case "missing":
            return f"{path} is missing; {_section_title(place)} needs it{_meaning(place)}"
        case "union_tag_not_found" | "union_tag_invalid":
            return _unknown_kind(place, path, value)
        case "literal_error":
            return f"{path} is {as_toml(value)}; it must be {problem['ctx']['expected']}"
        case "together":
            return f"{path} {problem['msg']}"
        case "list_type" if path == "model":
            return "model is a single table; write [[model]], with two brackets on each side"
        case kind if kind == PLACED:
            detail = problem["ctx"]
            return f"{path}{detail['place']} is {as_toml(detail['shown'])}; {detail['rule']}"
        case kind:
            return f"{path} is {as_toml(value)}; {_TYPES.get(kind, problem['msg'])}"


def near(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def _unknown_key(place: Place, path: str) -> str:
    """Return the sentence for an unknown key, with the nearest known key and all known ones."""
    keys = list(_section_class(place).model_fields)
    hint = near(str(place[-1]), keys)
    return (
        f"{path} is not a key of {_section_title(place)}; {hint}its keys are "
        f"{', '.join(keys)} (correct the key or remove it)"
    )


def _unknown_kind(place: Place, path: str, value: object) -> str:
    """Return the sentence for a section whose kind is missing or unknown, with all known kinds."""
    name = str(place[0])
    known = ", ".join(map(repr, kinds_of(name)))
    also = ", or name a stored model with file" if name == "model" else ""
    if not isinstance(value, Mapping):
        return f"{path} is {as_toml(value)}; it must be a section with a kind: {known}"
    if "kind" not in value:
        return f"{path}.kind is missing; choose one of {known}{also}"
    return f"{path}.kind is {as_toml(value['kind'])}; it must be one of {known}{also}"


def _section_key(place: Place) -> tuple[str, ...]:
    """Return the section of a place, with its kind where kinds differ; () for the spec itself."""
    names = tuple(step for step in place[:-1] if isinstance(step, str))
    return names[: 2 if names[:1] and names[0] in PARTS else 1]


def _section_class(place: Place) -> type[Section]:
    """Return the class of the section that holds this place; the whole spec's where none does."""
    match _section_key(place):
        case (part, kind):
            return section_of(part, kind)
        case ("data",):
            return DataSection
        case ("privacy",):
            return PrivacySection
    return spec_class({})


def _section_title(place: Place) -> str:
    """Return the section that holds this place as an error names it, such as "[data]"."""
    match _section_key(place):
        case ():
            return "a spec"
        case ("model", "file"):
            return "a [[model]] with a file"
        case ("model", "stored"):
            return "a [[model]] with a stored model"
        case ("model", kind):
            return f"a [[model]] of kind {kind!r}"
        case (name, kind):
            return f"[{name}] of kind {kind!r}"
        case (name, *_):
            return f"[{name}]"
    raise AssertionError(place)


def _meaning(place: Place) -> str:
    field = _section_class(place).model_fields.get(str(place[-1]))
    return f" ({field.description})" if field is not None and field.description else ""


def _without_kind(place: Place) -> Place:
    """Return the place without what pydantic adds: the kind after its section, and "[key]"."""
    position = {"model": 2, "secrets": 1, "query": 1}.get(str(place[0]) if place else "")
    return tuple(step for index, step in enumerate(place) if index != position and step != "[key]")
