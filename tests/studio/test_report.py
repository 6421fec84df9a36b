"""An audit on one page that stands alone: its words, its pictures, and nothing fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from shoal.audit.result import Audit
from shoal.audit.statistical import Estimate
from shoal.core.errors import InputError
from shoal.studio import props
from shoal.studio.props import as_html, views_source
from tests.studio.conftest import PATIENCE_MS, STATIC, shot
from tests.unit.test_audit_report import computed, sampled, streamed

pytestmark = pytest.mark.xdist_group("studio")  # one browser for all
FOUND: dict[str, Audit | Estimate] = {
    "bad": computed(),
    "good": computed(50),
    "box": sampled(),
    "stream": streamed(),
}


class Checker(HTMLParser):
    """Every opened tag is closed, in order; nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onclick"}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("built", [True, False])
def test_the_page_stands_alone(name: str, built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def source() -> str:
        if not built:
            raise InputError("the views were not built")
        return 'console.log("<\\/script>")'

    monkeypatch.setattr(props, "views_source", source)
    found = FOUND[name]
    page = as_html(found, title="A & B")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert ("script" in checker.seen) == built
    assert ("No pictures: the views were not built." in page) == (not built)
    assert "<title>A &amp; B</title>" in page
    assert "<walk>" not in page
    badge = {"VIOLATED": "broken", "kept": "kept"}.get(found.verdict, "open")
    assert f'class="verdict {badge}"' in page
    assert "default-src 'none'" in page


@pytest.mark.skipif(not STATIC.is_file(), reason="the views are not built here: run `make views`")
def test_the_views_may_stand_inside_a_document() -> None:
    assert not re.search(r"</script|<!--", views_source(), re.IGNORECASE)


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("bad", ["Loss", "Belief about", "How likely each output", "What each output tells"]),
        pytest.param("box", ["Loss", "How often"], marks=pytest.mark.slow),
        pytest.param("stream", ["raises a belief", "an adversary knows"], marks=pytest.mark.slow),
    ],
)
def test_the_pictures_are_drawn_from_a_file_without_a_server(
    browser: Any, tmp_path: Path, name: str, titles: list[str]
) -> None:
    path = tmp_path / "audit.html"
    path.write_text(as_html(FOUND[name], title="Audit of a plan"))
    context = browser.new_context(viewport={"width": 900, "height": 900})
    page, asked, errors = context.new_page(), [], []
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("[data-view] svg")
    told = " ".join(page.locator(".view-title").all_inner_texts())
    assert all(title in told for title in titles)
    shot(page, f"report-{name}")
    context.close()
    assert asked == [path.as_uri()]
    assert errors == []
