"""What `shoal attack` was asked for, and which of its options go with which plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.options import AsJson, DataPath, Force, PlanSource, PlotPath, check_chart, new_app
from shoal.contexts.views.calendar import shows_contexts
from shoal.core.errors import InputError
from shoal.places.views.stream import follows_places
from shoal.records.views import asks_for_places

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
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
    from shoal.records.views import has_ties

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
"""

Who = Annotated[
    str | None,
    typer.Option("--who", metavar="NAME", help="Whose data to attack; by default the first."),
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
Column = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Overrides the column of the spec's [data]."),
]
SeriesColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Tells people apart; overrides the spec's [data]."),
]
Pause = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="A longer pause starts a new chain or stream, such as 10min."
    ),
]
Friends = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="For places: two columns of people who are friends."),
]
Latitude = Annotated[
    str | None, typer.Option("--lat", metavar="COLUMN", help="For streams of places: latitudes.")
]
Longitude = Annotated[
    str | None, typer.Option("--lon", metavar="COLUMN", help="For streams of places: longitudes.")
]
Every = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="For streams of places: length of a step, such as 60s."),
]
Start = Annotated[
    str | None, typer.Option(metavar="STATE", help="A first place that everybody knows.")
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
    series: SeriesColumn = None,
    time: Column = None,
    gap: Pause = None,
    friends: Friends = None,
    latitude: Latitude = None,
    longitude: Longitude = None,
    every: Every = None,
    start: Start = None,
    steps: Steps = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    plot: PlotPath = None,
    force: Force = False,
) -> None:
    """Show what an adversary learns from what is released.

    Draws a release of the data under the spec's plan, or a stream of one person's places (for this
    demonstration only: the noise is seeded and nothing is published), hands it to somebody who
    knows the model, and compares what that person believes before and after with the truth.
    """
    from shoal.cli.sources import NamedColumns, load_plan

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
    )
    plan, own = load_plan(source)
    check_wish(plan, wish)
    columns = NamedColumns(state, series, time, gap, None, latitude, longitude)
    _attack(plan, data, columns.over(own), wish)


def _attack(plan: Plan, data: str, columns: NamedColumns, wish: Wish) -> None:
    """The attack that goes with the plan."""
    from shoal.cli.attack_entries import with_scale
    from shoal.places.views.stream import follows_places
    from shoal.records.views import asks_for_places, attack_places

    if wish.scale is not None:
        plan = with_scale(plan, wish.scale)
    if follows_places(plan):
        from shoal.places.views.attack import attack_track

        attack_track(plan, data, columns, wish)
    elif asks_for_places(plan):
        attack_places(
            plan, data, columns, wish.friends, wish.seed, as_json=wish.as_json, plot=wish.plot
        )
    else:
        _attack_series(plan, data, columns, wish)


def _attack_series(plan: Plan, data: str, columns: NamedColumns, wish: Wish) -> None:
    """The attack on one series of a file of states."""
    from shoal.cli.attack_entries import attack_entries
    from shoal.cli.sources import read_data
    from shoal.contexts.views.attack import attack_day, chained_days, timed_days
    from shoal.contexts.views.calendar import shows_contexts
    from shoal.networks.views import has_variables, variable_records
    from shoal.records.views import attack_ties, has_ties

    seed, as_json, plot = wish.seed, wish.as_json, wish.plot
    contexts = shows_contexts(plan)
    if contexts:
        member(plan, wish.model)
    days = timed_days(plan, data, columns, wish.who) if contexts else None
    if days is not None:
        attack_day(plan, days, seed, as_json=as_json, plot=plot, adversary=wish.model)
        return
    if columns.state is None and has_variables(plan):
        people = variable_records(plan, data, columns)
        name = wish.who if wish.who is not None else next(iter(people))
        if name not in people:
            shown = ", ".join(list(people)[:8])
            raise InputError(f"--who is {name!r}; it must be one of {shown}")
        records = people[name]
    else:
        dataset = read_data(data, columns, plan.task.query.states)
        name = wish.who if wish.who is not None else dataset.names[0]
        records = plan.task.read(dataset.sequences(plan.task.query.states, series=name))
    if contexts:
        days = chained_days(plan, records)
        attack_day(plan, days, seed, as_json=as_json, plot=plot, adversary=wish.model)
    elif has_ties(plan, wish.model):
        attack_ties(plan, wish.model, records, seed, as_json=as_json, plot=plot)
    else:
        attack_entries(plan, name, records, wish)
