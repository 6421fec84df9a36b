"""What a spec asks for: a task, a budget and a mechanism, checked against each other."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shoal.additive.choice import MECHANISMS, epsilon_for
from shoal.core.errors import InputError, SpecError
from shoal.core.plan import CONFIDENCE
from shoal.core.registry import hook
from shoal.core.task import Model, Query, Task
from shoal.data.read import SUFFIXES
from shoal.spec.document import DataSection, PrivacySection, SpecBase, spec_class
from shoal.spec.fields import QuerySection, Section, read_text
from shoal.spec.sentences import key_path, sentence


@dataclass(frozen=True, slots=True)
class Request:
    """A task, how much privacy or accuracy is wanted, by which mechanism, and where the data is."""

    task: Task
    privacy: PrivacySection
    data: DataSection | None

    @property
    def mechanism(self) -> str:
        return self.privacy.mechanism

    def limited(self, time_limit: str | None = None) -> AbstractContextManager[None]:
        """Inside, plans are searched for within a time limit: the one given, or the spec's."""
        limited = hook("time_limit", self.task.secrets)
        wanted = time_limit or self.privacy.time_limit
        if wanted is None or limited is None:
            return nullcontext()
        found: AbstractContextManager[None] = limited(wanted, self.mechanism)
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


def read_request(path: Path) -> Request:
    """What the spec in `path` asks for; files it names are found beside it."""
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
        given = "belief_delta" if spec.privacy.belief_delta is not None else "epsilon"
        secrets = spec.secrets.held_to(spec.secrets.secrets(query, family), given)
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
            f"query.{key} names {unknown[0]!r}, which is not a state of the model; its states are "
            f"{', '.join(map(repr, states))}"
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
