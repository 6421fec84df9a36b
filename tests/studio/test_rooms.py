"""Every room as a person uses it, in a real browser, on examples and on files of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.data.generate import friends_places
from shoal.ledger import entries
from shoal.mechanisms.choice import choose
from shoal.spec.request import read_request
from tests.studio.conftest import (
    LOOKS,
    PATIENCE_MS,
    Studio,
    enter,
    every_look,
    one_look,
    started,
    stopped,
)

pytestmark = pytest.mark.xdist_group("studio")  # one browser for all

HOSTILE = "<img src=x onerror=alert(1)>"
Look = Callable[[Any, str], None]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A dirty little series: names that are HTML, very long, and from right to left."""
    states = ["sit", HOSTILE, "x" * 300, "בית"]
    rows = [f"{minute},{states[(minute // 7 + minute // 50) % 4]}" for minute in range(150)]
    path = tmp_path / "days.csv"
    path.write_text("\n".join(["minute,what", *rows]) + "\n")
    return path


@pytest.fixture
def track(tmp_path: Path) -> Path:
    """Two people walking to and fro, with one bad fix and a step without a position."""
    lines = ["who,when,lat,lon"]
    for at in range(120):
        place = f"{52.5 + 0.002 * (at % 20)},{13.4 + 0.003 * (at // 20)}"
        clock = f"2026-03-02T{8 + at // 60:02d}:{at % 60:02d}:00"
        lines += [
            f"ann,{clock},{place}",
            f"bert,{clock},{'' if at == 7 else place.partition(',')[0]},13.41",
        ]
    lines.append("ann,2026-03-02T10:00:00,48.1,11.5")
    path = tmp_path / "track.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def contexts(tmp_path: Path) -> Path:
    """Four weeks of hours, with a visit to the clinic now and then."""
    lines = ["time,where"]
    for day in range(28):
        for hour in range(8, 20):
            place = "clinic" if hour == 15 and day % 3 == 0 else "work" if hour < 17 else "home"
            lines.append(f"2026-03-{1 + day:02d}T{hour:02d}:00:00,{place}")
    path = tmp_path / "contexts.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def town(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Check-ins of a made-up town, who is whose friend, and in which half each person lives."""
    made = friends_places(people=30, seed=2)
    visits, friends, halves = (tmp_path / f"{name}.csv" for name in ("visits", "friends", "halves"))
    made.checkins().write_csv(visits)
    made.ties().write_csv(friends)
    homes = {name: "north" if at % 3 else "south" for at, name in enumerate(made.people)}
    halves.write_text("person,half\n" + "".join(f"{a},{b}\n" for a, b in homes.items()))
    return visits, friends, halves


def sees(page: Any, view: str) -> None:
    page.wait_for_selector(f"[data-name={view}] :is(svg, canvas)")


def problem(page: Any) -> str:
    return str(page.wait_for_selector("[role=alert]").inner_text())


def refuses(page: Any, words: str) -> None:
    """One sentence with these words, and nothing that only a programmer reads."""
    told = page.wait_for_selector(f'[role=alert]:has-text("{words}")').inner_text()
    assert "\n" not in told
    assert "Traceback" not in told
    assert "/shoal-studio" not in told


def give(page: Any, *files: Path, place: int = 0) -> None:
    page.locator("input[type=file]").nth(place).set_input_files([str(file) for file in files])


