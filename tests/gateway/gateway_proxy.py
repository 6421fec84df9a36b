"""A proxy before PostgreSQL that stalls: it keeps connections open and forwards nothing."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

from sqlalchemy.engine import make_url


class StallingProxy:
    """Forwards a port of loopback to a server until `stall`, and again after `resume`."""

    def __init__(self, server: str) -> None:
        """Listen; `server` is the URL of a PostgreSQL server, on a socket file or an address."""
        self._url = make_url(server)
        self._going = threading.Event()
        self._going.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """The server's URL through this proxy."""
        query = {name: value for name, value in self._url.query.items() if name != "host"}
        port = self._listening.getsockname()[1]
        found = self._url.set(host="127.0.0.1", port=port, query=query)
        return found.render_as_string(hide_password=False)

    def stall(self) -> None:
        """Forward nothing from now on; connections stay open, and new ones are accepted."""
        self._going.clear()

    def resume(self) -> None:
        """Forward again, also what came meanwhile."""
        self._going.set()

    def close(self) -> None:
        """Accept no more connections; those that are open end with the process."""
        self._going.set()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        """Copy bytes both ways until one side ends."""
        with contextlib.suppress(OSError), client, self._connected() as server:
            other = {client: server, server: client}
            while True:
                ready, _, _ = select.select(list(other), [], [], 0.05)
                if not self._going.is_set():
                    time.sleep(0.05)
                    continue
                for each in ready:
                    content = each.recv(65536)
                    if not content:
                        return
                    other[each].sendall(content)

    def _connected(self) -> socket.socket:
        """A connection to the server."""
        host = str(self._url.query.get("host") or self._url.host or "127.0.0.1")
        port = self._url.port or 5432
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        found = socket.socket(socket.AF_UNIX)
        found.connect(f"{host}/.s.PGSQL.{port}")
        return found
