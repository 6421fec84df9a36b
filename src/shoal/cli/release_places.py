"""`shoal release` for people's places: check-ins in, centroids out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli import show
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.attacks.neighbours_people import People
    from shoal.cli.sources import Columns
    from shoal.core.plan import Plan
    from shoal.core.release import Release

TOGETHER = "all"  # the name of the one release of all series together


def asks_for_places(plan: Plan) -> bool:
    """Whether the plan releases centroids of people's places."""
    from shoal.queries.centroids import Centroids

    return isinstance(plan.task.query, Centroids)


def people_in(plan: Plan, data: str, columns: Columns, friends: Path | None = None) -> People:
    """The people of a file of check-ins, in the box of the plan's query."""
    from shoal.attacks.neighbours_people import City
    from shoal.data.places import people_of, read_table
    from shoal.queries.centroids import Centroids

    if columns.series is None or columns.state is None:
        raise InputError(
            "[data] must name series, the column of people, and state, that of places; add both"
        )
    query = plan.task.query
    assert isinstance(query, Centroids)
    south, west = (float(end) for end in query.low[:2])
    north, east = (float(end) for end in query.high[:2])
    with show.working("reading"):
        table = read_table(data)
        people, _ = people_of(
            table,
            None if friends is None else read_table(friends),
            City(south=south, west=west, north=north, east=east),
            user=columns.series,
            place=columns.state,
            latitude=_coordinate(table.columns, "latitude"),
            longitude=_coordinate(table.columns, "longitude"),
            top=len(query.columns) // 2,
        )
    return people


def place_records(plan: Plan, data: str, columns: Columns) -> dict[str, Any]:
    """Everybody's location vectors as the one thing to release, under the name of all together."""
    return {TOGETHER: plan.task.read(people_in(plan, data, columns).vectors)}


def print_centroids(plan: Plan, release: Release) -> None:
    """The centroids after the last round: where their people's most visited place is."""
    from shoal.queries.centroids import Centroids

    query = plan.task.query
    assert isinstance(query, Centroids)
    rows = [
        (str(k + 1), f"{centre[0]:.4f}", f"{centre[1]:.4f}")
        for k, centre in enumerate(query.centroids(release.answer))
    ]
    out = show.console()
    out.print(show.table(("cluster", "latitude", "longitude"), rows, numbers=(1, 2)))


def _coordinate(present: list[str], name: str) -> str:
    for candidate in (name, name[:3]):
        if candidate in present:
            return candidate
    raise InputError(f"the check-ins have no column {name!r} or {name[:3]!r}; rename theirs")
