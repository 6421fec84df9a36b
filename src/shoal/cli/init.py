"""`shoal init`: a commented spec that runs as it is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli import options, show
from shoal.cli.show import check_output
from shoal.core.errors import InputError
from shoal.core.family import families

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns

app, schema_app = options.new_app(), options.new_app()

EXAMPLES = """\b
Examples:
  shoal init
  shoal init --kind location walk.toml
  shoal plan shoal.toml
"""

# a description of each kind's data; the template is in `templates/` of its family
TEMPLATE_KINDS = {kind: words for family in families() for kind, words in family.templates.items()}
FIRST = "series"
ABOUT = (
    f"What the data is: {', '.join(f'{kind} ({words})' for kind, words in TEMPLATE_KINDS.items())}."
)


@app.command(epilog=EXAMPLES)
def init(
    path: Annotated[Path, options.argument("[PATH]", "The file to write.")] = Path("shoal.toml"),
    kind: Annotated[str, options.option("KIND", ABOUT)] = FIRST,
    as_json: options.AsJson = False,
    force: options.Force = False,
) -> None:
    """Write a commented spec that runs as it is.

    Without --kind it describes a day of minutes in three activities; change it to your own data.
    """
    from shoal.data.write import atomic_write

    words = template(kind)
    check_output(path, force=force)
    atomic_write(path, words.replace("{name}", path.name))
    if as_json:
        show.print_json({"path": str(path), "kind": kind})
        return
    commands = (f"  shoal {command} {path}" for command in ("leak", "plan"))
    typer.echo("\n".join([f"The spec is in {path}. Try:", *commands]))


def template(kind: str) -> str:
    """Return the commented spec of a kind, with {name} as placeholder of its file name."""
    from importlib.resources import files

    home = next((family.package for family in families() if kind in family.templates), None)
    if home is None:
        raise InputError(
            f"--kind is {kind!r}; it must be one of {', '.join(map(repr, TEMPLATE_KINDS))}"
        )
    return (files(home) / "templates" / f"{kind}.toml").read_text(encoding="utf-8")


def check_spec(group: str | None) -> None:
    """Refuse, before a long fit, a spec that would not run."""
    if group is not None:
        raise InputError("--spec does not go with --group; name the models in a spec of your own")


def policy_of_places(spec: Path, places: Path, same: str | None, within: str | None) -> str:
    """Return the lines of [secrets] that hide points of interest of a file among each other."""
    given = {"same": same, "within": within}
    lines = [f"{key} = {_quote(value)}\n" for key, value in given.items() if value is not None]
    head = (
        'graph = "places"             # points of interest look alike; docs/location.md says how\n'
    )
    return f"{head}\n[secrets.places]\nfrom = {_beside(spec, places)}\n{''.join(lines)}"


def write_map_spec(
    path: Path,
    model: Path,
    columns: NamedColumns,
    data: Sequence[str],
    *,
    as_json: bool,
    policy: str | None = None,
) -> None:
    """Write the spec of a location stream that uses a fitted map, from the same columns.

    `policy` is what [secrets] says; without it states within 1 km look alike.
    """
    text = template("location")
    if policy is not None:
        begin, end = text.index("graph ="), text.index("[query]")
        text = f"{text[:begin]}{policy}\n{text[end:]}"
    echo = text[
        text.index("echo '") : text.index("| shoal stream {name}")
    ]  # a place of its own map
    release = f"release {{name}} {shlex.join(data)} -o {path.stem}-released.geojson"
    text = text.replace(f"{echo}| shoal stream {{name}}", f"shoal {release}")
    names = {"lat": columns.latitude, "lon": columns.longitude, "series": columns.series}
    said = _spec_columns(columns, "time", "gap")
    own = f"{_data(names | said)}\n[[model]]\nfile = {_beside(path, model)}\n\n"
    text = text[: text.index("[data]")] + own + text[text.index("[secrets]") :]
    _written(path, text, ("plan {name}", release), as_json=as_json)


def write_day_spec(
    path: Path, model: Path, columns: NamedColumns, data: Sequence[str], *, as_json: bool
) -> None:
    """Write the spec of a stream of contexts under a fitted day; it hides the rarest context."""
    from shoal.core.registry import loads

    day = loads(model.read_text(encoding="utf-8"))
    rarest = day.states[int(sum(day.marginals()).argmin())]
    text = template("contexts")
    said = _spec_columns(columns, "state", "series", "time")
    own = f"{_data(said)}\n[[model]]\nfile = {_beside(path, model)}\n\n"
    text = text[: text.index("[[model]]")] + own + text[text.index("[secrets]") :]
    hides = f" It hides {rarest!r}, the rarest context: name under [secrets] what must stay hidden."
    text = text.replace('["clinic"]', f"[{_quote(rarest)}]", 1)
    attack = f"attack {{name}} {shlex.join(data)}"
    _written(path, text, ("plan {name}", attack), as_json=as_json, more=hides)


def write_spec(
    path: Path, model: Path, columns: NamedColumns, data: Sequence[str], *, as_json: bool
) -> None:
    """Write a spec of a histogram of the states under the model, from the same columns."""
    said = _spec_columns(columns, "state", "series", "time", "gap")
    text = FITTED.replace("{data}", _data(said)).replace("{model}", _beside(path, model))
    release = f"release {{name}} {shlex.join(data)} -o {path.stem}-release.json"
    text = text.replace("{release}", release)
    _written(path, text, ("plan {name}", release), as_json=as_json)


def put_model_inside(path: Path, model: Path) -> None:
    """Replace the file that a spec at `path` names by the stored model in it."""
    from shoal.core.registry import dumps
    from shoal.data.write import atomic_write
    from shoal.spec.fields import load_model

    text = path.read_text(encoding="utf-8")
    stored = dumps(load_model(model, "model"), indent=None)
    named = f"file = {_beside(path, model)}"
    assert named in text, "the spec was written for this model"
    atomic_write(path, text.replace(named, f"stored = {_quote(stored)}", 1))


def _spec_columns(columns: NamedColumns, *names: str) -> dict[str, str | None]:
    """Return some columns and options of raw rows by their keys in a spec."""
    named = {name: getattr(columns, name) for name in (*names, "missing", "tz", "where", "sep")}
    return {**named, "time_unit": columns.unit}


def _data(said: dict[str, str | None]) -> str:
    """Return the section [data] of a spec."""
    lines = [f"{name} = {_quote(value)}\n" for name, value in said.items() if value is not None]
    return f"[data]\n{''.join(lines)}"


def _beside(path: Path, model: Path) -> str:
    """Return the model's path as a spec at `path` names it: the bare name in the same folder."""
    where = model.resolve()
    return _quote(where.name if where.parent == path.resolve().parent else str(where))


