"""Series of states, cut at gaps into chains: what a file of observations becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from shoal.core.errors import DataError, InputError
from shoal.core.records import Sequences, label, sequences
from shoal.core.value import Ints, locked


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Several series (people, houses), each a tuple of chains of indices into `states`.

    A chain is a stretch without a gap. `states` are the labels that occur, sorted, unless given.
    Arrays are locked.
    """

    states: tuple[str, ...]
    names: tuple[str, ...]
    chains: tuple[tuple[Ints, ...], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.chains) or len(set(self.names)) < len(self.names):
            raise InputError(
                f"names holds {len(self.names)} names for {len(self.chains)} series; "
                "each series needs a name of its own"
            )
        if len(set(self.states)) < len(self.states):
            raise InputError(f"states is {list(self.states)}; each state needs its own name")
        chains = tuple(tuple(_private(chain) for chain in series) for series in self.chains)
        object.__setattr__(self, "chains", chains)
        flat = np.concatenate([np.empty(0, np.int64), *(c for series in chains for c in series)])
        if flat.size and not (flat.min() >= 0 and flat.max() < len(self.states)):
            raise InputError(f"a chain holds an index outside 0 … {len(self.states) - 1}")

    @classmethod
    def of(
        cls, series: Mapping[str, Sequence[Sequence[Any]]], states: Sequence[Any] | None = None
    ) -> Self:
        """A data set from labels: name of the series -> its chains."""
        texts = {
            str(name): [[label(item) for item in chain] for chain in chains]
            for name, chains in series.items()
        }
        found = {item for chains in texts.values() for chain in chains for item in chain}
        names = tuple(sorted(found)) if states is None else tuple(label(s) for s in states)
        _known(sorted(found), names)
        index = {state: i for i, state in enumerate(names)}
        coded = (
            tuple(locked([index[item] for item in chain], np.int64) for chain in chains)
            for chains in texts.values()
        )
        return cls(names, tuple(texts), tuple(coded))

    @property
    def total(self) -> int:
        """Entries of all series together."""
        return sum(len(chain) for series in self.chains for chain in series)

    @property
    def longest(self) -> int:
        """Entries of the longest chain: what correlation can tie together."""
        return max((len(chain) for series in self.chains for chain in series), default=0)

    def sequences(
        self, states: Sequence[str] | None = None, series: str | None = None
    ) -> Sequences:
        """The chains of one series, or of all together, as indices into `states`.

        A state that occurs in the chosen series and is not in `states` is refused.
        """
        chosen = self._chosen(series)
        if sum(map(len, chosen)) < 2:
            what = "the data" if series is None else f"series {series!r}"
            raise DataError(
                f"{what} holds {sum(map(len, chosen))} entries; at least 2 are needed: "
                "leave it out or collect more"
            )
        if states is None or tuple(states) == self.states:
            return Sequences(self.states, chosen)
        return Sequences(tuple(states), self._recoded(chosen, tuple(states)))

    def on(self, states: Sequence[str]) -> Dataset:
        """The same series as indices into `states`, in that order."""
        place = iter(self._recoded(self._chosen(None), tuple(states)))
        chains = tuple(tuple(next(place) for _ in series) for series in self.chains)
        return Dataset(tuple(states), self.names, chains)

    def describe(self) -> str:
        number = sum(map(len, self.chains))
        chains = "1 chain" if number == 1 else f"{number:,} chains"
        return (
            f"{len(self.names)} series, {self.total:,} entries in {chains} "
            f"(the longest has {self.longest:,}), {len(self.states)} states"
        )

    def _chosen(self, series: str | None) -> tuple[Ints, ...]:
        if series is None:
            return tuple(chain for chains in self.chains for chain in chains)
        if series not in self.names:
            shown = ", ".join(self.names[:8]) + (", …" if len(self.names) > 8 else "")
            raise InputError(f"series is {series!r}; it must be one of {shown}")
        return self.chains[self.names.index(series)]

    def _recoded(self, chains: tuple[Ints, ...], states: tuple[str, ...]) -> tuple[Ints, ...]:
        flat = np.concatenate(chains)
        occurring = np.flatnonzero(np.bincount(flat, minlength=len(self.states)))
        _known([self.states[i] for i in occurring], states)
        place = {state: i for i, state in enumerate(states)}
        table = np.array([place.get(state, -1) for state in self.states], dtype=np.int64)
        return cut(table[flat], np.cumsum([len(chain) for chain in chains])[:-1])


def cut(flat: Ints, starts: Ints) -> tuple[Ints, ...]:
    """`flat` as locked pieces, a new one at each of `starts`; one copy in memory, not many."""
    whole = locked(flat, np.int64)
    return tuple(np.split(whole, starts))


def _known(occurring: Sequence[str], states: tuple[str, ...]) -> None:
    """Refuse a state outside `states`, in the words every release uses."""
    unknown = set(occurring) - set(states)
    if unknown:
        sequences([min(unknown)] * 2, states)


def _private(chain: Ints) -> Ints:
    """`chain` itself when nobody can write to it, else a locked copy."""
    owner: Any = chain if chain.base is None else chain.base
    frozen = isinstance(owner, np.ndarray) and not owner.flags.writeable
    if frozen and not chain.flags.writeable and chain.dtype == np.int64 and chain.ndim == 1:
        return chain
    return locked(chain.ravel(), np.int64)
