"""Charges per second against one committed INSERT each, in the same engine, in the same run.

The reference is the least a durable ledger could do: one row of the same width, inserted and
committed by itself through the same connection settings, nothing checked, nothing chained. A
charge checks the limits and the rules, draws the noise, links the row and commits; a step is one of
a stream of places, charged under a key of its own. Rounds of all alternate, so that a busy disk
slows them alike; under each row is what one act takes of the processor, which a busy machine does
not stretch. Aim: at least a half. Subjects are one for all writers, or each writer's own. The last
column is how a charge about a subject with 10,000 charges compares with one about a subject with
10: what was spent is not counted again.

A second table is about one ledger of many charges: links verified, and charges shown and exported,
a second of the processor, since a busy machine stretches the clock; the reference there is reading
the same rows.

    python -m benchmarks.ledger [--seconds 1] [--rounds 3] [--writers 1 16] [--links 100000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import shoal
from shoal.core.charge import Charge
from shoal.core.plan import Plan
from shoal.ledger import open_ledger
from shoal.ledger.export import write_parquet
from tests.ledger_servers import Cluster, fresh_schema, programs

DATA = [0, 1] * 10
WIDTH = 350  # bytes of a charge with its value and hash
WARM = 6  # acts before the clock runs: the first steps of a stream build its noise
FULL, GROWN = 10_000, 100  # charges about one subject; charges timed after them

FORK = multiprocessing.get_context("fork")


def plan() -> Plan:
    """A count with ordinary Laplace noise: the cheapest release there is."""
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=20)
    query = shoal.count(chain.states, 1)
    return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon="0.1", mechanism="laplace")


Step = Callable[[], object]


def releasing(url: str, subject: str, made: Plan) -> Step:
    """A release, charged."""
    ledger = open_ledger(url, timeout=120)
    return lambda: made.release(DATA, ledger=ledger, subject=subject)


def charging(url: str, subject: str, made: Plan) -> Step:
    """The same with a value drawn beforehand: the ledger's own work."""
    ledger = open_ledger(url, timeout=120)
    release = made.release(DATA)
    return lambda: ledger.settle(Charge(plan=made, subject=subject), lambda: release)


def inserting(url: str, subject: str, made: Plan) -> Step:
    """The reference: one row inserted and committed, on the disk when it returns.

    PostgreSQL may take several at once here: the reference needs no lock, as it keeps no order.
    """
    from sqlalchemy import create_engine, text

    if "://" in url:  # a plain connection, with the server's own durable commits
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    else:
        database = open_ledger(url, timeout=120).database
        engine = database.engine.execution_options(**database.dialect.writing.options)
    insert = text("INSERT INTO reference (payload) VALUES (:payload)")
    row = {"payload": "x" * WIDTH}

    def step() -> None:
        with engine.begin() as connection:
            connection.execute(insert, row)

    return step


def stepping(url: str, subject: str, made: Plan) -> Step:
    """A step of a stream of places, charged and drawn; `made` is not used."""
    from shoal.places.stream import LocationStream

    ledger, place = open_ledger(url, timeout=120), places()
    states = place.task.query.states
    line = [LocationStream.begin(place)]
    own = f"{subject} {os.getpid()} {time.monotonic()}"

    def step() -> None:
        stream = line[0]
        key, here = f"{own} {stream.state.time}", states[stream.state.time % 3]
        line[0], _ = stream.read(here, ledger=ledger, subject=own, period="steps", key=key)

    return step


@cache
def places() -> Plan:
    """Noise for a small town."""
    from shoal.mechanisms.choice import choose
    from tests.locations import town_task

    return choose(town_task(6, 6), Fraction(1), "location-knorm").plan


WORK: dict[str, Callable[[str, str, Plan], Step]] = {
    "one INSERT": inserting,
    "charge": charging,
    "charge and release": releasing,
    "place step": stepping,
}


class Rate(NamedTuple):
    """Transactions per second of all writers together, and what one takes of the processor.

    The second is this program's own share: on PostgreSQL the server's comes on top.
    """

    per_second: float
    work_ms: float


def rate(work: str, url: str, writers: int, seconds: float, made: Plan, *, shared: bool) -> Rate:
    """How quick all writers together are, once every one is warm."""
    warm = FORK.Barrier(writers)
    results: Any = FORK.Queue()

    def run(number: int) -> None:
        step = WORK[work](url, "everybody" if shared else f"subject-{number}", made)
        for _ in range(WARM):
            step()
        warm.wait()
        begin, begin_work, count = time.monotonic(), time.process_time(), 0
        while time.monotonic() < begin + seconds:
            step()
            count += 1
        spent = (time.process_time() - begin_work) / count
        results.put((count / (time.monotonic() - begin), 1000 * spent))

    processes = [FORK.Process(target=run, args=(number,)) for number in range(writers)]
    for process in processes:
        process.start()
    heard = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return Rate(sum(one for one, _ in heard), statistics.median(work for _, work in heard))


