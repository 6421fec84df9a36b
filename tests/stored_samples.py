"""Samples of everything that is stored, written once by one version and read by all later ones.

`python -m tests.stored_samples tests/data/stored-0.2` wrote the folder of version 0.2. It is not
written again: a later version adds a folder of its own beside it, and reads both.
"""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.chains.model import MarkovChain
from shoal.contexts.stream import ContextStream
from shoal.core.charge import EVERYBODY, Charge, Part
from shoal.core.codec import Value, encode, kind_of
from shoal.core.errors import CannotCompose, Refused
from shoal.core.plan import Answer, Plan, Sampler
from shoal.core.registry import KINDS, dumps
from shoal.core.stream import Slot, run_batch
from shoal.core.task import EachEntry
from shoal.events.event import visit
from shoal.events.secrets import Events
from shoal.gateway.machines import stream_kind
from shoal.gateway.vault import Vault
from shoal.ledger import Signer, SqlLedger, compose, open_ledger
from shoal.ledger.export import account_objects, total_object
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import RunningStream, count, in_steps
from shoal.mechanisms.table import MECHANISMS, verify_promise
from shoal.noise.primitives import SeededRng
from shoal.places.machine import LocationMachine
from shoal.places.stream import LocationStream

LARGEST_DOCUMENT = 9_000  # characters of a plan's JSON, so that the samples stay small
PER_MECHANISM = 2
MORE = (  # tasks of families that the smallest plans leave out
    ("group", "kmeans"),
    ("group", "degrees"),
    ("group", "classifier"),
    ("lift", "network"),
    ("lift", "order-2"),
    ("lift", "event-count"),
    ("markov-quilt", "network"),
    ("wasserstein", "pairs"),
    ("lift", "contagion"),
)
DAY = "2024-03-04"
SEALED_ROOM = 64


def sample_plans() -> dict[str, Plan]:
    """Return up to two small plans of every mechanism, and of series in steps, by name."""
    from tests.contract.tasks import OWN, TASKS
    from tests.examples import QUICK

    found: dict[str, Plan] = {}
    for row, mechanism in MECHANISMS.items():
        made: list[tuple[int, str, Plan]] = []
        for name in sorted(OWN[row], key=lambda name: (name not in QUICK, name)):
            if len(made) >= 4 or (made and name not in QUICK):
                break
            try:
                plan = mechanism.calibrate(TASKS[name], Fraction(1, 2))
            except Refused:
                continue
            made.append((len(dumps(plan, indent=None)), name, plan))
        made.sort(key=lambda one: one[:2])
        small = [one for one in made if one[0] <= LARGEST_DOCUMENT]
        for _, name, plan in (small or made[:1])[:PER_MECHANISM]:
            found[f"{row} on {name}"] = plan
    for row, name in MORE:
        if name in OWN[row]:
            found[f"{row} on {name}"] = MECHANISMS[row].calibrate(TASKS[name], Fraction(1, 2))
    town = MECHANISMS["location-laplace"].calibrate(TASKS["map"], Fraction(1, 2))
    there = Events.of(visit(TASKS["map"].query.states[0], between=(0, 1)))
    found["watching"] = LocationStream.begin(town, events=there, event_epsilon=1).plan
    series = MarkovChain.of([[0.7, 0.3], [0.4, 0.6]], states=["a", "b"])
    steps = in_steps(count("ab", "a"), 2)
    found["running"] = calibrate(steps, EachEntry(), series, epsilon=1)
    return found


def sample_values() -> Iterator[dict[str, Any]]:
    """Yield the smallest document of every kind that has a fingerprint."""
    from tests.examples import examples

    smallest: dict[str, str] = {}
    for value in examples():
        if isinstance(value, Value) and type(value) in KINDS.values():
            kind, document = kind_of(type(value)), dumps(value, indent=None)
            if kind not in smallest or (len(document), document) < (
                len(smallest[kind]),
                smallest[kind],
            ):
                smallest[kind] = document
    yield from (json.loads(smallest[kind]) for kind in sorted(smallest))


def judged_plan(name: str, plan: Plan) -> dict[str, Any]:
    """Return a plan's document with all that later versions must find in it."""
    return {
        "name": name,
        "fingerprint": plan.fingerprint,
        "mechanism": plan.mechanism,
        "guarantee": encode(plan.guarantee),
        "recheck": repr(verify_promise(plan)),
        "once": composed([plan]),
        "twice": composed([plan, plan]),
        "document": json.loads(dumps(plan)),
    }


