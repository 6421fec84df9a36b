"""Every room as a person uses it, in a real browser: the way that works, and those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.additive.choice import choose
from shoal.spec.request import read_request
from tests.studio.conftest import PATIENCE_MS, Studio, enter, every_look, started, stopped

pytestmark = pytest.mark.xdist_group("studio")  # one browser for all

HOSTILE = "<img src=x onerror=alert(1)>"


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
    page.fill("text=charge it to a ledger >> input", str(tmp_path / "own.db"))
    page.click("text=Make one real release")
    assert "subject" in problem(page)
    page.fill("text=in whose account >> input", "ann")
    page.click("text=Make one real release")
    page.wait_for_selector("caption:has-text('charged first')")
    with shoal.open_ledger(tmp_path / "own.db") as ledger:
        assert [charge.subject for charge in ledger.charges()] == ["ann"]
    shown = float(page.inner_text("dl.facts dd >> nth=0"))
    page.click("text=Make the files")
    for name in ("shoal.toml", "model.json", "plan.json"):
        with page.expect_download() as download:
            page.click(f"text=Save {name}")
        download.value.save_as(tmp_path / name)
    every_look(page, "leak-own")
    plan = shoal.loads((tmp_path / "plan.json").read_text())
    assert float(plan.guarantee.amount) == pytest.approx(shown, rel=1e-2)
    request = read_request(tmp_path / "shoal.toml")
    assert choose(request.task, request.epsilon(), request.mechanism).plan == plan


@pytest.mark.slow
def test_leak_opens_the_example_and_finds_the_epsilon_of_an_error(page: Any) -> None:
    enter(page, "leak")
    page.click("text=Try an example week")
    sees(page, "noisePreview")
    every_look(page, "leak")
    page.get_by_label("wanted error").fill("1000")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => parseFloat(document.querySelectorAll('dl.facts dd')[1].innerText) <= 1000"
    )


def test_leak_refuses_what_is_no_series(page: Any, tmp_path: Path) -> None:
    enter(page, "leak")
    bad = {
        "photo.png": (b"PNG", "it must be a table or a spec"),
        "broken.parquet": (b"no table", "the file is no table that can be read"),
        "once.csv": (b"what\na\n", "at least 2 are needed"),
    }
    for name, (content, words) in bad.items():
        (tmp_path / name).write_bytes(content)
        page.set_input_files("input[type=file]", str(tmp_path / name))
        page.wait_for_selector(f"[role=alert]:has-text({words!r})")
    with (tmp_path / "large.csv").open("wb") as large:
        large.truncate(100 * 2**20)
    page.set_input_files("input[type=file]", str(tmp_path / "large.csv"))
    page.wait_for_selector("[role=alert]:has-text('larger than 64 MB')")


def test_day_shows_and_plays(page: Any) -> None:
    enter(page, "day")
    page.click("text=Try an example day")
    sees(page, "beliefCurves")
    assert "slots are shown on average" in page.inner_text("main")
    assert "slot 72 of 72" in page.inner_text("output")
    page.focus(".player-bar input")
    page.keyboard.press("ArrowLeft")
    assert "slot 71 of 72, 23:30" in page.inner_text("output")
    every_look(page, "day")
    for ticked in page.locator("input[type=checkbox]:checked").all():
        ticked.uncheck()
    page.click("text=Find the check")
    assert "tick at least one context" in problem(page)


@pytest.mark.slow
def test_day_hides_that_something_happened_at_all(page: Any) -> None:
    enter(page, "day")
    page.click("text=Try an example day")
    page.wait_for_selector("text=that something happened at all")
    page.check("text=that something happened at all")
    page.select_option("label:has-text('over') select", "day")
    page.select_option("label:has-text('from') select", "08:00")
    page.select_option("label:has-text('to') select >> nth=-1", "18:00")
    page.click("text=Find the check")
    page.wait_for_selector("text=nobody's belief in this rises")
    sees(page, "beliefCurves")
    assert "between 08:00 and 18:00" in page.inner_text("main")
    every_look(page, "day-event")
    page.click("text=Make the files")
    page.wait_for_selector("text=Save plan.json")
    with page.expect_download() as download:
        page.click("text=Save shoal.toml")
    spec = Path(download.value.path()).read_text()
    assert 'visit = ["hospital"]\nbetween = ["08:00", "18:00"]' in spec
    for ticked in page.locator("input[type=checkbox]:checked").all():
        ticked.uncheck()
    page.click("text=Find the check")
    assert "the event names no context" in problem(page)


def small_map(page: Any) -> None:
    enter(page, "places")
    page.fill("text=cells across >> input", "6")
    page.fill("text=cells up >> input", "6")
    page.click("text=Draw the policy")
    page.wait_for_selector("text=The promise in words")


def test_places_are_joined_by_hand_and_played_beside_another_policy(page: Any) -> None:
    small_map(page)
    page.select_option("text=must look alike >> select", "edges")
    page.click("text=Draw the policy")
    assert "nothing is joined" in problem(page)
    page.focus(".editor-map")
    for key in ("Space", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_selector("option:has-text('A (3 cells)')", state="attached")
    page.check("text=join two places")
    page.focus(".editor-map")
    for key in ("ArrowUp", "Space", "ArrowUp", "Space"):
        page.keyboard.press(key)
    page.wait_for_selector("text=1 pair joined")
    page.click("text=Draw the policy")
    page.wait_for_selector("text=31 places look like no other")
    every_look(page, "places-policy")
    page.check("text=compare with a second policy")
    page.click("text=Draw the policy")
    page.wait_for_selector("text=look like no other")
    page.evaluate(
        "() => { globalThis.seen = []; addEventListener('step', e => seen.push(e.detail), true); }"
    )
    page.click("text=Play a track")
    page.wait_for_function("() => globalThis.seen.length > 30")
    page.click(".player-bar button")
    seen = page.evaluate("() => globalThis.seen")
    assert seen == list(range(len(seen)))
    assert page.locator(".player-columns canvas").count() == 2
    assert "under the second" in page.inner_text(".answer")
    every_look(page, "places")


@pytest.mark.slow
def test_a_zone_is_painted_with_the_mouse(page: Any) -> None:
    small_map(page)
    page.locator(".editor-map").scroll_into_view_if_needed()
    box = page.locator(".editor-map canvas").bounding_box()
    cell = box["width"] / 6
    page.mouse.move(box["x"] + cell / 2, box["y"] + cell / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 2.5 * cell, box["y"] + cell / 2, steps=6)
    page.mouse.up()
    page.wait_for_selector("option:has-text('A (3 cells)')", state="attached")
    assert "not in force yet" in page.inner_text(".answer")
    page.click("text=Clear what I drew")
    page.wait_for_selector("option:has-text('A (new)')", state="attached")


BAD = {
    ("places", "Draw the policy"): [
        ("cells across", "400", "the studio shows 2 × 2 to 1024"),
        ("ε at each step", "0", "epsilon"),
        ("radius (km)", "", "it must be a number"),
    ],
    ("ties", "Draw the ties"): [
        ("people", "1", "the studio draws 2 to 200"),
        ("how alike friends are", "-1", "friends"),
        ("ε", "0", "epsilon"),
    ],
    ("budget", "Open it"): [
        ("ledger", "nowhere.db", "there is no ledger at 'nowhere.db'"),
        ("ledger", "", "ledger is ''"),
        ("ledger", ".", "there is no ledger at '.'"),
    ],
    ("audit", "Audit it"): [
        ("the spec to audit", "no [spec", "not valid TOML"),
        ("the spec to audit", "[query]\nkind='x'", "model is missing"),
        ("the spec to audit", "a = 1", "a spec"),
    ],
}


@pytest.mark.parametrize(("room", "button"), BAD)
def test_bad_input_ends_in_one_sentence(page: Any, room: str, button: str) -> None:
    enter(page, room)
    for field, text, words in BAD[room, button]:
        box = page.get_by_label(field, exact=False).first
        before = box.input_value()
        box.fill(text)
        page.click(f"text={button}")
        told = page.wait_for_selector(f'[role=alert]:has-text("{words}")').inner_text()
        assert "\n" not in told
        assert "Traceback" not in told
        box.fill(before)


def test_a_ledger_is_read_and_its_chain_checked(page: Any, studio: Studio) -> None:
    ledger = shoal.open_ledger(studio.folder / "budget.db")
    chain = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=["a", "b"], length=20)
    plan = shoal.calibrate(shoal.count(chain.states, "a"), shoal.EachEntry(), chain, epsilon=1)
    ledger.limit(4, unit="epsilon")
    for subject in (HOSTILE, "ann", "bert"):
        plan.release(["a", "b"] * 10, ledger=ledger, subject=subject, requester="clinic")
    ledger.close()
    enter(page, "budget")
    page.click("text=Open it")
    page.wait_for_selector("text=The chain is whole")
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("table")
    assert "3" in page.inner_text("tbody tr >> nth=0 >> td >> nth=2")  # of four, one was spent
    every_look(page, "budget")


def test_an_audit_tells_and_saves_its_report(page: Any) -> None:
    enter(page, "audit")
    page.click("text=Audit it")
    sees(page, "auditDensities")
    assert "a single entry loses at least" in page.inner_text(".mark")
    with page.expect_download() as download:
        page.click("text=Save the report")
    assert download.value.suggested_filename == "audit.html"
    page.click("text=Make the files")
    page.wait_for_selector("text=shoal audit shoal.toml --html audit.html")
    every_look(page, "audit")


def test_ties_are_drawn_with_the_keyboard_alone(page: Any) -> None:
    enter(page, "ties")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Draw the ties":
            break
    page.keyboard.press("Enter")
    sees(page, "tieGraph")
    assert "a friend of yours lives in the south" in page.inner_text(".answer")
    assert "ignores the ties" in page.inner_text("main")
    every_look(page, "ties")


@pytest.mark.slow
def test_work_can_be_cancelled(page: Any) -> None:
    enter(page, "day")
    page.click("text=Try an example day")
    page.click("text=Cancel")
    page.wait_for_selector("progress", state="detached")
    assert page.is_enabled("text=Try an example day")


@pytest.mark.slow
def test_a_studio_that_died_is_told_and_the_page_goes_on(browser: Any, tmp_path: Path) -> None:
    first = started(tmp_path, "--port", "0")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(first.address)
    enter(page, "ties")
    page.fill("text=people >> input", "12")
    stopped(first)
    page.click("text=Draw the ties")
    assert "The studio does not answer" in problem(page)
    second = started(tmp_path, "--port", first.home.rpartition(":")[2])
    page.click("text=Draw the ties")
    page.wait_for_selector("text=open the address that")
    context.new_page().goto(second.address)
    page.click("text=Draw the ties")
    sees(page, "tieGraph")
    assert page.locator("[data-name=tieGraph] circle").count() == 12
    context.close()
    stopped(second)


@pytest.mark.slow
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
