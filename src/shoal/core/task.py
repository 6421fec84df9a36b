"""A task: what is asked, what must stay hidden, and what the adversary may know."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

from shoal.core.codec import Bools, Floats, Ints, Value, kind_of
from shoal.core.errors import InputError, Refused
from shoal.core.walk import Walk


@runtime_checkable
class Secrets(Protocol):
    """Facts, and the pairs of them to keep indistinguishable."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def notion(self) -> str:
        """The notion of privacy these secrets ask for."""
        ...

    @property
    def subject(self) -> str:
        """What is hidden, as a short noun phrase."""
        ...

    def describe(self) -> str: ...
    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse, with an InputError, a family that these secrets do not apply to."""
        ...

    def tied_under(self, model: Model) -> int | None:
        """The most entries that depend on what one pair is about; None when there is no limit."""
        ...


@runtime_checkable
class Query(Protocol):
    """A value asked of the data, on a public lattice, with its sensitivity and unit."""

    def __hash__(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def states(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]:
        """One name per coordinate."""
        ...

    @property
    def unit(self) -> str: ...
    @property
    def lattice(self) -> Fraction:
        """Every coordinate of every answer is an integer multiple of this."""
        ...

    @property
    def lipschitz(self) -> Fraction:
        """The most the answer moves, in the l1 norm, when one entry changes."""
        ...

    def describe(self) -> str: ...
    def read(self, data: Any) -> Any:
        """`data` checked and put in the form `evaluate` takes."""
        ...

    def evaluate(self, records: Any) -> tuple[int, ...]:
        """The true answer, in exact multiples of `lattice`."""
        ...


def entry_of(query: Query) -> str:
    """What one entry is, the unit whose change `query.lipschitz` bounds: its `entry`, in words.

    Queries about sequences and records need not say it: there an entry is one value of them.
    """
    return getattr(query, "entry", "one value of the data")


def moved_together(query: Query, entries: int) -> Fraction:
    """The most the answer moves, in the l1 norm, when up to `entries` entries of a series change.

    A query that knows less than `entries` times `lipschitz` says so in its `moved_by`.
    """
    own: Callable[[int], Fraction] | None = getattr(query, "moved_by", None)
    return entries * query.lipschitz if own is None else own(entries)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task(Value):
    """A query, the secrets, and the family of models an adversary may hold."""

    kind = "task"

    query: Query
    secrets: Secrets
    family: tuple[Model, ...]

    def __post_init__(self) -> None:
        """Refuse an empty family, and models that the query or the secrets do not fit."""
        if not self.family:
            raise InputError("the family holds no model; give at least one")
        for model in self.family:
            if model.states is not None and model.states != self.query.states:
                raise InputError(
                    f"the query is about states {list(self.query.states)} and a model about "
                    f"{list(model.states)}; they must be the same, in the same order"
                )
        self.secrets.check(self.family)
        check = getattr(self.query, "check", None)  # a series in steps needs laws without an end
        if check is not None:
            check(self.family)

    @property
    def tied(self) -> int | None:
        """The most entries that depend on what a pair of secrets is about; None when unlimited."""
        most = 0
        for model in self.family:
            tied = self.secrets.tied_under(model)
            if tied is None:
                return None
            most = max(most, tied)
        return most

    def read(self, data: Any) -> Any:
        """`data` checked against the query and every model, and the secrets where they ask to."""
        records = self.query.read(data)
        for model in self.family:
            model.admit(records)
        admit = getattr(self.secrets, "admit", None)  # events are about a given number of slots
        if admit is not None:
            admit(records, self.family)
        return records


# What a model says of itself when a mechanism asks: numbers, or a sentence.


class ScaleFound(NamedTuple):
    """The least scale of noise in lattice steps, the window it was proved on, why it is inf.

    `above` says how far it may be above the least, relatively, where its work ended the search.
    """

    scale: float
    window: int | None = None
    reason: str | None = None
    above: float = 0.0


class AnswerLaws(Protocol):
    """The laws of an answer given each secret, under one model. Scales are in lattice steps."""

    def least_scale(self, epsilon: float) -> ScaleFound:
        """The smallest scale of Laplace noise whose loss is at most epsilon; rounds up."""
        ...

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        """The largest log-ratio of the noisy answer between two secrets; rounds up.

        A bound that is at most `enough` may be returned at once.
        """
        ...

    def floor(self, epsilon: float) -> float | None:
        """A scale below which no Laplace noise keeps epsilon, where one is known quickly."""
        ...

    def no_distance(self) -> str | None:
        """Why `distance` is not known, or None."""
        ...

    def distance(self) -> float:
        """The largest W∞ between the laws of two secrets, up to slices of mass of 1e-12."""
        ...

    def ratio(self, decay: float) -> float:
        """The largest log-ratio over all that may be released of the answer, changing by at most
        e^decay a step; inf where it is not known."""
        ...


CUT = ", cut short"  # ends the rule of a search that its time limit ended


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiftedModel(Value):
    """One model's answer: the largest eta it allows, and where its loss reaches the budget.

    loss = at_node + future + past: what the release tells about the entry itself, and what the
    entries after and before it add. On networks and tied records `future` is what all neighbours
    add. With rule "quilt" the bound is the quilt's: at_node covers all entries nearby and
    future the influence on the quilt. A rule that ends in CUT was not searched to its end.
    """

    kind = "lifted-model"

    eta: float
    loss: float
    node: int | None
    pair: tuple[int, int] | None
    at_node: float
    future: float
    past: float
    rule: str

    @property
    def value(self) -> float:
        """The loss at `eta`."""
        return self.loss

    @classmethod
    def at(
        cls,
        eta: float,
        loss: float,
        node: int | None,
        at_node: float,
        rule: str,
        pair: tuple[int, int] | None = None,
    ) -> LiftedModel:
        """A loss of which only the part at the node is known: the rest stands as `future`."""
        return cls(
            eta=eta,
            loss=loss,
            node=node,
            pair=pair,
            at_node=at_node,
            future=max(loss - at_node, 0.0),
            past=0.0,
            rule=rule,
        )


class EntryLift(Protocol):
    """What releases that are eta-DP for one entry tell about an entry of one model."""

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """The bound at eta; rounds up. The first one found that is at most `enough` is taken."""
        ...

    def largest(self, epsilon: float) -> LiftedModel:
        """The largest eta whose loss is at most epsilon; refused when there is none."""
        ...


class Quilts(Protocol):
    """The Markov quilts of one model: what lies near an entry, and what tells of the rest."""

    @property
    def key(self) -> str:
        """What plans made from the same quilts share."""
        ...

    @property
    def sort(self) -> str:
        """Quilts of two sorts have no common certificate."""
        ...

    def scale(self, epsilon: float) -> tuple[float, Any]:
        """The scale a 1-Lipschitz query needs, and what a certificate says of the model."""
        ...

    def loss(self, eta: float) -> float:
        """max over entries of min over quilts (|N|·eta + e); rounds up."""
        ...

    def certificate(self, found: Sequence[Any], reach: int | None) -> Any:
        """The certificate of what `scale` said of every model of a family."""
        ...


class Influences(Protocol):
    """How far one entry of a model reaches through its neighbours."""

    @property
    def norm(self) -> float: ...
    @property
    def row_sum(self) -> float: ...
    @property
    def refusal(self) -> str | None:
        """Why no noise follows from them, or None."""
        ...

    def scale(self, epsilon: float) -> float: ...


class Adversary(Protocol):
    """An adversary who holds one law of the data and sees releases (`attacks.seen`)."""

    @property
    def columns(self) -> Any:
        """Every value any entry may take, and which of them are each entry's own."""
        ...

    def added(self, seen: Sequence[Any]) -> Ints:
        """What every column of every entry adds to all released numbers."""
        ...

    def beliefs(self, seen: Sequence[Any]) -> Any: ...
    def over_time(self, seen: Sequence[Any]) -> Floats: ...
    def likeliest(self, seen: Sequence[Any]) -> tuple[str, ...]: ...
    def log_probability(self, rows: Ints) -> Floats: ...