def composed(plans: list[Plan]) -> dict[str, Any] | None:
    """Return the total of charges of these plans; None when no rule adds them."""
    try:
        total = total_object(compose(plans))
    except CannotCompose:
        return None
    return {name: total[name] for name in ("notion", "amount_exact", "eta_exact", "rule")}


def sample_streams(plans: dict[str, Plan]) -> Iterator[dict[str, Any]]:
    """Yield streams after three steps as bytes, and what each shows next under fixed words."""
    for name, plan in plans.items():
        for begun in begun_streams(plan):
            stream = begun
            for number in range(min(3, last_step(plan))):
                stream, _ = advance_stream(stream, number)
            yield {
                "plan": plan.fingerprint,
                "name": f"{name}, {type(stream).__name__}",
                "stream": kind_of(type(stream)),
                "bytes": base64.b64encode(stream.to_bytes()).decode(),
                "fingerprint": stream.fingerprint,
                "next": encode(advance_stream(stream, 3)[1]),
            }


def last_step(plan: Plan) -> int:
    """Return how many steps a stream of this plan has before its last one; 3 when it has no end."""
    body: Any = plan.body
    slots = getattr(plan.task.family[0], "slots", None)
    return 3 if slots is None or isinstance(body, LocationMachine) else int(slots) - 1


def begun_streams(plan: Plan) -> list[Any]:
    """Return the streams of every kind that a plan can begin."""
    if isinstance(plan.body, LocationMachine):
        plain = [] if plan.body.watch else [plan.start()]
        return [*plain, LocationStream.begin(plan)]
    if plan.mechanism.startswith("mask-"):
        return [plan.start(), ContextStream.begin(plan, DAY)]
    if not hasattr(plan.body, "init"):
        return []
    return [RunningStream.begin(plan)]


def advance_stream(stream: Any, number: int) -> tuple[Any, Any]:
    """Return the stream after its `number`-th reading, and what was shown, under fixed words."""
    states = stream.plan.task.query.states
    reading, rng = states[number % len(states)], SeededRng(100 + number)
    step = getattr(stream, "read", None) or stream.step
    after, shown = step(reading, rng=rng)
    return after, shown


def sample_ledger(plans: dict[str, Plan], path: Path) -> dict[str, Any]:
    """Fill a ledger with every kind of row, and return all that later versions must find in it."""
    with open_ledger(path) as ledger:
        signer = Signer.make(path.with_suffix(".pem"))
        ledger.limit("50", subject="limited", by="the office")
        ledger.limit("1/3", unit="eta", subject="limited", period=None, requester="ann", by="x")
        ledger.checkpoint(by="the office")
        for number, (name, plan) in enumerate(plans.items()):
            if isinstance(plan.body, Sampler):
                charge_twice(ledger, name, plan, number)
        charge_streams(ledger, plans)
        ledger.trust(signer.public, by="the office")
        for plan in plans.values():
            ledger.admit(plan, signer.public, signer.sign(plan.fingerprint), by="the office")
        ledger.checkpoint(signer, by="the office")
        laplace = next(p for name, p in plans.items() if name.startswith("laplace"))
        settle(ledger, Charge(plan=laplace, subject="after the signer"))
        return judged_ledger(ledger, signer.public)


def charge_twice(ledger: SqlLedger, name: str, plan: Plan, number: int) -> None:
    """Charge a plan about a subject of its own, in two periods, and with parts where it may be."""
    who = f"subject {number}"
    settle(ledger, Charge(plan=plan, subject=who, key=f"key {number}", requester="ann"))
    settle(ledger, Charge(plan=plan, subject=who, period="2024-W08"))
    if name in ("laplace on count", "lift on count", "group on count"):
        settle(ledger, Charge(plan=plan, subject=who, part=Part(span=(0, 10)), period="p"))
        settle(ledger, Charge(plan=plan, subject=who, part=Part(span=(10, 20)), period="p"))
        settle(ledger, Charge(plan=plan, subject=who, part=Part(name="ward"), period="q"))
        members = (f"ada {number}", f"bob {number}")
        settle(ledger, Charge(plan=plan, subject=f"all {number}", members=members, period="m"))
    if name == "laplace on count":
        settle(ledger, Charge(plan=plan, subject="town", members=EVERYBODY, period="e"))


