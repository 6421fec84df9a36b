"""Models that were learned from data: how they reach a gateway, and how they are changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from shoal.core.registry import dumps, loads
from shoal.gateway.client import Client, GatewayError
from shoal.gateway.keys import name_of
from shoal.gateway.planning.uploads import upload_of
from shoal.spec.request import read_request
from tests.gateway.gateway_house import House, plan, running

STATES = ("home", "work", "gym")
SPEC = """
[secrets]
kind = "contexts"
sensitive = ["gym"]
[query]
kind = "current"
[privacy]
belief_delta = 0.1
mechanism = "mask-adaptive"
"""
EVERY = 1000.0
PATH = "/v1/people/ada/streams/day"


def run(*arguments: object, **given: Any) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments], **given)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data of three weeks, the model of a day, and the spec that `fit` writes."""
    folder = tmp_path_factory.mktemp("learned")
    rows = ["time,context"]
    for day in range(21):
        for slot in range(8):
            at = (day * 7 + slot * slot * 3 + day * slot) % 11
            context = "gym" if at == 0 else "work" if at % 2 else "home"
            rows.append(f"2026-01-{day + 1:02d}T{slot * 3:02d}:00:00Z,{context}")
    (folder / "days.csv").write_text("\n".join(rows) + "\n")
    fit(folder, "s.toml")
    return folder


