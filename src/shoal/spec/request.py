"""What a spec asks for: a task, a budget and a mechanism, checked against each other."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shoal.additive.choice import MECHANISMS, epsilon_for
from shoal.additive.queries import count, histogram, mean, weighted_sum
from shoal.contexts.spec import ContextSecrets, CurrentQuery, contexts_of, current_of, limited
from shoal.core.errors import InputError, SpecError
from shoal.core.plan import CONFIDENCE
from shoal.core.task import EachEntry, Model, Query, Secrets, Task
from shoal.data.read import SUFFIXES
from shoal.networks.pairs import Event, SecretPairs
from shoal.networks.spec import VariableQuery, variable_query_of
from shoal.places.spec import MeasurementQuery, PolicySecrets, measurement_of, places_of
from shoal.records.spec import PlacesQuery, places_query_of, without_states
from shoal.spec.document import (
    CountQuery,
    DataSection,
    HistogramQuery,
    MeanQuery,
    PairSecrets,
    PrivacySection,
    Spec,
    SumQuery,
)
from shoal.spec.fields import Section, read_text
from shoal.spec.models import model_of, states_of
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

    def limited(self) -> AbstractContextManager[None]:
        """Inside, plans are searched for within the spec's time limit, if it has one."""
        return limited(self.privacy.time_limit, self.mechanism)

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
        spec = Spec.model_validate(document)
    except ValidationError as error:
        raise SpecError(sentence(error, document)) from None
    if spec.privacy.mechanism not in ("best", *MECHANISMS):
        raise SpecError(
            f"privacy.mechanism is {spec.privacy.mechanism!r}; it must be 'best' or one of "
            f"{', '.join(map(repr, MECHANISMS))}"
        )
    check_amount(spec)
    family, states = _family(spec, document, folder)
    query = _query(spec, states, family)
    try:
        secrets = _secrets(spec, query, family)
        task = Task(query=query, secrets=secrets, family=family)
    except InputError as error:
        raise SpecError(str(error)) from None
    return Request(task, spec.privacy, spec.data)


def check_amount(spec: Spec) -> None:
    """A rise of belief is the amount of contexts, and of nothing else."""
    contexts = isinstance(spec.secrets, ContextSecrets)
    if contexts and spec.privacy.belief_delta is None:
        raise SpecError(
            "privacy.belief_delta is missing; secrets of kind 'contexts' are promised a largest "
            "rise of belief, such as belief_delta = 0.1"
        )
    if not contexts and spec.privacy.belief_delta is not None:
        raise SpecError(
            "privacy.belief_delta is given, but the secrets are not of kind 'contexts'; "
            "give epsilon instead"
        )
    if spec.privacy.belief_delta is not None and spec.privacy.belief_delta >= 1:
        raise SpecError(
            f"privacy.belief_delta is {float(spec.privacy.belief_delta):g}; it must be below 1, "
            "since a belief is a probability"
        )


def _family(
    spec: Spec, document: Mapping[str, Any], folder: Path
) -> tuple[tuple[Model, ...], tuple[str, ...]]:
    """The models, and the states they share."""
    family: list[Model] = []
    states: tuple[str, ...] = ()
    for index, section in enumerate(spec.model):
        name = key_path(("model", index), document)
        try:
            model = model_of(section, folder)
            if isinstance(spec.query, PlacesQuery):
                model = without_states(model)
            unnamed = isinstance(spec.query, VariableQuery | PlacesQuery)
            own = () if unnamed else states_of(section, model)
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


def _query(spec: Spec, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
    section = spec.query
    _known_states(section, states)
    try:
        match section:
            case CurrentQuery():
                return current_of(states)
            case MeasurementQuery():
                return measurement_of(section, states, family)
            case PlacesQuery():
                return places_query_of(section)
            case VariableQuery():
                return variable_query_of(section, family)
            case CountQuery():
                return count(states, section.states, unit=section.unit)
            case SumQuery():
                return weighted_sum(states, section.weights, unit=section.unit)
            case MeanQuery():
                length = _public_length(section, family)
                return mean(states, section.weights, length=length, unit=section.unit)
            case HistogramQuery():
                shared = _public_length(section, family) if section.relative else None
                return histogram(
                    states, relative=section.relative, length=shared, unit=section.unit
                )
    except SpecError:
        raise
    except InputError as error:
        raise _named("query", section, error) from None


def _known_states(section: Section, states: tuple[str, ...]) -> None:
    match section:
        case CountQuery():
            key, named = "states", list(section.states)
        case SumQuery() | MeanQuery():
            key, named = "weights", list(section.weights)
        case _:
            return
    unknown = [name for name in named if name not in states]
    if unknown:
        raise SpecError(
            f"query.{key} names {unknown[0]!r}, which is not a state of the model; its states are "
            f"{', '.join(map(repr, states))}"
        )


def _public_length(section: MeanQuery | HistogramQuery, family: tuple[Model, ...]) -> int:
    """The public number of entries: the query's own, else that of the only model."""
    if section.length is not None:
        return section.length
    if len(family) == 1 and family[0].tied is not None:
        return int(getattr(family[0], "records", family[0].tied))
    raise SpecError(
        "query.length is missing; give the public number of entries to divide by "
        "(it is taken from the model only when there is one model, with a length)"
    )


def _secrets(spec: Spec, query: Query, family: tuple[Model, ...]) -> Secrets:
    if isinstance(spec.secrets, PolicySecrets):
        return places_of(spec.secrets, query, family)
    if isinstance(spec.secrets, ContextSecrets):
        return contexts_of(spec.secrets)
    if not isinstance(spec.secrets, PairSecrets):
        return EachEntry()
    events = {name: Event.of(name, where) for name, where in spec.secrets.events.items()}
    for index, pair in enumerate(spec.secrets.pairs):
        for name in pair:
            if name not in events:
                raise SpecError(
                    f"secrets.pairs[{index}] names {name!r}, which is not in secrets.events; "
                    f"the events are {', '.join(map(repr, events))}"
                )
    return SecretPairs.of((events[first], events[second]) for first, second in spec.secrets.pairs)


def _named(path: str, section: Section, error: InputError) -> SpecError:
    """The error of a constructor, with the key in front: `model.transition row 1 sums to …`."""
    text = str(error)
    key = text.split(" ", 1)[0]
    joint = "." if key in type(section).model_fields else ": "
    return SpecError(f"{path}{joint}{text}")
