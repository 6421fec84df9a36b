"""How far a stream of places changes the odds between two places, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.mechanisms.location_stage import Places, Stage, policy_of
from shoal.secrets.location import LocationSet


class Joined(NamedTuple):
    """The pairs a step's promise is about: `edges`, and all pairs inside a group (-1: none)."""

    stage: Stage
    edges: Ints
    groups: Ints


class OddsOverTime(NamedTuple):
    """The largest change of log-odds at each step: between joined states, and between any two.

    `pairs` are the joined states whose odds changed most, first the one that gained; the same
    state twice where nothing changed. inf: one of two is ruled out.
    """

    joined: Floats
    any_two: Floats
    pairs: Ints


def joined_at(places: Places, stage: Stage, last: Joined | None) -> Joined:
    """Whom a stage joins: the policy among its members, and the edges its repair added.

    With a complete graph, or a location set that protects `everywhere`, states outside the set are
    covered as well, by those that answer for them. Steps of one stage share what was found.
    """
    if last is not None and last.stage is stage:
        return last
    policy = policy_of(places)
    wide = isinstance(places, LocationSet) and (places.everywhere or policy.is_complete)
    members = np.ones(policy.size, dtype=np.bool_) if wide else stage.members
    edges = policy.edges[members[policy.edges].all(axis=1)]
    added = np.asarray(stage.protected.added, dtype=np.int64).reshape(-1, 2)
    # in columns, which are what is read
    pairs = np.asfortranarray(np.concatenate([edges, added]))
    return Joined(stage, pairs, np.where(members, policy.groups, -1))


def odds_of(before: Floats, after: Floats, joined: Sequence[Joined]) -> OddsOverTime:
    """max of |log a(x)/a(y) - log b(x)/b(y)| at each step, b = before and a = after, log-laws.

    Over states that were possible before; what was impossible has no odds to change.
    """
    steps = len(before)
    near, far, pairs = np.zeros(steps), np.zeros(steps), np.zeros((steps, 2), dtype=np.int64)
    for t in range(steps):
        gain = _gain(before[t], after[t])
        near[t], pairs[t] = _widest_joined(gain, joined[t])
        far[t] = _gap(np.nanmax(gain), np.nanmin(gain))
    return OddsOverTime(near, far, pairs)


def odds_for(
    before: Floats, after: Floats, joined: Sequence[Joined], truth: Sequence[int | None]
) -> OddsOverTime:
    """The same for the pairs that hold the true state: how far it was told from others.

    nan, and a pair of -1, at steps whose truth is not known or was impossible before.
    """
    steps = len(before)
    near, far = np.full(steps, np.nan), np.full(steps, np.nan)
    pairs = np.full((steps, 2), -1, dtype=np.int64)
    for t, place in enumerate(truth):
        if place is None or before[t, place] == -math.inf:
            continue
        gaps = _gaps(_gain(before[t], after[t]), np.int64(place), np.arange(before.shape[1]))
        far[t] = gaps.max()
        partners = _partners(joined[t], place)
        most = int(partners[gaps[partners].argmax()]) if len(partners) else place
        near[t], pairs[t] = gaps[most], (place, most)
    return OddsOverTime(near, far, pairs)


def _gain(before: Floats, after: Floats) -> Floats:
    """log a(x)/b(x) of every state; nan where b(x) = 0."""
    possible = before > -math.inf
    return np.where(possible, after - np.where(possible, before, 0.0), np.nan)


def _partners(joined: Joined, place: int) -> Ints:
    """The states joined to one."""
    first, second = joined.edges.T
    group = joined.groups[place]
    together = np.flatnonzero(joined.groups == group) if group >= 0 else np.zeros(0, np.int64)
    return np.concatenate([second[first == place], first[second == place], together])


def _widest_joined(gain: Floats, joined: Joined) -> tuple[float, Ints]:
    found, other = _over_edges(gain, joined.edges), _over_groups(gain, joined.groups)
    widest, pair = found if found[0] >= other[0] else other
    return widest, pair[::-1] if gain[pair[0]] < gain[pair[1]] else pair


def _over_edges(gain: Floats, edges: Ints) -> tuple[float, Ints]:
    """The widest gap over an edge, and the edge."""
    if not len(edges):
        return 0.0, np.zeros(2, dtype=np.int64)
    gaps = _gaps(gain, edges[:, 0], edges[:, 1])
    place = int(gaps.argmax())
    return float(gaps[place]), edges[place]


def _gaps(gain: Floats, first: Ints | np.int64, second: Ints) -> Floats:
    """|gain(x) - gain(y)| pair by pair; 0 when one was impossible or both are ruled out."""
    with np.errstate(invalid="ignore"):
        gaps = np.abs(gain[first] - gain[second])
    gaps[np.isnan(gaps)] = 0.0
    return np.asarray(gaps)


def _over_groups(gain: Floats, groups: Ints) -> tuple[float, Ints]:
    """The widest gap inside a group, and its ends."""
    inside = np.flatnonzero((groups >= 0) & ~np.isnan(gain))
    if not len(inside):
        return 0.0, np.zeros(2, dtype=np.int64)
    order = inside[np.lexsort((gain[inside], groups[inside]))]  # by group, then by gain
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    low, high = order[np.r_[0, cuts]], order[np.r_[cuts, len(order)] - 1]
    gaps = [_gap(top, bottom) for top, bottom in zip(gain[high], gain[low], strict=True)]
    place = int(np.argmax(gaps))
    return gaps[place], np.array([high[place], low[place]])


def _gap(high: float, low: float) -> float:
    return 0.0 if high == low else float(high - low)
