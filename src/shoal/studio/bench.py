"""The inputs of a room: a spec and the files it names, as text, and the data if there is any.

The page stores them and sends them with every question. So the files that the user downloads give
the numbers on the screen: all of them come from this spec, by the same code as the command line.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from shoal.core.errors import InputError
from shoal.core.registry import dumps, loads
from shoal.spec.request import Request, parse_request
from shoal.studio.work import Say

T = TypeVar("T")
SPEC = "shoal.toml"
NO_PLAN = "there is no plan on the table; make one first"


@contextmanager
def on_disk(params: Mapping[str, Any]) -> Iterator[Path]:
    """Create a private folder with the spec and its files while inside, and yield it."""
    spec, files = params.get("spec"), params.get("files") or {}
    if not isinstance(spec, str) or not isinstance(files, dict):
        raise InputError("there is no spec on the table; open data or an example first")
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder = Path(name)
        for file, text in {**files, SPEC: spec}.items():
            if Path(file).name != file or not isinstance(text, str):
                raise InputError(f"{file!r} is no plain file name")
            (folder / file).write_text(text)
        yield folder


def request_of(params: Mapping[str, Any]) -> Request:
    """Return the request of the page's spec."""
    with on_disk(params) as folder:
        return parse_request(str(params["spec"]), folder=folder, name=SPEC)


def spec_text(tries: str, *, data: str = "", **sections: str) -> str:
    """Return a spec in TOML: a comment with commands to try, then each non-empty section."""
    parts = {"[data]": data, "[[model]]": sections.pop("model")}
    parts |= {f"[{name}]": lines for name, lines in sections.items()}
    said = [f"{title}\n{lines}\n" for title, lines in parts.items() if lines]
    return "\n".join([f"# Made in the studio. Try:  {tries}\n", *said])


def sure(value: Any, kind: type[T], sentence: str) -> T:
    """Return `value`; refused unless it has the wanted type."""
    if not isinstance(value, kind):
        raise InputError(sentence)
    return value


def number(params: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return a number among the choices."""
    found = params.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InputError(f"{name} is {found!r}; it must be a number")
    return float(found)


def text(params: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text among the choices."""
    found = params.get(name, default)
    if not isinstance(found, str) or not found:
        raise InputError(f"{name} is {found!r}; choose one")
    return found


def texts(params: Mapping[str, Any], name: str) -> list[str]:
    """Return several texts among the choices."""
    found = params.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InputError(f"{name} must be a list of names")
    return list(found)


# where a room names none that are about the person's own file
COMMANDS = {
    "leak": [
        "shoal leak shoal.toml",
        "shoal plan shoal.toml",
        "shoal release shoal.toml days.csv -o release.json --ledger budget.db",
    ],
    "places": ["shoal plan shoal.toml", "shoal stream shoal.toml < track.jsonl"],
    "day": ["shoal plan shoal.toml", "shoal stream shoal.toml < contexts.jsonl"],
    "ties": ["shoal plan shoal.toml", "shoal leak shoal.toml"],
    "audit": ["shoal audit shoal.toml --html audit.html"],
}


def take_away(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Return what the user can download: the spec, its files, commands, a notebook, the plan."""
    room = str(params.get("room"))
    if room not in COMMANDS:
        raise InputError(f"there is nothing to take away from the room {room!r}")
    request = request_of(params)
    say("making the plan", 0.3)
    plan = loads(str(params["plan"])) if params.get("plan") else request.plan()
    spec, files = str(params["spec"]), dict(params.get("files") or {})
    return {
        "files": {SPEC: spec, **files, "plan.json": dumps(plan) + "\n"},
        "commands": "\n".join(texts(params, "commands") or COMMANDS[room]) + "\n",
        "notebook": notebook(spec, files),
    }


def notebook(spec: str, files: Mapping[str, str]) -> str:
    """Return a notebook that writes the files beside itself and makes the same plan."""
    write = "".join(
        f"Path({name!r}).write_text({text!r})\n" for name, text in {SPEC: spec, **files}.items()
    )
    cells = [
        _cell("markdown", "# Made in the studio\n\nThe spec, and the plan it asks for."),
        _cell("code", f"from pathlib import Path\n\n{write}"),
        _cell(
            "code",
            "from shoal.mechanisms import choose\nfrom shoal.spec.request import read_request\n\n"
            'request = read_request(Path("shoal.toml"))\n'
            "plan = choose(request.task, request.epsilon(), request.mechanism).plan\n"
            "print(plan.explain())",
        ),
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1)


def _cell(kind: str, source: str) -> dict[str, Any]:
    shared = {"id": f"cell-{len(source)}", "cell_type": kind, "metadata": {}, "source": source}
    return shared if kind == "markdown" else {**shared, "outputs": [], "execution_count": None}
