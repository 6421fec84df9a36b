"""What pages, templates and helps print to be typed: the commands in them, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)`(shoal [^`]+)`(?!`)")
SHELLS = ("", "sh", "bash", "console")
# a word in capitals, brackets or dots stands for something the reader names
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z,]+\b(?![.=\w])|…|\.\.\.|\[|\s\|\s(?!shoal|jq)")
FIRST_WORDS = ("shoal ", "cd ", "echo ", "make ", "tail ", "pip ", "SHOAL_")


def page(name: str) -> str:
    """The text of a page of the documentation."""
    return (ROOT / name).read_text(encoding="utf-8")


def commands(name: str) -> list[str]:
    """Every command line of the shell blocks of a page, as printed, comments included."""
    return [
        line
        for language, block in FENCE.findall(page(name))
        if language in SHELLS
        for line in block.replace("\\\n", "").splitlines()
        if line.startswith(FIRST_WORDS)
    ]


def spans(name: str) -> list[str]:
    """Every whole command between backticks in the text of a page: one with an argument or more."""
    prose = FENCE.sub("", page(name))
    found = (" ".join(span.split()) for span in SPAN.findall(prose))
    return [command for command in found if complete(command)]


def complete(command: str) -> bool:
    """Whether a command can be typed as it is: it names a file and leaves nothing open."""
    return not PLACEHOLDER.search(command) and bool(re.search(r"\s[\w/.*'-]+\.\w+", command))


def synopsis(line: str) -> bool:
    """Whether a line says how a command is called, with words in capitals for what is named."""
    return bool(PLACEHOLDER.search(line.partition("#")[0]))


def next_steps(output: str) -> Iterator[str]:
    """The commands that a command prints to be typed next."""
    for line in output.splitlines():
        indented = re.fullmatch(r" +(shoal .+)", line)
        if indented and complete(indented[1]):
            yield indented[1].strip()
        for span in SPAN.findall(line):
            if complete(span):
                yield span


def header(text: str) -> list[str]:
    """The commands in the first comment of a spec: `# It runs as it is:  shoal plan …`."""
    comment = re.match(r"(?:#.*\n)+", text)
    assert comment is not None
    words = re.sub(r"^#\s?", "  ", comment[0], flags=re.MULTILINE)
    pieces = re.split(r"\s{2,}|(?<=as it is:)\s+", words)
    return [piece for piece in pieces if re.match(r"(shoal|echo) ", piece)]
