"""`shoal keys`: make, list and take back keys at the machine itself, without the service."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.core.errors import InputError

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    help="Make, list and take back keys of the service.",
    epilog="""\b
Examples:
  shoal keys make operator --space home
  shoal keys make person ada --space home
  shoal keys list --space home
  shoal keys rotate
""",
)

Database = Annotated[str | None, typer.Option(metavar="FILE|URL", help="As of `shoal serve`.")]
SettingsFile = Annotated[Path | None, typer.Option("--settings", metavar="FILE")]
Space = Annotated[str, typer.Option(help="The space.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one object.")]


@app.command()
def make(
    kind: Annotated[str, typer.Argument(help="operator, person, device or application")],
    holder: Annotated[str, typer.Argument(help="the person or application")] = "",
    space: Space = "home",
    days: Annotated[float | None, typer.Option(help="Days until it expires.")] = None,
    database: Database = None,
    settings_file: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it once."""
    from shoal.gateway.keys import KINDS, OPERATOR, make_key

    if kind not in KINDS:
        raise InputError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    if kind != OPERATOR and not holder:
        raise InputError(f"holder is missing; say whose {kind} key it is")
    expires = None if days is None else time.time() + days * 86400
    work = partial(make_key, space=space, kind=kind, holder=holder, expires=expires)
    made = _in_store(database, settings_file, work)
    if as_json:
        typer.echo(json.dumps({"key": made.key, "token": made.token}))
    else:
        typer.echo(f"{made.token}\n\nIt is shown once; its name is {made.key}.")


@app.command("list")
def list_keys(
    space: Space = "home",
    database: Database = None,
    settings_file: SettingsFile = None,
    as_json: AsJson = False,
) -> None:
    """List the keys of a space, without their secrets."""
    from shoal.gateway.keys import OPERATOR, Caller, listed

    caller = Caller(space, "", OPERATOR, "")
    found = _in_store(database, settings_file, partial(listed, caller=caller))
    if as_json:
        typer.echo(json.dumps(found))
        return
    for key in found:
        state = "revoked" if key["revoked"] else "in use"
        typer.echo(f"{key['key']}  {key['kind']:<12} {key['holder']:<20} {state}")


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="the key's name")],
    space: Space = "home",
    database: Database = None,
    settings_file: SettingsFile = None,
) -> None:
    """Take a key back."""
    from shoal.gateway.keys import OPERATOR, Caller, revoke as take_back

    caller = Caller(space, "", OPERATOR, "")
    _in_store(database, settings_file, partial(take_back, caller=caller, key=key))
    typer.echo(f"{key} is no key any more.")


@app.command()
def rotate(settings_file: SettingsFile = None) -> None:
    """Put a new key for states first; streams are sealed with it as they move on."""
    from shoal.gateway.settings import load_settings
    from shoal.gateway.vault import write_key

    settings = load_settings(settings_file)
    if settings.state_keys:
        raise InputError("keys for states come from SHOAL_STATE_KEYS; put a new one first there")
    write_key(settings.state_key_file)
    typer.echo(f"{settings.state_key_file} has a new first key; restart the service.")


def _in_store(database: str | None, settings_file: Path | None, work: Callable[[Any], Any]) -> Any:
    from shoal.gateway.settings import load_settings
    from shoal.gateway.store import ALL, prepared

    with prepared(load_settings(settings_file, database=database)) as store:
        return store.write(ALL, work)
