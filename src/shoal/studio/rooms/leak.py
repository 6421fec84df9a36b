"""The Leak room: a series, what an ordinary release gives away, the noise that is enough."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.additive.choice import choose
from shoal.additive.lift import leakage
from shoal.chains.fit import fit_chain
from shoal.chains.fit_check import check_fit
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.registry import dumps, families
from shoal.core.task import Task
from shoal.data.generate import activity_table
from shoal.data.parquet import parquet_frames
from shoal.data.read import read
from shoal.data.table import Dataset, from_table
from shoal.noise.primitives import SeededRng
from shoal.studio import props
from shoal.studio.bench import number, request_of, text
from shoal.studio.work import Say

if TYPE_CHECKING:
    import polars as pl

# 21 stops from very private to hardly: two of them double the budget
STOPS = [round(0.02 * 2 ** (k / 2), 4) for k in range(21)]
SIMULATED = 100
PEEKED = 5000  # rows looked at to guess columns
MOST_STATES = 60  # a heat map of more is no picture; the command line takes more
OWN = ("additive", "chains")  # families whose mechanisms are about series
EXAMPLES = {"activity": "one person's week: lie, sit, stand, walk, ride, run"}
NAMES = {
    "time": ("time", "date", "timestamp", "when", "minute"),
    "series": ("series", "user", "person", "id", "subject", "device"),
}

SPEC = """\
# Made in the studio. Try:  shoal leak shoal.toml    shoal plan shoal.toml

[data]
state = {state}{more}

[[model]]
file = "model.json"              # learned from the file that was opened

[secrets]
kind = "each-entry"

[query]
kind = "histogram"
unit = "entries"

[privacy]
epsilon = {epsilon}
"""


def look(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The columns of a file, and which of them look like time, series and state."""
    say("reading the file", 0.3)
    table = _table(params)
    columns = list(table.columns)
    guess: dict[str, str | None] = {
        part: next((name for name in columns if name.lower() in names), None)
        for part, names in NAMES.items()
    }
    rest = [name for name in columns if name not in guess.values()]
    if not rest:
        raise InputError("the table has no column left for the states; it needs at least one")
    guess["state"] = min(rest, key=lambda name: _unlike_states(table, name))
    return {"columns": columns, "rows": table.height, "guess": guess}


