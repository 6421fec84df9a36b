"""What a spec asks for: a task, a budget and a mechanism; one sentence per broken rule."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shoal.additive.choice import MECHANISMS, choose, epsilon_for
from shoal.additive.lift import NAME as LIFT
from shoal.core.errors import InputError, SpecError
from shoal.core.plan import CONFIDENCE, Plan
from shoal.core.progress import time_limit
from shoal.core.records import shown_names
from shoal.core.registry import hook
from shoal.core.task import Model, Query, Task
from shoal.spec.document import (
    PARTS,
    DataSection,
    PrivacySection,
    SpecBase,
    kinds_of,
    section_of,
    spec_class,
)
from shoal.spec.fields import PLACED, QuerySection, Section, read_text


@dataclass(frozen=True, slots=True)
class Request:
    """A task, how much privacy or accuracy is wanted, by which mechanism, and where the data is."""

    task: Task
    privacy: PrivacySection
    data: DataSection | None

    @property
    def mechanism(self) -> str:
        return self.privacy.mechanism

    def limited(self, given: str | None = None) -> AbstractContextManager[object]:
        """Inside, plans are searched for within a time limit: the one given, or the spec's."""
        limited = hook("time_limit", self.task.secrets)
        wanted = given or self.privacy.time_limit
        if wanted is None:
            return nullcontext()
        if limited is None:
            from shoal.data.times import parse_duration

            return time_limit(parse_duration(wanted, "privacy.time_limit").total_seconds())
        found: AbstractContextManager[object] = limited(wanted, self.mechanism)
        return found

    def epsilon(self) -> Fraction:
        """The budget: as given, or the least one that reaches the wanted error.

        For contexts it is belief_delta, the amount of the notion they ask for.
        """
        if self.privacy.belief_delta is not None:
            return self.privacy.belief_delta
        if self.privacy.epsilon is not None:
            return self.privacy.epsilon
        assert self.privacy.error is not None  # the section takes exactly one amount
        return epsilon_for(
            self.task.query,
            self.task.secrets,
            self.task.family,
            error=self.privacy.error,
            confidence=self.privacy.confidence or CONFIDENCE,
            mechanism=self.mechanism,
        )

    def plan(self, *, parts: bool = False) -> Plan:
        """The plan that is asked for; of `parts` of a series the amount is for all together."""
        if parts and self.mechanism not in ("best", LIFT):
            raise SpecError(
                f"privacy.mechanism is {self.mechanism!r}, and data.every cuts series into parts, "
                "for which only the lift is proved; say 'best', or periods = \"independent\""
            )
        if parts:
            from shoal.ledger.budget import plan_for_parts

            return plan_for_parts(self.task, self.epsilon())
        return choose(self.task, self.epsilon(), self.mechanism, prune=True).plan


def read_request(path: str | os.PathLike[str]) -> Request:
    """What the spec in `path` asks for; files it names are found beside it."""
    path = Path(path)
    return parse_request(read_text(path, "spec"), folder=path.parent, name=str(path))


def parse_request(text: str, *, folder: Path, name: str = "spec") -> Request:
    """What a spec asks for, from its TOML text. Floats stay decimal: 0.1 is 1/10."""
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(_not_toml(name, text, str(error))) from None
    except RecursionError:
        raise SpecError(f"{name} nests lists deeper than any spec does; flatten them") from None
    except (ValueError, ArithmeticError):  # whole numbers of thousands of digits, and others
        raise SpecError(f"{name} holds a number with more digits than can be read") from None
    return request_of(document, folder=folder)


def _not_toml(name: str, text: str, error: str) -> str:
    """The sentence for a file that is no spec: files given in the wrong place are told apart."""
    from shoal.data.read import SUFFIXES

    if Path(name).suffix.lower() in SUFFIXES:
        return f"{name} looks like data, not a spec; name the spec there, a TOML file"
    if text.lstrip().startswith("{"):
        return (
            f"{name} looks like a stored plan or release, not a spec; name the TOML file that it "
            "was made from"
        )
    return f"{name} is not valid TOML: {error}; correct that line"


def request_of(document: Mapping[str, Any], *, folder: Path) -> Request:
    """What a spec asks for, from its parsed document."""
    try:
        spec = spec_class(document).model_validate(document)
    except ValidationError as error:
        raise SpecError(sentence(error, document)) from None
    assert isinstance(spec, SpecBase)
    if spec.privacy.mechanism not in ("best", *MECHANISMS):
        raise SpecError(
            f"privacy.mechanism is {spec.privacy.mechanism!r}; it must be 'best' or one of "
            f"{', '.join(map(repr, MECHANISMS))}"
        )
    check_amount(spec)
    family, states = _family(spec, document, folder)
    query = _query(spec.query, states, family)
    try:
        secrets = spec.secrets.held_to(spec.secrets.secrets(query, family), spec.privacy)
        task = Task(query=query, secrets=secrets, family=family)
    except InputError as error:
        raise SpecError(str(error)) from None
    return Request(task, spec.privacy, spec.data)


