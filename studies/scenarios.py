"""Attacks of the papers, and of everyday life, as stories with numbers: `SCENARIOS` lists them.

Each computes what an adversary learns where somebody trusted a weaker promise. They need no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.attacks.beliefs import attack, by_knowledge, laplace_sum, suppressed
from shoal.audit.exact import audit_noise
from shoal.chains.model import MarkovChain, stationary_law
from shoal.core.codec import Floats
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.mixture import mixture_loss
from shoal.mechanisms.queries import count
from shoal.noise.primitives import SeededRng
from shoal.places.attack import Knowing, attack_locations
from shoal.places.map import SquareGrid
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain


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


# The attack on noise whose shape depends on the true state (Xiao et al. 2016, Example 11.2).


PLACES = {"s4": (0.0, 1.0), "s5": (4.0, 2.0), "s6": (1.0, 2.0)}
PATH = (("s4", "s6"), ("s6", "s5"))  # the policy: which states must look alike
ON_LINE = 1e-9


def local_hull_rates(epsilon: float, draws: int, seed: int) -> tuple[float, float]:
    """How often the state is guessed right: with its own hull, and with one hull for all."""
    rng = np.random.default_rng(seed)
    local = [
        _guess_by_shape(z) == state
        for state in PLACES
        for z in _noisy(state, _neighbours(state), epsilon, draws, rng)
    ]
    common = _edges(PATH)
    shared = [
        _guess_by_density(z, common) == state
        for state in PLACES
        for z in _noisy(state, common, epsilon, draws, rng)
    ]
    return float(np.mean(local)), float(np.mean(shared))


def _neighbours(state: str) -> Floats:
    return _edges(tuple(pair for pair in PATH if state in pair))


def _edges(pairs: tuple[tuple[str, str], ...]) -> Floats:
    """One difference per edge; the hull is the convex hull of these and their negatives."""
    return np.array([np.subtract(PLACES[a], PLACES[b]) for a, b in pairs])


def _noisy(
    state: str, edges: Floats, epsilon: float, draws: int, rng: np.random.Generator
) -> Floats:
    """f(state) + K-norm noise: Gamma(d + 1) times a uniform point of the hull of ±edges.

    With one edge the hull is a segment; with two independent ones a parallelogram whose corners
    are ±edges, in whose own coordinates it is |a| + |b| ≤ 1.
    """
    dimension = len(edges)
    if dimension == 1:
        inside = rng.uniform(-1, 1, (draws, 1))
    else:
        square = rng.uniform(-1, 1, (draws, 2))
        inside = np.stack([square.sum(axis=1), square[:, 0] - square[:, 1]], axis=1) / 2
    radius = rng.gamma(dimension + 1, 1 / epsilon, (draws, 1))
    return np.asarray(PLACES[state] + (radius * inside) @ edges)


def _guess_by_shape(z: Floats) -> str:
    """Which lines z lies on tells the state: noise from s6 misses both with certainty."""
    if _on_line(z, "s4", "s6"):
        return "s4"
    return "s5" if _on_line(z, "s5", "s6") else "s6"


def _on_line(z: Floats, one: str, two: str) -> bool:
    along = np.subtract(PLACES[two], PLACES[one])
    off = z - PLACES[one]
    return bool(abs(along[0] * off[1] - along[1] * off[0]) < ON_LINE)


def _guess_by_density(z: Floats, edges: Floats) -> str:
    """The nearest state in the norm of the common hull."""
    apart = {s: float(np.abs(np.linalg.solve(edges.T, z - p)).sum()) for s, p in PLACES.items()}
    return min(apart, key=lambda state: apart[state])


# Walks on a small map, released step by step, and adversaries who know more and less.


SIDE, CELL_M, RADIUS_KM = 8, 500, 1
STAY = 0.4


class WalkStory(NamedTuple):
    """Means over people: errors in km by adversary and by what is known, and changes of odds.

    `one_output` is the largest change of log-odds between joined places by one output, over all
    people and adversaries; `all_outputs` that of the true place against a joined one by all
    outputs of a stream, the largest over its steps, as the adversary who knows the walk sees it.
    """

    errors: dict[str, dict[Knowing, float]]
    one_output: float
    all_outputs: float


def adversaries_on_a_map(epsilon: float, people: int, steps: int, seed: int) -> WalkStory:
    """People who favour some ways over others, under a plan that takes them to go evenly.

    Their streams are read by somebody who holds the plan's chain, by one who knows how they really
    move, and by one who knows only how often they are where.
    """
    even, real = walk_on_map(None), walk_on_map(seed)
    where = coordinates(even)
    policy = PolicyGraph.within(where, RADIUS_KM)
    plan = calibrate(where, policy, even, epsilon=epsilon, mechanism="location-knorm")
    held = {"the plan's walk": even, "the real walk": real, "frequencies alone": _forgetful(real)}
    kinds: tuple[Knowing, ...] = ("nothing", "past", "all")
    errors = {name: dict.fromkeys(kinds, 0.0) for name in held}
    one, whole = 0.0, []
    for person in range(people):
        track = [int(place) for place in real.sample(steps, SeededRng(seed + person))]
        outputs = _released(plan, real, track, SeededRng(1000 + seed + person))
        for name, chain in held.items():
            found = attack_locations(plan, outputs, adversary=chain)
            for by in kinds:
                errors[name][by] += found.errors(track, by).mean / people
            one = max(one, float(found.odds("own").joined.max()))
            if chain is real:
                whole.append(float(np.nanmax(found.odds("all", truth=track).joined)))
    return WalkStory(errors, one, float(np.mean(whole)))


def walk_on_map(seed: int | None) -> SparseChain:
    """Staying, or going to a cell around: evenly, or by weights of each cell's own."""
    grid = SquareGrid(
        south=Fraction(39), west=Fraction(116), cell_m=Fraction(CELL_M), rows=SIDE, columns=SIDE
    )
    rng = np.random.default_rng(seed)
    matrix = np.zeros((grid.size, grid.size))
    for cell in range(grid.size):
        near = list(grid.adjacent(cell))
        shares = np.ones(len(near)) if seed is None else rng.gamma(0.2, size=len(near)) + 0.01
        matrix[cell, cell] = STAY
        matrix[cell, near] = (1 - STAY) * shares / shares.sum()
    return SparseChain.of(
        matrix,
        initial=stationary_law(matrix),
        states=[grid.name_of(cell) for cell in range(grid.size)],
        grid=grid,
        cells=np.arange(grid.size),
    )


