"""Any finite law, written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import checked_rows, numbers
from shoal.core.charge import Rng, categorical, uniforms
from shoal.core.codec import Floats
from shoal.core.errors import DataError, InputError
from shoal.core.records import Sequences, checked_states, label, labels
from shoal.core.task import AnswerLaws, EntryLift, Law, Query, Secrets
from shoal.core.walk import LEAST_NORMAL, TooUnlikely, Wide, is_exact_in_doubles

MAX_OUTCOMES = 2**24  # outcomes of a table: 128 MiB of doubles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointTable(Law):
    """The joint law of named variables: probability[i, j, …] of their i-th, j-th, … values.

    `domains` lists each variable's values. When all domains are equal the variables are the
    entries of one record each, and linear queries over entries apply.
    """

    kind = "joint-table"

    variables: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...]
    probability: Floats

    def __post_init__(self) -> None:
        """Check shape and numbers, and store the law locked."""
        variables = checked_states(self.variables, "variables")
        domains = tuple(checked_states(domain, "a domain") for domain in self.domains)
        if len(domains) != len(variables):
            raise InputError(f"{len(variables)} variables need as many domains, not {len(domains)}")
        shape = tuple(len(domain) for domain in domains)
        outcomes = int(np.prod(shape, dtype=object))
        if outcomes > MAX_OUTCOMES:
            raise InputError(
                f"the table has {outcomes} outcomes; at most {MAX_OUTCOMES} are handled: "
                "describe the law as a Bayesian network instead"
            )
        array = numbers(self.probability, "probability")
        if array.shape != shape:
            raise InputError(f"probability has shape {array.shape}; the domains need {shape}")
        flat = checked_rows(array.ravel(), "probability", (outcomes,))
        law = flat.reshape(shape)
        law.setflags(write=False)
        object.__setattr__(self, "variables", variables)
        object.__setattr__(self, "domains", domains)
        object.__setattr__(self, "probability", law)

    @classmethod
    def of(
        cls,
        probability: npt.ArrayLike,
        *,
        variables: Sequence[str] | None = None,
        domains: Sequence[Sequence[Any]] | None = None,
    ) -> Self:
        """Return a table from nested lists: variables X1, X2, … with values 0, 1, … by default."""
        array = numbers(probability, "probability")
        names = variables or [f"X{i + 1}" for i in range(array.ndim)]
        values = domains or [range(n) for n in array.shape]
        return cls(
            variables=tuple(names),
            domains=tuple(tuple(label(v) for v in domain) for domain in values),
            probability=array,
        )

    @property
    def states(self) -> tuple[str, ...] | None:
        """The values of an entry when all variables share them."""
        return self.domains[0] if len(set(self.domains)) == 1 else None

    @property
    def tied(self) -> int | None:
        return len(self.variables)

    def event(self, where: Mapping[str, str | Sequence[str]]) -> npt.NDArray[np.bool_]:
        """Return the outcomes in which every named variable takes one of its given values."""
        mask = np.ones(self.probability.shape, dtype=bool)
        for name, values in where.items():
            axis = self._axis(name)
            allowed = set(labels(values))
            unknown = allowed - set(self.domains[axis])
            if unknown:
                raise InputError(
                    f"variable {name!r} has no value {min(unknown)!r}; "
                    f"its values are {list(self.domains[axis])}"
                )
            keep = np.array([value in allowed for value in self.domains[axis]])
            shape = [1] * mask.ndim
            shape[axis] = -1
            mask &= keep.reshape(shape)
        return mask

    def given(self, where: Mapping[str, str | Sequence[str]]) -> Floats:
        """Return the joint law given an event; refused when the event is impossible."""
        kept = np.where(self.event(where), self.probability, 0.0)
        total = kept.sum()
        if not total > 0:
            raise InputError(f"the event {dict(where)} has probability 0")
        return np.asarray(kept / total)

    def marginal(self, *names: str) -> Floats:
        """Return the joint law of some variables, axes in the order named."""
        axes = [self._axis(name) for name in names]
        others = tuple(axis for axis in range(self.probability.ndim) if axis not in axes)
        reduced = self.probability.sum(axis=others)
        remaining = sorted(axes)
        return np.asarray(np.transpose(reduced, [remaining.index(axis) for axis in axes]))

    def _axis(self, name: str) -> int:
        if name not in self.variables:
            raise InputError(f"variable {name!r} is not one of {list(self.variables)}")
        return self.variables.index(name)

    def sample(self, rng: Rng) -> tuple[str, ...]:
        """Return one random outcome, a value per variable."""
        flat = categorical(self.probability.ravel(), float(uniforms(1, rng)[0]))
        place = np.unravel_index(flat, self.probability.shape)
        return tuple(domain[int(i)] for domain, i in zip(self.domains, place, strict=True))

    def check_fact(self, fact: Any) -> None:
        """Refuse an event about a variable or a value the table does not have."""
        fact.holds(self)

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        from shoal.networks.exact import table_answers

        return table_answers(self, query, secrets)

    def lift(self, query: Query | None) -> EntryLift | str:
        from shoal.networks.entry_lift import table_lift

        return table_lift(self, query)

    def written_out(self) -> JointTable:
        return self

    def admit(self, records: Sequences) -> None:
        admit_variables(records, self.variables, self.domains, "table")

    def describe(self) -> str:
        return f"a given joint law of {len(self.variables)} variables"


def admit_variables(
    records: Sequences,
    variables: tuple[str, ...],
    domains: tuple[tuple[str, ...], ...],
    what: str = "model",
) -> None:
    """Refuse data that is not exactly one value of its own domain for each variable, in order."""
    if records.longest != len(variables) or len(records.chains) != 1:
        raise DataError(
            f"the {what} is about {len(variables)} variables; "
            "the data must hold exactly one value for each, in order"
        )
    for name, domain, value in zip(variables, domains, records.chains[0].tolist(), strict=True):
        if records.states[value] not in domain:
            raise DataError(
                f"the data gives {name!r} a value that is not one of its own {list(domain)}"
            )


def normalised_table(
    law: Wide, variables: tuple[str, ...], domains: tuple[tuple[str, ...], ...]
) -> JointTable:
    """Return a joint law that is proportional to products of many numbers, as a table.

    Refused when some possible outcome has a probability below 2.2e-308: a table that has lost it
    would promise something about another law.
    """
    total = law.total()
    if not total.possible:
        raise InputError("no outcome is possible; some must be positive together")
    probability = law.over(total)
    if not is_exact_in_doubles(probability, law.possible):
        raise TooUnlikely(
            f"some possible outcome has a probability below {LEAST_NORMAL:.2g}, which no "
            "table holds; "
            "keep the model as it is, or write out fewer variables"
        )
    return JointTable(variables=variables, domains=domains, probability=probability)
