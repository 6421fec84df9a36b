"""Attacks of the papers, and of everyday life, as stories with numbers: `SCENARIOS` lists them.

Each computes what an adversary learns where somebody trusted a weaker promise. They need no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shoal.additive.mixture import mixture_loss
from shoal.additive.queries import count
from shoal.attacks.bayes import attack
from shoal.attacks.knowledge import by_knowledge
from shoal.attacks.seen import laplace_sum, suppressed
from shoal.audit.exact import audit_noise
from shoal.chains.model import MarkovChain
from shoal.contexts.attack import learning_curve
from shoal.core.codec import Floats
from shoal.core.numbers import significant
from shoal.core.task import EachEntry
from shoal.places.stories import adversaries_on_a_map, local_hull_rates


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story: what was promised, what was measured, and figures by name."""

    name: str
    promised: float
    measured: float
    figures: tuple[tuple[str, float], ...]
    story: str


def dp_under_correlation(epsilon: float = 1.0, points: int = 101) -> Scenario:
    """Two people's values tied together, their sum released with ε-DP noise: 1.5 ε is lost.

    D_j = D_i/2 + X/2, X uniform on [0, 1] (here on `points` equidistant points); D_i = 0 against
    D_i = 1. The sum tells 1.5 ε, the difference 0.5 ε. Liu et al. 2016, Section III, Example 1.
    """
    spread = np.linspace(0, 1, points)
    own = np.array([0.0, 1.0])

    def told(answers: Floats) -> float:
        values = np.unique(np.round(answers, 12))
        laws = np.zeros((2, len(values)))
        for row in (0, 1):
            places = np.searchsorted(values, np.round(answers[row], 12))
            np.add.at(laws[row], places, 1 / points)
        return mixture_loss(laws, 1 / epsilon, values=values)

    other = 0.5 * own[:, None] + 0.5 * spread
    figures = (
        ("sum", told(own[:, None] + other)),
        ("difference", told(own[:, None] - other)),
        ("product", told(own[:, None] * other)),
    )
    return Scenario(
        "dp-under-correlation",
        epsilon,
        figures[0][1],
        figures,
        f"Laplace noise of scale {significant(1 / epsilon)} makes the sum of two values in [0, 1] "
        f"{significant(epsilon)}-DP for each. But one value is half determined by the other: the "
        f"released sum tells {significant(figures[0][1])} about it, "
        f"{significant(figures[0][1] / epsilon)} times the promise.",
    )


def day_of_minutes(epsilon: float = 1.0, minutes: int = 1440, stay: float = 0.95) -> Scenario:
    """An ε-DP count over one person's day, and what it tells about one minute of it."""
    chain = MarkovChain.of(
        [[stay, 1 - stay], [1 - stay, stay]], states=["sit", "walk"], length=minutes
    )
    found = audit_noise(
        count(chain.states, "walk"), EachEntry(), chain, scale=1 / epsilon, claimed=None
    )
    return Scenario(
        "day-of-minutes",
        epsilon,
        found.lower,
        (("loss", found.lower), ("times the promise", found.lower / epsilon)),
        f"A count over {minutes} minutes with {significant(epsilon)}-DP noise protects a minute "
        "only if the other minutes say nothing about it. Somebody who knows how long people keep "
        f"walking learns {significant(found.lower)}: "
        f"{significant(found.lower / epsilon)} times as much.",
    )


def local_hull(epsilon: float = 1.0, draws: int = 2000, seed: int = 0) -> Scenario:
    """Noise shaped by the true state's own neighbours gives the true state away.

    Path policy s4 – s6 – s5 on the running example: from s4 the noise lies on the line through
    f(s4) and f(s6), from s5 on the line through f(s5) and f(s6), from s6 it fills the plane. So z
    off both lines means s6, and z on a line rules the other end out. Xiao et al. 2016, Example
    11.2, with the line and the state corrected.
    """
    local, common = local_hull_rates(epsilon, draws, seed)
    return Scenario(
        "local-hull",
        epsilon,
        math.inf,
        (("right guesses, local hull", local), ("right guesses, common hull", common)),
        "Noise drawn from a hull that depends on the true state: the shape of the noise is seen "
        f"with the answer. An adversary guesses the state right in {local:.0%} of releases, "
        f"against {common:.0%} when the hull is the same for all states.",
    )


