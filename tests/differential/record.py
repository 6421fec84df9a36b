"""Write what one source tree does, a JSON line for each act, under fixed random words.

Run by `python -m tests.differential` once per tree, in a process whose PYTHONPATH names that tree
and its tests. Only public names of Shoal and the tasks of that tree's contract tests are used, so
that modules may move between the two trees.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import json
import os
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import shoal

Act = tuple[str, Callable[[], Any]]  # its name, and what it gives

# the stored kind of a task's first model to the package it is compared with
PACKAGES = {
    "markov-chain": "chains",
    "any-initial-law": "chains",
    "mixing-summary": "chains",
    "interval-chains": "chains",
    "order-chain": "chains",
    "joint-table": "networks",
    "bayes-net": "networks",
    "contagion": "networks",
    "dependence": "records",
    "pairwise-field": "records",
    "record-groups": "records",
    "sparse-chain": "places",
    "day-chain": "contexts",
    "roads": "share",
}
ALL = ("chains", "networks", "records", "places", "contexts", "share", "ledger", "cli")
STREAM_STEPS = 8
SEEDS = (1, 2, 3)
HISTORIES = 10_000
PER_FILE = 250  # histories in one ledger file
MOST_CHARGES = 6  # in one history
TEMPLATES = ("series", "network", "contagion", "friends", "location", "contexts")
AWAY = re.compile(r'"(seconds|at|hash|head|version)": [^,}\n]+')


def main() -> None:
    """Record the packages that are asked for, and print each line as soon as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=list(ALL))
    parser.add_argument("--histories", type=int, default=HISTORIES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, act in acts(set(given.only), given.histories):
        sys.stdout.write(json.dumps({"id": name, "value": outcome(act)}) + "\n")
        sys.stdout.flush()


def acts(only: set[str], histories: int) -> Iterator[Act]:
    """Yield every act of the packages named, in one order on both trees."""
    from tests.contract.tasks import TASKS

    for name, task in sorted(TASKS.items()):
        if package_of(task) in only:
            yield from task_acts(name, task)
    if "ledger" in only:
        yield from ledger_acts(histories)
    if "cli" in only:
        yield from cli_acts()


def package_of(task: Any) -> str:
    """Return the package whose model a task's family begins with; streams of places are places."""
    if json.loads(shoal.dumps(task.query))["value"]["kind"] == "measurement":
        return "places"
    return PACKAGES[json.loads(shoal.dumps(task.family[0]))["value"]["kind"]]


def outcome(act: Callable[[], Any]) -> Any:
    """Return what an act gives as plain data; of one that is refused, the error and its text."""
    try:
        return plain(act())
    except Exception as error:  # noqa: BLE001  # whatever it is, both trees must raise it
        return {"error": type(error).__name__, "text": str(error)}


def known(value: Any) -> Callable[[], Any]:
    """Return an act that was done already and gave `value`."""
    return lambda: value


def plain(value: Any) -> Any:
    """Return a value as JSON data that two trees share: stored values by their content."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if hasattr(value, "fingerprint"):
        return json.loads(shoal.dumps(value))["value"]
    return value if value is None or isinstance(value, bool | int | str) else repr(value)


# Plans, releases and streams of one task.


def task_acts(name: str, task: Any) -> Iterator[Act]:
    """Yield the plan of every mechanism for a task, and what each plan draws."""
    amount = Fraction(1, 2)
    for row, mechanism in shoal.MECHANISMS.items():
        refusal = mechanism.refuse(task)
        if refusal is not None:
            yield f"plan/{name}/{row}", known({"refused": refusal})
            continue
        try:
            plan = mechanism.calibrate(task, amount)
        except Exception as error:  # noqa: BLE001
            yield f"plan/{name}/{row}", known({"error": type(error).__name__, "text": str(error)})
            continue
        yield f"plan/{name}/{row}", partial(plan_facts, plan)
        yield f"drawn/{name}/{row}", partial(drawn, plan)


def plan_facts(plan: Any) -> dict[str, Any]:
    """Return what a plan promises and draws with."""
    body = plan.additive
    return {
        "fingerprint": plan.fingerprint,
        "scale": None if body is None else body.noise.scale,
        "guarantee": plan.guarantee.describe(),
        "composition": [rule.describe() for rule in plan.composition],
        "recheck": shoal.verify_promise(plan),
        "error": str(plan.error()),
    }


def drawn(plan: Any) -> Any:
    """Return releases of a plan, or the steps of its stream, under fixed words."""
    states = getattr(plan.task.query, "states", None)
    if hasattr(plan.body, "init") and states:
        return stream_trace(plan, states)
    for data in example_data(plan, states):
        with contextlib.suppress(shoal.DataError):
            made = [plan.release(data, rng=shoal.SeededRng(seed)) for seed in SEEDS]
            return [(one.answer.labels, one.answer.multiples, one.answer.step) for one in made]
    return "no example data is taken"


def example_data(plan: Any, states: Any) -> Iterator[Any]:
    """Yield data of many shapes, of which a plan takes the first that its model is about."""
    length = getattr(plan.task.family[0], "length", None)
    for size in (min(length or 8, 40), *range(1, 16)):
        if states:
            yield [states[number * number % len(states)] for number in range(size)]
        yield [number / size for number in range(size)]
    domains = getattr(plan.task.query, "domains", ())
    for place in range(len(domains)):
        yield [domain[place % len(domain)] for domain in domains]
    yield [(0, 1), (1, 2), (2, 3), (0, 8)]
    rows = [[number / 50, 1 - number / 50] for number in range(50)]
    yield rows
    yield rows, [1 if number % 3 else -1 for number in range(50)]
    yield rows, [int(number % 3 > 0) for number in range(50)]


def stream_trace(plan: Any, states: Any) -> Any:
    """Return every output of a stream, and a hash of where it stands after each step."""
    stream, kind = begun(plan)
    trace = []
    for number in range(STREAM_STEPS):
        reading, rng = states[number * number % len(states)], shoal.SeededRng(number)
        try:
            step = stream.step if kind == "step" else stream.read
            stream, shown = step(reading, rng=rng)
        except shoal.ShoalError as error:
            trace.append({"error": type(error).__name__, "text": str(error)})
            break
        state = hashlib.sha256(stream.to_bytes()).hexdigest()
        trace.append({"shown": plain(shown), "state": state, "stream": stream.fingerprint})
    return trace


def begun(plan: Any) -> tuple[Any, str]:
    """Return the stream a plan is meant for, and how it is driven."""
    counts = getattr(shoal, "mechanisms", None) or shoal.additive  # called so in older trees
    for begin in (shoal.LocationStream, shoal.ContextStream, counts.RunningStream):
        with contextlib.suppress(Exception):
            return begin.begin(plan), "read"
    return plan.start(), "step"


# Histories of charges.


def ledger_plans() -> list[list[Any]]:
    """Return plans in pools; a history charges plans of one pool mostly."""
    two = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["a", "b"], length=20)
    weak = shoal.MarkovChain.of([[0.55, 0.45], [0.45, 0.55]], states=["a", "b"], length=20)
    other = shoal.MarkovChain.of([[0.7, 0.3], [0.2, 0.8]], states=["c", "d"], length=20)
    one, all_of = shoal.count(["a", "b"], "b"), shoal.histogram(["a", "b"])
    entry = shoal.EachEntry()

    def plans(query: Any, model: Any, *rows: str) -> list[Any]:
        return [
            shoal.calibrate(query, entry, model, epsilon=epsilon, mechanism=row)
            for row in rows
            for epsilon in ("0.1", "0.5")
        ]

    counts = plans(one, two, "laplace", "group", "lift", "exact", "markov-quilt")
    return [
        counts,
        plans(one, two, "markov-quilt"),
        plans(one, two, "laplace", "lift"),
        plans(all_of, two, "laplace", "group"),
        counts[:4] + plans(one, weak, "laplace", "influence-matrix"),
        counts[:2] + plans(shoal.count(["c", "d"], "d"), other, "laplace", "group"),
    ]


def ledger_acts(histories: int) -> Iterator[Act]:
    """Yield random histories, a few hundred in one ledger file, each about its own subjects."""
    pools = ledger_plans()
    for first in range(0, histories, PER_FILE):
        last = min(first + PER_FILE, histories)
        yield from _in_one_file(pools, first, last)


def _in_one_file(pools: list[list[Any]], first: int, last: int) -> Iterator[Act]:
    with (
        tempfile.TemporaryDirectory() as folder,
        shoal.open_ledger(Path(folder) / "ledger.db") as ledger,
    ):
        for number in range(first, last):
            found = outcome(partial(history, ledger, pools, number))
            yield f"ledger/{number:05}", known(found)
        verdict = ledger.verify()
        yield f"ledger/verified-{first:05}", known((verdict.intact, verdict.charges))


def history(ledger: Any, pools: list[list[Any]], number: int) -> Any:
    """Charge a random history, and return what each charge came to and all totals."""
    chosen = random.Random(number)
    pool = pools[number % len(pools)]
    names = [f"{number}/ann", f"{number}/bob"]
    if chosen.random() < 0.3:
        unit = chosen.choice(["eta", "epsilon"])
        amount = chosen.choice(["0.3", "1", "2.5"])
        period = chosen.choice([None, "*", "w1"])
        ledger.limit(amount, unit=unit, subject=names[0], period=period)
    said = [charged(ledger, chosen, pool, names) for _ in range(chosen.randint(1, MOST_CHARGES))]
    return {"outcomes": said, "totals": [totals(ledger, name) for name in names]}


def charged(ledger: Any, chosen: random.Random, pool: list[Any], names: list[str]) -> str:
    """Charge one random release, and return how that ended."""
    plan, other = chosen.choice(pool), chosen.random()
    names = chosen.sample(names, 2)
    account: dict[str, Any] = {"subject": names[0], "period": chosen.choice(["", "w1"])}
    account["requester"] = chosen.choice(["", "study"])
    if other < 0.2:
        account["part"] = chosen.choice([(0, 10), (5, 15), (10, 20)])
    elif other < 0.3:
        account["part"] = chosen.choice(["ward 1", "ward 2"])
    elif other < 0.4:
        account |= {"subject": f"{names[0]} and others", "members": names}
    elif other < 0.5:
        account["key"] = f"{names[0]}, {account['period']}"
    try:
        plan.release([*plan.task.query.states] * 3, ledger=ledger, **account)
    except shoal.ShoalError as error:
        return f"{type(error).__name__}: {error}"
    return f"charged {plan.mechanism}"


def totals(ledger: Any, subject: str) -> Any:
    """Return what is spent on a subject, in each period and in all of them."""
    found = [
        {"period": period, "total": one if isinstance(one, shoal.BudgetError) else total_facts(one)}
        for _, period, one in ledger.totals(subject)
    ]
    return [plain(one) for one in found]


def total_facts(total: Any) -> dict[str, Any]:
    """Return a total with its amounts as exact fractions."""
    names = ("notion", "amount", "rule", "eta", "charges", "explanation", "entry")
    return {name: plain(getattr(total, name)) for name in names}


# Every command on every template.


def cli_acts() -> Iterator[Act]:
    """Yield the JSON that each command prints for each template, in a folder of its own."""
    for kind in TEMPLATES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            write_data(Path(folder), kind)
            for name, arguments in commands(kind):
                said = run_command(arguments)
                if CHARGED[0] in arguments:  # drawn with the system's randomness
                    said = {"code": said["code"]}
                yield f"cli/{kind}/{name}", known(said)


def commands(kind: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the commands, those first that others need."""
    spec, plan, data, options = f"{kind}.toml", f"{kind}.json", "data.csv", ("--state", "state")
    yield "init", ("init", "--kind", kind, spec, "--json")
    yield "plan", ("plan", spec, "--json", "--save", plan)
    yield "leak", ("leak", spec, "--json")
    yield "audit", ("audit", plan, "--json")
    yield "attack", ("attack", plan, data, *options, "--json")
    yield "budget", ("budget", spec, "--releases", "12", "--json")
    release, suffix = ("release", plan, data, *options, "--json"), SUFFIX.get(kind, "json")
    yield "release", (*release, "-o", f"release.{suffix}", "--seed", "1")
    yield "released", ("cat", f"release.{suffix}")
    yield "charged release", (*release, "-o", f"charged.{suffix}", *CHARGED)
    yield "ledger show", ("ledger", "show", "budget.db", "--json")
    yield "ledger verify", ("ledger", "verify", "budget.db", "--json")
    yield "fit", ("fit", data, *options, "--series", "person", "-o", "model.json", "--json")
    yield "fitted", ("cat", "model.json")
    yield "stream", ("stream", plan, "--seed", "1")


CHARGED = ("--ledger", "budget.db", "--subject", "ann")
STATES = {
    "series": ("sit", "stand", "walk"),
    "friends": ("north", "centre", "south"),
    "contexts": ("home", "work", "clinic"),
    "location": ("2,3", "2,4", "3,4"),
    "network": ("warm", "well", "ill", "well", "ill"),
    "contagion": ("well", "ill", "well", "well"),
}
ROWS = {"network": 5, "contagion": 12, "contexts": 16}  # else 6
SUFFIX = {"location": "csv"}  # of what is released, else json


def write_data(folder: Path, kind: str) -> None:
    """Write a small table of states, and lines of a stream."""
    states = STATES[kind]
    rows = [("ann", states[number % len(states)]) for number in range(ROWS.get(kind, 6))]
    with (folder / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("person", "state"), *rows])
    lines = [{"state": state, "context": state} for _, state in rows]
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run_command(arguments: tuple[str, ...]) -> Any:
    """Return the exit code and what a command printed, without clocks and hashes of charges."""
    if arguments[0] == "cat":
        path = Path(arguments[1])
        return without_clocks(path.read_text()) if path.exists() else "no file"
    from typer.testing import CliRunner

    from shoal.cli import app

    lines = Path("lines.jsonl").read_text() if arguments[0] == "stream" else None
    with contextlib.redirect_stderr(io.StringIO()):
        done = CliRunner().invoke(app, list(arguments), input=lines)
    text = without_clocks(done.stdout)
    try:
        printed = json.loads(text)
    except ValueError:
        printed = text.splitlines()
    return {"code": done.exit_code, "out": printed, "err": without_clocks(done.stderr)}


def without_clocks(text: str) -> str:
    """Return a text without times, hashes of charges, versions and the folder's name."""
    return AWAY.sub(r'"\1": null', text).replace(os.getcwd(), "FOLDER")


if __name__ == "__main__":
    main()