def check_amount(spec: SpecBase) -> None:
    """A rise of belief is the amount of contexts and of events, and of nothing else."""
    rises = "belief_delta" in spec.secrets.amount
    if rises and "epsilon" not in spec.secrets.amount and spec.privacy.belief_delta is None:
        raise SpecError(
            "privacy.belief_delta is missing; secrets of kind 'contexts' are promised a largest "
            "rise of belief, such as belief_delta = 0.1"
        )
    if not rises and spec.privacy.belief_delta is not None:
        raise SpecError(
            "privacy.belief_delta is given, but the secrets are not of kind 'contexts' or "
            "'events'; give epsilon instead"
        )
    if spec.privacy.belief_delta is not None and spec.privacy.belief_delta >= 1:
        raise SpecError(
            f"privacy.belief_delta is {float(spec.privacy.belief_delta):g}; it must be below 1, "
            "since a belief is a probability"
        )


def _family(
    spec: SpecBase, document: Mapping[str, Any], folder: Path
) -> tuple[tuple[Model, ...], tuple[str, ...]]:
    """The models, and the states they share."""
    family: list[Model] = []
    states: tuple[str, ...] = ()
    for index, section in enumerate(spec.model):
        name = key_path(("model", index), document)
        try:
            model = spec.query.seen(section.model(folder))
            own = section.states_of(model) if spec.query.by_state else ()
        except InputError as error:
            raise _named(name, section, error) from None
        states = states or own
        if own != states:
            raise SpecError(
                f"{name} has states {list(own)} and model[0] {list(states)}; all models of a "
                "family must have the same states, in the same order"
            )
        family.append(model)
    return tuple(family), states


def _query(section: QuerySection, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
    key, named = section.named_states()
    unknown = [name for name in named if name not in states]
    if unknown:
        raise SpecError(
            f"query.{key} names {unknown[0]!r}, which is not a state of the model; "
            f"{_near(unknown[0], states)}its states are {shown_names(list(map(repr, states)))}"
        )
    try:
        return section.query(states, family)
    except SpecError:
        raise
    except InputError as error:
        raise _named("query", section, error) from None


def _named(path: str, section: Section, error: InputError) -> SpecError:
    """The error of a constructor, with the key in front: `model.transition row 1 sums to …`."""
    text = str(error)
    key = text.split(" ", 1)[0]
    joint = "." if key in type(section).model_fields else ": "
    return SpecError(f"{path}{joint}{text}")


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
    """The first broken rule in words.

    An unknown key comes before anything else: it is often the misspelling of a missing one.
    """
    problems = error.errors(include_url=False)
    first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    return _worded(first, document)


def key_path(place: Place, document: Mapping[str, Any]) -> str:
    """`model[1].transition`: the key as a person finds it in the file.

    Lists are counted from 0; the only model of a spec is plain `model`.
    """
    path = ""
    for step in _without_kind(place):
        if isinstance(step, str):
            path += f".{step}" if path else step
        elif not (path == "model" and len(document["model"]) == 1):
            path += f"[{step}]"
    return path


def shown(value: object) -> str:
    """A value as it looks in TOML, short."""
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


def _worded(problem: Any, document: Mapping[str, Any]) -> str:
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
            return f"{path} is {shown(value)}; it must be {problem['ctx']['expected']}"
        case "together":
            return f"{path} {problem['msg']}"
        case "list_type" if path == "model":
            return "model is a single table; write [[model]], with two brackets on each side"
        case kind if kind == PLACED:
            detail = problem["ctx"]
            return f"{path}{detail['place']} is {shown(detail['shown'])}; {detail['rule']}"
        case kind:
            return f"{path} is {shown(value)}; {_TYPES.get(kind, problem['msg'])}"


def _near(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def _unknown_key(place: Place, path: str) -> str:
    keys = list(_section_class(place).model_fields)
    hint = _near(str(place[-1]), keys)
    return (
        f"{path} is not a key of {_section_title(place)}; {hint}its keys are "
        f"{', '.join(keys)} (correct the key or remove it)"
    )


def _unknown_kind(place: Place, path: str, value: object) -> str:
    name = str(place[0])
    known = ", ".join(map(repr, kinds_of(name)))
    also = ", or name a stored model with file" if name == "model" else ""
    if not isinstance(value, Mapping):
        return f"{path} is {shown(value)}; it must be a section with a kind: {known}"
    if "kind" not in value:
        return f"{path}.kind is missing; choose one of {known}{also}"
    return f"{path}.kind is {shown(value['kind'])}; it must be one of {known}{also}"


def _section_key(place: Place) -> tuple[str, ...]:
    """The section a place lies in, with its kind where kinds differ; () for the spec itself."""
    names = tuple(step for step in place[:-1] if isinstance(step, str))
    return names[: 2 if names[:1] and names[0] in PARTS else 1]


def _section_class(place: Place) -> type[Section]:
    match _section_key(place):
        case (part, kind):
            return section_of(part, kind)
        case ("data",):
            return DataSection
        case ("privacy",):
            return PrivacySection
    return spec_class({})


def _section_title(place: Place) -> str:
    match _section_key(place):
        case ():
            return "a spec"
        case ("model", "file"):
            return "a [[model]] with a file"
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
    """The place without what pydantic adds: the kind after its section, and "[key]"."""
    position = {"model": 2, "secrets": 1, "query": 1}.get(str(place[0]) if place else "")
    return tuple(step for index, step in enumerate(place) if index != position and step != "[key]")
