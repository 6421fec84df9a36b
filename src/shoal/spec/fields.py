"""What every section of a spec is: exactly its own keys, of exactly their own types.

A section makes what it describes: a model, secrets or a query. The queries every family has are
here; families add their own.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from shoal.core.errors import InputError, SpecError, StoredError
from shoal.core.task import EachEntry, Model, Query
from shoal.mechanisms.queries import LinearQuery, count, histogram, mean, weighted_sum

if TYPE_CHECKING:
    from shoal.core.task import Model, Query, Secrets
    from shoal.mechanisms.person import EachPerson


class Section(BaseModel):
    """A section takes exactly its own keys, of exactly their own types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ModelSection(Section):
    """A [[model]]; files it names are found relative to `folder`."""

    def model(self, folder: Path) -> Model:
        raise NotImplementedError

    def states_of(self, model: Model) -> tuple[str, ...]:
        """Return the values of an entry: the model's own, or those that the section names."""
        if model.states is None:
            raise SpecError(
                "does not say which values an entry can take, or its variables take different "
                "ones; counts, sums, means and histograms need one list of states for all entries"
            )
        return model.states


class PrivacyAmounts(Protocol):
    """What secrets are held to, as [privacy] says it."""

    @property
    def belief_delta(self) -> Fraction | None: ...
    @property
    def event_epsilon(self) -> tuple[Fraction, ...] | None: ...


class SecretsSection(Section):
    """A [secrets]. `amount` names the keys of [privacy] that say how much may be told."""

    amount: ClassVar[str] = "epsilon"

    def read_files(self, folder: Path) -> SecretsSection:
        """Return the section with the content of the files it names, relative to `folder`."""
        return self

    def secrets(self, query: Query, family: tuple[Model, ...]) -> Secrets:
        raise NotImplementedError

    def held_to(self, secrets: Secrets, privacy: PrivacyAmounts) -> Secrets:
        """Return the secrets for these amounts of [privacy]; only some kinds depend on them."""
        if privacy.event_epsilon is not None:
            raise SpecError(
                "privacy.event_epsilon is given, but no stream of places names events; add "
                "[[secrets.event]] to a policy-graph or location-set, or drop it"
            )
        return secrets


class QuerySection(Section):
    """A [query]. `by_state`: its entries take the states that all models share."""

    by_state: ClassVar[bool] = True

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        raise NotImplementedError

    def named_states(self) -> tuple[str, tuple[str, ...]]:
        """Return the key of the section that names states, and these states."""
        return "", ()

    def seen(self, model: Model) -> Model:
        """Return the model in the form that this query needs."""
        return model


MOST_DIGITS = 300  # limits of a number and its exponent: floats hold no more
MOST_COUNTED = 10**12  # most entries of a chain: one per microsecond for eleven days
LARGEST_FILE = 2**28  # most bytes of a document: plans of large maps have about 10^7
PLACED = "placed"  # errors of this type hold the index inside a nested list, and the rule


def number(value: object) -> Fraction:
    """Return the exact rational of a number; TOML floats arrive as Decimal, so 0.1 is 1/10."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise PydanticCustomError("number", "it must be a number")
    if not math.isfinite(value):
        raise PydanticCustomError("number", "it must be a finite number")
    written = value if isinstance(value, Decimal) else Decimal(str(value))
    if written and not -MOST_DIGITS <= written.adjusted() <= MOST_DIGITS:
        raise PydanticCustomError("number", "it must be 0, or between 1e-300 and 1e300 in size")
    if len(written.as_tuple().digits) > MOST_DIGITS:
        raise PydanticCustomError("number", "it must have at most 300 digits")
    return Fraction(written)


def number_row(value: object) -> tuple[Fraction, ...]:
    """Return a number, or a non-empty list of numbers, as exact rationals."""
    if isinstance(value, list):
        if not value:
            raise PydanticCustomError("number", "it must hold at least one number")
        return tuple(number(item) for item in value)
    return (number(value),)


def positive(value: object) -> Fraction:
    """`number`, refused unless greater than 0."""
    amount = number(value)
    if amount <= 0:
        raise PydanticCustomError("number", "it must be greater than 0")
    return amount


def fraction_of_one(value: object) -> float:
    """Return a number strictly between 0 and 1, as a float; refuses others."""
    share = float(number(value))
    if not 0 < share < 1:
        raise PydanticCustomError("number", "it must be between 0 and 1, both excluded")
    return share


def state(value: object) -> str:
    """Return a label: text, or a whole number converted to text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise PydanticCustomError("state", "it must be text in quotes or a whole number")
    return str(value)


