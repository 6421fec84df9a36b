"""The Leak room: a series, what an ordinary release leaks, and the noise that is enough."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.chains.fit import fit_chain
from shoal.chains.fit_check import FitCheck, check_fit
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.family import families
from shoal.core.numbers import finite
from shoal.core.plan import Plan
from shoal.core.records import Sequences
from shoal.core.registry import dumps
from shoal.core.task import Task
from shoal.data.generate import activity_table
from shoal.data.read import load_columns, read
from shoal.data.table import Columns, Dataset, from_table, owners_and_times
from shoal.mechanisms.choice import choose
from shoal.mechanisms.lift import leakage
from shoal.mechanisms.usefulness import cautions
from shoal.noise.primitives import SeededRng
from shoal.studio import props
from shoal.studio.bench import number, request_of, spec_text, text
from shoal.studio.tables import chosen, gap_of
from shoal.studio.work import Say

# 21 budgets from very private to hardly private: two steps double the budget
STOPS = [round(0.02 * 2 ** (k / 2), 4) for k in range(21)]
SIMULATED = 100  # releases of the same data, to show how they spread
MOST_STATES_MAPPED = 60  # a heat map of more is no picture; the command line takes more
OWN = ("mechanisms", "chains")  # families whose mechanisms are about series
EXAMPLES = {"activity": "one person's week: lie, sit, stand, walk, ride, run"}
COMMANDS = (
    "shoal leak shoal.toml",
    "shoal plan shoal.toml",
    "shoal release shoal.toml {} -o release.json --ledger budget.db{}",
)
OWNER = " --subject me"  # where no column names whose series it is


def open_series(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The series as a chain: how states follow each other, whether the chain describes it."""
    say("reading the series", 0.2)
    gap, pauses = _pauses(params)
    params = {**params, "gap": gap}
    data = _series(params)
    if len(data.states) > MOST_STATES_MAPPED:
        raise InputError(
            f"the column holds {len(data.states)} different values; the studio shows at most "
            f"{MOST_STATES_MAPPED}: choose another column, or bin it with `shoal fit --bins`"
        )
    say("learning the chain", 0.5)
    sequences = data.sequences(data.states)
    chain = fit_chain(sequences, smoothing=1, length=data.longest)
    say("checking the chain", 0.8)
    check = check_fit(sequences, chain)
    epsilon, columns = number(params, "epsilon", 1.0), _series_columns(params)
    own = Path(str(params.get("file") or "days.csv")).name  # as its owner calls it
    return {
        "spec": spec_text(
            "shoal leak shoal.toml    shoal plan shoal.toml",
            data="\n".join(f"{part} = {json.dumps(name)}" for part, name in columns.items()),
            model='file = "model.json"              # learned from the file that was opened',
            secrets='kind = "each-entry"',
            query='kind = "histogram"\nunit = "entries"',
            privacy=f"epsilon = {epsilon!r}",
        ),
        "files": {"model.json": dumps(chain)},
        "heat": props.chain_heat(chain),
        "fit": check.describe(),
        "fits": fit_words(check),
        "about": ". ".join(filter(None, (data.describe(), pauses))),
        "gap": gap,
        "commands": [
            line.format(shlex.quote(own), "" if data.named else OWNER) for line in COMMANDS
        ],
        "leak": leak_words(chain, epsilon),
    }


def fit_words(check: FitCheck) -> str:
    """Return in plain words whether the chain describes the file."""
    bits = check.bits_per_step
    against = [
        words
        for words, found in (
            ("the next entry depends on more than the last one", check.order_two),
            ("the beginning of a day flows otherwise than its end", check.drift_within),
            ("the first half of the file flows otherwise than the second", check.drift_across),
        )
        if found.noticeable(bits)
    ]
    if not against:
        return "Well enough: nothing in the file speaks against it."
    return (
        f"Not quite: {' and '.join(against)}. What is promised here is for somebody who believes "
        "this chain."
    )


