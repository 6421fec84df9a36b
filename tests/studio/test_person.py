"""The person's page of the gateway: what was shown, what is believed, pause, take back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.gateway.gateway_house import House, running
from tests.studio.conftest import PATIENCE_MS, STATIC, shot

pytestmark = pytest.mark.xdist_group("studio")  # one browser for all
OWN = "/v1/people/ada"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A gateway at which ada has walked and been seen."""
    with running(tmp_path_factory.mktemp("person")) as house:
        house.ask("PUT", OWN, "one/operator").raise_for_status()
        for stream, plan in (("walk", "walk"), ("day", "day")):
            body = {"plan": plan, "clock": {"every": 60}, "independent": True}
            house.ask("PUT", f"{OWN}/streams/{stream}", "one/ada", body).raise_for_status()
        house.ask("PUT", f"{OWN}/grants/viewer", "one/ada", {}).raise_for_status()
        house.pass_time(180)
        house.outputs(f"{OWN}/streams/walk", "one/viewer")
        yield house


def test_the_page_is_there_where_it_was_built_and_only_its_own_files(lived: House) -> None:
    assert lived.ask("GET", "/page/settings.py").status_code == 404
    assert lived.ask("GET", "/page/..%2fapp.py").status_code == 404
    page = lived.ask("GET", "/page/")
    assert page.status_code == (200 if STATIC.is_file() else 404)
    if page.status_code == 200:
        assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.fixture
def page(browser: Any, lived: House) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    made = context.new_page()
    made.set_default_timeout(PATIENCE_MS)
    made.goto(f"{lived.base}/page/")
    yield made
    context.close()


def entered(page: Any, lived: House, holder: str = "one/ada") -> None:
    page.fill("input[type=text]", "ada")
    page.fill("input[type=password]", lived.token(holder))
    page.click("text=Show it")


def test_a_person_sees_pauses_and_takes_back(page: Any, lived: House, tmp_path: Path) -> None:
    entered(page, lived)
    page.wait_for_selector("[data-name=beliefMap] canvas")
    assert "viewer" in page.inner_text("main")
    shot(page, "person")
    page.locator("section", has_text="walk").first.get_by_text("Pause").click()
    page.wait_for_selector("text=Go on from the next slot")
    page.click("text=Take back")
    page.wait_for_selector("li:has-text('nobody')")
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


@pytest.mark.parametrize("holder", ["one/viewer", "two/ada", "one/ben"])
def test_another_key_sees_nothing(page: Any, lived: House, holder: str) -> None:
    entered(page, lived, holder)
    told = page.wait_for_selector("[role=alert]").inner_text()
    assert told
    assert page.locator("canvas").count() == 0
