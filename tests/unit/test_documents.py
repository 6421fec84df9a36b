"""The Python in the README and in the documentation runs, page by page, as it stands."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shoal

ROOT = Path(__file__).parents[2]
NAMED = (
    "README.md",
    "docs/tutorial.md",
    "docs/concepts.md",
    "docs/context-streams.md",
    "docs/dependent-records.md",
    "docs/ledger.md",
    "docs/scale.md",
    "docs/command-line.md",
)
PAGES = [*(ROOT / name for name in NAMED), *sorted(ROOT.glob("docs/how-to/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
GUIDES = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/how-to/*.md"), *ROOT.glob("docs/studio/*.md")]
LINKING = [ROOT / "README.md", *sorted(GUIDES)]
MOST_WORDS = {"concepts": 700, "limits": 1200, "threat-model": 1200, "known-faults": 1250}
WORDS_OF_A_MACHINE = re.compile(r"(?<![\w.])/(?:home|root|tmp|work|Users)/|https?://[\w.]*pypi")


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    code = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_first_example_of_the_readme_is_short() -> None:
    (first, *_) = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


def test_the_figures_of_the_readme_are_those_the_code_gives() -> None:
    matrix = [[0.96, 0.02, 0.02], [0.10, 0.85, 0.05], [0.05, 0.05, 0.90]]
    day = shoal.MarkovChain.of(matrix, states=["sit", "stand", "walk"], length=1440)
    query, secrets = shoal.histogram(day.states), shoal.EachEntry()
    errors = [
        shoal.calibrate(query, secrets, day, epsilon=1, mechanism=name).error()
        for name in ("best", "group")
    ]
    best, group = (error.expected for error in errors if error is not None)
    leak = shoal.leakage(day, 1).value
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"in truth only {leak:.1f}-private" in text
    assert f"by a factor of {math.exp(leak):,.0f} instead of 2.7" in text
    assert f"an error of {best:.0f} minutes per activity" in text
    assert f"would need {group:,.0f}" in text


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(("name", "words"), MOST_WORDS.items())
def test_pages_that_are_read_once_stay_short(name: str, words: int) -> None:
    assert len((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split()) <= words


@pytest.mark.parametrize("page", sorted(GUIDES), ids=lambda page: page.stem)
def test_the_first_sentence_of_a_page_names_its_reader(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").split("\n")
    assert lines[0].startswith("# ")
    assert lines[2].startswith("For "), f"{page.name} does not say who reads it: {lines[2]}"


def test_the_makefile_has_every_target_the_readme_names() -> None:
    named = set(re.findall(r"`?make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_pins_are_plain_and_pages_name_no_machine() -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", pin) for pin in pins)
    names = [pin.partition("==")[0].casefold() for pin in pins]
    assert names == sorted(set(names))
    for page in (*PAGES, *ROOT.glob("docs/**/*.md"), ROOT / "Makefile"):
        if "_build" not in page.parts:
            assert not WORDS_OF_A_MACHINE.search(page.read_text(encoding="utf-8")), page