def saved(page: Any, name: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.click(f"text=Save {name}")
    download.value.save_as(folder / name)
    return folder / name


def test_leak_from_a_file_to_files_that_give_what_was_on_the_screen(
    page: Any, table: Path, tmp_path: Path
) -> None:
    enter(page, "leak")
    give(page, table)
    sees(page, "noisePreview")
    sees(page, "chainHeat")
    assert page.locator("img").count() == 0
    assert "An ordinary ε\u00a0=\u00a01 release" in page.inner_text("main")
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
        saved(page, name, tmp_path)
    plan = shoal.loads((tmp_path / "plan.json").read_text())
    assert float(plan.guarantee.amount) == pytest.approx(shown, rel=1e-2)
    request = read_request(tmp_path / "shoal.toml")
    assert choose(request.task, request.epsilon(), request.mechanism).plan == plan


@pytest.mark.slow
def test_leak_with_names_that_are_html_or_very_long_in_every_look(page: Any, table: Path) -> None:
    enter(page, "leak")
    give(page, table)
    sees(page, "noisePreview")
    every_look(page, "leak-own")


def test_leak_tells_pauses_and_cuts_there(page: Any, tmp_path: Path) -> None:
    rows = [
        f"2026-03-{1 + at // 100:02d}T{at % 100 // 10:02d}:{at % 10 * 5:02d}:00,"
        for at in range(300)
    ]
    words = ["" if at == 5 else "sit" if at // 9 % 2 else "walk" for at in range(300)]
    path = tmp_path / "days.csv"
    path.write_text("when,what\n" + "".join(a + b + "\n" for a, b in zip(rows, words, strict=True)))
    enter(page, "leak")
    give(page, path)
    sees(page, "chainHeat")
    told = page.inner_text("main")
    assert "Empty cells: 1 of 300 in 'what'" in told
    assert "each starts a new chain" in told


@LOOKS
@pytest.mark.slow
def test_leak_opens_the_example_and_finds_the_epsilon_of_an_error(page: Any, look: Look) -> None:
    enter(page, "leak")
    page.click("text=Try an example week")
    sees(page, "noisePreview")
    look(page, "leak")
    page.get_by_label("wanted error").fill("1000")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => parseFloat(document.querySelectorAll('dl.facts dd')[1].innerText) <= 1000"
    )


@pytest.mark.slow
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


def test_day_learns_from_a_file_and_plays_a_day_of_it(
    page: Any, contexts: Path, tmp_path: Path
) -> None:
    enter(page, "day")
    give(page, contexts)
    sees(page, "beliefCurves")
    told = page.inner_text("main")
    assert "28 days of 12 slots of 60 minutes" in told
    assert "On one day of your file" in told
    assert page.is_checked("label:has-text('clinic') input")
    page.click("text=Make the files")
    saved(page, "shoal.toml", tmp_path)
    saved(page, "day.json", tmp_path)
    states = read_request(tmp_path / "shoal.toml").task.family[0].states
    assert states == ("clinic", "home", "work")
    one_look(page, "day-own")
    page.uncheck("label:has-text('clinic') input")
    page.click("text=Find the check")
    refuses(page, "tick at least one context")


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


@LOOKS
def test_places_are_joined_by_hand_and_played_beside_another_policy(page: Any, look: Look) -> None:
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
    look(page, "places-policy")
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
    look(page, "places")


def test_places_learns_a_map_from_a_track_and_draws_lines_under_it(
    page: Any, track: Path, tmp_path: Path
) -> None:
    enter(page, "places")
    give(page, track)
    page.wait_for_selector(".player-bar")
    told = page.inner_text("main")
    assert "241 positions of 2 people" in told
    assert "1 positions lie beyond the map" in told
    assert page.locator("label:has-text('whose track') option").all_inner_texts() == ["ann", "bert"]
    page.click("text=Lines under the map")
    coast = tmp_path / "coast.geojson"
    coast.write_text('{"type": "LineString", "coordinates": [[13.3, 52.5], [13.5, 52.54]]}')
    give(page, coast, place=1)
    page.wait_for_selector("text=Take the lines away")
    page.click("text=Make the files")
    saved(page, "shoal.toml", tmp_path)
    saved(page, "model.json", tmp_path)
    chain: Any = read_request(tmp_path / "shoal.toml").task.family[0]
    assert chain.grid.cell_of(48.1, 11.5) == -1  # one bad fix does not stretch the map
    far = tmp_path / "far.geojson"
    far.write_text('{"type": "LineString", "coordinates": [[0, 0], [1, 1]]}')
    give(page, far, place=1)
    refuses(page, "no line of the backdrop crosses this map")


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


@LOOKS
def test_ties_are_drawn_with_the_keyboard_alone(page: Any, look: Look) -> None:
    enter(page, "ties")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Draw the ties":
            break
    page.keyboard.press("Enter")
    sees(page, "tieGraph")
    assert "a friend of yours is in 'south'" in page.inner_text(".answer")
    assert "ignores the ties" in page.inner_text("main")
    look(page, "ties")


def test_ties_attacks_a_town_of_ones_own(page: Any, town: tuple[Path, Path, Path]) -> None:
    visits, friends, halves = town
    enter(page, "ties")
    give(page, visits)
    page.wait_for_selector("text=a table of who is tied to whom")
    give(page, friends, place=1)
    sees(page, "beliefMap")
    assert "knows who is whose friend and sees one ordinary" in page.inner_text(".answer")
    assert "instead of" in page.inner_text("figcaption >> nth=0")
    give(page, halves)
    page.wait_for_selector("text=a table of who is tied to whom")
    give(page, friends, place=1)
    page.wait_for_selector(".answer:has-text('of the people right instead of')")
    assert "surer of the truth" in page.inner_text("[data-name=tieGraph]")


@pytest.mark.slow
def test_ties_shows_the_attack_on_a_made_up_town_in_every_look(page: Any) -> None:
    enter(page, "ties")
    page.click("text=Try a town of friends")
    sees(page, "beliefMap")
    every_look(page, "ties-town")
    page.select_option("label:has-text('somebody else') select", index=3)
    name = page.locator("label:has-text('somebody else') option").nth(3).inner_text()
    page.wait_for_selector(f"figcaption:has-text('they think {name} is')")


def charged(path: Path, people: tuple[str, ...]) -> Path:
    """A ledger with one release about each of `people`."""
    chain = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=["a", "b"], length=90)
    plan = shoal.calibrate(shoal.count(chain.states, "a"), shoal.EachEntry(), chain, epsilon="0.5")
    with shoal.open_ledger(path) as book:
        book.limit(4, unit="epsilon")
        for at, who in enumerate(people):
            asker = ("clinic", "insurer")[at % 2]
            plan.release(["a", "b"] * 45, ledger=book, subject=who, requester=asker)
    return path


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Half a year of releases about three people."""
    first = datetime(2026, 3, 2, 9, tzinfo=UTC)
    times = iter(first + timedelta(days=17 * at) for at in range(100))
    monkeypatch.setattr(entries, "now", lambda: next(times).isoformat(timespec="microseconds"))
    names = ("ann", "bert", "ann", "cleo", "ann", "ann", "bert", "ann")
    return charged(tmp_path / "budget.db", names)


@LOOKS
def test_a_ledger_is_read_and_its_chain_checked(
    page: Any, studio: Studio, ledger: Path, look: Look
) -> None:
    shutil.copy(ledger, studio.folder / "budget.db")
    enter(page, "budget")
    page.click("text=Open it")
    page.wait_for_selector("text=The chain is whole: 8 charges")
    assert "ann has ε" in page.inner_text(".answer")
    assert "2026" in page.inner_text("[data-name=budgetLine]")
    assert "3.5" in page.inner_text("tbody tr >> nth=2 >> td >> nth=2")  # of four, half was spent
    look(page, "budget")
    page.select_option("label:has-text('account') select", index=2)
    page.wait_for_selector(".answer:has-text('cleo has')")
    give(page, charged(ledger.with_stem("odd"), (HOSTILE,)))
    page.wait_for_selector("text=The chain is whole: 1 charge in")
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("table")


@LOOKS
def test_an_audit_tells_and_saves_its_report(page: Any, look: Look) -> None:
    enter(page, "audit")
    page.click("text=Audit it")
    sees(page, "auditDensities")
    assert "a single entry loses at least" in page.inner_text(".mark")
    with page.expect_download() as download:
        page.click("text=Save the report")
    assert download.value.suggested_filename == "audit.html"
    page.click("text=Make the files")
    page.wait_for_selector("text=shoal audit shoal.toml --html audit.html")
    look(page, "audit")


def test_an_audit_takes_a_spec_with_its_model_or_a_plan(page: Any, tmp_path: Path) -> None:
    chain = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=["a", "b"], length=20)
    plan = shoal.calibrate(shoal.count(chain.states, "a"), shoal.EachEntry(), chain, epsilon=1)
    (tmp_path / "model.json").write_text(shoal.dumps(chain))
    (tmp_path / "plan.json").write_text(shoal.dumps(plan))
    (tmp_path / "shoal.toml").write_text(
        '[[model]]\nfile = "model.json"\n[secrets]\nkind = "each-entry"\n'
        '[query]\nkind = "count"\nstates = ["a"]\n[privacy]\nepsilon = 1.0\n'
    )
    enter(page, "audit")
    give(page, tmp_path / "shoal.toml", tmp_path / "model.json")
    page.wait_for_selector(".mark:has-text('kept')")
    assert "with model.json" in page.inner_text("form")
    give(page, tmp_path / "plan.json")
    page.wait_for_selector("text=A stored plan is audited as it is.")
    page.wait_for_selector(".mark:has-text('kept')")


# What every room refuses: a file that is no table, a column that is missing, what cannot be fitted.

NO_TABLE = b"\x00\x01 no table"
FIELDS = {
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
FILES: dict[str, list[tuple[str, bytes, str]]] = {
    "leak": [
        ("photo.png", b"PNG", "the file ends in .png"),
        ("broken.parquet", NO_TABLE, "the file is no table that can be read"),
        ("once.csv", b"what\na\n", "at least 2 are needed"),
        ("many.csv", b"what\n" + b"".join(b"%d\n" % at for at in range(99)), "different values"),
    ],
    "places": [
        ("broken.parquet", NO_TABLE, "the file is no table that can be read"),
        ("one.csv", b"lat\n52\n", "this room needs latitude and longitude"),
        ("far.csv", b"lat,lon\n52,13\n99,13\n", "a latitude is a number from -90 to 90"),
        ("still.csv", b"lat,lon\n52,13\n", "fewer than 2 positions"),
        ("bad.gpx", b"<gpx", "is not XML as it should be: line 1"),
    ],
    "day": [
        ("broken.parquet", NO_TABLE, "the file is no table that can be read"),
        ("one.csv", b"where\nhome\n", "this room needs state and time"),
        ("same.csv", b"time,where\n2026-03-01T10:00,home\n2026-03-01T11:00,home\n", "2 to 16"),
        ("never.csv", b"time,where\nsoon,home\nlater,work\n", "time"),
    ],
    "ties": [
        ("broken.parquet", NO_TABLE, "the file is no table that can be read"),
        ("one.csv", b"person\nann\n", "and a value"),
        ("bad.bif", b"network {", "bif"),
    ],
    "budget": [
        ("photo.png", b"PNG", "the file ends in .png"),
        ("text.db", b"no ledger at all, but some text", "ledger"),
        ("empty.db", b"", "ledger"),
    ],
    "audit": [
        ("table.csv", b"a,b\n1,2\n", "is no spec and no plan"),
        ("plan.json", b"{}", "store it with shoal.dumps"),
        ("bare.toml", b"[privacy]\nepsilon = 1\n", "model is missing"),
    ],
}


@pytest.mark.parametrize("room", FILES)
def test_bad_files_and_fields_end_in_one_sentence(page: Any, tmp_path: Path, room: str) -> None:
    enter(page, room)
    for (own, button), rows in FIELDS.items():
        for field, text, words in rows if own == room else ():
            box = page.locator("form label", has_text=field).locator("input, textarea").first
            before = box.input_value()
            box.fill(text)
            page.click(f"text={button}")
            refuses(page, words)
            box.fill(before)
    for name, content, words in FILES[room]:
        (tmp_path / name).write_bytes(content)
        give(page, tmp_path / name)
        refuses(page, words)


def test_ties_refuses_what_has_no_friends(page: Any, town: tuple[Path, Path, Path]) -> None:
    enter(page, "ties")
    give(page, town[2])
    page.wait_for_selector("text=a table of who is tied to whom")
    page.click("text=Draw the ties")
    refuses(page, "who is tied to whom is missing")
    for content, words in (("a\n1\n", "it needs two"), ("a,b\nx,y\n", "no two people")):
        pairs = town[1].with_stem(words.replace(" ", "-"))
        pairs.write_text(content)
        give(page, pairs, place=1)
        refuses(page, words)


def test_a_column_that_cannot_be_guessed_is_asked_for(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("y,x\n" + "".join(f"52.{at % 10},13.{at % 7}\n" for at in range(40)))
    enter(page, "places")
    give(page, path)
    page.wait_for_selector("text=Choose the column that says latitude and longitude")
    page.click("text=Use these columns")
    refuses(page, "no column is chosen for the latitude")
    page.select_option("label:text-is('latitude') select", "y")
    page.select_option("label:text-is('longitude') select", "x")
    page.click("text=Use these columns")
    page.wait_for_selector(".player-bar")


@pytest.mark.parametrize("room", ["leak", "audit"])
def test_a_file_of_100_mb_is_refused_at_once(page: Any, tmp_path: Path, room: str) -> None:
    large = tmp_path / ("large.csv" if room == "leak" else "large.toml")
    with large.open("wb") as opened:
        opened.truncate(100 * 2**20)
    enter(page, room)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    give(page, large)
    refuses(page, f"larger than {64 if room == 'leak' else 16} MB")
    assert not [url for url in asked if "uploads" in url]


# What happens around the rooms.


@pytest.mark.slow
def test_work_can_be_cancelled(page: Any) -> None:
    enter(page, "day")
    page.click("text=Try an example day")
    page.click("text=Cancel")
    page.wait_for_selector("progress", state="detached")
    assert page.is_enabled("text=Try an example day")


@pytest.mark.slow
def test_a_file_named_at_the_start_opens_in_its_room(
    browser: Any, tmp_path: Path, track: Path, contexts: Path, ledger: Path
) -> None:
    (tmp_path / "shoal.toml").write_text('[[model]]\nkind = "groups"\nlargest = 2\n')
    wanted = {track: "places", contexts: "leak", ledger: "budget", tmp_path / "shoal.toml": "audit"}
    for file, room in wanted.items():
        running = started(tmp_path, "--port", "0", file.name)
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(running.address)
        page.wait_for_selector(f"nav a[href='#/{room}'][aria-current]")
        seen = {
            "places": ".player-bar",
            "leak": "[data-name=chainHeat] svg",
            "budget": "text=The chain is whole",
            "audit": "[role=alert]",
        }
        page.wait_for_selector(seen[room])
        if room == "leak":
            enter(page, "day")
            page.click("text=Use contexts.csv")
            sees(page, "beliefCurves")
        context.close()
        stopped(running)


@pytest.mark.slow
def test_a_studio_that_died_is_told_and_the_page_goes_on(browser: Any, tmp_path: Path) -> None:
    first = started(tmp_path, "--port", "0")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(first.address)
    enter(page, "ties")
    page.fill("form label:has-text('people') input", "12")
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
