"""How Sphinx builds these pages: MyST Markdown, the furo theme, docstrings as plain text."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import shoal

project = "Shoal"
copyright = "the Shoal authors, Apache-2.0"  # noqa: A001 - the name Sphinx reads
release = shoal.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.intersphinx"]
nb_execution_mode = "off"  # notebooks are shown as they were run; `make notebooks` runs them
# names of other projects lead to their pages where the pages are built with a network
ONLINE = bool(os.environ.get("SHOAL_DOCS_ONLINE"))
intersphinx_mapping = (
    {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "polars": ("https://docs.pola.rs/api/python/stable", None),
    }
    if ONLINE
    else {}
)
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Shoal {release}"
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}

PACKAGE = Path(shoal.__file__).parent
ROOMS = ("mechanisms", "records", "places", "contexts/checks", "gateway")  # where proofs lie


def plain_docstring(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings are written for people, not in reStructuredText: escape them, keep formulas."""
    if what == "data":
        lines.clear()  # a dictionary's docstring is Python's own
    blocks = re.split(r"\n\s*\n", "\n".join(lines))
    kept = []
    for block in blocks:
        rows = block.splitlines()
        if rows and all(row.startswith("    ") for row in rows):
            kept.append("::\n\n" + block)
        else:
            kept.append("\n".join(escaped(row.strip()) for row in rows))
    lines[:] = "\n\n".join(kept).splitlines()


def escaped(text: str) -> str:
    """`code` becomes a literal; every other character stands for itself."""
    parts = text.split("`")
    for place, part in enumerate(parts):
        code = place % 2 == 1 and part
        parts[place] = f"``{part}``" if code else re.sub(r"([\\*|_])", r"\\\1", part)
    return "".join(parts)


def all_proofs(app: Any, docname: str, source: list[str]) -> None:
    """The page of proofs is made of the files that lie beside the mechanisms."""
    if docname == "proofs":
        source[0] += "\n\n" + "\n\n".join(
            map(one_proof, sorted(path for room in ROOMS for path in (PACKAGE / room).glob("*.md")))
        )


def one_proof(path: Path) -> str:
    """A proof file as a section: headings one level down, links to other files as plain text."""
    text = re.sub(r"^(#+ )", r"#\1", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("source-read", all_proofs)
