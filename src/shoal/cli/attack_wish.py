"""What `shoal attack` was asked for, and which of its options go with which plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shoal.cli.calendar import shows_contexts
from shoal.cli.release_places import asks_for_places
from shoal.cli.stream_location import follows_places
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.core.task import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackWish:
    """For streams of places: the columns of coordinates, and which steps of a track."""

    latitude: str | None = None
    longitude: str | None = None
    every: str | None = None
    start: str | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Whose data, which adversary, which noise, and how to show what was found.

    `model` is the adversary's model in the spec, `adversary` a stored one in its place.
    """

    who: str | None
    model: int
    adversary: Path | None
    scale: str | None
    friends: Path | None
    seed: int
    as_json: bool
    plot: Path | None
    track: TrackWish


def check_wish(plan: Plan, wish: Wish) -> None:
    """Refuses options that say nothing about this kind of plan."""
    from shoal.cli.attack_neighbours import has_ties

    places = follows_places(plan)
    if wish.friends is not None and not asks_for_places(plan):
        raise InputError("--friends is for a query of kind 'places'; drop it, or ask for places")
    if wish.track != TrackWish() and not places:
        raise InputError(
            "--lat, --lon, --every, --start and --steps are for streams of places, and "
            f"{plan.mechanism} is none; drop them"
        )
    if wish.scale is not None and (places or shows_contexts(plan)):
        raise InputError(
            f"--scale is for single releases, and {plan.mechanism} answers step by step; plan with "
            "another epsilon instead"
        )
    fixed = shows_contexts(plan) or asks_for_places(plan) or has_ties(plan, wish.model)
    if wish.adversary is not None and fixed:
        raise InputError(
            f"--adversary is for chains, networks and maps; to attack {plan.mechanism} name one of "
            "the spec's models with --model"
        )


def held_by(plan: Plan, wish: Wish) -> Model:
    """The model the adversary holds: a stored one, or one of the spec's."""
    if wish.adversary is None:
        return member(plan, wish.model)
    from shoal.spec.models import STORED
    from shoal.spec.network_sections import network_file
    from shoal.spec.stored import load_stored

    stored: Any = network_file(wish.adversary) or load_stored(wish.adversary, "--adversary")
    if not isinstance(stored, tuple(cls for several in STORED.values() for cls in several)):
        raise InputError(
            f"--adversary is {str(wish.adversary)!r}, which holds a {type(stored).__name__}; it "
            "must hold a model, as `shoal fit` stores one"
        )
    return cast("Model", stored)


def member(plan: Plan, index: int) -> Model:
    """One of the spec's models."""
    family = plan.task.family
    if not 0 <= index < len(family):
        raise InputError(f"--model is {index}; the spec has models 0 to {len(family) - 1}")
    return family[index]