def _written(
    path: Path, text: str, commands: Sequence[str], *, as_json: bool, more: str = ""
) -> None:
    """Write the spec and print commands that use it; {name} stands for the spec's path."""
    from shoal.data.write import atomic_write

    atomic_write(path, text.replace("{name}", path.name))
    if not as_json:
        named = (f"  shoal {each.replace('{name}', shlex.quote(str(path)))}" for each in commands)
        typer.echo("\n".join([f"The spec is in {path}.{more} Try:", *named]))


def _quote(text: str) -> str:
    """Return a quoted TOML string; TOML accepts the quoting of JSON."""
    import json

    return json.dumps(text, ensure_ascii=False)


FITTED = """\
# A Shoal spec for a fitted model: how often each state occurs.
# It runs as it is:  shoal leak {name}    shoal plan {name}    shoal {release}
# Every key is explained in docs/spec.md; unknown keys are refused.

{data}
[[model]]                    # what an adversary may know; the model tells about the data it is from
file = {model}

[secrets]
kind = "each-entry"          # hide the value of every single entry

[query]
kind = "histogram"           # or "count", "sum", "mean" (of numbers, or the middles of bins)

[privacy]
epsilon = 1.0                # odds between two values of an entry change by e^epsilon at most
mechanism = "best"           # the least noise that is proved; or a row `shoal plan` lists
"""


@schema_app.command(epilog="\b\nExample:\n  shoal spec-schema > spec.schema.json")
def spec_schema() -> None:
    """Print the JSON Schema of a spec.

    Editors that know JSON Schema for TOML check and complete a spec with it.
    """
    from shoal.spec.request import schema_text

    typer.echo(schema_text(), nl=False)
