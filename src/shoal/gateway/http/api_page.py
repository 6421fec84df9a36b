"""The page at /docs: every endpoint of the OpenAPI document, in plain HTML without scripts.

FastAPI's own pages load programs from a public network, which then knows who runs a gateway, and
could read the keys that are typed there.
"""

from __future__ import annotations

from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "code{font-size:.95em}section{border-top:1px solid #ccc;padding:.5rem 0}h2{font-size:1.05rem}"
)


def add_api_page(app: FastAPI) -> None:
    """Serve the page at /docs."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(api_page(app.openapi()), headers=HEADERS)


def api_page(document: dict[str, Any]) -> str:
    """Return an OpenAPI document as a page: methods, paths, what they do, take and answer."""
    parts = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = escape(document["info"]["title"])
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<style>{STYLE}</style><h1>{title} {escape(document['info']['version'])}</h1>"
        "<p>Send a key as <code>Authorization: Bearer KEY</code>. All of it, with every field, is "
        f"in <a href=/openapi.json>openapi.json</a>.</p>{''.join(parts)}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    """Return the HTML section of one operation: parameters, body, answers and description."""
    given = [
        f"{each['name']} ({each['in']}{', required' if each.get('required') else ''})"
        for each in operation.get("parameters", ())
    ]
    content = operation.get("requestBody", {}).get("content", {})
    bodies = [_name(each.get("schema", {})) for each in content.values()]
    lines = [("takes", given), ("body", bodies), ("answers", list(operation["responses"]))]
    facts = "".join(
        f"<br>{label}: <code>{escape(', '.join(values))}</code>"
        for label, values in lines
        if values
    )
    about = escape(operation.get("description") or operation.get("summary") or "")
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{about}{facts}</section>"
    )


def _name(schema: dict[str, Any]) -> str:
    """Return what a schema is called in the document."""
    return str(schema.get("$ref", schema.get("title", "object"))).rpartition("/")[2]
