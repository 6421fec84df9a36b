"""`shoal serve`: start the service, or prepare one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
