"""A whole step of a planar K-norm location stream in one compiled call; imports numba.

Words in, an output and what it says out: the parts are those of `location_step_kernels` and
`knorm_kernels`, and mean what they mean there. Whatever must be decided exactly, repaired or
formed in logarithms is handed back: the caller takes the step again, the plain way, with the same
words, and so arrives at the same output.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.diamond_kernels import diamond
from shoal.geometry.integers import POINT_LIMIT, VECTOR_LIMIT
from shoal.loss.location_kernels import likely
from shoal.loss.location_stage_kernels import stage_parts
from shoal.loss.location_step_kernels import TINY, absorbed, predict
from shoal.noise.knorm_kernels import ACCEPTED, REJECTED, UNDECIDED, plane_attempt

REACH = VECTOR_LIMIT - POINT_LIMIT  # outputs within it differ from any answer by what int64 decides
NOBODY = (np.int64(-1), 0.0)


@njit(cache=True)
def first_kept(
    words: Any, epsilon: float, shares: Any, outwards: Any, vertices: Any
) -> tuple[int, int, int]:
    """(verdict, x, y): the first attempt that is not rejected, three words each."""
    for start in range(0, len(words) - 2, 3):
        verdict, x, y = plane_attempt(words[start : start + 3], epsilon, shares, outwards, vertices)
        if verdict != REJECTED:
            return verdict, x, y
    return UNDECIDED, 0, 0


@njit(cache=True)
def released(prior: Any, stage: Any, body: Any, drawn: Any) -> Any:
    """(done, x, y, best, east, north, spread, degree, shown) of a state that answers.

    stage = (values, members, answers), body = (vertices, shares, outwards), drawn = (epsilon,
    place, words, single). Writes the belief after the output (x, y) to `single`. Not done, and the
    rest means nothing: no attempt was clearly kept, the output is out of reach, or beliefs
    underflow.
    """
    values, members, answers = stage
    vertices, shares, outwards = body
    epsilon, place, words, single = drawn
    verdict, x, y = first_kept(words, epsilon, shares, outwards, vertices)
    x += answers[place, 0]
    y += answers[place, 1]
    if verdict != ACCEPTED or max(abs(x), abs(y)) >= REACH:
        return False, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, (NOBODY, NOBODY, NOBODY)
    belief = np.empty(len(prior))
    total, best, east, north, spread, degree, shown = absorbed(
        prior, values, members, answers, vertices, epsilon, x, y, belief, single
    )
    return total >= TINY, x, y, best, east, north, spread, degree, shown


@njit(cache=True)
def step_at(
    belief: Any,
    pointers: Any,
    sources: Any,
    weights: Any,
    values: Any,
    members: Any,
    answers: Any,
    vertices: Any,
    shares: Any,
    outwards: Any,
    epsilon: float,
    place: int,
    words: Any,
    single: Any,
) -> Any:
    """A step whose stage is known: what `released` returns."""
    prior = predict(pointers, sources, weights, belief)
    stage, body = (values, members, answers), (vertices, shares, outwards)
    return released(prior, stage, body, (epsilon, place, words, single))


@njit(cache=True)
def step_among_likely(
    belief: Any,
    pointers: Any,
    sources: Any,
    weights: Any,
    values: Any,
    possible: Any,
    share: float,
    graph: Any,
    epsilon: float,
    place: int,
    words: Any,
    single: Any,
    added: Any,
) -> Any:
    """A step on a δ-location set, whose stage follows from the belief.

    (count, joined, repairs, loss, released): the size of the set, whether the policy joins any of
    it, how many edges the repair wrote to `added`, η, and what `released` returns. Not done either
    when the set or its stage must be found the plain way.
    """
    prior = predict(pointers, sources, weights, belief)
    clear, members = likely(prior, possible, share)
    count = 0
    for state in range(len(members)):
        count += members[state]
    parts = stage_parts(graph, members, epsilon)
    ready, vertices, _, _, edges, _, answers, joined, loss = parts
    for k in range(len(edges)):
        added[k, 0], added[k, 1] = edges[k, 0], edges[k, 1]
    if not (clear and ready):
        handed = False, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, (NOBODY, NOBODY, NOBODY)
        return count, False, 0, 0.0, handed
    shares, outwards = diamond(vertices)
    stage, body = (values, members, answers), (vertices, shares, outwards)
    done = released(prior, stage, body, (epsilon, place, words, single))
    return count, joined, len(edges), loss, done
