"""`shoal init`: a commented spec that runs as it is."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli import show
from shoal.cli.options import AsJson, Force, check_output, new_app

app = new_app()

EXAMPLES = """\b
Examples:
  shoal init
  shoal init --kind location walk.toml
  shoal plan shoal.toml
"""


class Kind(StrEnum):
    """What the data is; each has a template of its name in `templates/`."""

    SERIES = "series"
    CONTEXTS = "contexts"
    LOCATION = "location"
    NETWORK = "network"
    CONTAGION = "contagion"
    FRIENDS = "friends"


ABOUT = """What the data is: a time series, contexts of a day shown or suppressed live, a location \
stream, variables of a Bayesian network, people who infect each other, or records tied in pairs."""


@app.command(epilog=EXAMPLES)
def init(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="The file to write.")] = Path(
        "shoal.toml"
    ),
    kind: Annotated[Kind, typer.Option(help=ABOUT)] = Kind.SERIES,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Write a commented spec that runs as it is.

    Without --kind it describes a day of minutes in three activities; change it to your own data.
    """
    from shoal.data.files import atomic_write

    check_output(path, force=force)
    atomic_write(path, template(kind).replace("{name}", path.name))
    if as_json:
        show.print_json({"path": str(path), "kind": kind.value})
        return
    commands = (f"  shoal {command} {path}" for command in ("leak", "plan"))
    typer.echo("\n".join([f"The spec is in {path}. Try:", *commands]))


def template(kind: Kind) -> str:
    """The commented spec of a kind, with {name} in the place of its file's name."""
    from importlib.resources import files

    return (files("shoal.cli") / "templates" / f"{kind.value}.toml").read_text(encoding="utf-8")