def settle(ledger: SqlLedger, charge: Charge) -> None:
    """Charge, and draw an answer of zeros: what is stored matters here, not what it says."""
    plan: Any = charge.plan

    def drawn() -> Any:
        query = plan.task.query
        step = query.lattice if plan.additive is None else plan.additive.noise.step
        return plan.released(
            Answer(query.labels, (0,) * len(query.labels), step, query.unit), secure=True
        )

    ledger.settle(charge, drawn)


def charge_streams(ledger: SqlLedger, plans: dict[str, Plan]) -> None:
    """Charge two steps of every stream, each about a subject of its own."""
    for name, plan in plans.items():
        for begun in begun_streams(plan)[-1:]:
            stream = begun
            for number in range(2):
                account = {"ledger": ledger, "subject": f"stream of {name}"}
                states = plan.task.query.states
                stream, _ = stream.read(states[number % len(states)], **account)


def judged_ledger(ledger: SqlLedger, signer: str) -> dict[str, Any]:
    """Return heads, totals, limits and releases as this version finds them."""
    verdict = ledger.verify(signer=signer)
    assert verdict.intact, verdict.problems
    return {
        "signer": signer,
        "head": ledger.head().hash,
        "links": verdict.links,
        "charges": verdict.charges,
        "limits": [repr(limit) for limit in ledger.limits()],
        "totals": judged_totals(ledger),
        "releases": {entry.hash: released(ledger, entry) for entry in ledger.each_charge()},
    }


def judged_totals(ledger: SqlLedger) -> list[dict[str, Any]]:
    """Return the total of every account without its prose."""
    kept = ("subject", "period", "notion", "amount_exact", "eta_exact", "rule", "charges")
    return [{name: one[name] for name in kept if name in one} for one in account_objects(ledger)]


def released(ledger: SqlLedger, entry: Any) -> str | None:
    """Return the fingerprint of the release a charge paid for; None when a member only was."""
    return None if entry.value is None else ledger.release(entry).fingerprint


def sample_gateway(plans: dict[str, Plan], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the gateway's states, plain and sealed, and what follows a slot that was not read."""
    key = bytes(range(32))
    vault = Vault([("first", key)])
    with open_ledger(folder / "gateway.db") as ledger:
        for name, plan in plans.items():
            if not begun_streams(plan):
                continue
            kind = stream_kind(plan)
            first = plan.task.query.states[0]
            slot = Slot(subject=name, period=DAY, key=f"key of {name}")
            reading = kind.parse_reading(plan, {"state": first, "context": first})
            (result,) = run_batch([kind.step(plan, kind.begin(plan), reading, slot, 0)], ledger)
            state, _ = kind.after(plan, result, status="shown")
            after, told = kind.skip(plan, bytes(state), status="paused")
            sealed = vault.seal(bytes(state), f"space/{name}/1", SEALED_ROOM)[1]
            yield {
                "name": name,
                "kind": kind.name,
                "plan": plan.fingerprint,
                "state": base64.b64encode(bytes(state)).decode(),
                "after": base64.b64encode(bytes(after)).decode(),
                "told": [told.status, told.value],
                "key": base64.b64encode(key).decode(),
                "place": f"space/{name}/1",
                "sealed": base64.b64encode(sealed).decode(),
            }


def write(folder: Path) -> None:
    """Write all samples into a folder that has none."""
    folder.mkdir(parents=True)
    plans = sample_plans()
    write_lines(folder / "values.jsonl.gz", sample_values())
    write_lines(folder / "plans.jsonl.gz", (judged_plan(*each) for each in plans.items()))
    write_lines(folder / "streams.jsonl.gz", sample_streams(plans))
    plans = {name: plan for name, plan in plans.items() if composed([plan]) is not None}
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "ledger.db"
        found = sample_ledger(plans, path)
        write_text(folder / "ledger.json.gz", json.dumps(found) + "\n")
        connection = sqlite3.connect(path)
        write_text(folder / "ledger.sql.gz", "\n".join(connection.iterdump()) + "\n")
        connection.close()
        write_lines(folder / "gateway.jsonl.gz", sample_gateway(plans, Path(temporary)))


def write_lines(path: Path, objects: Iterator[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    write_text(path, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects))


def write_text(path: Path, text: str) -> None:
    """Write a compressed text, the same bytes for the same text."""
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_text(path: Path) -> str:
    """Return the text that `write_text` wrote."""
    return gzip.decompress(path.read_bytes()).decode()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
