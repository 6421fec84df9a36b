"""Policies in words, such as "exact unless within 500 m of home; there among the 2 km around".

The words are clauses, parted by ";", each about one part of a map:

exact unless within 500 m of home; there among the 1 km around
exact unless in the hospital; there among the hospital
hide which restaurant within 1 km
everywhere among the 1 km around

"among the 2 km around" joins every two states whose centres lie within 2 km of the place named
(or, everywhere, of each other); "among the hospital" joins all states of that zone; "hide which
restaurant within 1 km" joins the states of two restaurants that lie within 1 km of each other.
States that no clause joins are expressed as exactly as a policy can: in pairs of neighbours, each
hidden among the two. Places are points (latitude, longitude), zones of a map, lists of states, or
a GeoJSON MultiPoint: each of its points is then a place of its own. So that noise meant for one
part does not reach all others, plan with `location-graph-exponential`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import InputError
from shoal.core.records import shown_names
from shoal.core.task import Model
from shoal.places.formats import centres_of, on_map, points_of, zone
from shoal.places.points import edges_of_points, metres_of
from shoal.places.policy import NO_EDGES, PolicyGraph, Repair
from shoal.places.queries import coordinates
from shoal.places.walk import SparseChain

LENGTH = r"(?P<{0}>[0-9]+(?:\.[0-9]+)?)\s*(?P<{0}_unit>km|m)\b"
NEAR_COORDINATES = re.compile(
    r"(?:exact\s+)?unless\s+within\s+" + LENGTH.format("near") + r"\s+of\s+(?P<place>\S.*)", re.I
)
WITHIN = re.compile(r"within\s+" + LENGTH.format("near") + r"\s+of\s+(?P<place>\S.*)", re.I)
INSIDE = re.compile(r"(?:exact\s+)?unless\s+(?:in|at)\s+(?:the\s+)?(?P<place>\S.*)", re.I)
AROUND = re.compile(r"there\s+among\s+the\s+" + LENGTH.format("wide") + r"\s+around", re.I)
AMONG = re.compile(r"there\s+among\s+(?:the\s+)?(?P<zone>\S.*)", re.I)
WHICH = re.compile(
    r"hide\s+which\s+(?P<place>\S.*?)(?:\s+within\s+" + LENGTH.format("near") + r")?", re.I
)
EVERYWHERE = re.compile(r"everywhere\s+among\s+the\s+" + LENGTH.format("wide") + r"\s+around", re.I)
FORMS = (
    "'exact unless within 500 m of home; there among the 2 km around', 'exact unless in the "
    "hospital; there among the hospital', 'hide which restaurant within 1 km', or 'everywhere "
    "among the 1 km around'"
)


def policy_in_words(
    model: Model,
    words: str,
    places: Mapping[str, Any] | None = None,
    *,
    repair: Repair = "nearest",
) -> PolicyGraph:
    """The policy that `words` describe on a model with a map; `places` says where the names are."""
    chain, known = on_map(model), {name.lower(): at for name, at in (places or {}).items()}
    graph = PolicyGraph.of(chain.states, [], repair=repair)
    clauses = [part.strip(" .") for part in re.split(r"[;\n]", words) if part.strip(" .")]
    if not clauses:
        raise InputError(f"the policy has no words; write {FORMS}")
    title, further = "; ".join(clauses), [NO_EDGES]
    while clauses:
        clause = clauses.pop(0)
        everywhere = EVERYWHERE.fullmatch(clause)
        if everywhere:
            wide = _km(everywhere, "wide")
            graph = graph | PolicyGraph.within(coordinates(chain), wide, repair=repair)
            continue
        which = WHICH.fullmatch(clause)
        if which:
            further.append(_which(chain, which, known))
            continue
        if not clauses:
            raise InputError(f"the policy says {clause!r}, and not among what; write {FORMS}")
        parts = list(_parse_joins(chain, clause, clauses.pop(0), known))
        if len(parts) == 1:
            graph = graph | PolicyGraph.categories(chain.states, parts, repair=repair)
        else:  # places near each other share states, and a state is in one group at most
            further += [edges_of_points(_numbers(chain, part), NO_EDGES, None) for part in parts]
    graph = replace(graph, edges=np.concatenate([graph.edges, *further]))
    pairs = _pairs(coordinates(chain).points, graph.alone(np.ones(graph.size, dtype=np.bool_)))
    return replace(graph, edges=np.concatenate([graph.edges, pairs]), title=title)


def states_in_words(
    model: Model, names: Sequence[str], places: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """The states that names stand for: states, places, or what lies "within 300 m of" a place.

    A place that is a point stands for the state that covers it.
    """
    known = {name.lower(): at for name, at in (places or {}).items()}
    found: list[str] = []
    for name in names:
        near = WITHIN.fullmatch(name.strip())
        if near is not None:
            chain = on_map(model)
            place = _named_place(near["place"], known)
            found += _states(chain, place, _km(near, "near"), near["place"])
        elif name.strip().lower() in known and name not in (model.states or ()):
            place = _named_place(name, known)
            named_states = not isinstance(place, Mapping) and isinstance(place[0], str)
            if named_states:
                found += _states(on_map(model), place, None, name)
            else:
                found += zone(model, place if isinstance(place, Mapping) else tuple(place))
        else:
            found.append(name)
    return tuple(dict.fromkeys(found))


def _pairs(points: Ints, alone: Ints) -> Ints:
    """Neighbours among the states left alone, two by two; an odd one joins the nearest."""
    left, found = alone.tolist(), list[tuple[int, int]]()
    while left:
        state = left.pop(0)
        others = np.array(left or [k for k in range(len(points)) if k != state], dtype=np.int64)
        if not len(others):
            break
        other = int(others[((points[others] - points[state]) ** 2).sum(axis=1).argmin()])
        found.append((state, other))
        left = [each for each in left if each != other]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _parse_joins(
    chain: SparseChain, where: str, among: str, known: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    """Yield, for each place of the name, the states that "unless …; there among …" joins to each
    other.

    Refuses text in another form, and names that are not known.
    """
    near, inside = NEAR_COORDINATES.fullmatch(where), INSIDE.fullmatch(where)
    around, zoned = AROUND.fullmatch(among), AMONG.fullmatch(among)
    named = near or inside
    if named is None or (around is None and zoned is None):
        raise InputError(f"the policy says {where!r}, then {among!r}; write {FORMS}")
    for place in _each(_named_place(named["place"], known)):
        own = _states(chain, place, _km(near, "near") if near else None, named["place"])
        if around is None:
            assert zoned is not None
            wide = _states(chain, _named_place(zoned["zone"], known), None, zoned["zone"])
        else:
            point = not isinstance(place, Mapping) and not isinstance(place[0], str)
            wide = _states(chain, place if point else own, _km(around, "wide"), named["place"])
        yield tuple(dict.fromkeys((*own, *wide)))


def _each(place: Any) -> list[Any]:
    """The points of a MultiPoint one by one; any other place by itself."""
    points = points_of(place) if isinstance(place, Mapping) else None
    return [place] if points is None else list(points)


def _which(chain: SparseChain, words: Any, known: Mapping[str, Any]) -> Ints:
    """The edges of "hide which …": between the states of a place, as near as the words say.

    Distances are those of the points, where the place is points, else those of states' centres.
    """
    place = _named_place(words["place"], known)
    near = Fraction(words["near"]) if words["near"] else None
    if near is not None and words["near_unit"].lower() == "m":
        near /= 1000
    points = points_of(place) if isinstance(place, Mapping) else None
    if points is None and not isinstance(place, Mapping) and not isinstance(place[0], str):
        points = [place]
    if points is None:
        cells = _numbers(chain, _states(chain, place, None, words["place"]))
        return edges_of_points(cells, metres_of(chain, *centres_of(chain)[cells].T), near)
    cells = np.concatenate([_numbers(chain, zone(chain, tuple(point))) for point in points])
    return edges_of_points(cells, metres_of(chain, *np.array(points).T), near)


def _numbers(chain: SparseChain, names: Sequence[str]) -> Ints:
    """The numbers of states by name, ascending."""
    return np.flatnonzero(np.isin(chain.states, names))


def _states(chain: Any, place: Any, radius_km: float | None, name: str) -> tuple[str, ...]:
    """The states of a place, or all that lie within the radius of the nearest of them, in km."""
    if isinstance(place, Mapping):
        if radius_km is None or points_of(place) is not None:
            return zone(chain, place, radius_km=radius_km)
        place = zone(chain, place)  # near an area is near one of its states
    if place and not isinstance(place[0], str):
        if radius_km is None:
            raise InputError(f"{name!r} is a point; say how near, as in 'within 500 m of {name}'")
        return zone(chain, tuple(place), radius_km=radius_km)
    own = tuple(map(str, place))
    unknown = sorted(set(own) - set(chain.states))
    if unknown or not own:
        raise InputError(f"{name!r} names states the model does not have, such as {unknown[:1]}")
    if radius_km is None:
        return own
    values, index = coordinates(chain).values, {name: k for k, name in enumerate(chain.states)}
    inside = values[[index[name] for name in own]]
    away = np.sqrt(((values[:, None, :] - inside[None]) ** 2).sum(axis=2)).min(axis=1)
    return tuple(n for n, km in zip(chain.states, away, strict=True) if km <= radius_km)


def _named_place(name: str, known: Mapping[str, Any]) -> Any:
    """Return where a named place is; refuse a name that `known` does not hold.

    Case and surrounding blanks do not count; the keys of `known` are in lower case.
    """
    found = known.get(name.strip().lower())
    if found is None:
        alike = get_close_matches(name.strip().lower(), known, n=1)
        hint = f"did you mean {alike[0]!r}? " if alike else ""
        shown = shown_names(sorted(map(repr, known))) if known else "none"
        raise InputError(
            f"the spec or policy names {name.strip()!r}; {hint}say where it is in places (names "
            f"given: {shown})"
        )
    return found


def _km(found: Any, part: str) -> float:
    value = float(found[part])
    return value if found[f"{part}_unit"].lower() == "km" else value / 1000
