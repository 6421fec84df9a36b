"""What ordinary streams really leak: noisy places over time, and contexts with gaps in them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.cli import show
from shoal.core.errors import InputError, Refused
from shoal.core.numbers import positive, significant

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.core.rng import Rng
    from shoal.core.task import Task
    from shoal.spec.request import Request

ORDINARY = "location-laplace"  # noise for each step by itself, as one would add it without Shoal
NAIVE = "mask-sensitive"
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


class StreamLeak(NamedTuple):
    """A leak ready to be shown: as one object, as words and a table, as bars of a chart."""

    found: dict[str, Any]
    words: tuple[str, ...]
    titles: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    bars: tuple[list[str], list[float], float]


def stream_leak(request: Request, eta: str | None) -> StreamLeak:
    """What an ordinary stream leaks where Shoal would make one of places, or of contexts."""
    if request.task.secrets.notion != "delta-privacy":
        return _places(request.task, request.epsilon() if eta is None else positive(eta, "--eta"))
    if eta is not None:
        raise InputError(
            f"--eta is {eta}, but contexts are hidden without noise, so there is no epsilon; drop "
            "it: what may be learned is privacy.belief_delta"
        )
    return _contexts(request.task, request.epsilon())


def print_stream(leak: StreamLeak) -> None:
    """The words, then the table with bars."""
    screen = show.console()
    for paragraph in leak.words:
        screen.print(paragraph)
        screen.print()
    numbers = [place for place, title in enumerate(leak.titles) if title]
    screen.print(show.table(leak.titles, leak.rows, numbers=numbers))


def _places(task: Task, epsilon: Fraction) -> StreamLeak:
    from shoal.additive.choice import choose

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


def _contexts(task: Task, delta: Fraction) -> StreamLeak:
    from shoal.additive.choice import choose
    from shoal.contexts.checks.task import MaskCertificate

    with show.working("measuring"):
        plan = choose(task, delta, NAIVE).plan
    measured = plan.certificate
    assert isinstance(measured, MaskCertificate)
    wanted, models = float(delta), [model.describe() for model in task.family]
    sentence = (
        f"some output raises the belief in a sensitive context by {significant(measured.rise)}, "
        f"where at most {wanted:g} is wanted; {plan.guarantee.caveat}"
    )
    words = (
        "Hiding exactly the sensitive contexts and showing all others is what people try first. "
        "The gap itself tells, and so do the contexts before and after it:",
        f"Under {' and '.join(models)}, {sentence}. It shows {significant(measured.releases)} of "
        f"{measured.slots} slots on average; `shoal plan` finds what can be shown safely.",
    )
    plain = show.console().options.ascii_only
    bars = (
        ("wanted (privacy.belief_delta)", wanted),
        ("over all outputs of a day", measured.rise),
    )
    rows = [
        (name, significant(value), show.bar(value, 1.0, ascii_only=plain)) for name, value in bars
    ]
    return StreamLeak(
        {
            "belief_delta": wanted,
            "mechanism": NAIVE,
            "promised": {"delta": wanted, "over": task.secrets.subject},
            "rise": measured.rise,
            "breached": measured.breached,
            "shown": measured.releases,
            "slots": measured.slots,
            "models": models,
            "in_words": sentence,
        },
        words,
        ("", "rise of belief", ""),
        rows,
        (["measured"], [measured.rise], wanted),
    )
