"""What a person sees: any kept day, as any application saw it, exact counts, the next refusal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.gateway.advance import Output
from shoal.gateway.machines import context_curves
from shoal.gateway.seen import MAX_SPANS, Seen, joined, write_seen
from shoal.gateway.sight import Sight
from shoal.gateway.store import ALL
from shoal.gateway.streams import Address, row_of
from shoal.gateway.tables import OUTPUTS, SEEN
from tests.gateway.gateway_house import House, plan, running

EVERY = 1000.0
SLOTS = 4  # of a day of the plan
CONTEXTS = ("home", "work", "clinic")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("person")) as house:
        house.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
        yield house


def begin(home: House, name: str, plan_name: str = "day") -> str:
    """The path of a new stream of ada's that the viewer may see."""
    path = f"/v1/people/ada/streams/{name}"
    body = {"plan": plan_name, "clock": {"every": EVERY}, "independent": True}
    home.ask("PUT", path, "one/ada", body).raise_for_status()
    home.ask("PUT", "/v1/people/ada/grants/viewer", "one/ada", {}).raise_for_status()
    return path


def push(home: House, path: str, **reading: Any) -> Any:
    return home.ask("POST", f"{path}/readings", "one/ada-phone", reading).json()


def live(home: House, path: str, slots: int) -> None:
    """Read so many slots."""
    order = random.Random(7)
    for _ in range(slots):
        home.pass_time(EVERY)
        push(home, path, context=order.choice(CONTEXTS))
    home.pass_time(EVERY)


def write_notes(home: House) -> None:
    noted = home.gateway.seen.take_notes()
    home.gateway.store.write(ALL, lambda c: write_seen(c, noted))


def seen(home: House, name: str) -> dict[str, Any]:
    write_notes(home)
    streams = home.ask("GET", "/v1/people/ada", "one/ada").json()["streams"]
    found: list[dict[str, Any]] = next(each["seen"] for each in streams if each["stream"] == name)
    return next(each for each in found if each["application"] == "viewer")


def test_a_reading_before_the_first_slot_is_kept_for_it(home: House) -> None:
    path = begin(home, "early", "walk")
    assert push(home, path, state="0,0") == {"taken": 1, "dead": []}
    assert push(home, path, state="2,2") == {"taken": 1, "dead": []}  # the first one counts
    home.pass_time(2 * EVERY)
    first = home.outputs(path, "one/ada")[0]
    assert first["status"] == "shown"
    assert push(home, path, state="0,0", at="2026-01-01T00:00:00Z")["dead"][0]["reason"] == "closed"


def test_a_reading_before_a_stream_was_begun_is_not_kept(home: House) -> None:
    path = begin(home, "before", "walk")
    told = push(home, path, state="0,0", at="2026-01-01T00:00:00Z")
    assert told["dead"][0]["reason"] == "closed"
    home.pass_time(2 * EVERY)
    assert home.outputs(path, "one/ada")[0]["status"] == "silent"


def test_a_name_that_was_forgotten_keeps_nothing_early(home: House) -> None:
    """What was before its first slot may be known from the stream of that name before."""
    path = begin(home, "again", "walk")
    home.pass_time(2 * EVERY)
    home.ask("DELETE", path, "one/ada").raise_for_status()
    home.clock.ahead += 2 * 86400
    path = begin(home, "again", "walk")
    assert push(home, path, state="0,0")["dead"][0]["reason"] == "closed"


def test_beliefs_and_outputs_of_any_kept_day(home: House) -> None:
    path = begin(home, "days")
    live(home, path, 3 * SLOTS)
    outputs = [each for each in home.outputs(path, "one/ada") if each["status"] != "silent"]
    days = list(dict.fromkeys(each["day"] for each in outputs))
    assert len(days) >= 3
    for day in days[:2]:
        own = home.ask("GET", f"{path}/outputs?day={day.replace('+', '%2B')}", "one/ada")
        found = own.json()["outputs"]
        assert [each["day"] for each in found] == [day] * SLOTS
        told = home.ask("GET", f"{path}/beliefs?day={day.replace('+', '%2B')}", "one/ada").json()
        statuses = [(each["status"], each["context"]) for each in found]
        expected = context_curves(plan("day"), statuses)
        assert told["day"] == day
        assert told["closed"] == SLOTS
        assert told["after"] == expected["after"]
    missing = home.ask("GET", f"{path}/beliefs?day=2020-01-01", "one/ada")
    assert missing.status_code == 409
    assert "no output of 2020-01-01 is kept" in missing.json()["detail"]


def test_a_day_of_which_a_part_is_gone_has_no_beliefs(home: House) -> None:
    path = begin(home, "cut")
    live(home, path, 2 * SLOTS)
    day = home.outputs(path, "one/ada")[SLOTS]["day"]
    whole = f"{path}/beliefs?day={day.replace('+', '%2B')}"
    assert home.ask("GET", whole, "one/ada").status_code == 200
    first = home.outputs(path, "one/ada", -1)
    cut = next(each["id"] for each in first if each["day"] == day and each["slot"] == 1)
    where = Address("one", "ada", "cut")

    def drop(connection: Any) -> None:
        uid = row_of(connection, where).uid
        connection.execute(OUTPUTS.delete().where(OUTPUTS.c.uid == uid, OUTPUTS.c.ordinal <= cut))

    home.gateway.store.write(ALL, drop)
    refused = home.ask("GET", whole, "one/ada")
    assert refused.status_code == 409
    assert "only a part is kept" in refused.json()["detail"]


