"""A graph-exponential law made ready for many outputs of one stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shoal.core.rng import Rng
from shoal.core.value import Floats, Ints
from shoal.noise.graph_exponential import GraphExponential


class KeptGraphLaw:
    """The same law with its normalisers, and who is joined to whom, kept."""

    def __init__(self, law: GraphExponential) -> None:
        self.law = law
        self._logs = law.log_normalisers

    @property
    def points(self) -> Ints:
        """The answer of each state, in lattice units."""
        return self.law.points

    def draw(self, state: int, rng: Rng) -> tuple[int, ...]:
        """One output given the state, with exactly the stated law."""
        return self.law.draw(state, rng)

    def log_likelihood(self, output: Sequence[int]) -> Floats:
        """log q(output | s) of every state; -inf where no path leads to such an output."""
        law = self.law
        here = (law.points[law.nodes] == np.array(output)).all(axis=1) & (law.weights > 0)
        if not here.any():
            return np.full(len(law.place), -np.inf)
        # in logarithms: a state far away must not look impossible because e^-x underflows
        logs = np.log(law.weights[here]) - float(law.rate) * law.distances[:, here]
        return np.asarray((np.logaddexp.reduce(logs, axis=1) - self._logs)[law.place])

    def log_ratio(self, first: int, second: int) -> float:
        """An upper bound on sup over outputs of |log q(z|first) - log q(z|second)|."""
        return self.law.log_ratio(first, second)

    def expected_error(self, prior: Floats) -> float:
        """√E|z - f(s)|² of the raw output under the prior, in lattice units."""
        return self.law.expected_error(prior)

    def near(self, state: int, members: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """For each member whether it is the state itself or joined to it: those ε speaks about."""
        law = self.law
        row = law.distances[law.place[state]]
        return np.asarray(row[law.place[np.flatnonzero(members)]] <= 1)
