"""`shoal share`: publish rides, and hide where one lives, over all rides together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import InputError

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
    quarter: Annotated[
        bool, options.flag("--quarter", "Hide it in its public quarter: smaller, shows more.")
    ] = False,
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
    from shoal.share.jobs.sharing import ShareWish, share_rides, share_status

    if rides == ["status"]:
        _print_status(share_status(out), as_json=as_json)
        return
    if rides == ["attack"]:
        attack_shared(out, *map(_hidden_place, (hide or ())[:1]), as_json=as_json)
        return
    options = ShareWish(
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
        quarter=quarter,
    )
    with show.working("matching and cutting rides"):
        report = share_rides(options)
    if as_json:
        show.print_json(_share_object(report))
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


def _share_object(report: Any) -> dict[str, Any]:
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


def attack_shared(
    out: Path, home: tuple[str, float, float] | None = None, *, as_json: bool = False
) -> None:
    """Print what attacks conclude from a folder of shared rides, or a JSON object by attack.

    The attacks by Bayes' rule need no truth. With `home`, the attacks by circles and averages of
    published ends are measured too: how far from home they guess.
    """
    from shoal.share.jobs.sharing import ends_attack, share_attack

    found = share_attack(out)
    far = {} if home is None else ends_attack(out, home[1:])
    if as_json:
        beliefs: dict[str, Any] = {
            name: {"likeliest": float(one.posterior.max()), "shift": one.shift}
            for name, one in found
        }
        show.print_json(beliefs | {name: {"metres": metres} for name, metres in far.items()})
        return
    for name, one in found:
        show.console().print(show.paragraphs(f"An adversary with {name}: {one.describe()}."))
    for name, metres in far.items():
        words = f"A guess by the {name} of the published ends lies {metres:,.0f} m from home."
        show.console().print(show.paragraphs(words))


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