def fit(folder: Path, spec: str, *more: str) -> None:
    data = ("--slot", "180min", "--state", "context", "--time", "time")
    out = ("-o", folder / "model.json", "--spec", folder / spec, "--force")
    done = run("fit", folder / "days.csv", *data, *out, *more)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A gateway with a person, and room for maps in a request."""
    with running(tmp_path_factory.mktemp("learned-gateway"), body_bytes=50_000_000) as house:
        house.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
        yield house


def operator(place: House) -> Client:
    return Client(place.base, place.token("one/operator"))


def test_what_fit_writes_reaches_the_gateway_and_takes_readings(
    place: House, learned: Path
) -> None:
    """From a file of a phone to an output, with what the commands write as it stands."""
    given = ("--key", place.token("one/operator"), "--to", place.base, "--json")
    done = run("serve", "put-plan", learned / "s.toml", *given)
    assert done.exit_code == 0, done.output
    name = json.loads(done.stdout)["plan"]
    body = {"plan": name, "clock": {"every": EVERY}}
    place.ask("PUT", PATH, "one/ada", body).raise_for_status()
    place.pass_time(EVERY)
    reading = {"context": "home"}
    told = place.ask("POST", f"{PATH}/readings", "one/ada-phone", reading).json()
    assert told == {"taken": 1, "dead": []}
    place.pass_time(EVERY)
    assert place.outputs(PATH, "one/ada")[-1]["status"] in ("shown", "suppressed")
    place.ask("DELETE", PATH, "one/ada").raise_for_status()


def test_every_way_of_sending_a_learned_model_makes_the_same_plan(
    place: House, learned: Path, tmp_path: Path
) -> None:
    spec = (learned / "s.toml").read_text()
    fit(learned, "inline.toml", "--inline")
    inline = (learned / "inline.toml").read_text()
    export, save = tmp_path / "export.json", tmp_path / "plan.json"
    done = run("plan", learned / "s.toml", "--export", export, "--save", save)
    assert done.exit_code == 0, done.output
    model = (learned / "model.json").read_text()
    without = spec[spec.index("[secrets]") :]
    with operator(place) as gateway:
        names = {
            gateway.make_plan(**upload_of(learned / "s.toml")),
            gateway.make_plan(**upload_of(learned / "s.toml", learned / "model.json")),
            gateway.make_plan(**upload_of(export)),
            gateway.make_plan(**upload_of(save)),
            gateway.make_plan(inline[inline.index("[[model]]") :]),
            gateway.make_plan(without, model=model),
            gateway.make_plan(without, model=json.loads(model)),
            gateway.make_plan(plan=save.read_text()),
            gateway.make_plan(plan=json.loads(save.read_text())),
        }
    assert names == {loads(save.read_text()).fingerprint[:16]}


def test_an_inline_spec_says_what_the_spec_with_a_file_says(learned: Path) -> None:
    fit(learned, "again.toml", "--inline")
    one, two = (read_request(learned / name) for name in ("s.toml", "again.toml"))
    assert one.task == two.task
    assert one.epsilon() == two.epsilon()
    assert "file =" not in (learned / "again.toml").read_text()
    refused = run("fit", learned / "days.csv", "-o", learned / "x.json", "--inline")
    assert refused.exit_code == 2
    assert "--spec" in refused.stderr


def test_a_learned_map_is_sent_with_its_cells(place: House, tmp_path: Path) -> None:
    rows = ["t,lat,lon"]
    for step in range(400):
        lat, lon = 52.5 + (step * 7 % 12) / 300, 13.4 + (step * 5 % 9) / 200
        rows.append(f"2026-01-01T{step // 60:02d}:{step % 60:02d}:00Z,{lat:.5f},{lon:.5f}")
    (tmp_path / "w.csv").write_text("\n".join(rows) + "\n")
    columns = ("--lat", "lat", "--lon", "lon", "--time", "t", "--grid", "1")
    out = ("-o", tmp_path / "town.json", "--spec", tmp_path / "town.toml")
    done = run("fit", tmp_path / "w.csv", *columns, *out)
    assert done.exit_code == 0, done.output
    with operator(place) as gateway:
        name = gateway.make_plan(**upload_of(tmp_path / "town.toml"))
        told = gateway.plan(name)
    assert told["kind"] == "places"
    (model,) = told["assumes"]["models"]
    assert loads(json.dumps(model)) == loads((tmp_path / "town.json").read_text())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "spec is missing"),
        ({"plan": "{}", "spec": SPEC}, "plan is given with spec or model"),
        ({"plan": "{}", "model": "{}"}, "plan is given with spec or model"),
        ({"model": "{}"}, "spec is missing"),
        ({"model": "{}", "spec": f"[[model]]\nkind = 'day-chain'\n{SPEC}"}, "models of its own"),
        ({"spec": f"[[model]]\nfile = 'model.json'\n{SPEC}"}, "put-plan"),
    ],
)
def test_what_cannot_be_a_plan_is_refused_at_once(
    place: House, body: dict[str, Any], sentence: str
) -> None:
    answer = place.ask("POST", "/v1/plans", "one/operator", body)
    assert answer.status_code == 422, answer.text
    assert sentence in answer.json()["detail"]


def test_a_forged_plan_is_refused_by_its_own_job(place: House) -> None:
    """One that promises less than its tables give, with a fingerprint to match."""
    stored = json.loads(dumps(plan("day")))
    stored["value"]["guarantee"]["amount"] = {"$fraction": "1/100"}
    del stored["fingerprint"]
    with operator(place) as gateway:
        with pytest.raises(GatewayError, match=r"changed|fingerprint|promises"):
            gateway.make_plan(plan=json.dumps(stored))
        with pytest.raises(GatewayError, match=r"stored|document|schema"):
            gateway.make_plan(plan="{}")
        model = dumps(shoal.MarkovChain.of([[0.5, 0.5], [0.5, 0.5]], states=["a", "b"]))
        with pytest.raises(GatewayError, match="not a plan"):
            gateway.make_plan(plan=model)


def test_a_file_that_is_neither_spec_nor_plan_is_refused_before_it_is_sent(
    learned: Path, tmp_path: Path
) -> None:
    with pytest.raises(shoal.InputError, match="a model goes with a spec"):
        upload_of(learned / "model.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(shoal.InputError, match="neither TOML nor JSON"):
        upload_of(tmp_path / "x.json")


@pytest.mark.parametrize("kind", ["operator", "ada", "viewer"])
def test_a_plan_says_what_it_assumes_applications_know(place: House, kind: str) -> None:
    """A weak adversary knows the chain; then the chain must be there to be known."""
    answer = place.ask("GET", "/v1/plans/day", f"one/{kind}").json()
    (model,) = answer["assumes"]["models"]
    own = plan("day").task.family[0]
    assert model["value"]["states"] == list(own.states or ())
    assert loads(json.dumps(model)) == own
    assert "an adversary who knows the chain and the plan" in answer["assumes"]["sentence"]


def learned_day(names: tuple[str, ...], sensitive: str, delta: float = 0.2) -> shoal.Plan:
    size = len(names)
    rows = [[0.5 if n == m else 0.5 / (size - 1) for m in range(size)] for n in range(size)]
    day = shoal.DayChain.of(rows, initial=[1 / size] * size, states=list(names), slots=4)
    hidden = shoal.SensitiveContexts.of([sensitive])
    return shoal.mask(day, hidden, delta=delta, check="mask-simulatable")


def test_an_update_says_what_it_changes_and_is_confirmed(place: House) -> None:
    with operator(place) as gateway:
        first = gateway.make_plan(plan=dumps(learned_day(STATES, "gym")))
        alike = gateway.make_plan(plan=dumps(learned_day(STATES, "gym", delta=0.1)))
        other = gateway.make_plan(plan=dumps(learned_day(("home", "work", "bar"), "bar", 0.3)))
    path = "/v1/people/ben/streams/changing"
    place.ask("PUT", "/v1/people/ben", "one/operator").raise_for_status()
    body: dict[str, Any] = {"plan": first, "clock": {"every": EVERY}}
    place.ask("PUT", path, "one/ben", body).raise_for_status()
    place.ask("PUT", path, "one/ben", {"plan": alike}).raise_for_status()  # nothing to confirm
    refused = place.ask("PUT", path, "one/ben", {"plan": other, "timezone": "Europe/Berlin"})
    assert refused.status_code == 409
    detail = refused.json()["detail"]
    for part in (
        "'bar' are new",
        "'gym' are no longer known",
        "Europe/Berlin instead of UTC",
        "the sensitive contexts are 'bar' instead of 'gym'",
        "the promise is weaker: 0.3 instead of 0.2",
        "confirm = true",
    ):
        assert part in detail, (part, detail)
    assert len(refused.json()["changes"]) == 4
    there = place.ask("GET", "/v1/people/ben", "one/ben").json()["streams"][0]
    assert there["next_plan"] == alike
    confirmed = {"plan": other, "timezone": "Europe/Berlin", "confirm": True}
    place.ask("PUT", path, "one/ben", confirmed).raise_for_status()
    there = place.ask("GET", "/v1/people/ben", "one/ben").json()["streams"][0]
    assert there["next_plan"] == other
    place.ask("DELETE", path, "one/ben").raise_for_status()


def test_a_key_is_taken_from_the_environment(place: House, learned: Path) -> None:
    token = place.token("one/operator")
    assert name_of(token)
    done = run(
        "serve", "put-plan", learned / "s.toml", "--to", place.base, env={"SHOAL_KEY": token}
    )
    assert done.exit_code == 0, done.output
    assert "The plan is" in done.stdout
