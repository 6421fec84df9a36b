"""The Day room: a day of contexts, what is sensitive, what is shown and what is believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.additive.choice import choose
from shoal.contexts.attack import ContextCurves, attack_contexts
from shoal.contexts.checks.choice import shown_rates
from shoal.contexts.day import DayChain, fit_day
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.data.generate import phone_contexts
from shoal.data.synthetic.series import FIRST_HOUR
from shoal.noise.primitives import SeededRng
from shoal.studio.bench import number, request_of, texts
from shoal.studio.work import Say

DAYS, SLOT_MINUTES = 56, 15  # eight weeks of a made-up phone, a context every quarter of an hour
SENSITIVE = ["hospital"]

SPEC = """\
# Made in the studio. Try:  shoal plan shoal.toml    shoal stream shoal.toml < contexts.jsonl

[[model]]
file = "day.json"                # how a day flows; an adversary may know it

[secrets]
kind = "contexts"
sensitive = {sensitive}

[query]
kind = "current"

[privacy]
belief_delta = {delta}
time_limit = "8s"
"""


def plan(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The check that shows most, and the day as a calendar: what is likely, what is shown."""
    say("learning how a day flows", 0.1)
    files = params.get("files") or {"day.json": dumps(example_day())}
    sensitive = texts(params, "sensitive") if "sensitive" in params else SENSITIVE
    if not sensitive:
        raise InputError("nothing is ticked as sensitive; tick at least one context")
    delta = number(params, "delta", 0.1)
    spec = SPEC.format(sensitive=json.dumps(sensitive), delta=repr(delta))
    request = request_of({"spec": spec, "files": files})
    say("searching for the check that shows most", 0.4)
    with request.limited():
        found = choose(request.task, request.epsilon(), request.mechanism, every=False).plan
    return {
        "spec": spec,
        "files": files,
        "plan": dumps(found, indent=None),
        "calendar": calendar(found, sensitive),
        "words": found.explain(),
        "shown": -found.cost,
        "meaning": meaning(delta),
    }


def play(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """One made-up day, run through the plan and through naive hiding."""
    from shoal.core.registry import loads

    found = loads(str(params.get("plan") or "{}"))
    if not isinstance(found, Plan):
        raise InputError("there is no plan on the table; make one first")
    say("playing a day", 0.3)
    day = _day(found)
    rng = SeededRng(int(number(params, "seed", 1)))
    truth = tuple(day.states[at] for at in day.sample(rng))
    curves = attack_contexts(found, truth, rng)
    return {
        "played": list(curves.outputs),
        "truth": list(truth),
        "curves": [belief_curves(curves, at, found) for at in range(len(curves.contexts))],
        "rises": list(curves.highest_rise()),
    }


def calendar(found: Plan, sensitive: list[str]) -> dict[str, Any]:
    """Props of the calendar: how likely each context is, and how often it is shown."""
    day = _day(found)
    prior, rates = day.marginals(), shown_rates(found)
    share = np.where(prior > 0, rates / np.where(prior > 0, prior, 1), np.nan)
    return {
        "contexts": list(day.states),
        "sensitive": sensitive,
        "slots": [day.clock(t) for t in range(day.slots)],
        "prior": prior.tolist(),
        "shown": [[None if np.isnan(one) else float(one) for one in row] for row in share],
    }


def belief_curves(curves: ContextCurves, at: int, found: Plan) -> dict[str, Any]:
    """Props of the belief in one sensitive context: before, with naive hiding, under the plan."""
    before = curves.before[:, at]
    bound = np.minimum(before + float(found.guarantee.amount), 1)
    return {
        "slots": list(curves.clock),
        "what": f"at {curves.contexts[at]}",
        "bound": bound.tolist(),
        "curves": [
            {"name": "before", "kind": "prior", "values": before.tolist()},
            {"name": "just hiding it", "kind": "naive", "values": curves.naive[:, at].tolist()},
            {"name": found.mechanism, "kind": "promised", "values": curves.after[:, at].tolist()},
        ],
    }


def meaning(delta: float) -> str:
    """What δ means, before somebody is surprised."""
    return (
        f"Whatever is shown, nobody's belief that you are somewhere sensitive rises by more than "
        f"{delta:.0%} above what everybody expects at that hour anyway. It does not hide what "
        "everybody expects: home at midnight may be shown."
    )


def example_day() -> DayChain:
    """A day of a made-up phone."""
    found = phone_contexts(DAYS, 1, slot_minutes=SLOT_MINUTES)
    days = [[found.states[at] for at in chain] for group in found.chains for chain in group]
    slots = max(map(len, days))
    whole = [day for day in days if len(day) == slots]
    day = fit_day(whole, states=found.states, smoothing=1)
    return replace(day, slot_minutes=SLOT_MINUTES, start_minute=FIRST_HOUR * 60)


def _day(found: Plan) -> DayChain:
    day = found.task.family[0]
    if not isinstance(day, DayChain):
        raise InputError("the plan on the table is not about the contexts of a day")
    return day
