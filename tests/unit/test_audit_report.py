"""One page: JSON that is JSON, HTML that needs nothing else, charts that show the numbers."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from shoal.additive.choice import MECHANISMS
from shoal.additive.queries import count
from shoal.audit.exact import audit, audit_noise
from shoal.audit.report import Bar, Line, as_html, as_json, bar_chart, line_chart
from shoal.audit.result import Audit
from shoal.audit.statistical import Estimate, audit_black_box
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.task import EachEntry, Task

CHAIN = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit & rest", "<walk>"], length=20)


def computed(scale: float = 2) -> Audit:
    query = count(CHAIN.states, "<walk>")
    return audit_noise(query, EachEntry(), CHAIN, scale=scale, claimed=1, curve=True)


def sampled() -> Estimate:
    return audit_black_box(
        lambda data: data.count("<walk>"),
        EachEntry(),
        CHAIN,
        claimed=1,
        draws=4000,
        lengths=(2, 4),
    )


class Checker(HTMLParser):
    """Every opened tag is closed, in order; no script, nothing fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onclick"}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("found", [computed(), computed(50), sampled()], ids=["bad", "good", "box"])
def test_the_page_stands_alone(found: Audit | Estimate) -> None:
    page = as_html(found, title="A & B")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert {"svg", "dl", "style"} <= checker.seen
    assert "script" not in checker.seen
    assert "<title>A &amp; B</title>" in page
    assert "<walk>" not in page
    assert "&lt;walk&gt;" in page
    badge = {"VIOLATED": "broken", "kept": "kept"}.get(found.verdict, "open")
    assert f'class="verdict {badge}"' in page


def test_charts_are_well_formed_and_hold_the_numbers() -> None:
    charts = re.findall(r"<svg.*?</svg>", as_html(computed()), re.DOTALL)
    assert len(charts) == 4  # loss, belief, densities, log-ratio
    texts = ["".join(ElementTree.fromstring(chart).itertext()) for chart in charts]
    assert "promised" in texts[0]
    assert "measured" in texts[0]
    assert f"{computed().loss:.3f}" in texts[0]
    assert "What each output tells" in texts[3]


def test_a_chart_draws_intervals_and_infinity() -> None:
    chart = bar_chart([Bar("a", math.inf, "red", 2.0), Bar("b", 1.0, "blue")], title="t", mark=1.0)
    text = "".join(ElementTree.fromstring(chart).itertext())
    assert "2 to ∞" in text
    assert "stroke-dasharray" in chart


def test_a_flat_curve_is_drawn() -> None:
    chart = line_chart([Line("l", [(0, 1), (0, 1)], "red")], title="t", across="x", up="y")
    assert "nan" not in chart
    ElementTree.fromstring(chart)


@pytest.mark.parametrize("found", [computed(), sampled()], ids=["computed", "sampled"])
def test_json_is_json(found: Audit | Estimate) -> None:
    data = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert data["promised"] == 1.0
    assert data["violated"] == found.violated
    assert data["verdict"] == found.verdict
    assert data["in_words"] == found.describe()
    assert data["worst_case"]["facts"]
    assert isinstance(data["not_checked"], list)


def test_json_tells_exact_from_interval() -> None:
    assert as_json(computed())["kind"] == "exact"
    assert as_json(sampled())["kind"] == "black-box"
    assert as_json(computed())["worst_case"]["output"] == [None]  # beyond everything possible


def streamed() -> Audit:
    day = DayChain.of([[0.6, 0.4], [0.3, 0.7]], initial=[0.5, 0.5], states=["s", "x"], slots=3)
    task = Task(query=CurrentState(("s", "x")), secrets=SensitiveContexts.of("s"), family=(day,))
    return audit(MECHANISMS["mask-adaptive"].calibrate(task, Fraction(1, 4)))


def test_adversaries_who_know_less_are_in_every_form_of_a_report() -> None:
    found = streamed()
    listed = json.loads(json.dumps(as_json(found)))["adversaries"]
    assert [one["challenge"] for one in listed] == [
        "nothing to learn",
        "LC1 and LC2",
        "nothing learned",
    ]
    assert [one["covered"] for one in listed] == [True, True, False]
    assert listed[0]["after"] - listed[0]["before"] == pytest.approx(listed[0]["rise"])
    assert "Adversaries: an adversary who knows the chain" in found.describe()
    page = as_html(found)
    assert "told the chain" in page
    assert "by what an adversary knows" in page
    assert as_json(computed())["adversaries"] == []


def test_texts_of_a_chart_fit_into_it() -> None:
    """A character is about 7 wide: what is longer is cut, and said in full in the words above."""
    long = "a very long name of something " * 10
    charts = [
        bar_chart([Bar(long, 1.0, "#000")], title=long),
        line_chart([Line(long, [(0, 0), (1, 1)], "#000")], title="short", across="x", up="y"),
    ]
    for chart in charts:
        for text in ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}text"):
            assert 7 * len(text.text or "") < 680


def test_an_estimate_below_zero_has_no_bar_to_the_left() -> None:
    chart = ElementTree.fromstring(bar_chart([Bar("estimate", -3.0, "#000")], title="Loss"))
    texts = list(chart.iter("{http://www.w3.org/2000/svg}text"))
    assert float(texts[-1].attrib["x"]) >= 170
    assert texts[-1].text == "-3"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_a_box_without_numbers_has_a_page_and_json(value: float | None) -> None:
    found = audit_black_box(
        lambda data: value if "<walk>" in data else 0.0,
        EachEntry(),
        CHAIN,
        claimed=1,
        draws=4000,
        lengths=(1,),
    )
    assert found.violated
    written = json.dumps(as_json(found), allow_nan=False)
    page = as_html(found)
    Checker().feed(page)
    assert "nan" not in (written + page).lower()


def test_an_interval_without_an_upper_end_is_json() -> None:
    """A periodic chain of any length: no bound applies."""
    chain = MarkovChain.of([[0, 1], [1, 0]], initial=[0.5, 0.5])
    found = audit_noise(count(chain.states, "1"), EachEntry(), chain, scale=3, claimed=1)
    assert math.isinf(found.upper)
    assert json.loads(json.dumps(as_json(found), allow_nan=False))["upper"] is None
    assert "inf" not in as_html(found).replace("infinit", "")
    assert found.verdict == "not decided"