def prepare(url: str) -> None:
    """The ledger with a generous limit, and the reference's table.

    The limit is on the period without a name: steps of places have no eta to be limited.
    """
    with open_ledger(url) as ledger:
        ledger.limit(10**9, period="")
        kind = "BIGSERIAL PRIMARY KEY" if "://" in url else "INTEGER PRIMARY KEY"
        ledger.database.migrate(
            lambda connection: connection.exec_driver_sql(
                f"CREATE TABLE reference (seq {kind}, payload TEXT NOT NULL)"
            )
        )


def growth(url: str, made: Plan) -> float:
    """Seconds of a charge about a subject with FULL charges over those about one with 10."""
    few, many = f"few-{FULL}", f"many-{FULL}"
    with open_ledger(url) as ledger:
        release = made.release(DATA)
        for subject, size in ((few, 10), (many, FULL)):
            charges = [Charge(plan=made, subject=subject)] * size
            ledger.settle_all(charges, lambda places: [release] * len(places))
        times: dict[str, list[float]] = {few: [], many: []}
        for _ in range(GROWN):
            for subject, taken in times.items():
                begin = time.perf_counter()
                ledger.settle(Charge(plan=made, subject=subject), lambda: release)
                taken.append(time.perf_counter() - begin)
    return statistics.median(times[many]) / statistics.median(times[few])


def measure(name: str, url: str, options: argparse.Namespace) -> None:
    """One table row per number of writers, and per one subject or many."""
    made = plan()
    prepare(url)
    grown = growth(url, made)
    for writers in options.writers:
        for shared in (True, False) if writers > 1 else (True,):
            rates: dict[str, list[Rate]] = {work: [] for work in WORK}
            for _ in range(options.rounds):
                for work, found in rates.items():
                    found.append(rate(work, url, writers, options.seconds, made, shared=shared))
            best = {work: _median(found, 0) for work, found in rates.items()}
            reference = best["one INSERT"]
            print(
                f"{name:<10} {writers:>7} {'one' if shared else 'own':>7}"
                + "".join(f" {best[work]:>12.0f}" for work in WORK)
                + "".join(f" {best[work] / reference:>10.2f}" for work in list(WORK)[1:])
                + f" {grown:>10.2f}"
            )
            print(
                f"{'':<10} {'ms of the processor':>15}"
                + "".join(f" {_median(found, 1):>12.2f}" for found in rates.values())
            )


def _median(rates: list[Rate], place: int) -> float:
    return statistics.median(one[place] for one in rates)


def large(links: int, url: str) -> None:
    """One ledger of many charges: verified, shown and exported."""
    made = plan()
    release = made.release(DATA)
    with open_ledger(url) as ledger:
        ledger.limit(10**9)
        for begin in range(0, links, 2000):
            charges = [
                Charge(plan=made, subject=f"user {number % 1000}")
                for number in range(begin, min(begin + 2000, links))
            ]
            ledger.settle_all(charges, lambda places: [release] * len(places))
        ledger.checkpoint()
        with tempfile.TemporaryDirectory() as folder:
            acts: dict[str, Callable[[], object]] = {
                "read": lambda: sum(1 for _ in ledger.each_charge()),
                "verify": ledger.verify,
                "show": lambda: list(ledger.totals()),
                "export": lambda: write_parquet(ledger, Path(folder) / "charges.parquet"),
            }
            for name, act in acts.items():
                begin_time, begin_work = time.perf_counter(), time.process_time()
                act()
                taken, work = time.perf_counter() - begin_time, time.process_time() - begin_work
                print(
                    f"{name:<8} {links / work:>10.0f} charges a second of the processor, "
                    f"{work:.2f} s for all ({taken:.2f} s by the clock)"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--links", type=int, default=100_000)
    options = parser.parse_args()
    if options.links:
        with tempfile.TemporaryDirectory() as folder:
            large(options.links, str(Path(folder) / "budget.db"))
    if not options.writers or not options.rounds:
        return
    print("per second, median of rounds; ratios to one INSERT in the same rounds (aim: 0.5)")
    print(
        f"{'engine':<10} {'writers':>7} {'subject':>7} {'one INSERT':>12} {'charge':>12} "
        f"{'and release':>12} {'place step':>12} {'charge':>10} {'+ release':>10} {'step':>10} "
        f"{'10000 : 10':>10}"
    )
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", str(Path(folder) / "budget.db"), options)
    given = os.environ.get("SHOAL_TEST_POSTGRES")
    if given:
        measure("PostgreSQL", fresh_schema(given), options)
    elif programs() is None:
        print("PostgreSQL is not installed: not measured")
    else:
        cluster = Cluster()
        try:
            cluster.start()
            measure("PostgreSQL", fresh_schema(cluster.url), options)
        finally:
            cluster.remove()


if __name__ == "__main__":
    main()
