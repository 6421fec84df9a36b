"""A fuzzer of the command line: seeds of every kind of file, and mutations that know their shape.

A case is a command in a folder of small files, one of which is spoilt. Whatever it holds, the
command ends with 0, with 2 and one sentence, or with 3 where a ledger refused; never otherwise.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import polars as pl
from typer.testing import CliRunner, Result

from shoal.cli import app
from shoal.core.codec import digest
from shoal.core.registry import dumps
from shoal.mechanisms.choice import choose
from shoal.spec.request import read_request

SERIES = """\
[data]
state = "activity"
series = "person"
time = "minute"
gap = "10min"
[[model]]
kind = "markov-chain"
states = ["sit", "walk"]
transition = [[0.9, 0.1], [0.4, 0.6]]
initial = "stationary"
length = 30
[secrets]
kind = "each-entry"
[query]
kind = "sum"
weights = { walk = 2, sit = 0.5 }
[privacy]
epsilon = 1.0
mechanism = "group"
"""
ORDER = """\
[[model]]
kind = "order-chain"
states = ["a", "b"]
order = 2
conditional = [[0.5, 0.5], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25]]
initial = [0.25, 0.25, 0.25, 0.25]
length = 6
[secrets]
kind = "each-entry"
[query]
kind = "histogram"
relative = true
length = 6
[privacy]
error = 2.5
confidence = 0.9
mechanism = "laplace"
"""
MIXING = """\
[[model]]
kind = "mixing"
states = ["a", "b"]
pi_min = 0.2
gap = 0.5
length = 50
[[model]]
kind = "interval"
states = ["a", "b"]
low = [0.2, 0.3]
high = [0.6, 0.7]
length = 50
[secrets]
kind = "each-entry"
[query]
kind = "mean"
weights = { a = 1 }
length = 50
[privacy]
epsilon = 0.5
mechanism = "markov-quilt-bound"
"""
TABLE = """\
[[model]]
kind = "table"
variables = ["x", "y"]
domains = [["0", "1"], ["0", "1"]]
probability = [[0.4, 0.1], [0.2, 0.3]]
[secrets]
kind = "pairs"
pairs = [["up", "down"]]
[secrets.events]
up = { x = "1" }
down = { x = "0" }
[query]
kind = "variable-sum"
[query.weights]
x = { 1 = 1 }
y = { 1 = 3 }
[privacy]
epsilon = 1.0
mechanism = "wasserstein"
"""
FLU = """\
[[model]]
kind = "contagion"
sizes = [2, 3]
rate = 0.5
[secrets]
kind = "each-entry"
[query]
kind = "count"
states = ["ill"]
[privacy]
epsilon = 1.0
mechanism = "group"
"""
TIES = """\
[[model]]
kind = "dependence"
states = ["0", "1"]
values = [0, 1]
records = 5
ties = [[0, 1], [1, 2]]
law = [[0.4, 0.1], [0.1, 0.4]]
[secrets]
kind = "each-entry"
[query]
kind = "sum"
weights = { 1 = 1 }
[privacy]
epsilon = 1.0
mechanism = "dependent-means"
"""
TOWN = """\
[data]
lat = "lat"
lon = "lon"
[[model]]
kind = "grid-walk"
south = 52.5
west = 13.36
cell_km = 0.5
rows = 3
columns = 3
stay = 0.6
length = 40
[secrets]
kind = "policy-graph"
graph = "radius"
radius_km = 0.5
[query]
kind = "measurement"
parts = 1
[privacy]
epsilon = 1.0
mechanism = "location-laplace"
"""
DAY = """\
[[model]]
kind = "day-chain"
states = ["home", "work", "clinic"]
initial = [0.8, 0.2, 0]
transition = [[0.7, 0.25, 0.05], [0.1, 0.88, 0.02], [0.3, 0.2, 0.5]]
slots = 4
slot_minutes = 60
start_minute = 540
[secrets]
kind = "contexts"
sensitive = ["clinic"]
[query]
kind = "current"
[privacy]
belief_delta = 0.1
mechanism = "mask-simulatable"
"""
BIF = """\
network rain {
}
variable rain {
  type discrete [ 2 ] { yes, no };
}
variable wet {
  type discrete [ 2 ] { yes, no };
}
probability ( rain ) {
  table 0.2, 0.8;
}
probability ( wet | rain ) {
  (yes) 0.9, 0.1;
  (no) 0.1, 0.9;
}
"""
NET = """\
[[model]]
file = "net.bif"
[secrets]
kind = "each-entry"
[query]
kind = "count"
states = ["yes"]
[privacy]
epsilon = 1.0
mechanism = "group"
"""
TOMLS = {
    "series.toml": SERIES,
    "order.toml": ORDER,
    "mixing.toml": MIXING,
    "table.toml": TABLE,
    "flu.toml": FLU,
    "ties.toml": TIES,
    "town.toml": TOWN,
    "day.toml": DAY,
    "net.toml": NET,
}
ROWS = [
    {
        "person": f"p{person}",
        "minute": f"2024-01-01 08:{minute:02d}:00",
        "activity": ("sit", "walk", "sit")[minute % 3],
        "lat": 52.5 + 0.001 * minute,
        "lon": 13.37,
    }
    for person in range(2)
    for minute in range(12)
]
LINES = {
    "day.toml": ['{"context": "home"}', '{"slot": 2, "context": "work"}', '{"day": "d2"}'],
    "town.toml": ['{"lat": 52.51, "lon": 13.37}', '{"state": "1,1"}', '{"skip": 2}'],
}
OPTIONS = {  # of which one value is spoilt
    "leak": ("--eta",),
    "attack": ("--scale", "--model", "--seed", "--gap", "--who"),
    "release": ("--gap", "--seed", "--key", "--by", "--time-unit", "--tz", "--where", "--bins"),
    "fit": ("--smoothing", "--length", "--initial", "--grid", "--gap", "--order", "--bins"),
}
NUMBERS = (
    "0", "-1", "1", "2", "1e308", "1e-320", "1e400", "-1e400", "1e30", "1e-300", "1e300", "inf",
    "nan", "9223372036854775807", "9" * 5000, "0." + "0" * 400 + "1", "1e999999999", "1e-999999999",
    "1_000_000_000_000", "true", "[]", "{}", '""', '"x"', "0x7fffffff", "1979-05-27",
)  # fmt: skip
TEXTS = (
    "", " ", "*", "zz\0", "a" * 5000, "\x1b[2J", "\u202e", "é", "\ud7ff", "../../etc/passwd",
    "/dev/null", ".", "0", "-0", "nan", "1e400", "[" * 3000, "'", '"', "%s", "{}", "NULL",
)  # fmt: skip
NUMBER = re.compile(r"(?<![\w.\"-])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.\"])")
TEXT = re.compile(r'"[^"\n]*"')
SENTENCE = re.compile(r"(?:Usage: .*\nTry .*\n\n)?Error: [^\n]+\n?$")
DEEP = 5000


@dataclass(frozen=True)
class Case:
    """A command, and the one file that is spoilt (None: an option is)."""

    arguments: tuple[str, ...]
    files: dict[str, bytes]
    lines: str = ""

    def describe(self) -> str:
        shown = {name: raw[:200] for name, raw in self.files.items()}
        return f"shoal {' '.join(self.arguments)[:300]}\n{shown}\n{self.lines[:200]!r}"


def seeds(folder: Path) -> None:
    """The small files of every kind, which work."""
    for name, text in TOMLS.items():
        (folder / name).write_text(text)
    table = pl.DataFrame(ROWS)
    table.write_csv(folder / "days.csv")
    table.write_ndjson(folder / "days.jsonl")
    table.write_parquet(folder / "days.parquet")
    (folder / "net.bif").write_text(BIF)
    with gzip.open(folder / "net.bif.gz", "wt") as stream:
        stream.write(BIF)
    for spec, name in (("series.toml", "plan.json"), ("town.toml", "town.json")):
        asked = read_request(folder / spec)
        plan = choose(asked.task, asked.epsilon(), asked.mechanism).plan
        (folder / name).write_text(dumps(plan) + "\n")
    fit = ["fit", "days.csv", "-o", "model.json", "--state", "activity", "--series", "person"]
    assert CliRunner().invoke(app, fit).exit_code == 0
    (folder / "model.toml").write_text(re.sub(r"kind = .*?\nlength = 30", FILE, SERIES, flags=re.S))


FILE = 'file = "model.json"'


def spoilt_text(text: str, rng: random.Random) -> str:
    """A document with a value, a key, a line or its whole shape changed."""
    kind = rng.randrange(10)
    if kind < 4:
        found = list(NUMBER.finditer(text))
        values: tuple[str, ...] = NUMBERS
    elif kind < 7:
        found = list(TEXT.finditer(text))
        values = tuple(json.dumps(value) for value in TEXTS)
    else:
        return _reshaped(text, rng)
    if not found:
        return _reshaped(text, rng)
    chosen = rng.choice(found)
    return text[: chosen.start()] + rng.choice(values) + text[chosen.end() :]


def _reshaped(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    place = rng.randrange(len(lines))
    match rng.randrange(8):
        case 0:
            return text[: rng.randrange(len(text) + 1)]
        case 1:
            return "".join(lines[:place] + lines[place + 1 :])
        case 2:
            return "".join([*lines[: place + 1], lines[place], *lines[place + 1 :]])
        case 3:
            return "".join([*lines[:place], "[" * DEEP + "]" * DEEP + "\n", *lines[place:]])
        case 4:
            return re.sub(r"=\s*.*", "= " + "[" * DEEP + "]" * DEEP, text, count=1)
        case 5:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
            return "".join(lines)
        case 6:
            return text.replace(
                rng.choice("[]{}=,:\"'\n0.") or "=", rng.choice("[]{}=,:\n\0\x1b"), 3
            )
        case _:
            cut = rng.randrange(len(text) + 1)
            return text[:cut] + rng.choice(TEXTS) + text[cut:]


def spoilt_json(raw: bytes, rng: random.Random) -> bytes:
    """A stored document with a value inside changed, or its text."""
    if rng.random() < 0.4:
        return spoilt_text(raw.decode(), rng).encode(errors="replace")
    document = json.loads(raw)
    at: object = document
    for _ in range(rng.randrange(1, 8)):
        if isinstance(at, dict) and at:
            key = rng.choice(sorted(at))
            if not isinstance(at[key], dict | list) or rng.random() < 0.2:
                at[key] = rng.choice(ODD)
                break
            at = at[key]
        elif isinstance(at, list) and at:
            place = rng.randrange(len(at))
            if not isinstance(at[place], dict | list) or rng.random() < 0.2:
                at[place] = rng.choice(ODD)
                break
            at = at[place]
    if isinstance(document, dict) and rng.random() < 0.7:  # forged whole: it looks untouched
        document["fingerprint"] = digest(document.get("value"))
    return json.dumps(document).encode()


ODD: tuple[object, ...] = (
    None, True, 0, -1, 1e308, 10**30, "", "x", [], {}, [[[]]], {"$fraction": "1/0"}, "*",
    {"$fraction": "1/" + "9" * 400}, {"$array": "x"}, {"kind": "plan"}, {"kind": "none"}, [None],
    float("inf"),
)  # fmt: skip


def spoilt_bytes(raw: bytes, rng: random.Random) -> bytes:
    """Data with bytes changed, cut off or put in."""
    cut = rng.randrange(len(raw) + 1)
    match rng.randrange(5):
        case 0:
            return raw[:cut]
        case 1:
            return raw[:cut] + rng.randbytes(rng.randrange(1, 40)) + raw[cut:]
        case 2:
            return raw[:cut] + bytes([rng.randrange(256)]) + raw[cut + 1 :]
        case 3:
            return spoilt_text(raw.decode("utf-8", "replace"), rng).encode(errors="replace")
        case _:
            return raw.replace(rng.choice([b",", b"\n", b"sit", b"0", b'"']), b'"' * 3, 2)


def case(folder: Path, rng: random.Random) -> Case:
    """One case: a command on the seeds with one file, line or option spoilt."""
    match rng.randrange(8):
        case 0 | 1:
            name = rng.choice(list(TOMLS))
            spoilt = spoilt_text(TOMLS[name], rng).encode(errors="replace")
            return Case((rng.choice(("plan", "leak", "leak")), name), {name: spoilt})
        case 2:
            name = rng.choice(["plan.json", "town.json", "model.json"])
            spoilt = spoilt_json((folder / name).read_bytes(), rng)
            return Case(_use_of(name), {name: spoilt})
        case 3 | 4:
            name = rng.choice(["days.csv", "days.jsonl", "days.parquet"])
            return Case(
                _with_data(name, rng), {name: spoilt_bytes((folder / name).read_bytes(), rng)}
            )
        case 5:
            name = rng.choice(list(LINES))
            lines = [spoilt_text(line, rng) for line in LINES[name] for _ in range(2)]
            return Case(("stream", name, *rng.choice(CHARGES)), {}, "\n".join(lines) + "\n")
        case 6:
            name = rng.choice(["net.bif", "net.bif.gz"])
            text = spoilt_text(BIF, rng).encode(errors="replace")
            raw = text if name == "net.bif" else gzip.compress(text)
            if name != "net.bif" and rng.random() < 0.5:
                raw = spoilt_bytes(raw, rng)
            return Case(
                ("plan", "net.toml"), {name: raw, "net.toml": NET.replace("net.bif", name).encode()}
            )
        case _:
            return Case(_spoilt_options(rng), {})


CHARGES = ((), ("--ledger", "l.db", "--subject", "ann"), ("--state", "s.json"))


def _use_of(name: str) -> tuple[str, ...]:
    return {
        "plan.json": ("release", "plan.json", "days.csv", "-o", "o.json", "--state", "activity",
                      "--series", "person", "--ledger", "l.db", "--force"),
        "town.json": ("stream", "town.json"),
        "model.json": ("plan", "model.toml"),
    }[name]  # fmt: skip


def _with_data(name: str, rng: random.Random) -> tuple[str, ...]:
    columns = ("--state", "activity", "--series", "person", "--time", "minute")
    return rng.choice(
        [
            ("release", "series.toml", name, "-o", "o.json", "--force"),
            ("release", "series.toml", name, "-o", f"out{rng.random()}", "--by", "person"),
            ("release", "town.toml", name, "-o", "o.csv", "--series", "person", "--force"),
            ("fit", name, "-o", "m.json", "--force", *columns),
            ("fit", name, "-o", "m.json", "--force", "--slot", "1h", *columns),
            ("attack", "series.toml", name),
        ]
    )


def _spoilt_options(rng: random.Random) -> tuple[str, ...]:
    value = rng.choice([*NUMBERS, *TEXTS])
    if rng.random() < 0.3:
        unit = rng.choice(("--eta", "--epsilon"))
        if rng.random() < 0.5:
            return "ledger", "limit", "l.db", unit, value
        return "ledger", "limit", "l.db", unit, "1", "--subject", value
    command = rng.choice(list(OPTIONS))
    option = rng.choice(OPTIONS[command])
    base = {
        "leak": ("leak", "series.toml"),
        "attack": ("attack", "series.toml", "days.csv"),
        "release": ("release", "series.toml", "days.csv", "-o", f"o{rng.random()}.json"),
        "fit": ("fit", "days.csv", "-o", "m.json", "--state", "activity", "--force"),
    }[command]
    return *base, option, value


# What earlier commands stored: a ledger, the notes of a job, streams in the middle of a day.

STORED = {
    "job/_shoal/job.json": (("job", "status", "job"), ("job", "resume", "job")),
    "job/_shoal/journal.jsonl": (("job", "status", "job"), ("job", "resume", "job")),
    "town.state": (("stream", "town.toml", "--state", "town.state"),),
    "day.state": (("stream", "day.toml", "--state", "day.state", "--resume"),),
    "b.db": (
        ("ledger", "show", "b.db"),
        ("ledger", "verify", "b.db"),
        ("ledger", "changes", "b.db"),
        ("ledger", "export", "b.db", "-o", "e.json", "--force"),
        ("release", "series.toml", "days.csv", "-o", "o.json", "--ledger", "b.db", "--force"),
    ),
}
CELLS = (
    None, "", "x", "{}", "[]", "null", "9" * 5000, "1/0", "1e400", b"\xff", 2**62, -1, 1.5, "*",
    "\x1b[2J", '{"a":' * 3000, "..", "0..", "[1.5]", '{"schema":1}',
    '{"multiples":[1],"step":"1/0"}',
)  # fmt: skip


def stored_seeds(folder: Path) -> None:
    """The files of STORED, made by commands on the seeds."""
    day = '{"context": "home"}\n'
    for arguments, lines in (
        (("ledger", "limit", "b.db", "--eta", "5", "--subject", "p0"), ""),
        (("release", "series.toml", "days.csv", "-o", "job", "--by", "person"), ""),
        (("release", "series.toml", "days.csv", "-o", "o.json", "--ledger", "b.db"), ""),
        (("ledger", "checkpoint", "b.db"), ""),
        (("stream", "town.toml", "--state", "town.state"), '{"state": "1,1"}\n'),
        (("stream", "day.toml", "--state", "day.state"), day),
    ):
        done = CliRunner().invoke(app, list(arguments), input=lines)
        assert done.exit_code == 0, done.output


def stored_case(folder: Path, rng: random.Random) -> Case:
    """One case: a command on what is stored, one file of which somebody changed."""
    name = rng.choice(list(STORED))
    raw = (folder / name).read_bytes()
    if name == "b.db":
        spoilt = _spoilt_ledger(folder / "spoilt.db", raw, rng)
    else:
        lines = [raw] if name.endswith(".json") else raw.splitlines()
        place = rng.randrange(len(lines))
        lines[place] = spoilt_json(lines[place], rng)
        spoilt = b"\n".join(lines) + b"\n"
    files = {name: spoilt}
    if name.endswith("job.json") and rng.random() < 0.5:
        files["job/_shoal/journal.jsonl"] = b""  # not begun yet
    return Case(rng.choice(STORED[name]), files, '{"state": "0,1", "context": "work"}\n')


def _spoilt_ledger(path: Path, raw: bytes, rng: random.Random) -> bytes:
    """A ledger with one cell of one table changed by somebody who took the triggers away."""
    path.write_bytes(raw)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            connection.execute(f"DROP TRIGGER {name}")
        table = rng.choice(["versions", "house", "documents", "entries", "entries", "house"])
        rows = connection.execute(f"SELECT * FROM shoal_{table}")
        column = rng.choice([column[0] for column in rows.description])
        key = rng.choice([row[0] for row in rows])
        first = rows.description[0][0]
        with suppress(sqlite3.IntegrityError):  # the place of another row, or nothing at all
            connection.execute(
                f"UPDATE shoal_{table} SET {column} = ? WHERE {first} = ?", (rng.choice(CELLS), key)
            )
    return path.read_bytes()


class Stuck(BaseException):
    """A case that did not end; no handler of errors stops it."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Ends what takes more seconds of the processor, or a hundred times as many by the clock.

    A busy machine may not get to a case for minutes, and something that waits uses no processor.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Stuck(f"not over after {seconds:g} s")

    timers = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {signum: signal.signal(signum, stop) for signum in timers}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 100 * seconds)
    try:
        yield
    finally:
        for signum, timer in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(signum, before[signum])


def fault(folder: Path, tried: Case, seconds: float) -> str:
    """What is wrong with how a case ends; empty when nothing is. The seeds are put back."""
    kept = {name: (folder / name).read_bytes() for name in tried.files}
    for name, raw in tried.files.items():
        (folder / name).write_bytes(raw)
    try:
        with bounded(seconds):
            result = CliRunner().invoke(app, list(tried.arguments), input=tried.lines)
    except Stuck as error:
        return f"{error}: {tried.describe()}"
    finally:
        for name, raw in kept.items():
            (folder / name).write_bytes(raw)
    wrong = _wrong_with(result)
    return wrong and f"{wrong}\n{tried.describe()}"


def _wrong_with(result: Result) -> str:
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        import traceback

        text = io.StringIO()
        traceback.print_exception(result.exception, file=text)
        return text.getvalue()
    if result.exit_code not in (0, 2, 3):
        return f"exit code {result.exit_code}: {result.output[-500:]}"
    if result.exit_code and not SENTENCE.search(result.stderr):
        return f"no single sentence: {result.stderr[-500:]!r}"
    if any(not (char.isprintable() or char == "\n") for char in result.stderr):
        return f"control characters: {result.stderr[-500:]!r}"
    return ""