def one_or_more(value: object) -> tuple[str, ...]:
    """Return a state, or a non-empty list of states."""
    if not isinstance(value, list):
        return (state(value),)
    if not value:
        raise PydanticCustomError("state", "it must name at least one value")
    return tuple(state(item) for item in value)


def whole(value: object) -> int:
    """Return a whole number from 1 to MOST_COUNTED; refuses anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PydanticCustomError("whole", "it must be a whole number of at least 1")
    if value > MOST_COUNTED:
        raise PydanticCustomError("whole", f"it must be at most {MOST_COUNTED:,}")
    return value


def whole_or_zero(value: object) -> int:
    """Return a whole number from 0 to MOST_COUNTED; refuses anything else."""
    return 0 if value == 0 and type(value) is int else whole(value)


def text(value: object) -> str:
    """Return non-empty text; refuses anything else."""
    if not isinstance(value, str) or not value.strip():
        raise PydanticCustomError("text", "it must be text in quotes, and not empty")
    return value


def probabilities(value: object) -> list[Any]:
    """Return lists of numbers in [0, 1], nested to any depth, as floats.

    Whether rows sum to 1 and have the right shape is the model's own check.
    """
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("table", "it must be a list of probabilities, or of such lists")
    return [_nested_probabilities(item, f"[{i}]") for i, item in enumerate(value)]


def initial_law(value: object) -> Any:
    """Return "stationary", "any", or a list of probabilities; refuses anything else."""
    if value in ("stationary", "any"):
        return value
    if not isinstance(value, list):
        raise PydanticCustomError(
            "initial", 'it must be "stationary", "any" or a list of probabilities'
        )
    return probabilities(value)


def pair(value: object) -> tuple[str, str]:
    """Return two names; refuses lists of another length."""
    match value:
        case [str(first), str(second)] if first != second:
            return first, second
    raise PydanticCustomError("pair", "it must be a list of two different event names")


def table_of(nested: list[Any] | None, what: str, *, per: str = "state") -> Any:
    """Return nested lists as an array; refused when rows have different lengths."""
    try:
        return np.array(nested, dtype=np.float64)
    except ValueError:
        raise SpecError(
            f"{what} has rows of different lengths; give every row one number per {per}"
        ) from None


def _nested_probabilities(value: object, place: str) -> Any:
    """Return nested lists of probabilities as floats, lists of any depth.

    Refuses anything that is no number in [0, 1]; `place` is the index shown in the error.
    """
    if isinstance(value, list):
        return [_nested_probabilities(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _error_with_place(place, value, "it must be a number")
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise _error_with_place(place, value, "a probability must be a number between 0 and 1")
    return float(value)


def _error_with_place(place: str, value: object, rule: str) -> PydanticCustomError:
    return PydanticCustomError(PLACED, "{rule}", {"place": place, "shown": value, "rule": rule})


_NUMBER = {"type": "number"}
_LABEL: dict[str, Any] = {"type": ["string", "integer"]}
_NESTED = {"type": "array", "items": {"type": ["number", "array"]}, "minItems": 1}

Number = Annotated[Fraction, PlainValidator(number), WithJsonSchema(_NUMBER)]
NumberRow = Annotated[
    tuple[Fraction, ...],
    PlainValidator(number_row),
    WithJsonSchema({"anyOf": [_NUMBER, {"type": "array", "items": _NUMBER, "minItems": 1}]}),
]
Positive = Annotated[
    Fraction, PlainValidator(positive), WithJsonSchema({**_NUMBER, "exclusiveMinimum": 0})
]
Share = Annotated[
    float,
    PlainValidator(fraction_of_one),
    WithJsonSchema({**_NUMBER, "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
]
State = Annotated[str, PlainValidator(state), WithJsonSchema(_LABEL)]
States = Annotated[
    tuple[str, ...],
    PlainValidator(one_or_more),
    WithJsonSchema({"anyOf": [_LABEL, {"type": "array", "items": _LABEL, "minItems": 1}]}),
]
Whole = Annotated[int, PlainValidator(whole), WithJsonSchema({"type": "integer", "minimum": 1})]
WholeOrZero = Annotated[
    int, PlainValidator(whole_or_zero), WithJsonSchema({"type": "integer", "minimum": 0})
]
Text = Annotated[str, PlainValidator(text), WithJsonSchema({"type": "string", "minLength": 1})]
Initial = Annotated[
    Any,
    PlainValidator(initial_law),
    WithJsonSchema({"anyOf": [{"enum": ["stationary", "any"]}, _NESTED]}),
]
Pair = Annotated[
    tuple[str, str],
    PlainValidator(pair),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
]
Probabilities = Annotated[list[Any], PlainValidator(probabilities), WithJsonSchema(_NESTED)]


def read_text(path: Path, what: str) -> str:
    """Return the text of a file; refused when it cannot be read."""
    try:
        with path.open("rb") as stream:  # found by reading, because a device has no size
            raw = stream.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise InputError(
                f"{what} {str(path)!r} has more than {LARGEST_FILE:,} bytes: is it data?"
            )
        return raw.decode("utf-8-sig")  # some editors write a byte order mark
    except FileNotFoundError:
        instead = f", or write one with `shoal init {path}`" if what == "spec" else ""
        raise InputError(f"{what} {str(path)!r} does not exist; check the path{instead}") from None
    except IsADirectoryError:
        raise InputError(f"{what} {str(path)!r} is a folder; name a file inside it") from None
    except UnicodeDecodeError:
        raise InputError(f"{what} {str(path)!r} is not text in UTF-8; check the path") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"{what} {str(path)!r} cannot be read: {reason}") from None


def load_model(path: Path, what: str) -> Any:
    """Return a stored model, or one in a foreign format that a family reads."""
    from shoal.core.family import families

    for family in families():
        for suffix, reader in family.model_files.items():
            if path.name.endswith(suffix):
                return reader()(path)
    return load_stored(path, what)


def load_stored(path: Path, what: str) -> Any:
    """Return the value stored in `path`; refused when the file is no intact stored document."""
    text = read_text(path, what)
    return parse_stored(text, path, what)


def parse_stored(text: str, path: Path, what: str) -> Any:
    """Return the value of a stored document; `path` and `what` are for the refusal only."""
    from shoal.core.registry import loads

    try:
        return loads(text)
    except StoredError as error:
        raise StoredError(f"{what} {str(path)!r}: {error}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        # an edited field can raise any of these in a constructor
        raise StoredError(
            f"{what} {str(path)!r} was edited or damaged ({error}); "
            "make it again instead of changing it by hand"
        ) from None


class EachEntrySecrets(SecretsSection):
    """The value of every single entry."""

    kind: Literal["each-entry"]

    def secrets(self, query: Query, family: tuple[Model, ...]) -> EachEntry:
        return EachEntry()


class EachPersonSecrets(SecretsSection):
    """All entries of each person, who is one series of the data."""

    kind: Literal["each-person"]

    def secrets(self, query: Query, family: tuple[Model, ...]) -> EachPerson:
        from shoal.mechanisms.person import EachPerson

        return EachPerson()


class SteppedQuery(QuerySection):
    """A sum that may be asked of each so many entries of a series that goes on."""

    every: Whole | None = Field(None, description="entries of a step: one answer for each step")
    totals: bool = Field(False, description="after each step the total so far, not the step's own")
    horizon: Whole | None = Field(None, description="with totals: the most steps there will be")

    @model_validator(mode="after")
    def _totals_have_a_horizon(self) -> SteppedQuery:
        """Refuse totals without steps or a horizon, and a horizon without totals."""
        if self.totals and (self.every is None or self.horizon is None):
            raise PydanticCustomError(
                "together", "has totals = true without every and horizon; give both"
            )
        if self.horizon is not None and not self.totals:
            raise PydanticCustomError(
                "together", "has horizon without totals = true; add that line, or drop horizon"
            )
        return self

    def with_steps(self, query: LinearQuery) -> Query:
        """Return the query itself, asked of each step, or added up from step to step."""
        if self.every is None:
            return query
        if self.horizon is not None:
            from shoal.mechanisms.signed_tree import totals

            return totals(query, self.every, self.horizon)
        from shoal.mechanisms.queries import in_steps

        return in_steps(query, self.every)


class CountQuery(SteppedQuery):
    """How many entries are in one of some states."""

    kind: Literal["count"]
    states: States = Field(description="the states to count")
    unit: Text = Field("entries", description="what one entry stands for, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        return self.with_steps(count(states, self.states, unit=self.unit))

    def named_states(self) -> tuple[str, tuple[str, ...]]:
        return "states", self.states


WEIGHTS = "state to weight, others count 0; left out: numbers as they are, bins by their middles"


class SumQuery(SteppedQuery):
    """The sum of a weight per entry."""

    kind: Literal["sum"]
    weights: dict[str, Number] | None = Field(None, min_length=1, description=WEIGHTS)
    unit: Text = Field("units", description="the unit of the weights, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        return self.with_steps(weighted_sum(states, self.weights, unit=self.unit))

    def named_states(self) -> tuple[str, tuple[str, ...]]:
        return "weights", tuple(self.weights or ())


class MeanQuery(QuerySection):
    """The mean of a weight per entry."""

    kind: Literal["mean"]
    weights: dict[str, Number] | None = Field(None, min_length=1, description=WEIGHTS)
    length: Whole | None = Field(None, description="public number of entries; else the model's")
    unit: Text = Field("units", description="the unit of the weights, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> LinearQuery:
        length = _public_length(self.length, family)
        return mean(states, self.weights, length=length, unit=self.unit)

    def named_states(self) -> tuple[str, tuple[str, ...]]:
        return "weights", tuple(self.weights or ())


class HistogramQuery(SteppedQuery):
    """How often each state occurs."""

    kind: Literal["histogram"]
    relative: bool = Field(False, description="as a share of length instead of a count")
    length: Whole | None = Field(None, description="public number of entries; else the model's")
    unit: Text | None = Field(None, description="the unit in reports")

    @model_validator(mode="after")
    def _length_is_for_shares(self) -> HistogramQuery:
        if self.length is not None and not self.relative:
            raise PydanticCustomError(
                "together", "has length without relative = true; add that line, or drop length"
            )
        return self

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        length = _public_length(self.length, family) if self.relative else None
        return self.with_steps(
            histogram(states, relative=self.relative, length=length, unit=self.unit)
        )


def _public_length(given: int | None, family: tuple[Model, ...]) -> int:
    """Return the public number of entries: the query's own, else that of the only model."""
    if given is not None:
        return given
    if len(family) == 1 and family[0].tied is not None:
        return int(getattr(family[0], "records", family[0].tied))
    raise SpecError(
        "query.length is missing; give the public number of entries to divide by "
        "(it is taken from the model only when there is one model, with a length)"
    )