def open_series(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The series as a chain: how states follow each other, whether the chain describes it."""
    say("reading the series", 0.2)
    data = _series(params)
    if len(data.states) > MOST_STATES:
        raise InputError(
            f"the column holds {len(data.states)} different values; the studio shows at most "
            f"{MOST_STATES}: choose another column, or bin it with `shoal fit --bins`"
        )
    say("learning the chain", 0.5)
    sequences = data.sequences(data.states)
    chain = fit_chain(sequences, smoothing=1, length=data.longest)
    say("checking the chain", 0.8)
    words = check_fit(sequences, chain).describe()
    epsilon = number(params, "epsilon", 1.0)
    return {
        "spec": spec_text(params, epsilon),
        "files": {"model.json": dumps(chain)},
        "heat": props.chain_heat(chain),
        "fit": words,
        "about": data.describe(),
        "leak": leak_words(chain, epsilon),
    }


def leak_words(chain: MarkovChain, epsilon: float) -> dict[str, Any]:
    """What an ordinary release of that budget really tells, and makes of a belief of one half."""
    found = leakage(chain, epsilon)
    believed = 1 / (1 + math.exp(-min(found.value, 700.0)))
    promised = 1 / (1 + math.exp(-epsilon))
    rows = {"as promised": promised, "in truth": believed}
    return {
        "belief": {
            **props.just_losses("", None, []),
            "subject": "one entry",
            "belief": [{"name": name, "before": 0.5, "after": rows[name]} for name in rows],
        },
        "words": found.describe()[:1].upper() + found.describe()[1:],
        "value": _finite(found.value),
        "believed": believed,
        "promised": promised,
    }


def curve(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Error, mechanism and ordinary leak at every stop of the slider: computed once."""
    request = request_of(params)
    stops = []
    for done, epsilon in enumerate(STOPS):
        say(f"finding the least noise for ε = {epsilon:g}", done / len(STOPS))
        stops.append(_stop(request.task, epsilon))
    return {"stops": stops, "unit": request.task.query.unit}


def simulate(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """A hundred releases that might have been, around the true answer; for this screen only."""
    request = request_of(params)
    say("drawing releases", 0.2)
    plan = choose(request.task, number(params, "epsilon"), prune=True).plan
    records = _series(params).sequences(request.task.query.states)
    rng = SeededRng(int(number(params, "seed", 1)))
    simulated = [plan.release(records, rng=rng).values for _ in range(SIMULATED)]
    query = request.task.query
    truth = [float(query.lattice * value) for value in query.evaluate(records)]
    return props.noise_preview(plan, simulated, truth)


def release(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """One real release, charged to a ledger when one is named."""
    request = request_of(params)
    say("releasing", 0.5)
    plan = choose(request.task, number(params, "epsilon"), prune=True).plan
    records = _series(params).sequences(request.task.query.states)
    account: dict[str, Any] = {}
    if params.get("ledger"):
        from shoal.ledger.store import open_ledger

        account = {
            "ledger": open_ledger(text(params, "ledger")),
            "subject": text(params, "subject"),
        }
    made = plan.release(records, **account)
    return {
        "values": made.as_dict(),
        "words": plan.explain(),
        "document": dumps(made),
        "charged": bool(account),
    }


def spec_text(params: Mapping[str, Any], epsilon: float) -> str:
    """The spec of this room, in TOML."""
    columns = _columns(params)
    more = "".join(
        f"\n{part} = {json.dumps(columns[part])}" for part in ("series", "time") if columns[part]
    )
    return SPEC.format(state=json.dumps(columns["state"]), more=more, epsilon=repr(epsilon))


def _stop(task: Task, epsilon: float) -> dict[str, Any]:
    choice = choose(task, epsilon, prune=True)
    error = choice.plan.error()
    model = task.family[0]
    return {
        "epsilon": epsilon,
        "mechanism": choice.plan.mechanism,
        "error": None if error is None else error.expected,
        "bound": None if error is None else error.bound,
        "bars": props.leak_bars(choice.plan, _with_plans(choice.alternatives)),
        "leak": _finite(leakage(model, epsilon).value),
        "odds": math.exp(epsilon),
    }


def _with_plans(alternatives: Mapping[str, Plan | str]) -> dict[str, Plan | str]:
    """Rows that are about this kind of data: the others' refusals are no news."""
    own = {row for family in families() for row in family.rows if family.name in OWN}
    return {name: row for name, row in alternatives.items() if name in own}


def _columns(params: Mapping[str, Any]) -> dict[str, str | None]:
    if params.get("example"):
        return {"state": "state", "series": "series", "time": "time"}
    named = params.get("columns")
    if not isinstance(named, dict) or not named.get("state"):
        raise InputError("no column is chosen for the states; choose one")
    return {part: named.get(part) or None for part in ("state", "series", "time")}


def _series(params: Mapping[str, Any]) -> Dataset:
    columns = _columns(params)
    chosen: dict[str, Any] = {part: name for part, name in columns.items() if name}
    if params.get("example"):
        return from_table(_table(params), **chosen)
    return read(text(params, "file"), **chosen)


def _table(params: Mapping[str, Any]) -> pl.DataFrame:
    example = params.get("example")
    if example is not None:
        if example not in EXAMPLES:
            raise InputError(f"example is {example!r}; it must be one of {', '.join(EXAMPLES)}")
        return activity_table(1, 7, 1)
    return _peeked(Path(text(params, "file")))


def _peeked(file: Path) -> pl.DataFrame:
    """The first rows of a file: enough to guess what its columns are."""
    import polars as pl

    try:
        if file.suffix.lower() == ".parquet":
            return next(parquet_frames(file, list, PEEKED))
        separator = "\t" if file.suffix.lower() == ".tsv" else ","
        return pl.read_csv(file, n_rows=PEEKED, separator=separator, infer_schema_length=1000)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OSError):
        raise InputError(
            "the file is no table that can be read; give a CSV with a line of names, or a Parquet "
            "file"
        ) from None


def _unlike_states(table: pl.DataFrame, name: str) -> float:
    """How little a column looks like states: few different texts are best."""
    column = table[name]
    different = column.n_unique()
    words = str(column.dtype) in ("String", "Categorical", "Boolean", "Enum")
    return float(different + (0 if words else 1000) + (10**6 if different < 2 else 0))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
