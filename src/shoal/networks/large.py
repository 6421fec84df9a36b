"""Sums over networks too large to convolve: laws from characteristic functions. Proof: large.md.

    φ_x(t) = E[ e^{itF} | X_v = x ]   for all variables v at once (`marginals`), at the roots of
    unity, and P(F = c | X_v = x) from them: an absolute error for every mass, made small where it
    would decide by weighing outcomes with e^{tilt·F} first.

Where tables would still be too large, variables nothing else depends on are left out of the sum:
what they would add lies in an interval of known length, and costs that length over the scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints
from shoal.core.progress import OutOfTime, doing, in_time, time_over
from shoal.core.task import ScaleFound
from shoal.core.walk import UNIT
from shoal.mechanisms.mixture import (
    NO_NOISE,
    TooLarge,
    evaluation_slack,
    smallest_scale,
    smooth_laws,
)
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import Elimination, plan_elimination
from shoal.networks.large_runs import LAW_OF_SUM, RUNS, SumRun, plan_runs, weight_unit
from shoal.networks.laws import NamedSum, contribution_steps
from shoal.networks.marginals import count_roundings, marginals, possible_values


@dataclass(frozen=True)
class LargeSumSettings:
    """How closely the laws of a sum over a large network are followed."""

    min_value_probability: float = 1e-250  # a less likely value has lost digits to underflow
    min_density: float = 1e-280  # a smaller density has lost digits to underflow
    complex_roundings: int = 8  # of a double in one complex product and one addition, at most
    relative_gap: float = 1e-5  # bounds of a loss this close are narrowed no further
    # over the typical weight: neighbouring tilts share likely sums
    tilts: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0)
    max_narrow_width: int = 48  # a sum of at most so many values is followed at all of them


LARGE_SUMS = LargeSumSettings()


NO_TAILS = (
    "the furthest any mass moves hangs on tails that are known up to an absolute error only in a "
    "network as large as this one; use exact"
)


class SumLaws(NamedTuple):
    """low[s, c] ≤ P(F = least + unit·c | secret s) ≤ high[s, c], F over the variables kept.

    `owner` is the variable each secret is about; the variables left out add between 0 and
    `left_out` lattice steps more, wherever 0 is.
    """

    low: Floats
    high: Floats
    owner: Ints
    names: tuple[str, ...]
    unit: int
    left_out: int

    def interval(self, steps: float) -> tuple[float, float]:
        """Return lower ≤ loss ≤ upper of noise of scale `steps`, over all outputs and secrets."""
        below, above = self.densities(steps)
        if not (below > LARGE_SUMS.min_density).all():
            return 0.0, math.inf
        lower, upper = self._by_variable(below, above), self._by_variable(above, below)
        count = self.low.shape[1]
        slack = evaluation_slack(
            (count - 1) * self.unit / steps, count, float(-np.log(below.min()))
        ) + self.left_out / steps * (1.0 + 4.0 * UNIT)
        return max(float(lower.max()) - slack, 0.0), float(upper.max()) + slack

    def widest(self, steps: float) -> tuple[int, int]:
        """Return the secret and the output whose bounds decide the loss: those of a density
        furthest apart, of the variable and at the output that tell most.
        """
        below, above = self.densities(steps)
        ratios = self._by_variable(above, below)
        variable, output = np.unravel_index(int(ratios.argmax()), ratios.shape)
        own = self.owner == np.unique(self.owner)[variable]
        with np.errstate(divide="ignore"):
            gap = np.where(own, np.log(above[:, output]) - np.log(below[:, output]), -math.inf)
        return int(gap.argmax()), int(output)

    def _by_variable(self, one: Floats, other: Floats) -> Floats:
        """log of the largest of `one` over the least of `other`, by variable and output."""
        first = np.flatnonzero(np.diff(self.owner, prepend=-1))
        with np.errstate(divide="ignore"):
            most = np.log(np.maximum.reduceat(one, first))
            return np.asarray(most - np.log(np.minimum.reduceat(other, first)))

    def densities(self, steps: float) -> tuple[Floats, Floats]:
        """Return bounds of f_s(u) at every value u of the sum."""
        positions: Floats = np.arange(self.low.shape[1], dtype=np.float64) * (self.unit / steps)
        return smooth_laws(self.low, positions), smooth_laws(self.high, positions)


class LargeSums:
    """The laws of a sum over a network, for every value of every variable as a secret."""

    def __init__(self, net: BayesNet, query: NamedSum) -> None:
        self._net, self._query = net, query

    @property
    def parts(self) -> tuple[TiltedSumLaws, ...]:
        return sum_laws(self._net, self._query)

    def least_scale(self, epsilon: float) -> ScaleFound:
        """Return the least scale whose upper bound is at most epsilon, the laws narrowed as
        needed.
        """
        known = [part.laws for part in self.parts]
        widest = max(laws.unit * (laws.low.shape[1] - 1) + laws.left_out for laws in known)
        upper = max(1.001 * widest / epsilon, 1 / NO_NOISE)
        while True:
            scale = smallest_scale(self._bound, epsilon, 1 / NO_NOISE, upper)
            if not self._narrow_at(min(scale, upper)):
                break
        return ScaleFound(
            scale,
            None,
            "so little noise shows masses of the sum that rounding hides in a network this large",
        )

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        """Return an upper bound of the loss at `scale`, narrowed until it is at most `enough` or
        stays.
        """
        while (found := self._bound(scale)) > enough and self._narrow_at(scale):
            pass
        return found

    def interval(self, scale: float) -> tuple[float, float]:
        """Return lower ≤ loss ≤ upper; what independent parts add makes the loss no larger.

        The lower end is that of the largest part alone, so it holds where there is one part only.
        """
        while self._narrow_at(scale):
            pass
        found = [part.laws.interval(scale) for part in self.parts]
        alone = len(self._net.parts) == 1
        return max(low for low, _ in found) if alone else 0.0, max(high for _, high in found)

    def _bound(self, scale: float) -> float:
        return max(part.laws.interval(scale)[1] for part in self.parts)

    def _narrow_at(self, scale: float) -> bool:
        """Return whether the laws that decide at this scale could be narrowed, and were."""
        return max(self.parts, key=lambda part: part.laws.interval(scale)[1]).narrow_at(scale)

    def floor(self, epsilon: float) -> float | None:
        return None

    def no_distance(self) -> str | None:
        return NO_TAILS

    def distance(self) -> float:
        return math.inf

    def ratio(self, decay: float) -> float:
        return math.inf


@lru_cache(maxsize=8)
def sum_laws(net: BayesNet, query: NamedSum) -> tuple[TiltedSumLaws, ...]:
    """Return the laws of the sum given each value of each variable, a component after the other.

    Refused where even with variables left out tables would be too large.
    """
    added = contribution_steps(query, net.variables, net.domains)
    if added[0].shape[1] > 1:
        raise TooLarge("laws of several sums at once are not followed in a network this large")
    weights = [np.asarray(rows[:, 0] - rows[:, 0].min()) for rows in added]
    runs = [run for part in net.parts for run in plan_runs(net, part, weights)]
    work = sum(run.work for run in runs)
    if work > RUNS.max_run_cells:
        raise TooLarge(
            f"the laws of a sum over {net.tied} tied variables take {work:.1g} numbers; at most "
            f"{RUNS.max_run_cells:.0e} are tried: use group, or a coarser model"
        )
    return tuple(TiltedSumLaws(net, run, weights) for run in runs)


# The laws of one run.


class TiltedSumLaws:
    """The laws of one run, narrowed as far as the scales asked about need it.

    A tilt is a factor e^{tilt·F} on every outcome: masses far out, too small to be distinguished
    from rounding, are large under a tilt towards them (large.md, Claim 6). Bounds only ever narrow.
    """

    def __init__(self, net: BayesNet, run: SumRun, weights: list[Ints]) -> None:
        """Plan the elimination of one run, and bound its laws without a tilt."""
        scopes = tuple((*net.above[v], v) for v in run.kept)
        self._chosen = plan_elimination(scopes, net.sizes, (), run.order.order)
        self._tables = [net.tables[v] for v in run.kept]
        self._asked = [run.kept.index(v) for v in run.asked]
        unit = weight_unit(weights, run.kept)
        self._codes = [weights[v] // unit for v in run.kept]
        self._width = 1 + sum(int(code.max()) for code in self._codes)
        self._roundings = count_roundings(self._chosen, self._tables, net.sizes)
        prior = marginals(self._chosen, self._tables)
        self._known = _secret_values(self._chosen, self._tables, [np.asarray(one) for one in prior])
        self._log_prior: Floats = np.log(self._rows(prior))
        self._moments: dict[float, Floats | None] = {0.0: np.zeros(len(self._log_prior))}
        self._tilts_used: set[float] = set()
        named = [
            (run.kept[p], value) for p in self._asked for value in np.flatnonzero(self._known[p])
        ]
        nothing = np.zeros((len(named), self._width))
        self.laws = SumLaws(
            nothing,
            nothing + 1.0,
            np.array([v for v, _ in named]),
            tuple(f"{net.variables[v]} = {net.domains[v][value]}" for v, value in named),
            unit,
            run.left_out,
        )
        self._narrow_by_tilt(0.0)

    def narrow_at(self, steps: float) -> bool:
        """Return whether a tilt narrows the bounds that decide at the scale `steps`; if so, it
        does.

        Looked for where the bounds of some density are furthest apart, for the mass that is
        responsible: the tilt under which it is likeliest.
        """
        lower, upper = self.laws._replace(left_out=0).interval(steps)
        if upper - lower <= LARGE_SUMS.relative_gap * upper or time_over():
            return False
        row, output = self.laws.widest(steps)
        away = np.abs(np.arange(self._width) - output) * (self.laws.unit / steps)
        with np.errstate(divide="ignore"):
            hidden = np.log(self.laws.high[row] - self.laws.low[row]) - away
        mass = int(hidden.argmax())
        try:
            tilt = min(self._usable_tilts(), key=lambda tilt: self._moment(tilt)[row] - tilt * mass)
            if tilt in self._tilts_used:
                return False
            self._narrow_by_tilt(tilt)
        except OutOfTime:
            return False
        return True

    def _narrow_by_tilt(self, tilt: float) -> None:
        """Narrow the bounds by the laws under a tilt."""
        first, count, error = self._window(tilt)
        rows = np.empty((len(self._log_prior), count // 2 + 1), dtype=complex)
        tables = [
            self._tilted_table(table, tilt, code) for table, code in self._tables_with_codes()
        ]
        total = self._rows(marginals(self._chosen, tables, wanted=self._asked))
        roots = np.exp(2j * math.pi / count * np.arange(count))
        for frequency in range(rows.shape[1]):
            doing(LAW_OF_SUM, frequency, rows.shape[1])
            turned = [
                table * roots[code * frequency % count]
                for table, code in zip(tables, self._codes, strict=True)
            ]
            found = marginals(self._chosen, turned, wanted=self._asked)
            rows[:, frequency] = self._rows(found) / total
        masses = np.zeros(self.laws.low.shape)
        places = np.arange(first, first + count)
        masses[:, places] = _masses_from_frequencies(rows, count)[:, places % count]
        self._tilts_used.add(tilt)
        self._narrow(tilt, masses, error)

    def _narrow(self, tilt: float, masses: Floats, error: float) -> None:
        """Narrow the bounds by masses under a tilt, each with this error, and by known moments."""
        low, high = self.laws.low, self.laws.high
        values = np.arange(self._width)
        least, most = self._untilted_bounds(tilt, values, error)
        low = np.maximum(low, np.maximum(masses - error, 0.0) * least)
        high = np.minimum(high, (masses + error) * most)
        for other, moment in self._moments.items():
            if moment is not None:
                high = np.minimum(high, self._untilted_bounds(other, values, error)[1])
        self.laws = self.laws._replace(low=np.minimum(low, high), high=high)

    def _untilted_bounds(self, tilt: float, values: Ints, error: float) -> tuple[Floats, Floats]:
        """Return bounds of E[e^{tilt·F} | s] e^{-tilt·c}, what a mass under the tilt is divided
        by.
        """
        logs = self._moment(tilt)[:, None] - tilt * values
        slack = 4.0 * error + 8.0 * UNIT * (
            np.abs(self._moment(tilt))[:, None] + abs(tilt) * values
        )
        if tilt == 0.0:
            slack = np.zeros_like(logs)
        return np.exp(np.minimum(logs - slack, 600.0)), np.exp(np.minimum(logs + slack, 600.0))

    def _window(self, tilt: float) -> tuple[int, int, float]:
        """Return the first value, the count and the error of the values that hold nearly all mass.

        The error of a mass is what rounding hides, and as much again for what is elsewhere.
        """
        passed = self._roundings + 4 * len(self._tables) + abs(tilt) * self._width
        error = 2.0 * UNIT * (2 * LARGE_SUMS.complex_roundings * passed + 4 * (self._width + 16))
        if self._width <= LARGE_SUMS.max_narrow_width:
            return 0, self._width, error
        own, values = self._moment(tilt), np.arange(self._width)
        up, down = np.zeros(self._width), np.zeros(self._width)
        for other in self._usable_tilts():
            excess = (self._moment(other) - own).max() - (other - tilt) * values
            side = up if other > tilt else down
            np.minimum(side, excess, out=side)
        enough = math.log(error / 4.0)
        above, below = np.flatnonzero(up <= enough), np.flatnonzero(down <= enough)
        first = int(below.max(initial=-1)) + 1
        last = int(above.min(initial=self._width))
        return first, last - first, 2.0 * error

    def _usable_tilts(self) -> list[float]:
        """Return some tilts under which every secret is likely enough to be followed."""
        size = math.sqrt(float(np.mean([int(code.max()) ** 2 for code in self._codes]))) or 1.0
        tilts = [sign * tilt / size for tilt in LARGE_SUMS.tilts for sign in (1, -1)]
        return [0.0, *(tilt for tilt in tilts if self._moment_or_none(tilt) is not None)]

    def _moment(self, tilt: float) -> Floats:
        found = self._moment_or_none(tilt)
        assert found is not None  # only such tilts are asked about
        return found

    def _moment_or_none(self, tilt: float) -> Floats | None:
        """Return log E[e^{tilt·F} | s] for every secret s; None where some of it underflows."""
        if tilt not in self._moments:
            in_time(LAW_OF_SUM)
            tables = [
                self._tilted_table(table, tilt, code) for table, code in self._tables_with_codes()
            ]
            found = self._rows(marginals(self._chosen, tables, wanted=self._asked))
            most = (self._width - 1) * max(tilt, 0.0)
            kept = (found >= LARGE_SUMS.min_value_probability).all()
            self._moments[tilt] = np.log(found) + most - self._log_prior if kept else None
        return self._moments[tilt]

    def _tables_with_codes(self) -> Iterable[tuple[Floats, Ints]]:
        return zip(self._tables, self._codes, strict=True)

    def _tilted_table(self, table: Floats, tilt: float, code: Ints) -> Floats:
        """Return the table times e^{tilt·code}, over its largest: never more than the table."""
        factor: Floats = np.exp(tilt * code - max(tilt, 0.0) * int(code.max()))
        return np.asarray(table * factor, dtype=np.float64)

    def _rows(self, found: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([found[p][self._known[p]] for p in self._asked])


def _secret_values(
    chosen: Elimination, tables: Sequence[Floats], prior: Sequence[Floats]
) -> list[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return which values are secrets; refused where one is possible and too unlikely to follow."""
    known = [found >= LARGE_SUMS.min_value_probability for found in prior]
    if all(known_one.all() for known_one in known):
        return known
    possible = possible_values(chosen, tables)
    if any((one & ~two).any() for one, two in zip(possible, known, strict=True)):
        raise TooLarge(
            "some value of a variable has a probability below "
            f"{LARGE_SUMS.min_value_probability:.0e}, which is not followed in a network "
            "this large; leave such values out of the model"
        )
    return possible


def _masses_from_frequencies(rows: npt.NDArray[np.complex128], width: int) -> Floats:
    """Return the law whose characteristic function at the roots of unity is given, half of them."""
    turns = np.outer(np.arange(rows.shape[1]), np.arange(width)) % width
    angles = 2 * math.pi / width * turns
    twice = np.full(rows.shape[1], 2.0)  # with its conjugate, but for 0 and a half turn
    twice[0] = 1.0
    if width % 2 == 0:
        twice[-1] = 1.0
    masses = (rows.real * twice) @ np.cos(angles) + (rows.imag * twice) @ np.sin(angles)
    return np.asarray(np.maximum(masses / width, 0.0), dtype=np.float64)
