"""`shoal init`: a commented spec that runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli import show
from shoal.cli.options import AsJson, Force, check_output, new_app
from shoal.core.errors import InputError
from shoal.core.registry import families

app = new_app()

EXAMPLES = """\b
Examples:
  shoal init
  shoal init --kind location walk.toml
  shoal plan shoal.toml
"""

# each kind to what its data is; the template lies in `templates/` of its family
KINDS = {kind: words for family in families() for kind, words in family.templates.items()}
FIRST = "series"
ABOUT = f"What the data is: {', '.join(f'{kind} ({words})' for kind, words in KINDS.items())}."


@app.command(epilog=EXAMPLES)
def init(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="The file to write.")] = Path(
        "shoal.toml"
    ),
    kind: Annotated[str, typer.Option(metavar="KIND", help=ABOUT)] = FIRST,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Write a commented spec that runs as it is.

    Without --kind it describes a day of minutes in three activities; change it to your own data.
    """
    from shoal.data.files import atomic_write

    words = template(kind)
    check_output(path, force=force)
    atomic_write(path, words.replace("{name}", path.name))
    if as_json:
        show.print_json({"path": str(path), "kind": kind})
        return
    commands = (f"  shoal {command} {path}" for command in ("leak", "plan"))
    typer.echo("\n".join([f"The spec is in {path}. Try:", *commands]))


def template(kind: str) -> str:
    """The commented spec of a kind, with {name} in the place of its file's name."""
    from importlib.resources import files

    home = next((family.name for family in families() if kind in family.templates), None)
    if home is None:
        raise InputError(f"--kind is {kind!r}; it must be one of {', '.join(map(repr, KINDS))}")
    return (files(f"shoal.{home}") / "templates" / f"{kind}.toml").read_text(encoding="utf-8")
