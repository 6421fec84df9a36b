"""Sensitive contexts, at every slot or at some, alone or in groups: beliefs rise by at most δ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn, Self

import numpy as np

from shoal.contexts.day import DayChain
from shoal.core.codec import Bools, Floats, Value
from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact
from shoal.core.records import Sequences, checked_states, label, labels as labels_of, sequences
from shoal.core.task import Model


@dataclass(frozen=True, slots=True, eq=False)
class SensitiveContexts(Value):
    """P(X_t = s | output) - P(X_t = s) ≤ δ for every output, and every sensitive s and t.

    `contexts` are sensitive at every slot, `moments` are (context, slots) pairs sensitive at those
    slots (counted from 0) only, and for each group G in `groups` the belief that X_t is *some*
    context of G may not rise by more than δ either: its members are then held to δ/|G| each,
    which is enough because the beliefs of the members add up (the paper's remark in Section 2.1).

    Nothing is said about a window of time: the belief of having been in s at *some* slot between
    two can rise although that of every single slot does not. The paper's remark that δ/(length of
    the window) is enough is false: a chain of five contexts whose every belief rises by 0 lets
    that of a window of three slots rise from .5025 to .75 (ERRATA 003, tests/golden).
    With `labels`, (state, contexts) pairs, the states of the chain are not contexts themselves but
    stand for one of several: the adversary knows the day only up to such sets. Promised is then δ
    for the contexts, to that adversary and to all who know more, for any weights of the
    labels (the paper's Theorem 7): a state that may be sensitive is held to δ/μ, μ being how many
    states the same secret may hide in at that slot. A state without labels stands for itself.
    δ bounds a rise above what the model predicts: a sensitive context that is likely anyway may be
    released. Those in `never` are not, at any slot.
    Götz, Nath & Gehrke 2012, Definition 1 and Theorem 7.
    """

    kind = "sensitive-contexts"

    contexts: tuple[str, ...] = ()
    moments: tuple[tuple[str, tuple[int, ...]], ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    never: tuple[str, ...] = field(default=(), metadata={"later": True})

    def __post_init__(self) -> None:
        """Refuse empty secrets, groups of one, negative slots and labels without contexts."""
        if not (self.contexts or self.moments or self.groups):
            raise InputError("contexts is empty; name at least one sensitive context")
        for group in self.groups:
            if len(set(group)) < 2:
                raise InputError(
                    f"groups holds {list(group)}; a group needs two different contexts or more "
                    "(name a single one in contexts)"
                )
        apart = sorted(set(self.never) - set(self.contexts))
        if apart:
            raise InputError(
                f"never names {apart[0]!r}, which is not one of contexts; name it there"
            )
        if any(slot < 0 for _, slots in self.moments for slot in slots):
            raise InputError("moments holds a negative slot; slots are counted from 0")
        for state, several in self.labels:
            if not several:
                raise InputError(
                    f"labels has no context for {state!r}; name those it may stand for, or leave "
                    "it out when it stands for itself"
                )

    @classmethod
    def of(
        cls,
        contexts: str | int | Iterable[str | int] = (),
        *,
        moments: Mapping[Any, Sequence[int]] | None = None,
        groups: Iterable[Iterable[str | int]] = (),
        labels: Mapping[Any, Sequence[str | int]] | None = None,
        never: str | int | Iterable[str | int] = (),
    ) -> Self:
        """Return secrets from names, slots by context, groups of names, and contexts by state.

        `never` names contexts that are sensitive, and that are not released however likely they
        are. A context that is a number is taken by its label, as the states of a chain are.
        """
        least, names = (
            _labelled(never),
            tuple(dict.fromkeys((*_labelled(contexts), *_labelled(never)))),
        )
        at = tuple((label(name), tuple(sorted(set(s)))) for name, s in (moments or {}).items())
        sets = tuple((label(state), _labelled(s)) for state, s in (labels or {}).items())
        return cls(names, at, tuple(map(_labelled, groups)), sets, least)

    @property
    def notion(self) -> str:
        return "delta-privacy"

    @property
    def subject(self) -> str:
        return "being in a sensitive context at any single slot"

    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse models that are not day chains, lack a named context, or have too few slots."""
        for model in family:
            if not isinstance(model, DayChain):
                raise InputError(
                    f"secrets are contexts of a day, but the model is {model.describe()}; "
                    "give a day chain"
                )
            known = [name for state in model.states for name in self.stands_for(state)]
            for name in self._names():
                if name not in known:
                    raise InputError(
                        f"secrets name the context {name!r}; the contexts of the model are "
                        f"{list(dict.fromkeys(known))}"
                    )
            for state, _ in self.labels:
                if state not in model.states:
                    raise InputError(
                        f"labels names the state {state!r}; the states of the model are "
                        f"{list(model.states)}"
                    )
            certain = day_certain(model, self.kept_back(model))
            if certain is not None:
                raise InputError(
                    f"never names a context in which everybody is at slot {certain} under the "
                    "model: that cannot be kept back (leave it out, or smooth the model)"
                )
            latest = max((slot for _, slots in self.moments for slot in slots), default=0)
            if latest >= model.slots:
                raise InputError(
                    f"moments names slot {latest}; the day has slots 0 to {model.slots - 1}"
                )

    def shares(self, day: DayChain) -> Floats:
        """Return w[t, s], how many times a rise of belief in s at t counts; 0 if not secret.

        1 for a context alone; otherwise how many states of that slot a secret may hide in: those
        that may stand for it, or for a member of a group. The largest where several apply.
        """
        weight = np.zeros((day.slots, day.size))
        possible = day.support()
        for names, slots in self.facts(day.slots):
            indices = [i for i, s in enumerate(day.states) if set(self.stands_for(s)) & set(names)]
            here = np.ix_(np.asarray(slots, dtype=np.int64), np.asarray(indices, dtype=np.int64))
            count = np.maximum(possible[here].sum(axis=1, keepdims=True), 1)
            weight[here] = np.maximum(weight[here], count)
        return weight

    def kept_back(self, day: DayChain) -> Bools:
        """Return the mask of states never released: those that may stand for one of `never`."""
        hidden = [bool(set(self.stands_for(state)) & set(self.never)) for state in day.states]
        return np.array(hidden, dtype=np.bool_)

    def facts(self, slots: int) -> list[tuple[tuple[str, ...], Sequence[int]]]:
        """Return the secrets as (contexts, slots): being in one of the contexts at such a slot."""
        alone = [((name,), range(slots)) for name in self.contexts]
        moments = [((name,), at) for name, at in self.moments]
        return [*alone, *moments, *((group, range(slots)) for group in self.groups)]

    def stands_for(self, state: str) -> tuple[str, ...]:
        """Return the contexts a state of the chain may be: itself, unless it has labels."""
        return dict(self.labels).get(state, (state,))

    def fair(self, names: Iterable[str], day: DayChain) -> Floats:
        """Return how likely each state stands for one of `names` when all its labels are alike."""
        labels = [set(self.stands_for(state)) for state in day.states]
        return np.array([len(own & set(names)) / len(own) for own in labels])

    def tied_under(self, model: Model) -> int | None:
        """Return the number of entries the model ties to the one a pair is about."""
        return model.tied

    def describe(self) -> str:
        """Return the secrets as a phrase for people."""
        parts = [f"whether one is in {name!r}" for name in self.contexts]
        parts += [f"whether one is in {name!r} at {len(s)} given slots" for name, s in self.moments]
        parts += [f"whether one is in one of {list(group)}" for group in self.groups]
        parts[-1] += f" ({', '.join(self.never)}: never shown)" if self.never else ""
        unsure = f", for somebody unsure of {len(self.labels)} states" if self.labels else ""
        return (
            ", ".join(parts)
            + f", at each single slot of the day (not: at some slot of a longer window){unsure}"
        )

    def _names(self) -> set[str]:
        return {
            *self.contexts,
            *(name for name, _ in self.moments),
            *(name for group in self.groups for name in group),
        }


def _labelled(names: Any) -> tuple[str, ...]:
    """Return names as labels of states, each once."""
    return tuple(dict.fromkeys(labels_of(names)))


def day_certain(day: DayChain, hidden: Bools) -> int | None:
    """Return the first slot at which only these states are possible; None when there is none."""
    sure = ~day.support()[:, ~hidden].any(axis=1) & hidden.any()
    return int(np.flatnonzero(sure)[0]) if sure.any() else None


def joint_contexts(
    requests: Iterable[tuple[SensitiveContexts, Number]],
) -> tuple[SensitiveContexts, Fraction]:
    """Return the secrets of several applications together, and their least delta.

    Applications talk to each other, so one user has one stream. A stream that keeps the union of
    the sensitive contexts at the least δ satisfies every application, also those that share their
    outputs; streams of their own would not add up to any promise. A state may stand
    for every context that one of them lists, and for itself where one names it as a secret: more
    states are then sensitive, each held to a smaller share, which keeps all of them.
    """
    listed = [(secrets, exact(delta, "belief_delta")) for secrets, delta in requests]
    if not listed:
        raise InputError("no application has a wish; give at least one (secrets, delta) pair")
    moments: dict[str, set[int]] = {}
    for secrets, _ in listed:
        for name, slots in secrets.moments:
            moments.setdefault(name, set()).update(slots)
    states = dict.fromkeys(state for secrets, _ in listed for state, _ in secrets.labels)
    labels = {
        state: [
            name
            for secrets, _ in listed
            for name in dict(secrets.labels).get(state, {state} & secrets._names())
        ]
        for state in states
    }
    union = SensitiveContexts.of(
        dict.fromkeys(name for secrets, _ in listed for name in secrets.contexts),
        moments={name: sorted(slots) for name, slots in moments.items()},
        groups=dict.fromkeys(group for secrets, _ in listed for group in secrets.groups),
        labels=labels,
        never=dict.fromkeys(name for secrets, _ in listed for name in secrets.never),
    )
    return union, min(delta for _, delta in listed)


@dataclass(frozen=True, slots=True, eq=False)
class CurrentState(Value):
    """Which state one is in, asked at every step of a stream and released as it is or not at all.

    There is no number to add noise to: `lipschitz` is 0, which no numeric query has, and
    `evaluate` refuses. Mechanisms that add noise refuse this query by it.
    """

    kind = "current-state"

    states: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", checked_states(self.states))

    @property
    def labels(self) -> tuple[str, ...]:
        return ("current",)

    @property
    def unit(self) -> str:
        return "states"

    @property
    def lattice(self) -> Fraction:
        return Fraction(1)

    @property
    def lipschitz(self) -> Fraction:
        return Fraction(0)

    def read(self, data: Any) -> Sequences:
        """`data` as chains of states."""
        return sequences(data, self.states)

    def evaluate(self, records: Any) -> NoReturn:
        """Refused: a stream releases states, not numbers."""
        raise InputError("the current state is not a number; run the plan with plan.start()")

    def describe(self) -> str:
        return f"which of {len(self.states)} states one is in, at every step"
