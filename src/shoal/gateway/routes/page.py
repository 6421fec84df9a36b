"""The person's page: what was shown about them, what is believed, pause, forget; with their key.

The page is built with the studio's (`make views`) and carried by the wheel. It holds the key in
memory only and asks the same API as everybody else.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response

from shoal.gateway.problems import missing

FILES = {
    "": "text/html",
    "person.js": "text/javascript",
    "shared.js": "text/javascript",
    "studio.css": "text/css",
}
HEADERS = {
    # Plot puts <style> into the charts it makes, which only 'unsafe-inline' lets pass
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_page(app: FastAPI) -> None:
    """Serve the page at /page/, where it was built; elsewhere it is missing like any other."""
    built = Path(str(files("shoal.studio"))) / "static"

    @app.get("/page/{name}", include_in_schema=False)
    @app.get("/page/", include_in_schema=False)
    async def page(name: str = "") -> Response:
        file = built / (name or "person.html")
        if name not in FILES or not file.is_file():
            raise missing()
        return FileResponse(file, media_type=FILES[name], headers=HEADERS)
