"""`shoal attack`: what an adversary who knows the model believes before and after a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli.attack_wish import TrackWish, Wish, check_wish, member
from shoal.cli.options import AsJson, DataPath, Force, PlanSource, PlotPath, new_app
from shoal.cli.outputs import check_chart
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.cli.sources import Columns
    from shoal.core.plan import Plan

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
    from shoal.cli.sources import Columns, load_plan

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
    columns = Columns(state, series, time, gap, None, latitude, longitude)
    _attack(plan, data, columns.over(own), wish)


def _attack(plan: Plan, data: str, columns: Columns, wish: Wish) -> None:
    """The attack that goes with the plan."""
    from shoal.cli.attack_entries import with_scale
    from shoal.cli.attack_neighbours import attack_places
    from shoal.cli.release_places import asks_for_places
    from shoal.cli.stream_location import follows_places

    if wish.scale is not None:
        plan = with_scale(plan, wish.scale)
    if follows_places(plan):
        from shoal.cli.attack_locations import attack_track

        attack_track(plan, data, columns, wish)
    elif asks_for_places(plan):
        attack_places(
            plan, data, columns, wish.friends, wish.seed, as_json=wish.as_json, plot=wish.plot
        )
    else:
        _attack_series(plan, data, columns, wish)


def _attack_series(plan: Plan, data: str, columns: Columns, wish: Wish) -> None:
    """The attack on one series of a file of states."""
    from shoal.cli.attack_contexts import attack_day, chained_days, timed_days
    from shoal.cli.attack_entries import attack_entries
    from shoal.cli.attack_neighbours import attack_ties, has_ties
    from shoal.cli.calendar import shows_contexts
    from shoal.cli.release_rows import has_variables, variable_records
    from shoal.cli.sources import read_data

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
        dataset = read_data(data, columns)
        name = wish.who if wish.who is not None else dataset.names[0]
        records = plan.task.read(dataset.sequences(plan.task.query.states, series=name))
    if contexts:
        days = chained_days(plan, records)
        attack_day(plan, days, seed, as_json=as_json, plot=plot, adversary=wish.model)
    elif has_ties(plan, wish.model):
        attack_ties(plan, wish.model, records, seed, as_json=as_json, plot=plot)
    else:
        attack_entries(plan, name, records, wish)