def leak_words(chain: MarkovChain, epsilon: float) -> dict[str, Any]:
    """Return what an ordinary release of this budget leaks, and how it changes a belief of 1/2."""
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
        "value": finite(found.value),
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
    """Return a hundred simulated releases around the true answer, for this screen only."""
    say("drawing releases", 0.2)
    plan, records = _plan_and_records(params)
    rng = SeededRng(int(number(params, "seed", 1)))
    simulated = [plan.release(records, rng=rng).values for _ in range(SIMULATED)]
    query = plan.task.query
    truth = [float(query.lattice * value) for value in query.evaluate(records)]
    return {
        "preview": props.noise_preview(plan, simulated, truth),
        # what is said of one chain would be wrong of many that are released together
        "caution": next(iter(cautions(plan)), "") if len(records.chains) == 1 else "",
    }


def release(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """One real release, charged to a ledger when one is named."""
    say("releasing", 0.5)
    plan, records = _plan_and_records(params)
    account: dict[str, Any] = {}
    if params.get("ledger"):
        from shoal.ledger.store import open_ledger

        account["ledger"] = open_ledger(text(params, "ledger"))
        account["subject"] = text(params, "subject")
    made = plan.release(records, **account)
    return {
        "values": made.as_dict(),
        "words": plan.explain(),
        "document": dumps(made),
        "charged": bool(account),
    }


def _plan_and_records(params: Mapping[str, Any]) -> tuple[Plan, Sequences]:
    """The plan of the chosen budget, and the series as its query takes it."""
    task = request_of(params).task
    plan = choose(task, number(params, "epsilon"), prune=True).plan
    return plan, _series(params).sequences(task.query.states)


def _stop(task: Task, epsilon: float) -> dict[str, Any]:
    """Return what the page shows at one budget: mechanism, errors, bars and leak.

    `ordinary_odds` is the largest change of odds by an ordinary release of the same epsilon.
    Its logarithm is capped at 709, since exp(710) overflows a float.
    """
    choice = choose(task, epsilon, prune=True)
    error = choice.plan.error()
    model = task.family[0]
    # only mechanisms for this kind of data: refusals of the others say nothing
    own = {row for family in families() for row in family.mechanisms if family.name in OWN}
    rows = {name: row for name, row in choice.alternatives.items() if name in own}
    return {
        "epsilon": epsilon,
        "mechanism": choice.plan.mechanism,
        "error": None if error is None else error.expected,
        "bound": None if error is None else error.bound,
        "bars": props.leak_bars(choice.plan, rows),
        "odds": math.exp(epsilon),
        "ordinary_odds": finite(math.exp(min(leakage(model, epsilon).value, 709.0))),
    }


def _series_columns(params: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the series, and what is done to its pauses and empty cells."""
    if params.get("example"):
        return {"state": "state", "series": "series", "time": "time"}
    columns: dict[str, Any] = chosen(params, "leak")
    if params.get("gap"):
        columns["gap"] = text(params, "gap")
    return {**columns, "missing": "gap"}


def _series(params: Mapping[str, Any]) -> Dataset:
    """Return the series of the chosen file or of a made-up example; refuses unknown examples."""
    example = params.get("example")
    if example is None:
        return read(text(params, "file"), **_series_columns(params))
    if example not in EXAMPLES:
        raise InputError(f"example is {example!r}; it must be one of {', '.join(EXAMPLES)}")
    return from_table(activity_table(1, 7, 1), **_series_columns(params))


def _pauses(params: Mapping[str, Any]) -> tuple[str | None, str]:
    """After which pause a new chain starts, and what the pauses are."""
    columns = None if params.get("example") else chosen(params, "leak")
    if columns is None or "time" not in columns:
        return None, ""
    named = Columns(**columns, missing="gap")
    file = Path(text(params, "file"))
    own_columns = owners_and_times(
        load_columns(file, named), repr(file.name), named, name=file.stem
    )
    return gap_of(own_columns["series"], own_columns["time"] / 1e6)
