"""`shoal share`: publish rides, and hide where one lives, over all rides together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.share.attack import PlaceBeliefs

app = options.new_app()

EXAMPLES = """\b
Examples:
  shoal share rides/ --hide home=52.4955,13.4 --roads town.geojson --goals goals.csv -o out/
  shoal share status -o out/
  shoal share attack -o out/
"""


@app.command(epilog=EXAMPLES)
def share(
    rides: Annotated[
        list[str],
        typer.Argument(
            metavar="RIDES", help="Files (GPX, FIT, TCX, KML, GeoJSON), folders; or: status, attack"
        ),
    ],
    *,
    out: Annotated[
        Path, option("FOLDER", "Where cut rides go; FOLDER.private is for you.", "--out", "-o")
    ],
    hide: Annotated[
        list[str] | None, option("NAME=LAT,LON", "A place to hide; several if repeated.")
    ] = None,
    hide_zone: Annotated[
        Path | None, option("GEOJSON", "Hide it in this district, not its public square.")
    ] = None,
    roads: Annotated[
        Path | None, option("FILE", "Roads: GeoJSON lines, or an OSM extract (.osm, .osm.pbf).")
    ] = None,
    goals: Annotated[
        Path | None, option("FILE", "Places declared before riding: CSV of lat,lon,track.")
    ] = None,
    epsilon: Annotated[str, option("NUMBER", "Log-odds over all rides ever shared.")] = "1",
    legs: Annotated[int, option("N", "Legs planned for ever; a ride has two.", min=1)] = 400,
    within: Annotated[
        str | None, option("METRES", "Promise epsilon for each such distance only.")
    ] = None,
    goals_only: Annotated[
        bool, options.flag("--goals-only", "Show only which goals were reached; no map.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Publish rides, never where you live, over all rides together.

    Every ride is shown from a crossing beyond which it tells too little about the place to count.
    What all rides tell is added up pair by pair and never passes epsilon, for riders of the map's
    model. Clock times, altitude, sensors, device and names are removed.
    """
    from shoal.share.jobs.sharing import ShareWish, share_attack, share_rides, share_status

    if rides == ["status"]:
        _print_status(share_status(out), as_json=as_json)
        return
    if rides == ["attack"]:
        _print_attacks(share_attack(out), as_json=as_json)
        return
    wish = ShareWish(
        rides=tuple(map(Path, rides)),
        out=out,
        roads=roads,
        hide=tuple(map(_hidden_place, hide or ())),
        zone=hide_zone,
        goals=goals,
        epsilon=epsilon,
        legs=legs,
        within=within,
        goals_only=goals_only,
    )
    with show.working("matching and cutting rides"):
        report = share_rides(wish)
    if as_json:
        show.print_json(_object(report))
    else:
        show.console().print(show.paragraphs(report.describe()))


def _hidden_place(text: str) -> tuple[str, float, float]:
    """Return name, latitude and longitude of a place written as home=52.5,13.4."""
    name, _, where = text.partition("=")
    try:
        latitude, longitude = map(float, where.split(","))
    except ValueError:
        raise InputError(f"--hide is {text!r}; write it as home=52.5,13.4") from None
    return name, latitude, longitude


def _object(report: Any) -> dict[str, Any]:
    """Return the JSON object of a report of shared rides; lengths are in metres."""
    return {
        "rides": report.rides,
        "shown_in_part": report.in_part,
        "goal_alone": report.goal_alone,
        "left_out": dict(report.left_out),
        "metres": report.metres,
        "metres_shown": report.shown_metres,
        "removed": sorted(report.stripped),
        "candidates": report.candidates,
        "epsilon": report.epsilon,
        "spent": report.spent,
        "legs": report.legs,
        "circle_metres": report.circle_metres,
        "in_words": report.describe().splitlines(),
    }


def _print_attacks(found: list[tuple[str, PlaceBeliefs]], *, as_json: bool) -> None:
    """Print one line per attack, or a JSON object of highest belief and shift by attack."""
    if as_json:
        show.print_json(
            {
                name: {"likeliest": float(one.posterior.max()), "shift": one.shift}
                for name, one in found
            }
        )
        return
    for name, one in found:
        show.console().print(show.paragraphs(f"An adversary with {name}: {one.describe()}."))


def _print_status(found: dict[str, float], *, as_json: bool) -> None:
    """Print the state of a plan for rides: rides, legs, epsilon spent and epsilon left."""
    if as_json:
        show.print_json(found)
        return
    words = (
        f"{found['rides']:.0f} rides shared, {found['legs']:.0f} legs of "
        f"{found['legs_planned']:.0f} planned. Of epsilon = {found['epsilon']:g}, "
        f"{found['spent']:.3g} is spent and {found['left']:.3g} is left."
    )
    show.console().print(show.paragraphs(words))
