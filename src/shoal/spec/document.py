"""The shape of a spec: one strict class per section and kind, every key named and described.

The kinds of models, secrets and queries are those the families' records name; a document loads
only the kinds it holds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from shoal.core.codec import kind_of
from shoal.core.errors import SpecError
from shoal.core.registry import Family, families, load
from shoal.spec.fields import (
    ModelSection,
    NumberRow,
    Positive,
    QuerySection,
    SecretsSection,
    Section,
    Share,
    Text,
    load_model,
)

if TYPE_CHECKING:
    from shoal.core.task import Model


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

    @property
    def parts(self) -> bool:
        """Whether series are cut by the calendar into parts that may depend on each other."""
        return self.every is not None and self.periods != "independent"

    @model_validator(mode="after")
    def _state_or_coordinates(self) -> DataSection:
        if (self.lat is None) != (self.lon is None):
            raise PydanticCustomError("together", "has one of lat and lon; name both, or neither")
        if (self.state is None) == (self.lat is None):
            count = "neither" if self.state is None else "both"
            raise PydanticCustomError(
                "together", f"has {count} of state and lat with lon; name one of them"
            )
        return self

    @model_validator(mode="after")
    def _gap_needs_time(self) -> DataSection:
        for name in ("gap", "every"):
            if getattr(self, name) is not None and self.time is None:
                raise PydanticCustomError(
                    "together", f"has {name} without time; name the time column, or drop {name}"
                )
        return self


def _stored_kinds() -> dict[str, tuple[str, ...]]:
    """The kind a section names to the stored kinds a file may then hold."""
    return {kind: own for family in families() for kind, own in family.stored_models.items()}


def _stored_kind(value: object) -> str:
    kinds = _stored_kinds()
    if value not in kinds:
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, kinds))})
    return str(value)


StoredKind = Annotated[
    str,
    PlainValidator(_stored_kind),
    WithJsonSchema({"type": "string", "enum": [*_stored_kinds()]}),
]


class ModelFile(ModelSection):
    """A stored model, such as `shoal fit` writes, or a Bayesian network in a .bif file."""

    file: Text = Field(description="path of the model, relative to the spec")
    kind: StoredKind | None = Field(
        None, description="what the file must hold; omit to take any kind"
    )

    def model(self, folder: Path) -> Model:
        stored: Model = load_model(folder / self.file, "file")
        check_model(stored, f"file is {self.file!r}", self.kind)
        return stored


def check_model(stored: object, named: str, kind: str | None = None) -> None:
    """Refuses what is no model, or none of the kind wanted; `named` says where it comes from."""
    kinds = _stored_kinds() if kind is None else {kind: _stored_kinds()[kind]}
    if not any(kind_of(type(stored)) in own for own in kinds.values()):
        wanted = " or ".join(map(repr, kinds))
        raise SpecError(
            f"{named}, which holds a {type(stored).__name__}; it must hold a model of kind "
            f"{wanted} (write one with `shoal fit`)"
        )


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
FILE = "file"  # the kind of a [[model]] that names a file


def kinds_of(part: str) -> dict[str, str]:
    """Kind to the place of its section, of all families; `part` is one of PARTS."""
    return {kind: place for family in families() for kind, place in _own(family, part).items()}


def _own(family: Family, part: str) -> Mapping[str, str]:
    sections: Mapping[str, str] = getattr(family, f"{part}_sections")
    return sections


def section_of(part: str, kind: str) -> type[Section]:
    """The class of a section with this kind; KeyError when there is none."""
    found: type[Section] = (
        ModelFile if (part, kind) == ("model", FILE) else load(kinds_of(part)[kind])
    )
    return found


def _tag(value: Any) -> str | None:
    if isinstance(value, Section):
        return getattr(value, "kind", FILE)
    if not isinstance(value, dict):
        return None
    return FILE if "file" in value else _kind(value.get("kind"))


def _kind(value: object) -> str | None:
    return value if isinstance(value, str) and not value.startswith(NO_KIND) else None


def _choice(part: str, kinds: tuple[str, ...], *, others: bool) -> Any:
    """A type that takes the sections of these kinds, told apart by their kind."""
    sections: list[tuple[str, type[Section]]] = [(kind, section_of(part, kind)) for kind in kinds]
    if others:
        sections += [(NO_KIND, _NoKind), (2 * NO_KIND, _NoKind)]
    tagged = [Annotated[cls, Tag(kind)] for kind, cls in sections]
    return Annotated[reduce(or_, tagged), Discriminator(_tag)]


def spec_class(document: Mapping[str, Any] | None = None) -> type[Section]:
    """The class of a spec with the kinds a document names; with all kinds without one."""
    if document is None:
        every = {part: tuple(kinds_of(part)) for part in PARTS}
        return _spec_class((*every["model"], FILE), every["secrets"], every["query"], others=False)
    return _spec_class(*(tuple(_named(document, part)) for part in PARTS), others=True)


def _named(document: Mapping[str, Any], part: str) -> Iterator[str]:
    """The kinds of a part that a document names and a family knows, each once."""
    given = document.get(part)
    tags = map(_tag, given if isinstance(given, list) else [given])
    known = {*kinds_of(part), FILE} if part == "model" else set(kinds_of(part))
    yield from dict.fromkeys(tag for tag in tags if tag in known)


@cache
def _spec_class(
    models: tuple[str, ...], secrets: tuple[str, ...], queries: tuple[str, ...], *, others: bool
) -> type[Section]:
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


TITLE = "Shoal spec"


def spec_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12, of a spec as a parsed TOML document."""
    schema = spec_class().model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": TITLE,
    }


def schema_text() -> str:
    """The schema as it is published in docs/spec.schema.json."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
