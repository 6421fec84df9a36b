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
    from shoal.gateway.copies.restore import Restored
    from shoal.gateway.settings import Settings

EXAMPLES = """\b
Examples:
  shoal serve --init                     a database, a key for states, the first operator key
  shoal serve                            on http://127.0.0.1:8470, API at /docs
  shoal serve --town                     with made-up people who walk through a made-up town
  shoal serve backup copy.db             all of it in one file, while it runs
  shoal serve restore copy.db            a database of that file
  shoal serve put-plan day.toml          a plan of a spec, with the model that the spec names
  shoal serve --restored                 go on from an older copy of the database, with care
  SHOAL_DATABASE=postgresql://shoal@db/shoal shoal serve --workers 2
"""

LOCAL = "http://127.0.0.1:8470"

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    invoke_without_command=True,
    epilog=EXAMPLES,
)


@app.callback()
def serve(
    context: typer.Context,
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
        typer.Option(
            "--restored",
            help="Go on from an older copy of the database: hold days, take back again what was.",
        ),
    ] = False,
    new_head: Annotated[
        bool,
        typer.Option("--new-head", help="The head file is gone, and the database is the newest."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --init: print one object.")] = False,
) -> None:
    """Run the live service: readings in, outputs out.

    Devices push contexts and places, applications see what a plan allows.

    Every setting can be given as a variable SHOAL_… or in a file; docs/gateway.md lists them. Stops
    gracefully on Ctrl-C or SIGTERM: open streams end, what was begun is finished.
    """
    if context.invoked_subcommand is not None:
        return
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
    if restored and new_head:
        raise InputError("restored and new-head are given; a copy is older, or it is the newest")
    _open_head(settings, restored=restored, new_head=new_head)
    if town:
        from shoal.gateway.town import run_town

        run_town(settings)
        return
    run(settings)


def run(settings: Settings) -> None:
    """Serve until stopped, in one process or in several."""
    import uvicorn

    from shoal.gateway.http.connections import bounded_protocol, raise_file_limit

    raise_file_limit()
    os.environ |= environment(settings)
    uvicorn.run(
        "shoal.gateway.app:create",
        factory=True,
        http=bounded_protocol(settings),  # type: ignore[arg-type]  # it calls what it is given
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
    from shoal.gateway.store import ALL, open_store
    from shoal.gateway.vault import write_key

    if not re.fullmatch(NAME, space):
        raise InputError(f"space is {space!r}; use letters, digits, '.', '_' and '-', at most 64")
    if not settings.state_keys and not settings.state_key_file.exists():
        write_key(settings.state_key_file)
    with open_store(settings) as store:
        made = store.write(ALL, lambda connection: first_key(connection, space))
    if as_json:
        typer.echo(json.dumps({"space": space, "key": made.key, "token": made.token}))
        return
    typer.echo(f"Space {space!r} is ready. Its operator key, shown once:\n\n  {made.token}\n")
    typer.echo("Start the service with: shoal serve")


def _open_head(settings: Settings, *, restored: bool, new_head: bool) -> None:
    """Refuse a database that is behind its head file, or make an older copy safe to go on from."""
    from shoal.gateway.app import patiently
    from shoal.gateway.copies.head import begin_head, check_head
    from shoal.gateway.copies.restore import accept_older_copy
    from shoal.gateway.store import open_store
    from shoal.gateway.streams import House, now_seconds
    from shoal.gateway.vault import Vault, read_keys

    def work() -> None:
        """Check the head file, after accepting an older copy or beginning a new head."""
        with open_store(settings) as store:
            if restored:
                keys = read_keys(settings.state_keys, settings.state_key_file)
                house = House(store, Vault(keys))
                typer.echo(_restored_text(accept_older_copy(house, now_seconds())), err=True)
            elif new_head:
                begin_head(store)
            check_head(store)

    patiently(work)


def _restored_text(done: Restored) -> str:
    """Return what going on from an older copy did, and what it could not bring back."""
    found = (
        f"{done.held} streams with days are held until their day is over, {done.paused} are paused "
        "until their person resumes them. Taken back again: "
        f"{done.keys} keys, {done.grants} grants, {done.streams} streams, {done.people} people."
    )
    if not done.known:
        found += (
            " There was no head file, so every key and grant was taken back: make an operator's "
            "key with `shoal keys make operator`."
        )
    return f"{found} Lost: outputs, charges, limits, plans, keys and grants made since the copy."


def _town_settings(given: dict[str, object]) -> dict[str, object]:
    """Return settings for a fresh demo folder `town`; its existing contents are deleted."""
    import shutil

    folder = Path("town")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    found: dict[str, object] = {
        "state_key_file": folder / "states.key",
        "head_file": folder / "gateway.head",
    }
    if given["database"] is None:
        found["database"] = str(folder / "gateway.db")
    return found


Database = Annotated[str | None, typer.Option(metavar="FILE|URL", help="As of `shoal serve`.")]
SettingsFile = Annotated[Path | None, typer.Option("--settings", metavar="FILE")]


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="the file to write; it must not exist")],
    database: Database = None,
    settings_file: SettingsFile = None,
) -> None:
    """Write the whole database into one file, which may be done while the service runs.

    The file is a SQLite database for its owner alone, whatever kind of database serves. It does
    not hold the key for states or the head file; keep those elsewhere.
    """
    from shoal.gateway.copies.backup import back_up
    from shoal.gateway.settings import load_settings

    settings = load_settings(settings_file, database=database)
    typer.echo(f"{file} has {back_up(settings.database, file):,} rows.")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="a file of `shoal serve backup`")],
    database: Database = None,
    settings_file: SettingsFile = None,
) -> None:
    """Make the database of a backup; nothing is written over.

    The service refuses it afterwards when more was noted in the head file than the backup holds,
    and says how to go on.
    """
    from shoal.gateway.copies.backup import restore_backup
    from shoal.gateway.settings import load_settings

    settings = load_settings(settings_file, database=database)
    count = restore_backup(file, settings.database)
    typer.echo(f"{count:,} rows are restored. Start the service with: shoal serve")


