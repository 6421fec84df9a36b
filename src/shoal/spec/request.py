"""A spec: its shape, one strict class per section and kind, and the task, budget and data it means.

The kinds of models, secrets and queries are those the families' records name; a document loads
only the kinds it holds.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from shoal.core.errors import InputError, SpecError
from shoal.core.family import Family, Part, act_of, families
from shoal.core.plan import CONFIDENCE, Plan
from shoal.core.progress import time_limit
from shoal.core.records import shown_names
from shoal.core.task import Model, Query, Task
from shoal.mechanisms.budgets import epsilon_for
from shoal.mechanisms.choice import choose
from shoal.mechanisms.lift import NAME as LIFT
from shoal.mechanisms.table import MECHANISMS
from shoal.spec.fields import (
    ModelSection,
    NumberRow,
    Positive,
    QuerySection,
    SecretsSection,
    Section,
    Share,
    Text,
    read_text,
)
from shoal.spec.stored import STORED_SECTIONS


class DataSection(Section):
    """Where the entries are in a data file; only `release` needs it."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["state"]}, {"required": ["lat", "lon"]}]}
    )

    state: Text | None = Field(None, description="column with the state of each entry")
    lat: Text | None = Field(None, description="on a map, instead of state: column with latitudes")
    lon: Text | None = Field(None, description="column with longitudes; goes with lat")
    series: Text | None = Field(None, description="column that tells series (people) apart")
    time: Text | None = Field(None, description="column by which a series is ordered")
    gap: Text | None = Field(
        None, description='a longer pause starts a new independent chain, e.g. "10min"'
    )
    missing: Literal["refuse", "drop", "gap", "state"] | None = Field(
        None, description="rows without a state: refused, dropped, a gap, or a state of their own"
    )
    bins: Text | None = Field(None, description='numbers as states: edges such as "100,500,2000"')
    time_unit: Literal["ns", "us", "ms", "s", "min", "h", "d"] | None = Field(
        None, description="what numbers in the time column count, else seconds"
    )
    tz: Text | None = Field(None, description='zone of times that name none, "Europe/Berlin"')
    where: Text | None = Field(None, description='rows that count: "watts > 0 and user != x"')
    sep: Text | None = Field(None, description='what separates the columns of a CSV, such as ";"')
    every: Literal["hour", "day", "week", "month", "quarter", "year"] | None = Field(
        None, description="a release for each part of a series by the calendar"
    )
    periods: Literal["parts", "independent"] | None = Field(
        None,
        description='what periods of a series are: "parts" of it, however dependent; "independent"',
    )
    release: Literal["each", "together"] = Field(
        "each", description="one release per series, or one for all series together"
    )
    subject: Text | None = Field(
        None, description="whose data it is, for a ledger, where no column of series says it"
    )

    @property
    def parts(self) -> bool:
        """Whether the calendar cuts series into parts that may depend on each other."""
        return self.every is not None and self.periods != "independent"

    @model_validator(mode="after")
    def _state_or_coordinates(self) -> DataSection:
        """Refuse a section without exactly one of `state` and the pair `lat`, `lon`."""
        if (self.lat is None) != (self.lon is None):
            raise PydanticCustomError("together", "has one of lat and lon; name both, or neither")
        if (self.state is None) == (self.lat is None):
            count = "neither" if self.state is None else "both"
            raise PydanticCustomError(
                "together", f"has {count} of state and lat with lon; name one of them"
            )
        return self

    @model_validator(mode="after")
    def _one_owner(self) -> DataSection:
        """Refuse `subject` with `series` where each series is released and charged alone."""
        if self.subject is not None and self.series is not None and self.release == "each":
            raise PydanticCustomError(
                "together",
                "has subject and series; each series is charged under its own name: drop subject, "
                'or say release = "together"',
            )
        return self

    @model_validator(mode="after")
    def _gap_needs_time(self) -> DataSection:
        """Refuse `gap` or `every` without a time column."""
        for name in ("gap", "every"):
            if getattr(self, name) is not None and self.time is None:
                raise PydanticCustomError(
                    "together", f"has {name} without time; name the time column, or drop {name}"
                )
        return self