def mask_sensitive(delta: float = 0.1) -> Scenario:
    """Hiding exactly the sensitive moments tells when they were.

    A day of home, street and clinic; only the clinic is suppressed. Götz, Nath & Gehrke 2012,
    Section 7: MaskSensitive.
    """
    states = ("home", "street", "clinic")
    chain = MarkovChain.of(
        [[0.8, 0.2, 0.0], [0.4, 0.5, 0.1], [0.0, 0.5, 0.5]], states=states, initial=[1, 0, 0]
    )
    shown = ("home", "street", None, "street", "home")
    naive = attack(chain, [suppressed(shown, states, {"clinic": 1.0})], len(shown))
    decoy = {"clinic": 1.0, "street": 0.6}
    better = attack(chain, [suppressed(shown, states, decoy)], len(shown))
    figures = (
        ("belief before", float(naive.before[2, 2])),
        ("belief after", float(naive.after[2, 2])),
        ("belief after, streets hidden too", float(better.after[2, 2])),
    )
    return Scenario(
        "mask-sensitive",
        delta,
        figures[1][1] - figures[0][1],
        figures,
        f"Only the clinic is hidden, so a gap means the clinic: the belief rises from "
        f"{figures[0][1]:.1%} to {figures[1][1]:.0%}. Hiding the street in six of ten cases too "
        f"brings it down to {figures[2][1]:.0%}.",
    )


def set_labels(simulatable: bool = False) -> Scenario:
    """A weak adversary learns what he lacked from the mere fact that something was hidden.

    One of two equally likely contexts is s, y or z to him, each alike. Something is hidden only if
    it is s, by a check that keeps δ = 1/4 against somebody who knows. Götz, Nath & Gehrke 2012,
    Example 6: his belief in s goes from 1/6 to 3/4 (probabilistic) or 1/2 (simulatable check).
    """
    hide_other = 1.0 if simulatable else 1 / 3
    worlds = {"s": 1 / 3, "y": 1 / 3, "z": 1 / 3}
    before = worlds["s"] / 2
    hidden = worlds["s"] * (0.5 + 0.5 * hide_other)  # in the other worlds nothing is ever hidden
    after = worlds["s"] * 0.5 / hidden
    return Scenario(
        "set-labels",
        0.25,
        after - before,
        (("belief before", before), ("belief after", after)),
        f"The check keeps every belief of a knowing adversary within 1/4. One who did not know the "
        f"context learns it from the gap: his belief goes from {before:.3f} to {after:.3f}.",
    )


def weak_adversary_learns(days: tuple[int, ...] = (0, 3, 30, 300), seed: int = 0) -> Scenario:
    """Somebody who knows only frequencies learns the transitions from what is released.

    The belief in the sensitive context at a hidden moment, between two shown ones, as the adversary
    counts transitions day after day; the last figure is that of one who knows the chain.
    Götz, Nath & Gehrke 2012, Section 6, learning challenge LC1.
    """
    curve, knowing, prior = learning_curve(days, seed)
    figures = (
        ("belief before", prior),
        *((f"after {day} days", belief) for day, belief in zip(days, curve, strict=True)),
        ("knowing the chain", knowing),
    )
    return Scenario(
        "weak-adversary-learns",
        curve[0] - prior,
        curve[-1] - prior,
        figures,
        f"With frequencies alone the adversary's belief is {curve[0]:.1%}; after {days[-1]} days "
        f"of watching it is {curve[-1]:.1%}; one who knows the chain has {knowing:.1%}. A promise "
        "made against weak adversaries does not last.",
    )


