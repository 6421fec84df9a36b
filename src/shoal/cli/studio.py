"""`shoal studio`: the browser on this computer, on one's own data or an example."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli import options

app = options.new_app()
PORT = 8471  # tried first, so that an open page continues after the studio is restarted

EXAMPLES = """\b
Examples:
  shoal studio
  shoal studio days.csv
  shoal studio track.gpx
  shoal studio --port 8600 --no-open
"""


@app.command(epilog=EXAMPLES)
def studio(
    data: Annotated[
        Path | None, options.argument("[DATA]", "A table, track, spec or ledger to open.")
    ] = None,
    port: Annotated[
        int | None,
        options.option(None, f"0: any that is free.  [default: {PORT}, if free]", min=0, max=65535),
    ] = None,
    no_open: Annotated[
        bool, options.flag("--no-open", "Print the address and open no browser.")
    ] = False,
) -> None:
    """See what leaks and choose, in a browser.

    On this computer only: the address holds a key that is good until the studio ends (Ctrl-C), and
    nothing is sent anywhere.
    """
    from shoal.core.errors import InputError

    if data is not None and not data.is_file():
        raise InputError(f"there is no file {str(data)!r}; name a table, track, spec or ledger")
    try:
        import uvicorn

        from shoal.studio.app import make_app
    except ImportError:
        raise InputError(
            "the studio needs FastAPI and uvicorn; install them with: pip install 'shoal[studio]'"
        ) from None
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("127.0.0.1", PORT if port is None else port))
        except OSError:
            if port is not None:
                raise InputError(f"port {port} is taken; name another one, or none") from None
            door.bind(("127.0.0.1", 0))
        free = int(door.getsockname()[1])
        token = secrets.token_urlsafe(24)
        page = make_app(token=token, port=free, data=data)
        address = f"http://127.0.0.1:{free}/enter?token={token}"
        typer.echo(f"The studio is at {address}\nIt ends with Ctrl-C.")
        if not no_open:
            webbrowser.open(address)
        settings = uvicorn.Config(page, log_level="warning", access_log=False)
        uvicorn.Server(settings).run(sockets=[door])
