"""Every room as a person uses it, in a real browser: the way that works, and those that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.additive.choice import choose
from shoal.spec.request import read_request
from tests.studio.conftest import ROOT, Studio, enter, shot, started, stopped

pytestmark = pytest.mark.xdist_group("studio")  # one browser for all

HOSTILE = "<img src=x onerror=alert(1)>"
AXE = ROOT / "views" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A dirty little series: names that are HTML, very long, and from right to left."""
    states = ["sit", HOSTILE, "x" * 300, "בית"]
    rows = [f"{minute},{states[(minute // 7 + minute // 50) % 4]}" for minute in range(400)]
    path = tmp_path / "days.csv"
    path.write_text("\n".join(["minute,what", *rows]) + "\n")
    return path


def sees(page: Any, view: str) -> None:
    page.wait_for_selector(f"[data-name={view}] :is(svg, canvas)")


def problem(page: Any) -> str:
    return str(page.wait_for_selector("[role=alert]").inner_text())


def opened(page: Any, table: Path) -> None:
    enter(page, "leak")
    page.set_input_files("input[type=file]", str(table))
    sees(page, "noisePreview")


def test_leak_from_a_file_to_files_that_give_what_was_on_the_screen(
    page: Any, table: Path, tmp_path: Path
) -> None:
    opened(page, table)
    sees(page, "chainHeat")
    assert page.locator("img").count() == 0
    assert "An ordinary ε = 1 release" in page.inner_text("main")
    before = page.inner_text("dl.facts")
    page.focus("input[type=range]")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "old => document.querySelector('dl.facts').innerText !== old", arg=before
    )
    page.click("text=Make one real release")
    page.wait_for_selector("caption:has-text('may be published')")
    shown = float(page.inner_text("dl.facts dd >> nth=0"))
    page.click("text=Make the files")
    for name in ("shoal.toml", "model.json", "plan.json"):
        with page.expect_download() as download:
            page.click(f"text=Save {name}")
        download.value.save_as(tmp_path / name)
    shot(page, "leak")
    plan = shoal.loads((tmp_path / "plan.json").read_text())
    assert float(plan.guarantee.amount) == pytest.approx(shown, rel=1e-2)
    request = read_request(tmp_path / "shoal.toml")
    assert choose(request.task, request.epsilon(), request.mechanism).plan == plan


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("photo.png", b"PNG", "it must be a table or a spec"),
        ("broken.parquet", b"no table", "the file is no table that can be read"),
        ("one.csv", b"what\na\n", "state"),
    ],
)
def test_leak_refuses_what_is_no_series(
    page: Any, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    enter(page, "leak")
    path = tmp_path / name
    path.write_bytes(content)
    page.set_input_files("input[type=file]", str(path))
    told = problem(page)
    assert words in told or name == "one.csv"
    assert "Traceback" not in told


def test_day_shows_and_plays(page: Any) -> None:
    enter(page, "day")
    page.click("text=Try an example day")
    sees(page, "beliefCurves")
    assert "slots are shown on average" in page.inner_text("main")
    shot(page, "day")
    for ticked in page.locator("input[type=checkbox]:checked").all():
        ticked.uncheck()
    page.click("text=Find the check")
    assert "tick at least one context" in problem(page)


def test_places_plays_every_step(page: Any) -> None:
    enter(page, "places")
    page.fill("text=cells across >> input", "6")
    page.fill("text=cells up >> input", "6")
    page.click("text=Draw the policy")
    sees(page, "beliefMap")
    page.click("text=Play a track")
    page.wait_for_selector("text=of 200")
    page.wait_for_function(
        "() => Number(/step (\\d+) of/.exec(document.querySelector('main').innerText)?.[1]) > 2"
    )
    shot(page, "places")


@pytest.mark.parametrize(
    ("room", "fill", "button", "words"),
    [
        ("places", ("cells across", "400"), "Draw the policy", "the studio shows 2 × 2 to 1024"),
        ("places", ("ε at each step", "0"), "Draw the policy", "epsilon"),
        ("places", ("radius (km)", ""), "Draw the policy", "it must be a number"),
        ("ties", ("people", "1"), "Draw the ties", "the studio draws 2 to 200"),
        ("ties", ("how alike friends are", "-1"), "Draw the ties", "friends"),
        ("ties", ("ε", "0"), "Draw the ties", "epsilon"),
        ("budget", ("ledger", "nowhere.db"), "Open it", "there is no ledger at"),
        ("budget", ("ledger", ""), "Open it", "ledger"),
        ("audit", ("the spec to audit", "no [spec"), "Audit it", "not valid TOML"),
        ("audit", ("the spec to audit", "[query]\nkind='x'"), "Audit it", "model is missing"),
        ("audit", ("the spec to audit", "a = 1"), "Audit it", "a spec"),
    ],
)
def test_bad_input_ends_in_one_sentence(
    page: Any, room: str, fill: tuple[str, str], button: str, words: str
) -> None:
    enter(page, room)
    page.get_by_label(fill[0], exact=False).first.fill(fill[1])
    page.click(f"text={button}")
    told = problem(page)
    assert words in told
    assert "\n" not in told
    assert "Traceback" not in told


def test_ties_are_drawn_with_what_they_tell(page: Any) -> None:
    enter(page, "ties")
    page.click("text=Draw the ties")
    sees(page, "tieGraph")
    assert "ignores the ties" in page.inner_text(".answer")
    shot(page, "ties")


def test_a_ledger_is_read_and_its_chain_checked(page: Any, tmp_path: Path) -> None:
    ledger = shoal.open_ledger(tmp_path / "budget.db")
    chain = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=["a", "b"], length=20)
    plan = shoal.calibrate(shoal.count(chain.states, "a"), shoal.EachEntry(), chain, epsilon=1)
    plan.release(["a", "b"] * 10, ledger=ledger, subject=HOSTILE)
    ledger.close()
    enter(page, "budget")
    page.fill("input[type=text]", str(tmp_path / "budget.db"))
    page.click("text=Open it")
    page.wait_for_selector("text=The chain is whole")
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("table")
    shot(page, "budget")


