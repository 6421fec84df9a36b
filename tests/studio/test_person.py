"""The person's page of the gateway: what was shown, what is believed, pause, take back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.gateway.gateway_house import House, running
from tests.studio.conftest import LOOKS, PATIENCE_MS, STATIC, Studio, enter

pytestmark = pytest.mark.xdist_group("studio")  # one browser for all
OWN = "/v1/people/ada"
Look = Callable[[Any, str], None]


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


@LOOKS
def test_a_person_sees_what_was_shown_and_to_whom(page: Any, lived: House, look: Look) -> None:
    entered(page, lived)
    page.wait_for_selector("[data-name=beliefMap] canvas")
    assert "viewer" in page.inner_text("main")
    look(page, "person")


def test_a_person_pauses_and_takes_back(page: Any, lived: House) -> None:
    entered(page, lived)
    page.wait_for_selector("[data-name=beliefMap] canvas")
    page.locator("section", has_text="walk").first.get_by_text("Pause").click()
    page.wait_for_selector("text=Go on from the next slot")
    page.click("text=Take back")
    page.wait_for_selector("li:has-text('nobody')")
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_another_key_sees_nothing(page: Any, lived: House) -> None:
    for holder in ("one/viewer", "two/ada", "one/ben"):
        entered(page, lived, holder)
        assert page.wait_for_selector("[role=alert]").inner_text()
        assert page.locator("canvas").count() == 0
        page.click("text=Leave")


@LOOKS
def test_an_operator_sees_where_streams_stand_and_not_what_they_show(
    page: Any, lived: House, look: Look
) -> None:
    page.goto(f"{lived.base}/page/#/operator")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.fill("input[type=password]", lived.token("one/operator"))
    page.click("text=Show it")
    page.wait_for_selector("tbody tr:has-text('walk')")
    assert "ada" in page.inner_text("table >> nth=0")
    assert page.locator("canvas").count() == 0
    assert "viewer" not in page.inner_text("main")
    page.click("text=Set a limit")
    page.fill("td input", "50")
    page.click("td >> text=Set")
    page.wait_for_selector("td:has-text('of 50')")
    look(page, "operator")


@LOOKS
def test_the_live_room_asks_a_gateway_on_this_computer(
    browser: Any, studio: Studio, lived: House, look: Look
) -> None:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(studio.address)
    enter(page, "live")
    look(page, "live-closed")
    for address, key, words in (
        ("http://127.0.0.1:9", "key", "no gateway answers at"),
        ("https://shoal.example", "key", "gateways on this computer only"),
        (lived.base, "no-key", "key"),
        ("somewhere", "key", "it must look like"),
    ):
        page.fill("input[type=url]", address)
        page.fill("input[type=password]", key)
        page.click("text=Show it")
        page.wait_for_selector(f"[role=alert]:has-text({words!r})")
        page.click("button:has-text('Leave')")
    page.fill("input[type=url]", lived.base)
    page.fill("input[type=password]", lived.token("one/operator"))
    page.click("text=Show it")
    page.wait_for_selector("tbody tr:has-text('walk')")
    look(page, "live")
    page.click("button:has-text('Leave')")
    page.check("text=one of its people")
    page.fill("text=your name here >> input", "ada")
    page.fill("input[type=password]", lived.token("one/ada"))
    page.click("text=Show it")
    page.wait_for_selector("[data-name=beliefMap] canvas")
    context.close()
