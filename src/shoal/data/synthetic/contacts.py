"""A network of contacts: households that share everything, and friendships between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.value import Floats, Ints, locked
from shoal.data.synthetic.rhythm import at_least_one, generator

if TYPE_CHECKING:
    import polars as pl

FRIENDS = 4.0  # friendships per person, on average
_SIZES, _SHARES = (1, 2, 3, 4, 5), (0.3, 0.32, 0.15, 0.15, 0.08)  # of households


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContactNetwork:
    """People, the households they live in, and who meets whom.

    `household[i]` numbers the household of person i. `edges` holds each contact once, the smaller
    index first; `kinds[j]` is "household" or "friend".
    """

    people: tuple[str, ...]
    household: Ints
    edges: Ints
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "household", locked(self.household, np.int64))
        object.__setattr__(self, "edges", locked(self.edges, np.int64))

    def named_edges(self) -> tuple[tuple[str, str], ...]:
        """Each contact as a pair of names."""
        return tuple((self.people[a], self.people[b]) for a, b in self.edges.tolist())

    def table(self) -> pl.DataFrame:
        """Columns person_a, person_b and kind."""
        import polars as pl

        pairs = self.named_edges()
        return pl.DataFrame(
            {
                "person_a": [a for a, _ in pairs],
                "person_b": [b for _, b in pairs],
                "kind": list(self.kinds),
            },
            schema={"person_a": pl.String, "person_b": pl.String, "kind": pl.String},
        )


def contact_network(people: int = 60, seed: int = 1) -> ContactNetwork:
    """Households of one to five who all meet, and friendships that fall off with distance.

    A few people have many friends: popularity is drawn from a heavy-tailed law.
    """
    at_least_one(people=people)
    draw = generator(seed, 0)
    household = _households(people, draw)
    homes = draw.uniform(0, 1, (int(household[-1]) + 1, 2))[household]
    together = household[:, None] == household[None, :]
    friends = draw.random((people, people)) < _closeness(homes, draw)
    pairs = np.argwhere(np.triu(together | friends, k=1))
    kinds = tuple("household" if together[a, b] else "friend" for a, b in pairs.tolist())
    return ContactNetwork(
        people=tuple(f"p{i + 1:0{len(str(people))}d}" for i in range(people)),
        household=household,
        edges=pairs.reshape(-1, 2),
        kinds=kinds,
    )


def _households(people: int, draw: np.random.Generator) -> Ints:
    """The household of each person, numbered in order."""
    sizes = draw.choice(_SIZES, size=people, p=_SHARES)
    return np.repeat(np.arange(people), sizes)[:people]


def _closeness(homes: Floats, draw: np.random.Generator) -> Floats:
    """The chance that two people are friends, scaled to `FRIENDS` each on average."""
    popular = draw.pareto(2.5, len(homes)) + 1
    distance = np.linalg.norm(homes[:, None, :] - homes[None, :, :], axis=2)
    weight = np.outer(popular, popular) * np.exp(-distance / 0.15)
    np.fill_diagonal(weight, 0)
    total = float(weight.sum())
    return np.asarray(np.minimum(weight * (FRIENDS * len(homes) / max(total, 1e-300)), 0.9))
