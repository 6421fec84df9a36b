"""`shoal attack`: what somebody who knows the model learns from a release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli.show import (
    AsJson,
    Column,
    DataPath,
    Every,
    Force,
    Gap,
    Latitude,
    Longitude,
    PlanSource,
    PlotPath,
    SecretsOf,
    Start,
    TimeLimit,
    check_chart,
    limited,
    new_app,
)
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
    from shoal.core.plan import Plan
    from shoal.core.task import Model, Secrets


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

    `model` is the adversary's model in the spec, `adversary` a stored one in its place; `secrets`
    are those of another spec, whose events are asked about.
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
    secrets: Secrets | None = None


class AttackView(NamedTuple):
    """How a family is attacked: what runs, and which of the options that not all take it takes."""

    run: Callable[[Plan, str, NamedColumns, Wish], None]
    takes: tuple[str, ...] = ()


def check_wish(plan: Plan, wish: Wish, takes: tuple[str, ...]) -> None:
    """Refuses options that say nothing about this kind of plan."""
    if wish.friends is not None and "friends" not in takes:
        raise InputError("--friends is for a query of kind 'places'; drop it, or ask for places")
    if wish.track != TrackWish() and "track" not in takes:
        raise InputError(
            "--lat, --lon, --every, --start and --steps are for streams of places, and "
            f"{plan.mechanism} is none; drop them"
        )
    if wish.scale is not None and "scale" not in takes:
        raise InputError(
            f"--scale is for single releases, and {plan.mechanism} answers step by step; plan with "
            "another epsilon instead"
        )
    if wish.secrets is not None and "secrets" not in takes:
        raise InputError(
            f"--secrets asks about events over time, and {plan.mechanism} is about something else; "
            "drop it"
        )
    if wish.adversary is not None and "adversary" not in takes:
        raise InputError(
            f"--adversary is for chains, networks and maps; to attack {plan.mechanism} name one of "
            "the spec's models with --model"
        )


def held_by(plan: Plan, wish: Wish) -> Model:
    """The model the adversary holds: a stored one, or one of the spec's."""
    if wish.adversary is None:
        return member(plan, wish.model)
    from shoal.spec.document import check_model
    from shoal.spec.fields import load_model

    stored: Model = load_model(wish.adversary, "--adversary")
    check_model(stored, f"--adversary is {str(wish.adversary)!r}")
    return stored


def member(plan: Plan, index: int) -> Model:
    """One of the spec's models."""
    family = plan.task.family
    if not 0 <= index < len(family):
        raise InputError(f"--model is {index}; the spec has models 0 to {len(family) - 1}")
    return family[index]


# `shoal attack`: what an adversary who knows the model believes before and after a release.


app = new_app()

EXAMPLES = """\b
Examples:
  shoal attack shoal.toml days.csv
  shoal attack shoal.toml days.csv --who p1 --scale 0.001 --plot beliefs.png
  shoal attack places.toml checkins.csv --friends friends.csv --plot friends.png
  shoal attack town.toml tracks.csv --lat lat --lon lon --series user --plot track.png
  shoal attack slots.toml days.csv --secrets clinic.toml
"""

Who = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose data to attack; by default the first.")
]
ModelPlace = Annotated[
    int, typer.Option(help="Which of the spec's models the adversary holds, from 0.")
]
Adversary = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A stored model that the adversary holds instead."),
]
Scale = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="Attack Laplace noise of this scale instead, in the query's unit."
    ),
]
Friends = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="For places: two columns of people who are friends."),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, help="For streams of places: attack at most so many; by default 500."),
]
Seed = Annotated[int, typer.Option(help="Of the noise of the release that is attacked.")]


@app.command(epilog=EXAMPLES)
def attack(
    source: PlanSource,
    data: DataPath,
    who: Who = None,
    model: ModelPlace = 0,
    adversary: Adversary = None,
    scale: Scale = None,
    state: Column = None,
    series: Column = None,
    time: Column = None,
    gap: Gap = None,
    friends: Friends = None,
    latitude: Latitude = None,
    longitude: Longitude = None,
    every: Every = None,
    start: Start = None,
    steps: Steps = None,
    secrets: SecretsOf = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    plot: PlotPath = None,
    time_limit: TimeLimit = None,
    force: Force = False,
) -> None:
    """Show what an adversary learns from what is released.

    Draws a release of the data under the spec's plan, or a stream of one person's places (for this
    demonstration only: the noise is seeded and nothing is published), hands it to somebody who
    knows the model, and compares what that person believes before and after with the truth.
    """
    from shoal.cli.sources import NamedColumns, load_plan, secrets_of

    check_chart(plot, force=force)
    track = TrackWish(latitude=latitude, longitude=longitude, every=every, start=start, steps=steps)
    wish = Wish(
        who=who,
        model=model,
        adversary=adversary,
        scale=scale,
        friends=friends,
        seed=seed,
        as_json=as_json,
        plot=plot,
        track=track,
        secrets=None if secrets is None else secrets_of(secrets),
    )
    with limited(time_limit):
        plan, own = load_plan(source)
        columns = NamedColumns(state, series, time, gap, None, latitude, longitude).over(own)
        view = _view_of(plan, model) or AttackView(
            _attack_series, ("scale", "adversary", "secrets")
        )
        check_wish(plan, wish, view.takes)
        if scale is not None:
            from shoal.cli.attack_entries import with_scale

            plan = with_scale(plan, scale)
        view.run(plan, data, columns, wish)


SERIES_TAKE = ("scale", "adversary", "secrets")


def _view_of(plan: Plan, model: int) -> AttackView | None:
    """How the plan's family is attacked; None for entries of a series or variables."""
    from shoal.core.registry import hook

    family = plan.task.family
    held = family[model] if 0 <= model < len(family) else None
    view = hook("attack", plan.body, plan.task.query, held)
    found: AttackView | None = None if view is None else view(plan, held)
    return found


def _attack_series(plan: Plan, data: str, columns: NamedColumns, wish: Wish) -> None:
    """The attack on one series of a file of states, or on one record of variables."""
    from shoal.cli.attack_entries import attack_entries

    attack_entries(plan, *chosen_records(plan, data, columns, wish.who), wish)


def chosen_records(
    plan: Plan, data: str, columns: NamedColumns, who: str | None
) -> tuple[str, Any]:
    """The name and the records of the one who is attacked: the first, unless somebody is named."""
    from shoal.cli.sources import series_in

    people = series_in(plan, data, replace(columns, together=None)).reads
    name = next(iter(people)) if who is None else who
    if name not in people:
        shown = ", ".join(map(repr, list(people)[:8])) + (", …" if len(people) > 8 else "")
        raise InputError(f"--who is {name!r}; it must be one of {shown}")
    return name, people[name]()
