"""What an ordinary stream of noisy places really leaks over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.cli import show
from shoal.cli.leak import StreamLeak
from shoal.core.errors import Refused
from shoal.core.numbers import positive, significant

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.core.rng import Rng
    from shoal.spec.request import Request

ORDINARY = "location-laplace"  # noise for each step by itself, as one would add it without Shoal
HORIZONS = (1, 2, 4, 8, 16)
SEED = 0  # of the made-up walk: the same spec gives the same figures


class Horizon(NamedTuple):
    """What all outputs of so many steps tell about one position, in epsilon.

    `told` is what the outputs of one made-up walk tell between two joined states, exactly; no
    outputs tell more than `at_most`. Both are about the position that suffers most. `told` is None
    on maps too large to follow pairs of states; `at_most` is then about any two states.
    """

    steps: int
    told: float | None
    at_most: float


def leak_of_places(request: Request, eta: str | None) -> StreamLeak:
    """What a stream of ordinary noise tells about a position over time."""
    from shoal.additive.choice import choose

    task = request.task
    epsilon = request.epsilon() if eta is None else positive(eta, "--eta")
    with show.working("calibrating"):
        plan = choose(task, epsilon, ORDINARY).plan
    rows = over_time(plan)
    last, model = rows[-1], task.family[0].describe()
    pair = "two joined states" if last.told is not None else "any two states"
    words = (
        f"An ordinary stream of noisy places, epsilon = {float(epsilon):g} at every step, promises "
        f"that no output changes the odds between two joined states by more than "
        f"{show.odds(float(epsilon))}, given the outputs before it. Somebody who knows how people "
        "move also learns about a position from the outputs after it, and from all of them "
        "together:",
        f"Under {model}, {_sentence(rows, pair, sets=task.secrets.notion == 'location-set')}.",
    )
    return StreamLeak(
        {
            "eta": float(epsilon),
            "mechanism": ORDINARY,
            "promised": {"epsilon": float(epsilon), "over": task.secrets.subject},
            "epsilon": show.finite(last.at_most),
            "about": pair,
            "models": [{"model": model, "steps": [_object(row) for row in rows]}],
        },
        words,
        ("steps", "told (epsilon)", "at most (epsilon)", ""),
        _cells(rows),
        ([f"{row.steps} step(s)" for row in rows], [row.at_most for row in rows], float(epsilon)),
    )


def over_time(plan: Plan, horizons: Sequence[int] = HORIZONS) -> list[Horizon]:
    """What the outputs of a stream tell about a position, after ever more steps.

    One walk is drawn from the model and released with predictable noise: no data is looked at.
    """
    from shoal.noise.primitives import SeededRng
    from shoal.places.machine import machine_of
    from shoal.places.stream import LocationStream

    length = machine_of(plan).runtime.motion.length
    horizons = [steps for steps in horizons if length is None or steps <= length]
    rng, stream = SeededRng(SEED), LocationStream.begin(plan)
    outputs, told_so_far = [], []
    for place in _walk(plan, horizons[-1], rng):
        stream, released = stream.read(place, rng=rng)
        outputs.append(released.z)
        told_so_far.append(released.loss_path)
    try:
        named = {str(steps): steps for steps in horizons}
        return [
            _followed(plan, outputs[: named[name]]) for name in show.tracked([*named], "measuring")
        ]
    except Refused:  # too many pairs of states: what the stream itself reports
        return [Horizon(steps, None, told_so_far[steps - 1]) for steps in horizons]


def _walk(plan: Plan, steps: int, rng: Rng) -> list[Any]:
    """States of one random sequence of the plan's model, whatever kind of chain it is."""
    import numpy as np

    from shoal.core.rng import categorical, uniforms
    from shoal.places.machine import machine_of

    motion = machine_of(plan).runtime.motion
    belief, places = motion.begin(), []
    for step, draw in enumerate(uniforms(steps, rng)):
        belief = motion.predict(step, belief) if step else belief
        hidden = categorical(belief, float(draw))
        places.append(plan.task.query.states[motion.at(step)[hidden]])
        belief = np.zeros(motion.hidden)
        belief[hidden] = 1.0  # what comes next depends on where one is
    return places


def _followed(plan: Plan, outputs: list[Any]) -> Horizon:
    from shoal.places.audit import sequence_leakage

    found = sequence_leakage(plan, outputs)
    return Horizon(len(outputs), max(found.learned_joined), max(found.joined))


def _sentence(rows: list[Horizon], pair: str, *, sets: bool) -> str:
    last = rows[-1]
    same = ", with the location sets of that walk," if sets else ""
    bound = f"no outputs of {last.steps} steps{same} change the odds between {pair} by more than "
    if last.told is None:
        return f"{bound}{show.odds(last.at_most)}"
    return (
        f"the outputs of one made-up walk of {last.steps} steps changed the odds between {pair} at "
        f"some step by {show.odds(last.told)}; {bound}{show.odds(last.at_most)}. A stream of "
        "`shoal stream` tells with every output how far it has come (loss_here, loss_path), and a "
        "limit of a ledger ends it in time"
    )


def _cells(rows: list[Horizon]) -> list[tuple[str, ...]]:
    most = max(row.at_most for row in rows)
    plain = show.console().options.ascii_only
    return [
        (
            str(row.steps),
            "-" if row.told is None else significant(row.told),
            significant(row.at_most),
            show.bar(row.at_most, most, ascii_only=plain),
        )
        for row in rows
    ]


def _object(row: Horizon) -> dict[str, Any]:
    told = None if row.told is None else show.finite(row.told)
    return {"steps": row.steps, "told": told, "at_most": show.finite(row.at_most)}