class FiniteLaw(Protocol):
    """A joint law of named variables that is written out: what an audit of small cases reads."""

    @property
    def variables(self) -> tuple[str, ...]: ...
    @property
    def domains(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def states(self) -> tuple[str, ...] | None: ...
    @property
    def probability(self) -> Floats:
        """One axis for each variable, in their order."""
        ...

    def event(self, where: Mapping[str, str | Sequence[str]]) -> Bools:
        """The outcomes in which every named variable takes one of its given values, as a mask."""
        ...

    def describe(self) -> str: ...


class Law(Value):
    """A law of the data, or a set of laws: one member of the family an adversary may hold.

    Of the numbers the common mechanisms ask for it has none, and says so in a sentence; a family
    overrides what its models have.
    """

    __slots__ = ()
    in_time: ClassVar[bool] = False  # whether its variables are the slots of a series
    lift_covers_quilts: ClassVar[bool] = False  # whether its lift is never above its quilt bound

    if TYPE_CHECKING:  # declarations for type checkers; some models define these as fields

        @property
        def states(self) -> tuple[str, ...] | None:
            """The values an entry may take; None when the model does not name them."""

        @property
        def tied(self) -> int | None:
            """How many entries may depend on each other; None when there is no limit."""

    def describe(self) -> str:
        raise NotImplementedError

    def admit(self, records: Any) -> None:
        """Refuse, with a DataError, data the model does not cover."""
        raise NotImplementedError

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        """The laws of `query` given each of `secrets`: what exact and wasserstein need."""
        return f"the exact loss needs a law that can be followed, not {self.describe()}"

    def lift(self, query: Query | None) -> EntryLift | str:
        """What entry-level DP tells here, with the metric of `query` (None: any change counts)."""
        return f"the lift needs the law of a Markov chain or a network, not {self.describe()}"

    def lift_about(self, query: Query | None, secrets: Secrets) -> EntryLift | str:
        """The lift for these secrets: single entries, unless the family knows others."""
        if each_entry(secrets):
            return self.lift(query)
        return "the lift protects single entries; named pairs of events need another mechanism"

    def quilts(self, reach: int | None = None) -> Quilts | str:
        """The model's quilts, their end-points at most `reach` away."""
        return (
            "quilts need the transition matrix of a Markov chain, or Bayesian networks only, "
            f"not {self.describe()}"
        )

    def mixing(self) -> Quilts | str:
        """Quilts known from the rarest state and the gap alone."""
        return f"mixing needs a Markov chain or its constants, not {self.describe()}"

    def influences(self) -> Influences | str:
        """The influence matrix."""
        return f"the influence matrix needs a Markov chain or a network, not {self.describe()}"

    def noise_bound(self, query: Query, noise: object) -> float:
        """A bound on what this very noise on `query` tells about an entry; inf where none is."""
        return math.inf

    def walk(self) -> Walk | str:
        """The law as one walk in time."""
        return f"{self.describe()} does not move in time"

    def motion(self) -> Any:
        """How beliefs about a hidden state move, as `chains.hidden.Motion`, or a sentence."""
        return (
            f"the model is {self.describe()}; a stream of beliefs needs one Markov chain with a "
            "given first law"
        )

    def members(self, states: tuple[str, ...]) -> tuple[Model, ...]:
        """Laws on `states` that stand for a family of laws; the model itself when it is one."""
        return (self,)

    def check_fact(self, fact: Any) -> None:
        """Refuse an `events.pairs.Event` about variables or values the model does not have."""
        raise InputError(
            f"secrets name events over variables, but {self.describe()} has none; "
            "use EachEntry for a time series"
        )

    def written_out(self) -> FiniteLaw | str:
        """The joint law as a table of all outcomes, or a sentence why there is none."""
        return f"{self.describe()} is not written out as a table"

    def adversary(self, entries: int | Sequence[int]) -> Adversary:
        """Return the adversary who holds this model of data of so many entries.

        Refuses models without one.
        """
        from shoal.core.registry import ADVERSARIES

        made = ADVERSARIES.get(kind_of(type(self)))
        if made is None:
            raise Refused(f"an adversary holds one law; {self.describe()} is not one")
        return cast(Adversary, made(self, entries))

    def posterior(self, seen: Sequence[Any], entries: int | Sequence[int]) -> Any:
        """The `Beliefs` about every entry of an adversary who holds this model, after `seen`."""
        return self.adversary(entries).beliefs(seen)


Model = Law  # what a task's family is made of


@dataclass(frozen=True, slots=True, eq=False)
class EachEntry(Value):
    """For every entry, each pair of values it can take must stay indistinguishable."""

    kind = "each-entry"

    @property
    def notion(self) -> str:
        return "pufferfish"

    @property
    def subject(self) -> str:
        return "any single entry"

    def check(self, family: tuple[Model, ...]) -> None:
        """Accept every family: every model has entries."""

    def tied_under(self, model: Model) -> int | None:
        """Every entry the model ties to the one a pair is about."""
        return model.tied

    def describe(self) -> str:
        return "the value of every single entry: no time or record is exempt"


def each_entry(secrets: Secrets) -> bool:
    """Whether the secrets are the values of single entries, all of them."""
    return isinstance(secrets, EachEntry)


def as_events(secrets: Secrets) -> Any:
    """Return `secrets` as `Events` over the slots of a series; None if they cannot be converted."""
    said = getattr(secrets, "over_time", None)
    return None if said is None else said()


def as_family(*members: Model | Sequence[Model]) -> tuple[Model, ...]:
    """The tuple of models an adversary may hold, from models or lists of them."""
    flat: list[Any] = []
    for member in members:
        if isinstance(member, Model | str) or not isinstance(member, Iterable):
            flat.append(member)
        else:
            flat.extend(member)
    for model in flat:
        if not isinstance(model, Model):
            raise InputError(
                f"the family holds {model!r}, which is no model; give one such as "
                "shoal.MarkovChain.of(...), or several"
            )
    if not flat:
        raise InputError("the family holds no model; give at least one")
    return tuple(flat)
