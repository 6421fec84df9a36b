"""The gateway against a plain endpoint that commits a row, in one run: python -m benchmarks.gateway

Every number is a ratio against a reference measured a moment before, on the same machine.
    --part NAME    one of readings, postgres, batches, events, crowd, times (several allowed)
    --quick        a tenth of the work
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from shoal.core.registry import dumps
from shoal.gateway.copies.head import check_head
from shoal.gateway.keys import APPLICATION, DEVICE, PERSON, first_key, make_key
from shoal.gateway.planning.calibration import describe_plan, keep_plan
from shoal.gateway.routes.bodies import ReadingBody
from shoal.gateway.serve import environment
from shoal.gateway.settings import Settings, load_settings
from shoal.gateway.sight import grant
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import Address, House, open_stream
from shoal.gateway.tables import PEOPLE
from shoal.gateway.town import CONTEXTS, TOWN_PLACES, plan_of_spec
from shoal.gateway.vault import Vault, read_keys, write_key
from shoal.places.stream import LocationStream

CALLERS = 16  # connections that ask at once
PIECE = 200  # requests to one server before the other has its turn
LONG = 86400.0  # seconds of a slot that does not end during a run
SPOT = {"lat": 52.51, "lon": 13.39}


class Town:
    """A prepared database and the keys of its people."""

    def __init__(self, folder: Path, people: int, database: str = "", **clock: float) -> None:
        self.folder = folder
        write_key(folder / "states.key")
        limits: dict[str, Any] = {"rate": 1e9, "burst": 10**9, "connections": 10**6}
        self.settings = load_settings(
            database=database or str(folder / "gateway.db"),
            state_key_file=folder / "states.key",
            head_file=folder / "ledger.head",
            heartbeat=600.0,
            **limits,
        )
        self.plans = {"places": plan_of_spec(TOWN_PLACES), "contexts": plan_of_spec(CONTEXTS)}
        self.store = Store(self.settings)
        self.store.migrate()
        check_head(self.store)  # a new database: its head begins before anybody has a stream
        self.devices: list[str] = []
        self.viewer = ""
        self.store.write(ALL, lambda c: self._fill(c, people, clock or {"every": LONG}))

    def _fill(self, connection: Any, people: int, clock: dict[str, float]) -> None:
        first_key(connection, "town")
        for name, plan in self.plans.items():
            found = {
                "plan": name,
                "document": dumps(plan, indent=None),
                "told": describe_plan(plan),
            }
            keep_plan(connection, "town", found)
        self.viewer = make_key(connection, "town", APPLICATION, "viewer").token
        rooms = House(self.store, Vault(read_keys("", self.settings.state_key_file)))
        begun = time.time() - clock["every"]
        for n in range(people):
            person = f"p{n}"
            connection.execute(PEOPLE.insert(), {"space": "town", "person": person, "made": begun})
            make_key(connection, "town", PERSON, person)
            self.devices.append(make_key(connection, "town", DEVICE, person).token)
            where = Address("town", person, "s")
            kind = "contexts" if clock.get("contexts") else "places"
            own = {name: clock[name] for name in ("every", "grace") if name in clock}
            open_stream(rooms, connection, where, {"plan": kind, "clock": own}, begun)
            grant(connection, self.store.head, where, "viewer", {"since": 0.0})


@contextmanager
def serving(settings: Settings, workers: int = 1) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A service of its own process, on a free port."""
    port = _free_port()
    wanted = settings.model_copy(update={"port": port, "workers": workers})
    code = (
        "from shoal.gateway.serve import run\n"
        "from shoal.gateway.settings import load_settings\nrun(load_settings())"
    )
    env = {**os.environ, **environment(wanted)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        _wait(port)
        yield port, process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def plain(folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The reference: an endpoint that commits one row per request."""
    port = _free_port()
    path = str(folder / "plain.db")
    env = {**os.environ, "PLAIN_DB": path, "PLAIN_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gateway", "--plain"],
        env=env,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait(port)
        yield port, process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def worked(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor that a service and what it started took so far; Linux says."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid:  # its session
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run_plain() -> None:
    """Serve the reference endpoint in this process."""
    import uvicorn
    from fastapi import FastAPI

    connection = sqlite3.connect(
        os.environ["PLAIN_DB"], check_same_thread=False, isolation_level=None
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS rows (at REAL, body TEXT)")
    lock = threading.Lock()
    app = FastAPI()

    @app.post("/row", status_code=202)
    def row(body: ReadingBody) -> dict[str, int]:
        with lock:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT INTO rows VALUES (?, ?)", (time.time(), body.model_dump_json())
            )
            connection.execute("COMMIT")
        return {"taken": 1}

    port = int(os.environ["PLAIN_PORT"])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False)


async def _ask_all(
    ports: list[int], requests: list[bytes], pace: float = 0.0
) -> tuple[float, list[float]]:
    """Seconds for all requests over some connections, and the seconds of each."""
    took: list[float] = []
    left = iter(requests)

    async def caller(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[number % len(ports)])
        for request in left:
            began = time.perf_counter()
            writer.write(request)
            status = await answered(reader)
            assert status in (200, 202), status
            took.append(time.perf_counter() - began)
            if pace:
                await asyncio.sleep(max(0.0, pace - took[-1]))
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(caller(n) for n in range(CALLERS)))
    return time.perf_counter() - began, took


async def answered(reader: asyncio.StreamReader) -> int:
    """The status of the next answer, whose body is read and dropped."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    return int(lines[0].split()[1])


def post(path: str, body: Any, token: str = "") -> bytes:
    """A request as it goes over the wire."""
    content = json.dumps(body).encode()
    key = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{key}"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _push(town: Town, people: range) -> list[bytes]:
    return [post(f"/v1/people/p{n}/streams/s/readings", SPOT, town.devices[n]) for n in people]


def readings(count: int, database: str = "", workers: int = 1) -> tuple[float, float, float]:
    """Readings a second, each the first of its slot, rows a second of the reference, and the
    processor time of a row over that of a reading.

    Both are asked in turns, a piece at a time: what else the machine does falls on both alike.
    """
    warm = 4 * CALLERS * workers
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        town = Town(Path(two), count + warm, database)
        town.store.close()
        with (
            plain(Path(one)) as (port, reference),
            serving(town.settings, workers) as (ours, service),
        ):
            asyncio.run(_ask_all([ours], _push(town, range(warm))))
            asyncio.run(_ask_all([port], [post("/row", SPOT)] * warm))
            spent, before = [0.0, 0.0], (worked(service), worked(reference))
            for first in range(warm, warm + count, PIECE):
                people = range(first, min(first + PIECE, warm + count))
                spent[0] += asyncio.run(_ask_all([ours], _push(town, people)))[0]
                spent[1] += asyncio.run(_ask_all([port], [post("/row", SPOT)] * len(people)))[0]
            processor = (worked(reference) - before[1]) / (worked(service) - before[0])
        store = Store(town.settings)
        assert len(store.ledger.charges()) == count + warm, "a reading was not charged"
        store.close()
    return count / spent[0], count / spent[1], processor


def part_readings(count: int) -> None:
    ours, reference, processor = readings(count)
    name = "readings a second, one worker, SQLite"
    tell(name, ours, reference, "rows a second", ours / reference, ">= .5")
    print(f"  {processor:.2f} of it in processor time")


def part_postgres(count: int) -> None:
    from tests.ledger_servers import Cluster, programs

    if programs() is None:
        print("PostgreSQL is not installed: this part is left out")
        return
    cluster = Cluster()
    cluster.start()
    try:
        ours, reference, processor = readings(count, cluster.url, workers=2)
    finally:
        cluster.remove()
    name = f"the same, PostgreSQL, 2 workers, {count} people"
    tell(name, ours, reference, "rows a second", ours / reference, ">= .5")
    print(f"  {processor:.2f} of it in processor time of the workers, the server's not counted")


def part_batches(count: int) -> None:
    """Batches of 100 readings for slots that are open, against steps in this process.

    Of the processor: the two are a minute and a half apart, in which others come and go.
    """
    with tempfile.TemporaryDirectory() as name:
        town = Town(Path(name), count, every=1.0, grace=3600.0)
        plan = town.plans["places"]
        stream = LocationStream.begin(plan)
        spot = (SPOT["lat"], SPOT["lon"])
        stream, _ = stream.read(spot)
        began = time.process_time()
        for _ in range(2000):
            stream, _ = stream.read(spot)
        reference = 2000 / (time.process_time() - began)
        time.sleep(102)
        town.store.close()
        now = time.time()
        requests = []
        for n in range(count):
            times = [datetime.fromtimestamp(now - 101 + k, UTC).isoformat() for k in range(100)]
            body = [{**SPOT, "at": at} for at in times]
            requests.append(post(f"/v1/people/p{n}/streams/s/readings", body, town.devices[n]))
        with serving(town.settings) as (port, service):
            asyncio.run(_ask_all([port], requests[:CALLERS]))
            before = worked(service)
            asyncio.run(_ask_all([port], requests[CALLERS:]))
            seconds = worked(service) - before
    ours = 100 * (count - CALLERS) / seconds
    tell(
        "readings a second of processor in batches of 100",
        ours,
        reference,
        "reads in process",
        ours / reference,
        ">= .3",
    )


def part_events(rounds: int) -> None:
    """From the end of a slot to the event at a client, at half load, against the plain endpoint."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        with plain(Path(one)) as (port, _):
            requests = [post("/row", SPOT)] * (rounds * 100)
            seconds, _ = asyncio.run(_ask_all([port], requests))
            pace = 2 * CALLERS * seconds / len(requests)
            _, took = asyncio.run(_ask_all([port], requests, pace))
        reference = float(np.quantile(took, 0.99))
        town = Town(Path(two), 20, every=1.0)
        town.store.close()
        with serving(town.settings) as (port, _):
            late = asyncio.run(_late(port, town, rounds))
    ours = float(np.quantile(late, 0.99))
    tell("slot end to event, p99, seconds", ours, reference, "plain p99", ours / reference, "<= 3")


async def _late(port: int, town: Town, rounds: int) -> list[float]:
    late: list[float] = []
    begun = time.time() + 2

    async def listen(person: int) -> None:
        reader, writer = await _listening(port, person, town.viewer)
        for _ in range(rounds + 5):
            while not (line := await reader.readline()).startswith(b"data: "):
                assert line, "the stream ended"
            ends = datetime.fromisoformat(json.loads(line[6:])["ends"]).timestamp()
            if ends > begun:  # slots that ended while the service started are not its fault
                late.append(time.time() - ends)
        writer.close()

    async def push() -> None:
        while True:
            await _ask_all([port], _push(town, range(20)), 0.02)
            await asyncio.sleep(0.5)

    pushing = asyncio.create_task(push())
    await asyncio.gather(*(listen(n) for n in range(20)))
    pushing.cancel()
    return late


async def _listening(
    port: int, person: int, token: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /v1/people/p{person}/streams/s/events HTTP/1.1\r\nHost: x\r\n"
    writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    status = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in status[:20], status
    return reader, writer


def part_crowd(count: int) -> None:
    """Open event streams: memory of the service, and events that did not come."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        town = Town(Path(folder), 10, every=20.0)
        town.store.close()
        with serving(town.settings) as (port, process):
            lost = asyncio.run(_crowd(port, town, count))
            memory = _memory(process.pid)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(
        f"{count} open event streams: {memory / 1e6:.0f} MB (aim <= 1000), "
        f"{lost} events lost (aim 0)"
    )


async def _crowd(port: int, town: Town, count: int) -> int:
    """How many of the connections missed an event of two slots that closed while all were open."""
    opened = []
    for first in range(0, count, 200):
        group = range(first, min(first + 200, count))
        opened += await asyncio.gather(*(_listening(port, n % 10, town.viewer) for n in group))
    await asyncio.sleep(45)

    async def heard(reader: asyncio.StreamReader) -> bool:
        ids: list[int] = []
        while len(ids) < 2:
            try:
                line = await asyncio.wait_for(reader.readline(), 5)
            except TimeoutError:
                return False
            if line.startswith(b"id: "):
                ids.append(int(line[4:]))
        return ids[1] == ids[0] + 1

    found = await asyncio.gather(*(heard(reader) for reader, _ in opened))
    return found.count(False)


def part_times(slots: int) -> None:
    """Bytes and times of answers for shown and suppressed slots, told apart or not at 99 %."""
    with tempfile.TemporaryDirectory() as folder:
        town = Town(Path(folder), 40, every=0.5, contexts=1.0)
        town.store.close()
        with serving(town.settings) as (port, _):
            seen = asyncio.run(_answers(port, town, slots))
    shown = sum(row.status == "shown" for row in seen)
    lengths = sorted({row.length for row in seen})
    print(
        f"{shown} shown and {len(seen) - shown} suppressed answers: lengths {lengths}, "
        f"times told apart with p = {told_apart(seen):.3f} (aim: one length, p > .01)"
    )


class Answered(NamedTuple):
    """An answer to `now`: of which slot, what it showed, bytes without id and slot, seconds."""

    slot: int
    status: str
    length: int
    seconds: float


def told_apart(seen: list[Answered]) -> float:
    """How likely times as different as these are when shown and suppressed slots take as long.

    Ranks within one slot (van Elteren): a mask suppresses some slots of a day more than others,
    and a machine that others use is slower at some times than at others.
    """
    total = variance = 0.0
    for slot in {row.slot for row in seen}:
        rows = [row for row in seen if row.slot == slot]
        shown = np.array([row.status == "shown" for row in rows])
        count, size = int(shown.sum()), len(rows)
        if 0 < count < size:
            ranks = rankdata([row.seconds for row in rows]) / (size + 1) - 0.5
            total += ranks[shown].sum()
            variance += count * (size - count) / (size * (size - 1)) * float((ranks**2).sum())
    return math.erfc(abs(total) / math.sqrt(2 * variance)) if variance else 1.0


async def _answers(port: int, town: Town, slots: int) -> list[Answered]:
    """Answers to `now`, each about a slot that its person was not asked about before."""
    seen: list[Answered] = []
    names = ("home", "work", "clinic")

    async def person(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        last, path = -1, f"/v1/people/p{number}/streams/s"
        order = random.Random(number)
        own = f"GET {path}/now HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {town.viewer}\r\n\r\n"
        for _ in range(100 * slots):
            context = {"context": order.choice(names)}
            writer.write(post(f"{path}/readings", context, town.devices[number]))
            await answered(reader)
            await asyncio.sleep(0.2)
            began = time.perf_counter()
            writer.write(own.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            took = time.perf_counter() - began
            if b" 200 " not in head[:20]:
                continue
            told = json.loads(body)
            if told["id"] != last and told["status"] in ("shown", "suppressed"):
                last = told["id"]
                digits = len(str(last)) + len(str(told["slot"]))
                seen.append(Answered(last, told["status"], length - digits, took))
            if len(seen) >= slots:
                return

    await asyncio.gather(*(person(n) for n in range(40)))
    return seen


def tell(name: str, ours: float, reference: float, what: str, ratio: float, aim: str) -> None:
    """One line of the table."""
    print(f"{name}: {ours:.4g} against {reference:.4g} {what}: {ratio:.2f} (aim {aim})", flush=True)


def _memory(pid: int) -> float:
    """Resident bytes of a process and its children."""
    pids = subprocess.run(["pgrep", "-g", str(pid)], capture_output=True, text=True, check=False)
    total = 0.0
    for each in pids.stdout.split():
        status = Path(f"/proc/{each}/status").read_text()
        total += 1024 * int(status.partition("VmRSS:")[2].split()[0])
    return total


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(port: int) -> None:
    for _ in range(2400):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the service did not start")


PARTS: dict[str, tuple[Callable[[int], None], int, int]] = {
    "readings": (part_readings, 2000, 300),
    "postgres": (part_postgres, 1000, 300),
    "batches": (part_batches, 60, 24),
    "events": (part_events, 60, 10),
    "crowd": (part_crowd, 10_000, 1000),
    "times": (part_times, 10_000, 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=list(PARTS), action="append")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        run_plain()
        return
    for name in given.part or list(PARTS):
        part, whole, quick = PARTS[name]
        part(quick if given.quick else whole)


if __name__ == "__main__":
    main()
