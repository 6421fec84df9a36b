"""`shoal serve`: start the service, or prepare one; `shoal keys`: its keys, at the machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.gateway.settings import Settings

EXAMPLES = """\b
Examples:
  shoal serve --init                     a database, a key for states, the first operator key
  shoal serve                            on http://127.0.0.1:8470, API at /docs
  shoal serve --town                     with made-up people who walk through a made-up town
  SHOAL_DATABASE=postgresql://shoal@db/shoal shoal serve --workers 2
"""

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command(epilog=EXAMPLES)
def serve(
    database: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="SQLite file or postgresql:// URL.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; more than one needs PostgreSQL.")
    ] = None,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="SHOAL_…=VALUE lines.")
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Prepare the database and print the first key, then end.")
    ] = False,
    space: Annotated[str, typer.Option(help="With --init: the space to make.")] = "home",
    town: Annotated[
        bool, typer.Option("--town", help="Try it: made-up people, a new database in ./town.")
    ] = False,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="Go on from an older copy of the database, with care."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --init: print one object.")] = False,
) -> None:
    """Run the live service: readings in, outputs out.

    Devices push contexts and places, applications see what a plan allows.

    Every setting can be given as a variable SHOAL_… or in a file; docs/gateway.md lists them. Stops
    gracefully on Ctrl-C or SIGTERM: open streams end, what was begun is finished.
    """
    try:
        from shoal.gateway.settings import load_settings
    except ImportError:
        raise InputError("the gateway needs its extra; run: pip install 'shoal[serve]'") from None
    given: dict[str, object] = {"database": database, "host": host, "port": port}
    given["workers"] = workers
    if town:
        given |= _town_settings(given)
    settings = load_settings(settings_file, **given)
    if init:
        _prepare(settings, space, as_json=as_json)
        return
    check_workers(settings)
    if restored:
        _accept_older(settings)
    if town:
        from shoal.gateway.town import run_town

        run_town(settings)
        return
    run(settings)


def run(settings: Settings) -> None:
    """Serve until stopped, in one process or in several."""
    import uvicorn

    os.environ |= environment(settings)
    uvicorn.run(
        "shoal.gateway.app:create",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers if settings.workers > 1 else None,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=10,
        server_header=False,
    )


def environment(settings: Settings) -> dict[str, str]:
    """The settings as variables, for processes that this one starts."""
    return {f"SHOAL_{name.upper()}": str(value) for name, value in settings.model_dump().items()}


def check_workers(settings: Settings) -> None:
    """Refuse several processes on a SQLite file, which has one writer."""
    if settings.workers > 1 and "://" not in settings.database:
        raise InputError(
            f"workers is {settings.workers} and the database a SQLite file, which one process "
            "writes; use one worker, or PostgreSQL"
        )


def _prepare(settings: Settings, space: str, *, as_json: bool) -> None:
    """Make what is missing: key for states, tables, the space with its first operator key."""
    import re

    from shoal.gateway.keys import first_key
    from shoal.gateway.routes.bodies import NAME
    from shoal.gateway.store import ALL, prepared
    from shoal.gateway.vault import write_key

    if not re.fullmatch(NAME, space):
        raise InputError(f"space is {space!r}; use letters, digits, '.', '_' and '-', at most 64")
    if not settings.state_keys and not settings.state_key_file.exists():
        write_key(settings.state_key_file)
    with prepared(settings) as store:
        made = store.write(ALL, lambda connection: first_key(connection, space))
    if as_json:
        typer.echo(json.dumps({"space": space, "key": made.key, "token": made.token}))
        return
    typer.echo(f"Space {space!r} is ready. Its operator key, shown once:\n\n  {made.token}\n")
    typer.echo("Start the service with: shoal serve")


def _accept_older(settings: Settings) -> None:
    """Hold streams still that an older copy knows in part, and note where the ledger is now."""
    from shoal.gateway.store import ALL, prepared
    from shoal.gateway.streams import House, now_seconds
    from shoal.gateway.ticker import hold_still, lay_anchor
    from shoal.gateway.vault import Vault, read_keys

    with prepared(settings) as store:
        rooms = House(store, Vault(read_keys(settings.state_keys, settings.state_key_file)))
        count = store.write(ALL, lambda connection: hold_still(rooms, connection, now_seconds()))
        lay_anchor(store, settings.head_file)
    typer.echo(f"{count} streams with days are still until their day is over.", err=True)


def _town_settings(given: dict[str, object]) -> dict[str, object]:
    """A folder of its own, begun anew: nothing that matters is in it."""
    import shutil

    folder = Path("town")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    found: dict[str, object] = {
        "state_key_file": folder / "states.key",
        "head_file": folder / "ledger.head",
    }
    if given["database"] is None:
        found["database"] = str(folder / "gateway.db")
    return found


keys_app = typer.Typer(
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


@keys_app.command()
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
    from shoal.gateway.keys import KEY_KINDS, OPERATOR, make_key

    if kind not in KEY_KINDS:
        raise InputError(f"kind is {kind!r}; it must be one of {', '.join(KEY_KINDS)}")
    if kind != OPERATOR and not holder:
        raise InputError(f"holder is missing; say whose {kind} key it is")
    expires = None if days is None else time.time() + days * 86400
    work = partial(make_key, space=space, kind=kind, holder=holder, expires=expires)
    made = _in_store(database, settings_file, work)
    if as_json:
        typer.echo(json.dumps({"key": made.key, "token": made.token}))
    else:
        typer.echo(f"{made.token}\n\nIt is shown once; its name is {made.key}.")


@keys_app.command("list")
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


@keys_app.command()
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


@keys_app.command()
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