class PrivacySection(Section):
    """The budget: exactly one of epsilon, error and belief_delta."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["epsilon"]},
                {"required": ["error"]},
                {"required": ["belief_delta"]},
            ]
        }
    )

    epsilon: Positive | None = Field(None, description="most change of log-odds between secrets")
    error: Positive | None = Field(
        None, description="wanted accuracy, in the query's unit; epsilon is derived from it"
    )
    belief_delta: Positive | None = Field(
        None, description="for contexts: the most any output may raise a belief, below 1"
    )
    event_epsilon: NumberRow | None = Field(
        None,
        description="for places: most change of the log-odds of each event, over a whole stream",
    )
    confidence: Share | None = Field(
        None, description="probability with which each value is within error (default 0.95)"
    )
    mechanism: Text = Field("best", description='"best" or a row of the table of mechanisms')
    time_limit: Text | None = Field(
        None, description='how long the search for a plan may take, such as "60s"'
    )

    @model_validator(mode="after")
    def _exactly_one_amount(self) -> PrivacySection:
        """Refuse none or several of epsilon, error, belief_delta; confidence without error."""
        if self.belief_delta is not None:
            if self.epsilon is not None or self.error is not None:
                raise PydanticCustomError(
                    "together", "has belief_delta and another amount; give exactly one amount"
                )
        elif (self.epsilon is None) == (self.error is None):
            count = "neither" if self.epsilon is None else "both"
            raise PydanticCustomError(
                "together", f"has {count} of epsilon and error; give exactly one amount"
            )
        if self.confidence is not None and self.error is None:
            raise PydanticCustomError(
                "together", "has confidence without error; give error, or drop confidence"
            )
        return self


class _NoKind(Section):
    """Stands beside the kinds a document holds: a choice needs two."""


PARTS = ("model", "secrets", "query")
NO_KIND = "\0"


def kinds_of(part: str) -> dict[str, Part]:
    """Return a function per kind that imports its section class; `part` is one of PARTS."""
    return {kind: place for family in families() for kind, place in _own(family, part).items()}


def _own(family: Family, part: str) -> Mapping[str, Part]:
    sections: Mapping[str, Part] = getattr(family, f"{part}_sections")
    return sections


def section_of(part: str, kind: str) -> type[Section]:
    """Return the class of a section with this kind; KeyError when there is none."""
    if part == "model" and kind in STORED_SECTIONS:
        return STORED_SECTIONS[kind]
    found: type[Section] = kinds_of(part)[kind]()
    return found


def _tag(value: Any) -> str | None:
    """Return the kind by which pydantic chooses the class of a section, None without one."""
    if isinstance(value, Section):
        own = (key for key, cls in STORED_SECTIONS.items() if isinstance(value, cls))
        return next(own, None) or _kind_or_none(getattr(value, "kind", None))
    if not isinstance(value, dict):
        return None
    named = next((key for key in STORED_SECTIONS if key in value), None)
    return named or _kind_or_none(value.get("kind"))


def _kind_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and not value.startswith(NO_KIND) else None


def _choice(part: str, kinds: tuple[str, ...], *, others: bool) -> Any:
    """Return a union type of the sections of these kinds, discriminated by their kind."""
    sections: list[tuple[str, type[Section]]] = [(kind, section_of(part, kind)) for kind in kinds]
    if others:
        sections += [(NO_KIND, _NoKind), (2 * NO_KIND, _NoKind)]
    tagged = [Annotated[cls, Tag(kind)] for kind, cls in sections]
    return Annotated[reduce(or_, tagged), Discriminator(_tag)]


def spec_class(document: Mapping[str, Any] | None = None) -> type[Section]:
    """Return the class of a spec with the kinds a document names; without one, with all kinds."""
    if document is None:
        every = {part: tuple(kinds_of(part)) for part in PARTS}
        models = (*every["model"], *STORED_SECTIONS)
        return _spec_class(models, every["secrets"], every["query"], others=False)
    return _spec_class(*(tuple(_kinds_named(document, part)) for part in PARTS), others=True)


def _kinds_named(document: Mapping[str, Any], part: str) -> Iterator[str]:
    """Yield the kinds of a part that a document names and a family knows, each once."""
    given = document.get(part)
    tags = map(_tag, given if isinstance(given, list) else [given])
    known = {*kinds_of(part), *(STORED_SECTIONS if part == "model" else ())}
    yield from dict.fromkeys(tag for tag in tags if tag is not None and tag in known)


@cache
def _spec_class(
    models: tuple[str, ...], secrets: tuple[str, ...], queries: tuple[str, ...], *, others: bool
) -> type[Section]:
    """Create the pydantic class of a spec that accepts these kinds of models, secrets and queries.

    `others` adds a class that accepts no section, so that a single kind is still a tagged choice.
    """
    section: Any = _choice("model", models, others=others)
    several: Any = list[section]
    made: type[Section] = create_model(
        "Spec",
        __doc__=SpecBase.__doc__,
        __base__=SpecBase,
        model=(
            several,
            Field(min_length=1, description="what an adversary may know; repeat for a family"),
        ),
        secrets=(
            _choice("secrets", secrets, others=others),
            Field(description="what must stay indistinguishable"),
        ),
        query=(_choice("query", queries, others=others), Field(description="what is asked")),
        privacy=(PrivacySection, Field(description="the budget")),
    )
    return made


class SpecBase(Section):
    """A task and its budget."""

    data: DataSection | None = Field(None, description="where the entries are; only for release")

    if TYPE_CHECKING:
        model: list[ModelSection]
        secrets: SecretsSection
        query: QuerySection
        privacy: PrivacySection


@dataclass(frozen=True, slots=True)
class Request:
    """A task, how much privacy or accuracy is wanted, by which mechanism, and where the data is."""

    task: Task
    privacy: PrivacySection
    data: DataSection | None

    @property
    def mechanism(self) -> str:
        return self.privacy.mechanism

    def limit_time(self, given: str | None = None) -> AbstractContextManager[object]:
        """Limit the time of plan searches while inside: to the given limit, or the spec's."""
        limited = act_of("limit_time", self.task.secrets)
        wanted = given or self.privacy.time_limit
        if wanted is None:
            return nullcontext()
        if limited is None:
            from shoal.data.times import parse_duration

            return time_limit(parse_duration(wanted, "privacy.time_limit").total_seconds())
        found: AbstractContextManager[object] = limited(wanted, self.mechanism)
        return found

    def epsilon(self) -> Fraction:
        """Return the budget: the given one, or the least one that reaches the wanted error.

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
        """Return the requested plan; with `parts` of a series the amount covers all together."""
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
    """Return the request of the spec in `path`; files it names are relative to its folder."""
    path = Path(path)
    return parse_request(read_text(path, "spec"), folder=path.parent, name=str(path))


def parse_request(text: str, *, folder: Path, name: str = "spec") -> Request:
    """Return the request of a spec's TOML text. Floats stay decimal: 0.1 is 1/10."""
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(_not_toml(name, text, str(error))) from None
    except RecursionError:
        raise SpecError(f"{name} nests lists deeper than any spec does; flatten them") from None
    except (ValueError, ArithmeticError):  # such as whole numbers of thousands of digits
        raise SpecError(f"{name} holds a number with more digits than can be read") from None
    return request_of(document, folder=folder)


