"""Compare this tree with an older one: `python -m tests.differential --base REV [--only places]`.

Each tree runs in its own process with its own PYTHONPATH, the older one in a temporary worktree of
git. Bit-identical acts are counted, and every difference is printed. Exit code 1 says that there
are some.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.record import ALL, HISTORIES

HERE = Path(__file__).resolve().parents[2]
RECORDER = Path(__file__).with_name("record.py")
LONGEST_SHOWN = 160  # characters of a value in the list of differences
DIFFERENCES_SHOWN = 100


def main() -> int:
    """Record both trees side by side, print how they differ, and return the exit code."""
    given = parse_arguments()
    with tempfile.TemporaryDirectory() as temporary, older_tree(given, Path(temporary)) as base:
        folder = given.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--only", *given.only, "--histories", str(given.histories)]
        running = [
            start_recording(tree, folder / f"{name}.jsonl", options)
            for name, tree in (("base", base), ("head", given.head))
        ]
        codes = [process.wait() for process in running]
        if any(codes):
            sys.stderr.write(f"a recording ended with an error: {codes} (base, head)\n")
            return 2
        base_acts, head_acts = (read_acts(folder / f"{n}.jsonl") for n in ("base", "head"))
    return report(base_acts, head_acts)


def parse_arguments() -> argparse.Namespace:
    """Return the options, with the older tree as a revision or a folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    older = parser.add_mutually_exclusive_group(required=True)
    older.add_argument("--base", help="a revision of this repository: a tag, branch or commit")
    older.add_argument("--base-folder", type=Path, help="a folder that holds the older tree")
    parser.add_argument("--head", type=Path, default=HERE, help="the tree to judge; else this one")
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--histories", type=int, default=HISTORIES, help="random ledger histories")
    parser.add_argument("--out", type=Path, help="keep both recordings in this folder")
    return parser.parse_args()


@contextlib.contextmanager
def older_tree(given: argparse.Namespace, temporary: Path) -> Iterator[Path]:
    """Give the folder of the older tree; a worktree made here is removed again."""
    if given.base_folder is not None:
        yield given.base_folder.resolve()
        return
    tree = temporary / "tree"
    git("worktree", "add", "--quiet", "--detach", str(tree), given.base)
    try:
        yield tree
    finally:
        git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> None:
    """Run git in this repository."""
    subprocess.run(["git", "-C", str(HERE), *arguments], check=True)


def start_recording(tree: Path, path: Path, options: list[str]) -> subprocess.Popen[bytes]:
    """Start a recording of one tree into a file; it imports nothing of the other tree."""
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0", "COLUMNS": "100"}
    # -P: the folder of the recorder, which is of one tree, is no place to import from
    command = [sys.executable, "-P", str(RECORDER), *options]
    with path.open("wb") as out:
        return subprocess.Popen(command, stdout=out, env=environment, cwd=tree)


def read_acts(path: Path) -> dict[str, Any]:
    """Return what each act gave, by its name."""
    acts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        acts[one["id"]] = one["value"]
    return acts


def report(base: dict[str, Any], head: dict[str, Any]) -> int:
    """Print what differs and a last line with the numbers; 1 when anything does, else 0."""
    differing = [name for name in base if name in head and base[name] != head[name]]
    lines = [
        *(f"only in the base: {name}" for name in base if name not in head),
        *(f"only in the head: {name}" for name in head if name not in base),
    ]
    for name in differing:
        lines += [f"{name}{line}" for line in differences(base[name], head[name])]
    for line in lines[:DIFFERENCES_SHOWN]:
        print(line)
    if len(lines) > DIFFERENCES_SHOWN:
        print(f"{len(lines) - DIFFERENCES_SHOWN} more lines; keep the recordings with --out")
    missing = len(base.keys() ^ head.keys())
    same = len(base.keys() & head.keys()) - len(differing)
    print(f"{same} acts bit-identical, {len(differing)} different, {missing} in one tree only")
    return int(bool(differing or missing))


def differences(base: Any, head: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each part of two values that differs."""
    if isinstance(base, dict) and isinstance(head, dict):
        for key in {**base, **head}:
            if base.get(key) != head.get(key) or (key in base) != (key in head):
                gone = "absent"
                yield from differences(base.get(key, gone), head.get(key, gone), f"{where}.{key}")
    elif isinstance(base, list) and isinstance(head, list) and len(base) == len(head):
        for index, (one, other) in enumerate(zip(base, head, strict=True)):
            if one != other:
                yield from differences(one, other, f"{where}[{index}]")
    else:
        yield f"{where}: {shown(base)} -> {shown(head)}"


def shown(value: Any) -> str:
    """Return a value as text of bounded length."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


if __name__ == "__main__":
    sys.exit(main())