def _forgetful(chain: SparseChain) -> SparseChain:
    """Every place as likely as it always is, whatever came before."""
    rows = np.tile(chain.initial, (chain.size, 1))
    return SparseChain.of(
        rows, initial=chain.initial, states=chain.states, grid=chain.grid, cells=chain.cells
    )


def _released(
    plan: Plan, chain: SparseChain, track: list[int], rng: SeededRng
) -> list[tuple[int, ...] | None]:
    stream, outputs = LocationStream.begin(plan), []
    for place in track:
        stream, release = stream.read(chain.states[place], rng=rng)
        outputs.append(release.z)
    return outputs


# A weak adversary who learns a chain from what is released of it: Götz, Nath & Gehrke 2012,
# Section 6.


STATES = ("home", "bus", "clinic", "work")
TRANSITION = np.array(
    [
        [0.55, 0.40, 0.00, 0.05],
        [0.30, 0.30, 0.20, 0.20],
        [0.00, 0.90, 0.10, 0.00],
        [0.1, 0.3, 0, 0.6],
    ]
)
HIDDEN = {"clinic": 1.0, "home": 0.25, "bus": 0.25, "work": 0.25}
MOMENT = ("bus", None, "bus")  # what the adversary looks at, somewhere in a day
DAY = 48
ROUNDS = 60  # of fitting


def learning_curve(days: Sequence[int], seed: int) -> tuple[list[float], float, float]:
    """Belief that the hidden moment was the clinic after each number of days, and when knowing.

    The adversary starts from the frequencies alone (entries independent) and fits a chain to the
    days watched so far; the third number is the belief before anything is seen.
    """
    chain = MarkovChain.of(TRANSITION, states=STATES)
    law = chain.stationary_law()
    rng, chance = SeededRng(seed), np.random.default_rng(seed)
    hidden = np.array([HIDDEN[state] for state in STATES])
    paths = np.array([chain.sample(DAY, rng) for _ in range(max(days, default=0))], np.int64)
    shown = chance.random(paths.shape) >= hidden[paths]
    likelihood = np.where(shown[..., None], paths[..., None] == np.arange(len(STATES)), hidden)
    curve = [_belief(_fitted(likelihood[:count], law), law) for count in days]
    return curve, _belief(chain.transition, law), float(law[STATES.index("clinic")])


def _fitted(likelihood: Floats, law: Floats) -> Floats:
    """The transitions that fit the days watched, by expectation and maximisation.

    `likelihood` (days, entries, states) is that of what was shown. One day of independent entries
    is counted in, so that no transition is ruled out for want of data.
    """
    independent = np.tile(law, (len(law), 1))
    matrix = independent
    prior = DAY * law[:, None] * independent
    for _ in range(ROUNDS if len(likelihood) else 0):
        counts = prior + _expected_moves(likelihood, law, matrix)
        matrix = counts / counts.sum(axis=1, keepdims=True)
    return matrix


def _expected_moves(likelihood: Floats, law: Floats, matrix: Floats) -> Floats:
    """Σ over days and entries of P(X_t = x, X_{t+1} = y | shown): forward and backward, scaled."""
    entries = likelihood.shape[1]
    forward = [_scaled(law * likelihood[:, 0])]
    for t in range(1, entries):
        forward.append(_scaled((forward[-1] @ matrix) * likelihood[:, t]))
    backward = np.ones_like(forward[0])
    total = np.zeros_like(matrix)
    for t in range(entries - 2, -1, -1):
        ahead = likelihood[:, t + 1] * backward
        moves = forward[t][:, :, None] * matrix * ahead[:, None, :]
        total += (moves / moves.sum(axis=(1, 2), keepdims=True)).sum(axis=0)
        backward = _scaled(ahead @ matrix.T)
    return total


def _scaled(rows: Floats) -> Floats:
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def _belief(transition: Floats, law: Floats) -> float:
    held = MarkovChain.of(transition, states=STATES, initial=law)
    found = attack(held, [suppressed(MOMENT, STATES, HIDDEN)], len(MOMENT))
    return float(found.after[1, STATES.index("clinic")])