def test_an_audit_tells_and_saves_its_report(page: Any) -> None:
    enter(page, "audit")
    page.click("text=Audit it")
    sees(page, "auditDensities")
    assert "a single entry loses at least" in page.inner_text(".mark")
    with page.expect_download() as download:
        page.click("text=Save the report")
    assert download.value.suggested_filename == "audit.html"
    shot(page, "audit")


def test_a_room_works_with_the_keyboard_alone(page: Any) -> None:
    enter(page, "ties")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Draw the ties":
            break
    page.keyboard.press("Enter")
    sees(page, "tieGraph")


def test_work_can_be_cancelled(page: Any) -> None:
    enter(page, "day")
    page.click("text=Try an example day")
    page.click("text=Cancel")
    page.wait_for_selector("progress", state="detached")
    assert page.is_enabled("text=Try an example day")


@pytest.mark.parametrize("room", ["leak", "places", "day", "ties", "budget", "audit", "live"])
@pytest.mark.parametrize(
    ("look", "options"),
    [
        ("phone", {"viewport": {"width": 360, "height": 740}}),
        ("dark", {"color_scheme": "dark", "viewport": {"width": 600, "height": 450}}),
    ],
)
def test_no_room_is_wider_than_its_screen_nor_shuts_anybody_out(
    browser: Any, studio: Studio, room: str, look: str, options: dict[str, Any]
) -> None:
    """A phone, and a dark screen at twice the size of its letters."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(studio.address)
    enter(page, room)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"{room} on a {look} screen is {wide} pixels too wide"
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `make views`")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document).then(found => found.violations)")
    serious = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious)
    shot(page, f"{room}-{look}")
    context.close()


def test_a_studio_that_died_is_told_and_comes_back(browser: Any, tmp_path: Path) -> None:
    first = started(tmp_path)
    context = browser.new_context()
    page = context.new_page()
    page.goto(first.address)
    enter(page, "ties")
    stopped(first)
    page.click("text=Draw the ties")
    assert "The studio does not answer" in problem(page)
    context.close()


def test_two_tabs_do_not_hinder_each_other(browser: Any, studio: Studio) -> None:
    context = browser.new_context()
    tabs = [context.new_page() for _ in range(2)]
    for tab in tabs:
        tab.goto(studio.address)
        enter(tab, "ties")
        tab.click("text=Draw the ties")
    for tab in tabs:
        sees(tab, "tieGraph")
    context.close()
