"""The friend model: friends' values are the likelier the closer they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.value import Floats, Ints, Value
from shoal.models.chain import numbers
from shoal.models.dependence import Dependence
from shoal.models.dependence_domain import RecordDomain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FriendModel(Value):
    """P(D_j = y | D_i = x) ∝ (‖x - y‖₁ + b)^(-c), b > 0, c ≥ 0: Eq. (26), normalised.

    As printed, with a constant a in front, it is no law; over a given set of values the sum over y
    decides a, so a is not a parameter here (`front` gives it). c = 0 is independence.
    Liu, Chakraborty & Mittal 2016, Eq. (26), after Backstrom, Sun & Marlow 2010, whose constants
    for miles are b = .196 and c = 1.05.
    """

    b: float = 0.196
    c: float = 1.05

    def __post_init__(self) -> None:
        if not (math.isfinite(self.b) and self.b > 0):
            raise InputError(f"b is {self.b}; it must be greater than 0")
        if not (math.isfinite(self.c) and self.c >= 0):
            raise InputError(f"c is {self.c}; it must be 0 or greater")

    def potential(self, domain: RecordDomain) -> Floats:
        """(‖x - y‖₁ + b)^(-c) between the centres of all cells, scaled to at most 1.

        On cells this is a law of cells, not Eq. (26) on the continuum between them.
        """
        centres = domain.centres
        apart = np.abs(centres[:, None, :] - centres[None, :, :]).sum(axis=2)
        return np.asarray((apart / self.b + 1.0) ** -self.c)

    def pair_law(self, domain: RecordDomain) -> Floats:
        """The joint law of two friends, proportional to the potential.

        Its two conditionals are Eq. (26), normalised, in both directions, and every tie gives a
        record the same law, so that ties agree with each other.
        """
        potential = self.potential(domain)
        return np.asarray(potential / potential.sum())

    def front(self, domain: RecordDomain) -> Floats:
        """a for each value x of the friend: 1 / Σ_y (‖x - y‖₁ + b)^(-c)."""
        return np.asarray(self.b**self.c / self.potential(domain).sum(axis=1))

    def ties(self, domain: RecordDomain, records: int, edges: npt.ArrayLike) -> Dependence:
        """The pairwise model in which every edge of a graph of friends follows this law."""
        return Dependence.of(domain, records, edges, self.pair_law(domain))


def fit_friends(
    domain: RecordDomain, values: npt.ArrayLike, edges: npt.ArrayLike, *, least: float = 1e-4
) -> FriendModel:
    """The b and c under which the friends of `edges` are likeliest, given each other's values.

    Maximises Σ over edges of log P(D_j = y | D_i = x) + log P(D_i = x | D_j = y) with the cells of
    `values`; b is kept at `least` or above. The data decides the model here: fit on public data,
    or on data whose owner accepts that the model becomes public.
    """
    from scipy.optimize import minimize

    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        raise InputError("edges is empty; a friend model needs at least one pair of friends")
    cells = domain.cell_of(values)
    seen = np.zeros((domain.size, domain.size))
    np.add.at(seen, (cells[pairs[:, 0]], cells[pairs[:, 1]]), 1.0)
    seen = seen + seen.T

    def badness(parameters: Any) -> float:
        b, c = math.exp(parameters[0]), math.exp(parameters[1])
        potential = np.log(FriendModel(b=b, c=c).potential(domain))
        normal = np.log(np.exp(potential).sum(axis=1))
        return -float((seen * potential).sum() - seen.sum(axis=1) @ normal)

    spread = domain.diameter or 1.0
    bounds = [(math.log(least), math.log(100 * spread)), (math.log(1e-3), math.log(50.0))]
    starts = [(math.log(share * spread), 0.0) for share in (0.02, 0.2)]
    found = [minimize(badness, start, bounds=bounds, method="L-BFGS-B") for start in starts]
    best = min(found, key=lambda result: float(result.fun))
    return FriendModel(b=math.exp(best.x[0]), c=math.exp(best.x[1]))


def affinity_ties(profiles: npt.ArrayLike, *, least: float = 0.8, most: int = 5_000_000) -> Ints:
    """Pairs of records whose profiles have a cosine similarity above `least`, (count, 2).

    The paper prints |p_i·p_j| / (‖p_i‖₁ ‖p_j‖₁), which is at most 1 only for profiles with a
    single entry: two equal profiles of m ones score 1/m. The cosine is what it means. Liu et al.
    2016, Section VII-B. Refuses more than `most` pairs.
    """
    rows = numbers(profiles, "profiles")
    if rows.ndim != 2:
        raise InputError(f"profiles has shape {rows.shape}; it must have a row per record")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    found, total = [], 0
    for start in range(0, len(unit), 1024):
        close = unit[start : start + 1024] @ unit[start:].T > least
        one, two = np.nonzero(close)
        keep = two > one
        total += int(keep.sum())
        if total > most:
            raise InputError(
                f"more than {most} pairs of profiles are that similar; raise least, now {least}"
            )
        found.append(np.stack([one[keep] + start, two[keep] + start], axis=1))
    return np.concatenate(found) if found else np.zeros((0, 2), np.int64)
