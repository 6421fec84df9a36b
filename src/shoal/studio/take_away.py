"""What can be taken away from a room: spec, commands, notebook, plan; nothing that is true."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shoal.additive.choice import choose
from shoal.core.errors import InputError
from shoal.core.registry import dumps, loads
from shoal.studio.bench import SPEC, request_of, texts
from shoal.studio.work import Say

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
    """The spec with its files, command lines, a notebook and the plan as one document."""
    room = str(params.get("room"))
    if room not in COMMANDS:
        raise InputError(f"there is nothing to take away from the room {room!r}")
    request = request_of(params)
    say("making the plan", 0.3)
    if params.get("plan"):
        plan = loads(str(params["plan"]))
    else:
        plan = choose(request.task, request.epsilon(), request.mechanism, prune=True).plan
    spec, files = str(params["spec"]), dict(params.get("files") or {})
    return {
        "files": {SPEC: spec, **files, "plan.json": dumps(plan) + "\n"},
        "commands": "\n".join(texts(params, "commands") or COMMANDS[room]) + "\n",
        "notebook": notebook(spec, files),
    }


def notebook(spec: str, files: Mapping[str, str]) -> str:
    """A notebook that writes the files beside itself and makes the same plan."""
    write = "".join(
        f"Path({name!r}).write_text({text!r})\n" for name, text in {SPEC: spec, **files}.items()
    )
    cells = [
        _cell("markdown", "# Made in the studio\n\nThe spec, and the plan it asks for."),
        _cell("code", f"from pathlib import Path\n\n{write}"),
        _cell(
            "code",
            "from shoal.additive import choose\nfrom shoal.spec.request import read_request\n\n"
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
