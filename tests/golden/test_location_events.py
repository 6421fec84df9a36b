"""Events on location streams against stored numbers: which ε every history leads to."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.task import Task
from shoal.events.filter import TrackSums
from shoal.places.events import EventGuard, ListedOutputs, StepChoice
from shoal.places.policy import PolicyGraph
from shoal.places.queries import EventWatch, measurement
from shoal.places.rows import GRAPH_ROW
from shoal.places.step import noises_of
from tests.event_oracle import worded

CASES = json.loads((Path(__file__).parent / "data" / "events.json").read_text())["cases"]
STREAMS = [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == "stream"]
SKIP = -1


def guard_of(given: dict[str, Any]) -> tuple[EventGuard, list[StepChoice]]:
    """The guard of a case, and the noise of each ε among all cells, possible or not."""
    steps = given["transitions"]
    chain = shoal.MarkovChain.of(steps, initial=given["initial"], length=len(steps) + 1)
    query = measurement(chain.states, [[k] for k in range(len(chain.states))], labels=("x",))
    policy = PolicyGraph.of(chain.states, given["edges"])
    grid = [Fraction(str(each)) for each in given["grid"]]
    plan = GRAPH_ROW.calibrate(Task(query=query, secrets=policy, family=(chain,)), grid[0])
    secrets = shoal.Events.of(*map(worded, given["events"]))
    guard = EventGuard(plan, EventWatch.of(secrets, given["event_epsilon"], epsilons=grid))
    everywhere = np.ones(len(chain.states), dtype=np.bool_)
    questions = [machine.runtime.question for machine in guard.machines.values()]
    noises = [noises_of(policy, everywhere, [question])[0] for question in questions]
    return guard, [StepChoice(each, noise) for each, noise in zip(grid, noises, strict=True)]


@pytest.mark.parametrize("case", STREAMS)
def test_every_history_leads_to_the_stored_epsilon(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    guard, choices = guard_of(given)
    assert guard.priors == pytest.approx(expected["prior"], abs=case["tolerance"])
    wanted = {tuple(history): epsilon for history, epsilon in expected["chosen"]}
    found: dict[tuple[int, ...], float | None] = {}
    odds = [math.log(p / (1 - p)) for p in guard.priors]
    worst = [0.0] * len(odds)

    def follow(history: tuple[int, ...], held: Any) -> None:
        slot = len(history)
        if slot > len(given["transitions"]):
            return
        arrived = guard.beliefs_before_output(held, slot)
        choice = guard.first_fit(choices, arrived, slot)
        found[history] = None if choice is None else float(choice.epsilon)
        if choice is None:
            follow((*history, SKIP), arrived)
            return
        for cell in range(len(given["initial"])):
            after = guard.after(arrived, slot, choice.noise, (cell,))
            for k, belief in enumerate(guard.beliefs(after, slot)):
                change = abs(math.log(belief / (1 - belief)) - odds[k])
                worst[k] = max(worst[k], change)
            follow((*history, cell), after)

    follow((), guard.begin())
    assert found == wanted
    assert worst == pytest.approx(expected["worst_change"], abs=case["tolerance"])
    assert all(
        change <= amount for change, amount in zip(worst, given["event_epsilon"], strict=True)
    )


def test_looking_at_the_drawn_output_alone_is_not_enough() -> None:
    """Draw, look at what was drawn, draw again with less: output 1 then tells 8 instead of 17/8."""
    (case,) = [each for each in CASES if each["id"] == "false.redraw-until-it-passes"]
    given, expected = case["input"], case["expected"]
    first, halved = (np.array(given[name]) for name in ("kernel_first", "kernel_halved"))
    prior, event = np.array(given["prior"]), given["event_cells"]
    other = [cell for cell in range(given["cells"]) if cell not in event]
    bound = math.exp(given["epsilon_event"])
    over = np.where(np.isin(np.arange(3), event), prior, 0.0)
    odds = over.sum() / (prior - over).sum()

    def fits(kernel: Any) -> bool:
        sides = np.stack([over, prior - over])
        table = TrackSums(
            mass=prior[None],
            over=sides[:, None, :],
            under=np.stack([bound * odds * sides[1], bound / odds * sides[0]])[:, None, :],
            possible=np.ones((1, 3), dtype=np.bool_),
            slack=1e-12,
            lost=0.0,
        )
        return ListedOutputs(kernel, kernel > 0, 1e-12).fits(table)

    assert not fits(first)  # output 1 alone would tell too much: nothing is drawn with it
    assert fits(halved)
    kept = np.array([0, 2])  # what is shown at once when only the drawn output is looked at
    redrawn = first[:, 1]
    told = redrawn[event].mean() * halved[event, 1].mean() / (redrawn * halved[:, 1])[other].mean()
    assert told == pytest.approx(expected["ratio_output_1"], rel=1e-6)
    assert (first[event][:, kept] < bound * first[other][:, kept].max()).all()