def _not_toml(name: str, text: str, error: str) -> str:
    """Return the sentence for a file that is not TOML; stored documents and data are recognised."""
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
    """Return the request of a parsed spec."""
    try:
        spec = spec_class(document).model_validate(document)
    except ValidationError as error:
        from shoal.spec.sentences import sentence

        raise SpecError(sentence(error, document)) from None
    assert isinstance(spec, SpecBase)
    if spec.privacy.mechanism not in ("best", *MECHANISMS):
        raise SpecError(
            f"privacy.mechanism is {spec.privacy.mechanism!r}; it must be 'best' or one of "
            f"{', '.join(map(repr, MECHANISMS))}"
        )
    check_amount(spec)
    family, states = _family(spec, folder)
    query = _query(spec.query, states, family)
    try:
        section = spec.secrets.read_files(folder)
        secrets = section.held_to(section.secrets(query, family), spec.privacy)
        task = Task(query=query, secrets=secrets, family=family)
    except InputError as error:
        raise SpecError(str(error)) from None
    return Request(task, spec.privacy, spec.data)


def check_amount(spec: SpecBase) -> None:
    """Refuse belief_delta where it is 1 or more or not applicable, and its absence for contexts."""
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


def _family(spec: SpecBase, folder: Path) -> tuple[tuple[Model, ...], tuple[str, ...]]:
    """Return the models, and the states they share."""
    family: list[Model] = []
    states: tuple[str, ...] = ()
    for index, section in enumerate(spec.model):
        name = f"model[{index}]" if len(spec.model) > 1 else "model"
        try:
            model = spec.query.seen(section.model(folder))
            own = section.states_of(model) if spec.query.by_state else ()
        except InputError as error:
            raise _spec_error(name, section, error) from None
        states = states or own
        if own != states:
            raise SpecError(
                f"{name} has states {list(own)} and model[0] {list(states)}; all models of a "
                "family must have the same states, in the same order"
            )
        family.append(model)
    return tuple(family), states


def _query(section: QuerySection, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
    """Return the query of the section; refused when it names states that the models do not have."""
    key, named = section.named_states()
    unknown = [name for name in named if name not in states]
    if unknown:
        from shoal.spec.sentences import near

        raise SpecError(
            f"query.{key} names {unknown[0]!r}, which is not a state of the model; "
            f"{near(unknown[0], states)}its states are {shown_names(list(map(repr, states)))}"
        )
    try:
        return section.query(states, family)
    except SpecError:
        raise
    except InputError as error:
        raise _spec_error("query", section, error) from None


def _spec_error(path: str, section: Section, error: InputError) -> SpecError:
    """Return a constructor's error with its key in front: `model.transition row 1 sums to …`."""
    text = str(error)
    key = text.split(" ", 1)[0]
    joint = "." if key in type(section).model_fields else ": "
    return SpecError(f"{path}{joint}{text}")


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema, draft 2020-12, of a spec as a parsed TOML document."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, **spec_class().model_json_schema(), "title": "Shoal spec"}


def schema_text() -> str:
    """Return the text of the schema as published in docs/spec.schema.json."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
