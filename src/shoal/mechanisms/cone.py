"""How far apart two laws can look through a function of bounded growth.

    Λ(p, p'; G) = sup log (Σ p_y v_y) / (Σ p'_y v_y)  over v > 0 with v_y ≤ e^{G(y,z)} v_z

is the heart of the lift: v is what a mechanism makes of the state, G how fast it may change.
Three rules, each an upper bound, in order of tightness and work:

* largest: G is replaced by its largest entry g. The best v is 1 or e^g, with e^g on a prefix of
  the states sorted by p_y/p'_y.
* caps: the optimum of ratio λ is large exactly on the prefix S = {p > λp'}. There v_y is at most
  e^{max_{z∉S} G(y,z)} times the least v off S; or, mirrored, v_z off S is at least
  e^{-max_{y∈S} G(y,z)} times the largest v on S; and λ is at most p_y/p'_y for y in S. Each prefix
  takes the smallest of its three bounds, and the answer is the largest over prefixes.
* cone: the linear program itself, solved on trees and certified by its dual (cone_tree); on few
  states by looking at every corner of the cone.

Proofs: shoal/mechanisms/lift.md. All results round up. 0/0 is no constraint, c/0 is infinite.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError

Indices = npt.NDArray[np.int16]
Rule = Literal["largest", "caps", "cone"]
RULES: tuple[Rule, ...] = ("largest", "caps", "cone")

FLOOR = 1e-100  # smaller probabilities count as FLOOR above the line and as 0 below it
CEILING = 200.0  # a larger entry of G counts as infinite
ROUND = 2.0**-52
MANY_ROWS = 64  # from when on compiled loops are quicker
# states up to which all corners of the cone are looked at: 128 trees, some 40 µs
STATES_BY_CORNERS = 4
BROKEN = 2.0**-44  # of the largest entry of G: a corner may break a constraint by its rounding
UNKNOWN = 32767  # in Laws.trees: no optimum remembered; also the largest number of states


class Optima:
    """The tree on which the cone rule last found each pair's optimum, as cone_tree codes it.

    The first search begins where those of `beside` ended.
    """

    def __init__(self, rows: int, columns: int, beside: Optima | None = None) -> None:
        self._shape, self._beside = (rows, rows, columns), beside

    @cached_property
    def trees(self) -> Indices:
        if self._beside is not None:
            return self._beside.trees.copy()
        return np.full(self._shape, UNKNOWN, dtype=np.int16)


Remembered = dict[int, Optima]  # by lag


class Memory(defaultdict[str, Remembered]):
    """The optima of one search, by side and lag.

    Where a search begins moves the last digits of what it certifies, so what is evaluated with a
    memory of its own depends on nothing that was asked before.
    """

    def __init__(self) -> None:
        super().__init__(dict)


@dataclass(frozen=True, eq=False)
class PairLaws:
    """The rows of a law (k×m), and what is known of every ordered pair of them.

    upper and lower bracket the probabilities; present marks the rows that may be compared. gained
    and held are Σ (p-p') and Σ p' over the states with p > p'. slack is what errors of the law add
    to a log-ratio. optima only remembers the last optimum of each pair: a bound never depends on it
    except through a certificate.
    """

    upper: Floats
    lower: Floats
    present: Bools
    gained: Floats
    held: Floats
    optima: Optima
    slack: float

    def remembering(self, optima: Remembered, lag: int) -> PairLaws:
        """The same laws with the optima of another search."""
        if lag not in optima:
            near = max((known for known in optima if known < lag), default=None)
            beside = None if near is None else optima[near]
            optima[lag] = Optima(len(self.upper), self.upper.shape[1], beside)
        return replace(self, optima=optima[lag])

    @property
    def rows(self) -> tuple[Floats, Floats, Bools, Floats, Floats]:
        return self.upper, self.lower, self.present, self.gained, self.held


def prepare(
    law: Floats,
    *,
    possible: Bools | None = None,
    unsure: Bools | None = None,
    error: float = 0.0,
) -> PairLaws:
    """The law's rows bracketed for `leak` and `tighten`.

    error bounds |log computed - log true| of every entry. possible marks the entries that are
    truly positive (default: those that are not 0): one that underflowed stays a possibility.
    Rows of zeros belong to impossible values, and rows marked unsure are not known well enough:
    both are compared with nothing.
    """
    possible = law > 0 if possible is None else possible
    tiny = possible & (law < FLOOR)
    # one layout for all laws: compiled loops are compiled for each of them
    upper = np.ascontiguousarray(np.where(tiny, FLOOR, np.where(possible, law, 0.0)))
    lower = np.where(tiny, 0.0, upper)
    present = np.asarray(upper.any(axis=1))
    if unsure is not None:
        present &= ~unsure
    gained, held = _gains(upper, lower)
    return PairLaws(upper, lower, present, gained, held, Optima(*upper.shape), 2.0 * error)


def _gains(upper: Floats, lower: Floats) -> tuple[Floats, Floats]:
    """`two_valued` of the rows of one law."""
    if len(upper) < MANY_ROWS:
        return two_valued(upper, lower)
    from shoal.mechanisms.cone_kernels import gain_pairs

    gained, held = np.empty((2, len(upper), len(lower)))
    gain_pairs(upper, lower, gained, held)
    return gained, held


def two_valued(upper: Floats, lower: Floats) -> tuple[Floats, Floats]:
    """Σ (p-p') and Σ p' over the states with p > p', for every pair of rows (last two axes)."""
    gained = np.empty((*upper.shape[:-1], lower.shape[-2]))
    held = np.empty_like(gained)
    for x in range(upper.shape[-2]):
        row = upper[..., x, None, :]
        gained[..., x, :] = np.maximum(row - lower, 0.0).sum(axis=-1)
        held[..., x, :] = np.where(row > lower, lower, 0.0).sum(axis=-1)
    return gained, held


def bearable_rule(transition: Floats, dense: int = 40) -> Rule:
    """The tightest rule that a chain of this size and density can be calibrated with in seconds.

    With c states possible after a state, two rows share up to 2c; a pair costs the cone rule
    about (2c)³ and the caps (2c)². So many states of which each may follow each go by the cone.
    """
    size = transition.shape[-1]
    shared = min(size, 2 * int((transition > 0).sum(axis=-1).max()))
    if size**2 * shared**3 <= dense**5:
        return "cone"
    return "caps" if size**2 * shared**2 <= 100**4 else "largest"


@dataclass(frozen=True, eq=False)
class Growth:
    """G (m×m, 0 on the diagonal, inf for no bound), with what every law it meets needs of it.

    Each part is computed when it is first asked for and kept.
    """

    matrix: Floats

    @cached_property
    def largest(self) -> float:
        return float(self.matrix.max())

    @cached_property
    def with_shortest_paths(self) -> Growth:
        """The shortest-path closure: the same cone, with the triangle inequality."""
        return Growth(closure(self.matrix))

    @cached_property
    def excess(self) -> Floats:
        """e^G - 1, with entries over CEILING replaced by the kernels' HUGE."""
        from shoal.mechanisms.cone_kernels import HUGE

        growth = self.matrix
        return np.where(growth > CEILING, HUGE, np.expm1(np.minimum(growth, CEILING)))

    @cached_property
    def rounding(self) -> float:
        """What sums of the kernels may be off by in a log-ratio."""
        size, most = len(self.excess), float(self.excess.max())
        return 4.0 * (size + 8) * ROUND * min(1.0, most)

    @cached_property
    def decay_and_fall(self) -> tuple[Floats, Floats]:
        """e^-G and 1 - e^-G."""
        return np.exp(-self.matrix), -np.expm1(-self.matrix)

    @cached_property
    def floor(self) -> float:
        """The least entry of e^G - 1 off the diagonal."""
        return least_off_diagonal(self.excess)

    @cached_property
    def weight(self) -> Floats:
        """e^G."""
        return 1.0 + self.excess

    @cached_property
    def corners(self) -> Floats:
        """The extreme rays of the cone on few states, one a row.

        On an extreme ray enough constraints are tight to link all states: v follows from a tree and
        a direction for each edge. Trees whose v breaks a constraint by more than rounding are none.
        """
        logs = _tree_paths(len(self.matrix)) @ closure(self.matrix).ravel()
        apart = logs[:, :, None] - logs[:, None, :] - self.matrix
        rays: Floats = np.exp(logs[(apart <= BROKEN * self.largest).all(axis=(1, 2))])
        return rays


def leak(laws: PairLaws, growth: Floats, rule: Rule) -> Floats:
    """Λ(row x, row x'; growth) for all ordered pairs, as a (k,k) matrix with diagonal 0.

    growth is G (m×m, 0 on the diagonal, inf for no bound). Rounds up; inf allowed.
    """
    best = np.full(laws.gained.shape, np.inf)
    np.fill_diagonal(best, 0.0)
    tighten(best, 0.0, laws, Growth(growth), rule)
    return best


def tighten(best: Floats, cost: float, laws: PairLaws, growth: Growth, rule: Rule) -> None:
    """best becomes min(best, cost + Λ(row x, row x'; growth)), in place.

    Pairs that cannot fall below best are given up early, which makes a second lag cheap.
    """
    if rule == "cone" and len(growth.matrix) <= STATES_BY_CORNERS and growth.largest <= CEILING:
        _lower_corners(best, cost, laws, growth)
        return
    from shoal.mechanisms import cone_kernels as kernels

    if rule == "largest":
        extra = laws.slack + growth.rounding
        kernels.lower_largest(best, cost, extra, laws.rows, growth.excess)
    elif rule == "caps":
        extra, error = laws.slack + growth.rounding, 0.5 * laws.slack + 2.0 * ROUND
        decay, fall = growth.decay_and_fall
        kernels.lower_caps(
            best, cost, extra, error, laws.rows, growth.excess, decay, fall, growth.floor
        )
    elif rule == "cone":
        _lower_cone(best, cost, laws, growth)
    else:
        raise InputError(f"rule is {rule!r}; it must be one of {', '.join(RULES)}")


def slopes(
    laws: PairLaws, growth: Floats, rule: Rule, wanted: Bools
) -> tuple[Floats, npt.NDArray[np.int32], Floats] | None:
    """Λ of the pairs wanted, not rounded, and what it hangs on, for a search: see cone_slopes.

    inf for the others. None where a search of the cone fails.
    """
    from shoal.mechanisms import cone_slopes as kernels

    rows, states = laws.upper.shape
    value, most = np.full((rows, rows), np.inf), 1 if rule == "largest" else states
    places = np.full((rows, rows, most), -1, dtype=np.int32)
    shares = np.zeros((rows, rows, most))
    found = value, places, shares
    if rule == "cone":
        weight = np.exp(closure(growth))
        failed = kernels.cone_slopes(laws.rows, weight, laws.optima.trees, wanted, *found)
        return None if failed else found
    excess = np.expm1(growth)
    if rule == "largest":
        kernels.largest_slopes(laws.rows, excess, wanted, *found)
    else:
        decay, fall = np.exp(-growth), -np.expm1(-growth)
        floor = least_off_diagonal(excess)
        kernels.caps_slopes(laws.rows, excess, decay, fall, floor, wanted, *found)
    return found


def _lower_cone(best: Floats, cost: float, laws: PairLaws, growth: Growth) -> None:
    """The cone rule; pairs whose certificate fails fall back on the caps."""
    from shoal.mechanisms.cone_tree import lower_cone

    closed, extra = growth.with_shortest_paths, laws.slack + growth.rounding
    trees = laws.optima.trees
    if lower_cone(best, cost, extra, laws.rows, closed.weight, trees, closed.floor):
        tighten(best, cost, laws, closed, "caps")


def _lower_corners(best: Floats, cost: float, laws: PairLaws, growth: Growth) -> None:
    """The cone rule on few states: the largest ratio over the corners, without compiled loops.

    A ratio of linear functions is largest on an extreme ray of the cone. Rounds up.
    """
    size, corners = len(growth.matrix), growth.corners
    shown, base = laws.upper @ corners.T, laws.lower @ corners.T
    with np.errstate(divide="ignore", invalid="ignore"):  # rows that are compared with nothing
        log_ratios = np.log((shown[:, None, :] / base[None, :, :]).max(axis=2))
    slack = laws.slack + (16.0 * (size + 4) + 4.0 * size**2 * growth.largest) * ROUND
    same = (laws.upper[:, None, :] == laws.lower[None, :, :]).all(axis=2)
    leaks = cost + np.where(same, 0.0, log_ratios + slack)
    compared = laws.present[:, None] & laws.present[None, :]
    best[compared] = np.minimum(best, leaks)[compared]


@cache
def _tree_paths(size: int) -> Floats:
    """log v of every tree with directed edges, as sums of entries of G: (trees, states, states²).

    Of a tree rooted in state 0, v_i = e^G(i,j) v_j or v_j = e^G(j,i) v_i along the edge from i to
    its parent j; v_0 = 1.
    """
    found = []
    for parents in product(range(size), repeat=size - 1):
        order = _from_root((-1, *parents))
        if len(order) < size:
            continue  # not a tree
        for rises in product((True, False), repeat=size - 1):
            paths = np.zeros((size, size, size))
            for i in order[1:]:
                j = parents[i - 1]
                paths[i] = paths[j]
                paths[i][(i, j) if rises[i - 1] else (j, i)] += 1.0 if rises[i - 1] else -1.0
            found.append(paths.reshape(size, -1))
    return np.array(found)


def _from_root(parents: tuple[int, ...]) -> list[int]:
    """The states that hang on state 0, parents before children."""
    order = [0]
    for state in order:
        order.extend(i for i, parent in enumerate(parents) if parent == state and i > 0)
    return order


def least_off_diagonal(matrix: Floats) -> float:
    """Smallest entry off the diagonal; 0 for a single state."""
    return float((matrix + np.diag(np.full(len(matrix), np.inf))).min()) if len(matrix) > 1 else 0.0


def closure(growth: Floats) -> Floats:
    """The shortest-path closure of G, rounded up: the same cone, with the triangle inequality."""
    closed = growth
    for middle in range(len(growth)):
        closed = np.minimum(closed, closed[:, middle, None] + closed[None, middle, :])
    return np.minimum(growth, closed * (1.0 + len(growth) * ROUND))


# Λ of the lift as a function of eta alone, independent of earlier evaluations.
#
# The cone rule searches from the optimum it found last. Where probabilities lie far apart a search
# may end without a certificate from one start and with one from another: every answer is a bound,
# but a plan must meet the same one when it is evaluated again.


BITS = 30  # of an eta at which the lift is evaluated
UP = 1.0 + 2.0**-50
MAX_CONE = 10_000_000  # rows² × states³ of a law that the cone rule can bear
MAX_CAPS = 300_000_000  # and rows² × states² for the caps
MAX_LED = 64  # states up to which a search is led from smaller etas to the one asked for


def round_up_eta(eta: float) -> float:
    """The least number of BITS bits that is no smaller than eta.

    What is eta-DP is so for any larger number too, and noise that was rounded up by a little is
    evaluated where it was searched for.
    """
    part, power = math.frexp(eta)
    return math.ldexp(math.ceil(math.ldexp(part, BITS)), power - BITS)


def steady_leak(laws: PairLaws, growth: Floats, rule: Rule | None = None) -> Floats:
    """Λ(row x, row x'; growth) for all ordered pairs, by the tightest bearable rule. Rounds up.

    With a memory of its own: each optimum is sought near that of a smaller growth, from a quarter
    of it on, because a search from nowhere fails more often.
    """
    fresh = replace(laws, optima=Optima(*laws.upper.shape))
    rule = rule or bearable(fresh)
    if rule == "cone" and laws.upper.shape[1] <= MAX_LED:
        for part in (0.25, 0.5, 0.75):
            leak(fresh, part * growth, rule)
    return leak(fresh, growth, rule)


def bearable(laws: PairLaws) -> Rule:
    """The tightest rule that all pairs of these rows can bear: m³ or m² work each for m states."""
    rows, states = laws.upper.shape
    if rows**2 * states**3 <= MAX_CONE:
        return "cone"
    return "caps" if rows**2 * states**2 <= MAX_CAPS else "largest"
