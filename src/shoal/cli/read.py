"""`shoal read`: what is in a file, and which command to run next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import InputError

app = options.new_app()

EXAMPLES = """\b
Examples:
  shoal read ride.gpx
  shoal read days.csv
  shoal read town.json --at 52.51,13.39
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of `shoal read`: the files, and a point to look up on a model's map."""

    data: options.DataPaths
    at: Annotated[str | None, option("LAT,LON", "Of a model on a map: the cell of this point.")] = (
        None
    )
    as_json: options.AsJson = False


@app.command(epilog=EXAMPLES)
@options.takes(ReadOptions)
def read(options: ReadOptions) -> None:
    """Say what is in a file, and how to go on with it.

    Format, rows, columns, units, times, pauses and places, and the next command. What is printed
    tells about the data: it is for its owner. Of a stored model or plan it says what it is, and
    with --at which cell covers a point.
    """
    stored = _stored_content(options.data)
    if stored is None and options.at is not None:
        raise InputError("--at is for a model on a map; name the model, or drop --at")
    if stored is not None:
        _tell_stored(Path(options.data[0]), stored, options)
        return
    from shoal.data.contents import contents_of, sentences

    with show.working("reading"):
        found = contents_of(options.data)
    if options.as_json:
        show.print_json(_as_plain(found))
        return
    words = "\n".join(f"{title}: {show.escape_controls(text)}" for title, text in sentences(found))
    show.console().print(show.paragraphs(words))
    if found.advice:
        typer.echo(found.advice)
    if found.following:
        typer.echo("\n".join(["Go on with:", *(f"  {line}" for line in found.following)]))


def _stored_content(data: list[str]) -> Any:
    """Return the model or plan stored in the file; None for files of data."""
    path = Path(data[0])
    if len(data) > 1 or not path.is_file() or path.suffix.lower() != ".json":
        return None
    with path.open(encoding="utf-8", errors="replace") as stream:
        head = stream.read(200)
    if '"schema": "shoal/' not in head:
        return None
    from shoal.spec.fields import parse_stored, read_text

    return parse_stored(read_text(path, "model or plan"), path, "model or plan")


def _tell_stored(path: Path, stored: Any, options: ReadOptions) -> None:
    """Print what a model or plan is, and the cell of a point on its map."""
    kind = type(stored).__name__
    fields: dict[str, Any] = {"path": str(path), "kind": kind}
    describe = getattr(stored, "describe", None)
    if describe is not None:
        fields["in_words"] = describe()
    if options.at is not None:
        from shoal.core.family import only_act

        fields |= only_act("locate")(stored, _point(options.at))
    if options.as_json:
        show.print_json(fields)
        return
    typer.echo(f"{path} holds a {kind}" + (f": {fields['in_words']}." if describe else "."))
    if "cell" in fields:
        lat, lon = fields["centre"]
        where = f"centre {lat:.5f}, {lon:.5f}, {fields['distance_km'] * 1000:,.0f} m away"
        off = "" if fields["inside"] else " The point lies off the map; this is the nearest cell."
        typer.echo(f"The cell of {options.at} is {fields['cell']!r} ({where}).{off}")


def _point(text: str) -> tuple[float, float]:
    """Parse "latitude,longitude" in degrees; refuses text outside the ranges of the earth."""
    try:
        latitude, longitude = (float(part) for part in text.split(","))
    except ValueError:
        latitude = longitude = float("nan")
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise InputError(
            f"--at is {text!r}; give a latitude and a longitude in degrees, such as 52.51,13.39"
        )
    return latitude, longitude


def _as_plain(found: Any) -> dict[str, Any]:
    """Return the contents of files as plain JSON data."""
    plain = {name: getattr(found, name) for name in found.__slots__}
    plain["files"] = [str(file) for file in found.files]
    plain["span"] = None if found.span is None else [moment.isoformat() for moment in found.span]
    plain["pauses"] = None if found.pauses is None else found.pauses._asdict()
    return plain
