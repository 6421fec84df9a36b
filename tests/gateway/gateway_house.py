"""A gateway on loopback for tests: a real server, two spaces full of keys, and a clock to move."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.gateway import streams
from shoal.gateway.app import Gateway, create
from shoal.gateway.http.connections import bounded_protocol
from shoal.gateway.keys import APPLICATION, DEVICE, PERSON, first_key, make_key
from shoal.gateway.machines import plan_of
from shoal.gateway.planning.calibration import describe_plan, keep_plan
from shoal.gateway.rounds import next_close
from shoal.gateway.settings import Settings, load_settings
from shoal.gateway.store import ALL, Store
from shoal.gateway.town import plan_of_spec
from shoal.gateway.vault import write_key

PATIENCE = 60.0  # seconds: long, because the machine may be busy

DAY = """
[[model]]
kind = "day-chain"
states = ["home", "work", "clinic"]
initial = [0.6, 0.3, 0.1]
transition = [[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.3, 0.3, 0.4]]
slots = 4
slot_minutes = 60
start_minute = 480
[secrets]
kind = "contexts"
sensitive = ["clinic"]
[query]
kind = "current"
[privacy]
belief_delta = 0.2
mechanism = "mask-adaptive"
"""
WALK = """
[[model]]
kind = "grid-walk"
south = 52.50
west = 13.36
cell_km = 0.5
rows = 3
columns = 3
stay = 0.6
[secrets]
kind = "policy-graph"
graph = "complete"
[query]
kind = "measurement"
[privacy]
epsilon = 1.0
mechanism = "location-knorm"
"""
COUNT = """
[[model]]
kind = "markov-chain"
states = ["a", "b"]
transition = [[0.7, 0.3], [0.4, 0.6]]
length = 10
[secrets]
kind = "each-entry"
[query]
kind = "count"
states = ["a"]
[privacy]
epsilon = 1.0
mechanism = "group"
"""
STEPS = COUNT.replace("length = 10\n", "").replace("[privacy]", "every = 4\n[privacy]")
STEPS = STEPS.replace('"group"', '"lift"')
SPECS = {"day": DAY, "walk": WALK, "count": COUNT, "steps": STEPS}


@cache
def plan(name: str) -> Plan:
    """A small plan, made once in a run."""
    return plan_of_spec(SPECS[name])


def step_once(plan: Plan) -> None:
    """Take steps of the plan as it is stored: nothing has to be built or compiled later."""
    built = plan_of(dumps(plan, indent=None))
    stream = built.start()
    for _ in range(2):
        stream, _ = stream.step(built.task.query.states[0])


class Moved:
    """A clock that tests move; it also runs on by itself."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class House:
    """A running gateway, and the keys of its spaces: `tokens["one"]["ada"]`."""

    who, path = "", ""  # the person and the stream that a test is about

    def __init__(self, settings: Settings, base: str, gateway: Gateway, clock: Moved) -> None:
        self.settings, self.base, self.gateway, self.clock = settings, base, gateway, clock
        self.tokens = self.gateway.store.write(ALL, lambda c: fill(c, ("one", "two")))
        self.http = httpx.Client(base_url=base, timeout=PATIENCE)

    def ask(
        self, method: str, path: str, key: str = "", body: Any = None, **headers: str
    ) -> httpx.Response:
        """An answer; `key` is "space/holder", or empty for none."""
        if key:
            headers["Authorization"] = f"Bearer {self.token(key)}"
        return self.http.request(method, path, json=body, headers=headers)

    def token(self, key: str) -> str:
        space, _, holder = key.partition("/")
        return self.tokens[space][holder]

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and wait until every slot that ended is closed."""
        self.clock.ahead += seconds
        now = self.clock()
        wait_until(lambda: _closed(self.gateway.store, now))

    def outputs(self, path: str, key: str, after: int = -1) -> list[dict[str, Any]]:
        """All outputs of a stream after an id."""
        answer = self.ask("GET", f"{path}/outputs?after={after}&limit=1000", key)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["outputs"]
        return found


def fill(connection: Any, spaces: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Spaces with two people, a device each, and an application; all plans in each."""
    found: dict[str, dict[str, str]] = {}
    for space in spaces:
        tokens = {"operator": first_key(connection, space).token, **people_keys(connection, space)}
        tokens["viewer"] = make_key(connection, space, APPLICATION, "viewer").token
        tokens["stranger"] = make_key(connection, space, APPLICATION, "stranger").token
        for name in SPECS:
            document = dumps(plan(name), indent=None)
            told = {"plan": name, "document": document, "told": describe_plan(plan(name))}
            keep_plan(connection, space, told)
        found[space] = tokens
    return found


def people_keys(connection: Any, space: str) -> dict[str, str]:
    """Two people's own keys, and one of a device of each."""
    tokens = {}
    for person in ("ada", "ben"):
        tokens[person] = make_key(connection, space, PERSON, person).token
        tokens[f"{person}-phone"] = make_key(connection, space, DEVICE, person).token
    return tokens


def settings_in(folder: Path, **more: Any) -> Settings:
    """Settings of a gateway in a folder, with a key for states; what it serves is made before."""
    for name in SPECS:
        plan(name)
    key = folder / "states.key"
    if not key.exists():
        write_key(key)
    given: dict[str, Any] = {
        "database": str(folder / "gateway.db"),
        "state_key_file": key,
        "head_file": folder / "ledger.head",
    }
    quick: dict[str, Any] = {"tick": 0.02, "heartbeat": 0.2, "rate": 1e6, "burst": 1_000_000}
    return load_settings(**{**given, **quick, **more})


@contextmanager
def running(folder: Path, **more: Any) -> Iterator[House]:
    """A gateway in this process, on a port that was free."""
    clock, before = Moved(), streams.CLOCK
    streams.CLOCK = clock
    settings = settings_in(folder, **more)
    app = create(settings)
    protocol: Any = bounded_protocol(settings)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="critical", access_log=False, http=protocol
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield House(settings, f"http://127.0.0.1:{port}", app.state.gateway, clock)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        streams.CLOCK = before


def wait_until(true: Callable[[], bool]) -> None:
    """Wait, for a minute at most."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited for a minute in vain"
        time.sleep(0.005)


def _closed(store: Store, now: float) -> bool:
    upcoming = store.read(ALL, next_close)
    return upcoming is None or upcoming > now
