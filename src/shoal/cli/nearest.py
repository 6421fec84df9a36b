"""`shoal nearest`: how well points of interest are found from released positions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import InputError
from shoal.core.numbers import significant

app = options.new_app()

EXAMPLES = """\b
Examples:
  shoal nearest shared.geojson pois.geojson --k 5
  shoal nearest shared.geojson pois.csv --category pharmacy --spec town.toml
  shoal nearest shared.geojson pois.geojson --spec town.toml --truth ride.gpx
"""
MOST_NAMED = 12  # places of a set that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestOptions:
    """The options of `shoal nearest`: a release, points of interest, what to compare with."""

    release: Annotated[Path, options.argument("RELEASE", "A track that `shoal release` wrote.")]
    places: Annotated[
        Path, options.argument("POIS", "Points of interest: OpenStreetMap, GeoJSON, or a table.")
    ]
    k: Annotated[int, option("N", "How many nearest places are asked for.", "--k", min=1)] = 5
    category: Annotated[str | None, option("NAME", "Only points of this category.")] = None
    spec: Annotated[
        Path | None,
        option(
            "SPEC", "The spec or plan of the release: which place can be the nearest.", "--spec"
        ),
    ] = None
    truth: Annotated[
        str | None, option("DATA", "The true track, for its owner alone; needs --spec.", "--truth")
    ] = None
    confidence: Annotated[
        float, option("SHARE", "How sure a set is to hold the nearest place.")
    ] = 0.95
    as_json: options.AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestReport:
    """What `shoal nearest` found; None where neither --truth nor --spec was given.

    `last` are the names and distances in km of the places nearest to the last estimate. Shares are
    of 1: `recall_estimate` is the mean over the `compared` steps whose true position is known, and
    `recall_point` over those of them that released a point, None where none did. `set_size` is
    the mean number of places of a set, `last_set` the names in the last one, `covered` how often
    the true nearest place was in it.
    """

    steps: int
    streams: int
    places: int
    last: tuple[tuple[str, float], ...]
    compared: int = 0
    recall_point: float | None = None
    recall_estimate: float | None = None
    set_size: float | None = None
    last_set: tuple[str, ...] = ()
    covered: float | None = None


@app.command(epilog=EXAMPLES)
@options.takes(NearestOptions)
def nearest(options: NearestOptions) -> None:
    """Say which points of interest are near a released track.

    Lists the places nearest to the last estimate. With --spec, the set of places that holds the
    true nearest one with 95 %, step by step, from the released points alone. With --truth, how many
    of the true k nearest places a service finds from the released points and from the estimates.
    """
    from shoal.core.family import only_act

    if options.truth is not None and options.spec is None:
        raise InputError("--truth needs --spec, which says the steps and the map of the release")
    if not 0 < options.confidence < 1:
        raise InputError(
            f"--confidence is {options.confidence:g}; it must be between 0 and 1, both excluded"
        )
    with show.working("looking around"):
        found: NearestReport = only_act("nearest")(options)
    if options.as_json:
        show.print_json(_nearest_object(found))
        return
    words = "\n".join(
        f"{title}: {show.escape_controls(text)}" for title, text in sentences(found, options)
    )
    show.console().print(show.paragraphs(words))


def sentences(found: NearestReport, options: NearestOptions) -> list[tuple[str, str]]:
    """Return the report as titles and texts."""
    near = ", ".join(f"{name} ({significant(km)} km)" for name, km in found.last)
    lines = [
        ("Release", f"{found.steps:,} steps in {found.streams:,} stream(s)"),
        ("Places", f"{found.places:,} points of interest"),
        ("Nearest", f"to the last estimate: {near}"),
    ]
    sure = f"{100 * options.confidence:g} %"
    if found.set_size is None:
        lines.append(("More", f"--spec gives the set that holds the nearest place with {sure}"))
        return lines
    names = ", ".join(found.last_set[:MOST_NAMED])
    more = len(found.last_set) - MOST_NAMED
    lines.append(
        (
            "Set",
            f"{significant(found.set_size)} of {found.places:,} places on average hold the true "
            f"nearest one with {sure} at a step, for somebody who moves as the model says; at the "
            f"last step {names}{f' and {more} more' if more > 0 else ''}",
        )
    )
    if found.recall_estimate is not None:
        shares = f"{100 * found.recall_estimate:.1f} % from the estimate"
        if found.recall_point is not None:
            shares += f" and {100 * found.recall_point:.1f} % from the released point"
        lines.append(
            (
                "Recall",
                f"of the {options.k} places nearest to the true position a service finds "
                f"{shares} ({found.compared:,} steps)",
            )
        )
        assert found.covered is not None
        lines.append(
            ("Covered", f"the set held the true nearest place at {100 * found.covered:.1f} %")
        )
        lines.append(("Keep", "recall and coverage tell about the true track: they are for you"))
    return lines


def _nearest_object(found: NearestReport) -> dict[str, object]:
    """Return the report as an object of JSON."""
    from dataclasses import asdict

    return {**asdict(found), "last": [{"name": name, "km": km} for name, km in found.last]}