def kinds_of_adversary(scale: float = 2.0, length: int = 20) -> Scenario:
    """The same release seen by a weak, a standard and a strong adversary.

    The weak one thinks entries independent, the standard one knows the chain, the strong one knows
    every other entry. Figures are the largest changes of odds when the highest possible count is
    released, and the largest ratios of a belief after to the same before, in logs.
    Xiao 2017, Section 3.5 compares the three.
    """
    chain = MarkovChain.of([[0.9, 0.1], [0.3, 0.7]], states=["rest", "run"], length=length)
    query = count(chain.states, "run")
    seen = [laplace_sum(query, (float(length),), scale)]
    known = by_knowledge(chain, seen, length, [1] * length)
    (weak, standard, strong), ratios = known.log_odds(), known.log_ratios()
    beliefs = zip(("weak belief", "standard belief", "strong belief"), ratios, strict=True)
    return Scenario(
        "kinds-of-adversary",
        1 / scale,
        standard,
        (("weak", weak), ("standard", standard), ("strong", strong), *beliefs),
        f"A count with noise of scale {significant(scale)}: entry-level epsilon is "
        f"{significant(strong)}. Somebody who knows all other entries learns no more than that, "
        f"but somebody who knows only how entries follow each other learns "
        f"{significant(standard)}: more knowledge is not always more to learn.",
    )


def wrong_model(epsilon: float = 1.0, length: int = 50) -> Scenario:
    """Noise calibrated for one chain, and what it tells somebody who holds another.

    The plan assumes that states are kept with probability 0.8; figures are the losses if it is
    really 0.7, 0.9 or 0.95, and if only the initial law is another.
    """
    from shoal.additive.choice import calibrate

    def chain(stay: float, initial: tuple[float, float] | None = None) -> MarkovChain:
        matrix = [[stay, 1 - stay], [1 - stay, stay]]
        start = "stationary" if initial is None else list(initial)
        return MarkovChain.of(matrix, states=["rest", "run"], initial=start, length=length)

    assumed = chain(0.8)
    query = count(assumed.states, "run")
    plan = calibrate(query, EachEntry(), assumed, epsilon=epsilon, mechanism="exact")
    scale = plan.body.noise.scale  # type: ignore[union-attr]
    held = {
        "as assumed": assumed,
        "keeps 0.7": chain(0.7),
        "keeps 0.9": chain(0.9),
        "keeps 0.95": chain(0.95),
        "starts in rest": chain(0.8, (1.0, 0.0)),
        "starts in run, 0.95": chain(0.95, (0.0, 1.0)),
    }
    losses = {
        name: audit_noise(query, EachEntry(), model, scale=scale).lower
        for name, model in held.items()
    }
    worst = max(losses, key=lambda name: losses[name])
    return Scenario(
        "wrong-model",
        epsilon,
        losses[worst],
        tuple(losses.items()),
        f"Calibrated for a chain that keeps its state with probability 0.8, the noise gives "
        f"{significant(losses['as assumed'])}. Against somebody who holds another chain it gives "
        f"up to {significant(losses[worst])} ({worst}). A family of models guards against that.",
    )


def stream_of_places(
    epsilon: float = 1.0, people: int = 12, steps: int = 40, seed: int = 0
) -> Scenario:
    """Places released step by step: what all outputs tell, to adversaries who know more and less.

    Each output keeps places within 1 km apart by at most ε, whatever chain the adversary holds.
    Beliefs from outputs before and after are not bounded by it. Errors are means in km.
    """
    told = adversaries_on_a_map(epsilon, people, steps, seed)
    figures = [
        (f"{name}, {by}", error)
        for name, errors in told.errors.items()
        for by, error in errors.items()
    ]
    plain, real = told.errors["the plan's walk"], told.errors["the real walk"]
    return Scenario(
        "stream-of-places",
        epsilon,
        told.all_outputs,
        (("one output", told.one_output), ("all outputs", told.all_outputs), *figures),
        f"A place is released {steps} times, each time blurred so that no output tells places "
        f"within 1 km apart by more than {significant(epsilon)}. Somebody who knows the "
        f"plan's model is off by {plain['nothing']:.2f} km before, {plain['past']:.2f} km along "
        f"the way and {plain['all']:.2f} km afterwards; who knows how people really move, by "
        f"{real['all']:.2f} km. All outputs together tell the true place from one nearby by "
        f"up to {significant(told.all_outputs)}.",
    )


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "dp-under-correlation": dp_under_correlation,
    "day-of-minutes": day_of_minutes,
    "local-hull": local_hull,
    "mask-sensitive": mask_sensitive,
    "set-labels": set_labels,
    "weak-adversary-learns": weak_adversary_learns,
    "kinds-of-adversary": kinds_of_adversary,
    "wrong-model": wrong_model,
    "stream-of-places": stream_of_places,
}