def test_what_an_application_could_conclude_ends_with_what_it_was_given(home: House) -> None:
    path = begin(home, "given")
    live(home, path, SLOTS)
    outputs = home.outputs(path, "one/ada")
    day = next(each["day"] for each in outputs if each["slot"] == 0)
    own = [each for each in outputs if each["day"] == day]
    asked = f"{path}/beliefs?day={day.replace('+', '%2B')}&application=viewer"
    nothing = home.ask("GET", asked, "one/ada").json()
    assert nothing["given"] == {"application": "viewer", "outputs": 0, "last": None, "all": True}
    assert nothing["closed"] == 0
    for one, two in zip(nothing["after"], nothing["before"], strict=True):
        assert one == pytest.approx(two)
    after = own[0]["id"] - 1
    page = f"{path}/outputs?after={after}&limit=2"
    assert len(home.ask("GET", page, "one/viewer").json()["outputs"]) == 2
    write_notes(home)
    told = home.ask("GET", asked, "one/ada").json()
    assert told["given"]["outputs"] == 2
    assert told["given"]["last"] == own[1]["id"]
    assert told["given"]["all"] is True
    statuses = [(each["status"], each["context"]) for each in own[:2]]
    assert told["after"] == context_curves(plan("day"), statuses)["after"]
    same = home.ask("GET", f"{path}/outputs?application=viewer", "one/ada").json()["outputs"]
    assert same == home.ask("GET", f"{path}/outputs", "one/viewer").json()["outputs"]
    for key in ("one/viewer", "one/operator"):
        assert home.ask("GET", asked, key).status_code == 403
    other = home.ask("GET", f"{path}/outputs?application=viewer", "one/viewer")
    assert other.status_code == 403
    assert home.ask("GET", f"{path}/outputs?application=stranger", "one/ada").status_code == 404


def test_an_output_that_is_read_again_counts_once(home: House) -> None:
    path = begin(home, "count", "walk")
    home.pass_time(10 * EVERY)
    last = home.outputs(path, "one/ada")[-1]["id"]
    for _ in range(3):
        home.ask("GET", f"{path}/now", "one/viewer").raise_for_status()
    assert seen(home, "count")["outputs"] == 1
    for _ in range(2):
        home.outputs(path, "one/viewer", last - 4)
    assert seen(home, "count")["outputs"] == 4
    home.pass_time(5 * EVERY)
    home.ask("GET", f"{path}/now", "one/viewer").raise_for_status()
    assert seen(home, "count")["outputs"] == 5  # four between were not given
    found = home.outputs(path, "one/viewer", last - 4)
    assert seen(home, "count")["outputs"] == len(found)


def test_counts_are_those_of_a_set_whatever_is_read_in_whatever_order(home: House) -> None:
    """An application polls, pages and resumes; its grant is narrowed on the way."""
    order = random.Random(3)
    for turn in range(40):
        sight = Sight("one", f"uid-{turn}", "viewer")
        distinct: set[int] = set()
        for _ in range(12):
            every = order.choice([1, 1, 3])
            first = order.randrange(40)
            ordinals = [n for n in range(first, first + order.randrange(1, 9)) if n % every == 0]
            if not ordinals:
                continue
            notes = Seen()
            outputs = [Output(n, float(n), "{}") for n in ordinals]
            notes.note(sight._replace(every=every), outputs)
            home.gateway.store.write(ALL, lambda c, n=notes: write_seen(c, n.take_notes()))  # type: ignore[misc]
            distinct |= set(ordinals)
        rows = SEEN.select().where(SEEN.c.uid == f"uid-{turn}")
        row = home.gateway.store.read(ALL, lambda c, rows=rows: c.execute(rows).one())  # type: ignore[misc]
        assert row.times == len(distinct)
        assert (row.first, row.last) == (min(distinct), max(distinct))


def test_spans_are_joined_and_bounded() -> None:
    assert joined([(5, 6, 1), (1, 4, 1)]) == [(1, 6, 1)]
    assert joined([(0, 3, 3), (6, 9, 3), (15, 15, 3)]) == [(0, 9, 3), (15, 15, 3)]
    assert joined([(0, 0, 1), (2, 2, 1)]) == [(0, 0, 1), (2, 2, 1)]
    many = joined([(3 * n, 3 * n, 1) for n in range(2 * MAX_SPANS)])
    assert len(many) == MAX_SPANS
    assert (many[0][0], many[-1][1]) == (0, 6 * MAX_SPANS - 3)


def test_a_person_sees_from_which_slot_on_readings_are_refused(home: House) -> None:
    path = begin(home, "limited", "walk")
    limit = {"epsilon": 3.0, "over": "lifetime"}
    home.ask("PUT", f"{path}/limit", "one/ada", limit).raise_for_status()
    home.pass_time(EVERY)

    def told() -> dict[str, Any]:
        streams = home.ask("GET", "/v1/people/ada/budget", "one/ada").json()["streams"]
        found: dict[str, Any] = next(each for each in streams if each["stream"] == "limited")
        return found

    push(home, path, state="0,0")
    home.pass_time(EVERY)
    expected = told()["refused_from"]
    for _ in range(6):
        push(home, path, state="0,0")
        home.pass_time(EVERY)
    statuses = {each["id"]: each["status"] for each in home.outputs(path, "one/ada")}
    first = min(number for number, status in statuses.items() if status == "refused")
    assert expected == first
    assert told()["refused_from"] == max(statuses) + 1
    assert told()["refused_at"] <= home.clock() + EVERY
