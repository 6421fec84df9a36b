"""What a transition matrix implies: stationary law, classes, reversibility, gap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.value import Floats
from shoal.core.wide import LEAST, TooUnlikely, held

REVERSIBLE_TOLERANCE = 1e-9  # relative: flows between rare states count as much as others
GAP_TOLERANCE = 1e-12  # eigenvalues closer to the unit circle than this count as on it


def communicating_classes(transition: Floats) -> tuple[tuple[int, ...], ...]:
    """The classes of states that reach each other, each sorted, in order of their first state."""
    from scipy.sparse.csgraph import connected_components

    _, names = connected_components(transition > 0, directed=True, connection="strong")
    groups: dict[int, list[int]] = {}
    for state, name in enumerate(names.tolist()):
        groups.setdefault(name, []).append(state)
    return tuple(tuple(group) for group in groups.values())


def recurrent_classes(transition: Floats) -> tuple[tuple[int, ...], ...]:
    """The communicating classes no chain leaves."""
    closed = []
    for group in communicating_classes(transition):
        inside = np.array(group)
        outside = np.setdiff1d(np.arange(len(transition)), inside)
        if not transition[np.ix_(inside, outside)].any():
            closed.append(group)
    return tuple(closed)


def stationary_law(transition: Floats) -> Floats:
    """The one law pi with pi P = pi; refused when there are several.

    Solved on the recurrent class without subtractions (Grassmann, Taksar & Heyman), so that small
    probabilities keep their relative accuracy. Transient states get exactly 0. Refused when a
    recurrent state is less likely than 2.2e-308: as a 0 it would count as impossible.
    """
    classes = recurrent_classes(transition)
    if len(classes) > 1:
        raise InputError(
            f"the chain has {len(classes)} separate recurrent classes, so its stationary law is "
            "not unique; give the initial law explicitly"
        )
    members = list(classes[0])
    law = np.zeros(len(transition))
    law[members] = _eliminated(transition[np.ix_(members, members)])
    if not held(law, np.isin(np.arange(len(law)), members)):
        raise TooUnlikely(
            f"the stationary law of a state is below {LEAST:.2g}, which no double holds; leave "
            "such states out, or give the initial law explicitly"
        )
    return law


def time_reversal(transition: Floats, law: Floats) -> Floats:
    """The law a step earlier, R(x, y) = law(y) P(y, x) / (law P)(x); rows of impossible x are 0."""
    joint = (law[:, None] * transition).T
    total = joint.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(joint, total, out=np.zeros_like(joint), where=total > 0))


def is_reversible(transition: Floats) -> bool:
    """Whether pi(x) P(x, y) = pi(y) P(y, x) in every recurrent class, within 1e-9 of either."""
    return all(_balanced(transition[np.ix_(g, g)]) for g in recurrent_classes(transition))


def spectral_gap(transition: Floats) -> float:
    """How fast the chain forgets: 2(1 - |λ2|) when reversible, else 1 - λ2 of P P*.

    λ2 is the second largest eigenvalue counted WITH multiplicity: a repeated eigenvalue 1 gives
    gap 0, "does not mix", and so do several recurrent classes. As printed (distinct eigenvalues
    only) the bound built on it is not private. Transient states are left out.
    Song, Wang & Chaudhuri 2017, Eq. (7) and (14), corrected. Rounds down.
    """
    classes = recurrent_classes(transition)
    if len(classes) > 1:
        return 0.0
    members = list(classes[0])
    within = transition[np.ix_(members, members)]
    if len(members) == 1:
        return 1.0
    law = _eliminated(within)
    if not (law >= LEAST).all():
        return 0.0  # some state is too unlikely for a double, so nothing is known of mixing
    root = np.sqrt(law)
    balanced = root[:, None] * within / root[None, :]
    # singular values: equal to |λ| when reversible, and sound when it is so only nearly
    second = float(np.linalg.svd(balanced, compute_uv=False)[1])
    gap = 2.0 * (1.0 - second) if _balanced(within) else 1.0 - second**2
    return float(gap) - GAP_TOLERANCE if gap > 2 * GAP_TOLERANCE else 0.0


def _balanced(transition: Floats) -> bool:
    flow = _eliminated(transition)[:, None] * transition
    return bool((np.abs(flow - flow.T) <= REVERSIBLE_TOLERANCE * np.maximum(flow, flow.T)).all())


def _eliminated(transition: Floats) -> Floats:
    """The stationary law of an irreducible matrix by state reduction, no subtraction."""
    work = np.array(transition, dtype=np.float64)
    size = len(work)
    law: npt.NDArray[np.float64] = np.ones(size)
    with np.errstate(all="ignore"):  # what no double holds comes out as 0, inf or nan
        for last in range(size - 1, 0, -1):
            work[:last, last] /= work[last, :last].sum()
            work[:last, :last] += np.outer(work[:last, last], work[last, :last])
        for state in range(1, size):
            law[state] = law[:state] @ work[:state, state]
        return np.asarray(law / law.sum())
