"""The studio's numbers, measured in Debian's chromium on a studio started for it.

    make views
    python -m benchmarks.studio

Prints one line for each aim: the page's first paint, its size, the slider, playback, what axe-core
finds, who is asked, and how many clicks lead from a file to a spec of it.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.studio.conftest import AXE, FLAGS, STATIC, Studio, enter, started, stopped

ROOMS = ("leak", "places", "day", "ties", "budget", "audit", "live")
MOVES, STEPS, SIDE = 100, 500, 20
PATIENCE_MS = 300_000
SLIDE = """async moves => {
  const slider = document.querySelector("input[type=range]"), taken = [];
  const painted = () => new Promise(done => requestAnimationFrame(() => {
    const after = new MessageChannel();
    after.port1.onmessage = done;
    after.port2.postMessage(0);
  }));
  for (let move = 0; move < moves; move += 1) {
    const begun = performance.now();
    slider.value = String((7 * move) % (Number(slider.max) + 1));
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await painted();
    taken.push(performance.now() - begun);
  }
  return taken;
}"""
WATCH = """() => {
  globalThis.steps = [];
  addEventListener("step", event => steps.push([event.detail, performance.now()]), true);
}"""


def main() -> None:
    """The table of aims, each with what was measured."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or not STATIC.is_file():
        print("left out: this needs Debian's chromium and the built page (`make views`)")
        return
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'what':<58}{'aim':>16}{'measured':>16}")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        first_paint(browser, Path(folder))
        sizes()
        studio = started(Path(folder), "--port", "0")
        page = page_of(browser, studio, asked)
        slider(page)
        playback(page)
        findings(page)
        clicks(page, Path(folder))
        stopped(studio)
        browser.close()
    away = [url for url in asked if not re.match(r"(http://127\.0\.0\.1:|data:|blob:)", url)]
    row(f"requests to anywhere but loopback, of {len(asked)}", "0", str(len(away)))


def row(what: str, aim: str, measured: str) -> None:
    print(f"{what:<58}{aim:>16}{measured:>16}", flush=True)


def page_of(browser: Any, studio: Studio, asked: list[str]) -> Any:
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(studio.address)
    return page


def first_paint(browser: Any, folder: Path) -> None:
    """From the command to a page that can be used, the second time and later."""
    taken, worked = [], []
    for _ in range(4):
        begun = time.perf_counter()
        studio = started(folder, "--port", "0")
        page = browser.new_page()
        page.goto(studio.address)
        page.wait_for_selector("text=Try an example week")
        taken.append(time.perf_counter() - begun)
        worked.append(processor_seconds(studio.process.pid))
        page.close()
        stopped(studio)
    row(
        "`shoal studio` to first useful paint, warm",
        "≤ 2 s",
        f"{statistics.median(taken[1:]):.2f} s",
    )
    row("processor time of the studio until then", "", f"{statistics.median(worked[1:]):.2f} s")


def processor_seconds(pid: int) -> float:
    """What a process used, whatever else the machine is doing."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sizes() -> None:
    folder = STATIC.parent
    page = sum((folder / name).stat().st_size for name in
               ("index.html", "studio.js", "shared.js", "studio.css"))  # fmt: skip
    views = (folder / "views.js").stat().st_size
    row("the page, raw (its views alone, for notebooks: " f"{views / 1e6:.2f} MB)", "≤ 2.5 MB",
        f"{page / 1e6:.2f} MB")  # fmt: skip


def slider(page: Any) -> None:
    enter(page, "leak")
    page.click("text=Try an example week")
    page.wait_for_selector("[data-name=noisePreview] svg")
    taken = sorted(page.evaluate(SLIDE, MOVES))
    row("slider to new picture, p95", "≤ 100 ms", f"{taken[int(0.95 * len(taken))]:.0f} ms")


def playback(page: Any) -> None:
    enter(page, "places")
    page.fill("text=cells across >> input", str(SIDE))
    page.fill("text=cells up >> input", str(SIDE))
    page.wait_for_selector("text=steps of the track")
    page.fill("text=steps of the track >> input", str(STEPS))
    page.evaluate(WATCH)
    page.click("text=Play a track")
    page.wait_for_selector("text=Play again")
    steps = page.evaluate("() => globalThis.steps")
    skipped = STEPS - len({number for number, _ in steps})
    pace = (len(steps) - 1) / (steps[-1][1] - steps[0][1]) * 1000
    row(
        f"playback, {SIDE * SIDE} cells, {STEPS} steps, with belief",
        "≥ 20 steps/s",
        f"{pace:.1f} steps/s",
    )
    row("steps of it that were skipped", "0", str(skipped))


def findings(page: Any) -> None:
    """Serious and critical findings of axe-core in all rooms, light and dark."""
    if not AXE.is_file():
        row("axe-core, serious or critical", "0", "not installed")
        return
    found = 0
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for room in ROOMS:
            enter(page, room)
            page.evaluate(AXE.read_text())
            told = page.evaluate("axe.run(document).then(found => found.violations)")
            found += sum(one["impact"] in ("serious", "critical") for one in told)
    row("axe-core, serious or critical, all rooms, light and dark", "0", str(found))


def clicks(page: Any, folder: Path) -> None:
    """From nothing to a spec of one's own data: every press of a button counts."""
    table = folder / "days.csv"
    lines = [f"{minute},{'sit' if minute // 9 % 2 else 'walk'}" for minute in range(300)]
    table.write_text("\n".join(["minute,what", *lines]) + "\n")
    enter(page, "leak")
    page.set_input_files("input[type=file]", str(table))
    pressed = 2  # "choose file", and the file itself
    page.wait_for_selector("text=Make the files")
    for name in ("Make the files", "Save shoal.toml"):
        page.click(f"text={name}")
        pressed += 1
    row("clicks from nothing to a spec of one's own data", "≤ 5", str(pressed))
    row("of them after `shoal studio days.csv`", "", str(pressed - 2))


if __name__ == "__main__":
    main()