@app.command()
def accept_clock(database: Database = None, settings_file: SettingsFile = None) -> None:
    """Let a running service believe its clock again, after a jump that made it stop.

    Slots that ended by this clock are then closed, without readings. Set the clock right instead
    where you can.
    """
    from shoal.gateway.jumps import accept_clock as accept
    from shoal.gateway.settings import load_settings

    accept(load_settings(settings_file, database=database).head_file)
    typer.echo("The clock is accepted; workers go on within a second.")


@app.command()
def put_plan(
    file: Annotated[Path, typer.Argument(help="a spec, an exported spec, or a stored plan")],
    key: Annotated[str, typer.Option(envvar="SHOAL_KEY", help="An operator's key.")],
    to: Annotated[str, typer.Option(metavar="URL", help="Where the gateway is.")] = LOCAL,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A stored model instead of the spec's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object.")] = False,
) -> None:
    """Send a plan to a gateway: a spec, whose models go with it, or a plan that was stored.

    Prints the plan's name when it is made, for `PUT …/streams/NAME`.
    """
    from shoal.gateway.client import Client
    from shoal.gateway.planning.uploads import upload_of

    body = upload_of(file, model)
    with Client(to, key) as gateway:
        plan = gateway.make_plan(**body)
    typer.echo(json.dumps({"plan": plan}) if as_json else f"The plan is {plan}.")


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
    from shoal.gateway.keys import OPERATOR, Caller, keys_of_caller

    caller = Caller(space, "", OPERATOR, "")
    found = _in_store(database, settings_file, partial(keys_of_caller, caller=caller))
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
    from shoal.gateway.copies.head import check_head
    from shoal.gateway.keys import OPERATOR, Caller, revoke as take_back
    from shoal.gateway.settings import load_settings
    from shoal.gateway.store import ALL, open_store

    caller = Caller(space, "", OPERATOR, "")
    with open_store(load_settings(settings_file, database=database)) as store:
        check_head(store)  # the list of what was taken back lies beside the head file
        store.write(ALL, lambda connection: take_back(connection, store.head, caller, key))
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
    from shoal.gateway.store import ALL, open_store

    with open_store(load_settings(settings_file, database=database)) as store:
        return store.write(ALL, work)
