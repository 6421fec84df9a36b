"""What a whole stream of places tells about each position: earlier and later outputs together.

The promise of a step is given the outputs before it. Positions depend on each other, so other
outputs tell about a position too; how much is bounded here pair by pair, and evaluated exactly
for the outputs that were released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shoal.audit.result import Audit, Witness
from shoal.core.codec import Bools, Floats, Ints, Value
from shoal.core.errors import InputError, Refused
from shoal.core.motion import FarLaw, Motion, posterior
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.progress import cut_short, in_time, report_progress, time_over
from shoal.core.task import Secrets
from shoal.mechanisms.cone import leak, prepare
from shoal.mechanisms.table import loss_as_drawn
from shoal.noise.graph_exponential import GraphExponential
from shoal.noise.primitives import LatticeEmission
from shoal.places.events import replay
from shoal.places.machine import LocationMachine, machine_of
from shoal.places.rows import later_stages, parts, reference_stage
from shoal.places.step import Places, StepNoise

MOST_STATES_AUDITED = 256  # pairs of pairs are followed
ERROR = 1e-10  # relative, of the laws computed here
AUDIT = "the audit of a stream"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceLeakage(Value):
    """Per step, what all outputs of a stream tell about the position at that step.

    `joined` and `any_two` bound the log-ratio between two joined states, and between any two
    states possible there, over every output the noise can give under the same constraints;
    `learned_joined` and `learned_any_two` are the exact values for the outputs released. inf when
    states are separated with certainty. `own` is what the step's own output gives (ε for joined).
    """

    kind = "sequence-leakage"

    own: tuple[float, ...]
    joined: tuple[float, ...]
    any_two: tuple[float, ...]
    learned_joined: tuple[float, ...]
    learned_any_two: tuple[float, ...]

    def describe(self) -> str:
        """Return in words what all outputs together tell, at the step where it is most; in
        log-ratios.
        """
        worst = int(np.argmax(self.joined))
        return (
            f"over {len(self.joined)} steps all outputs together tell joined states apart by at "
            f"most {significant(self.joined[worst])} (at step {worst + 1}; its own output gives "
            f"{significant(self.own[worst])}), any two by at most "
            f"{significant(max(self.any_two))}; the outputs released told joined states apart by "
            f"{significant(max(self.learned_joined))}"
        )


def sequence_leakage(
    plan: Plan, outputs: Sequence[Sequence[int] | None], *, start: Any = None
) -> SequenceLeakage:
    """Bounds and exact values for every step of a stream that released `outputs` (None: skipped).

    loss_t(x, x') ≤ η_t(x, x') + D^past_t(x, x') + D^future_t(x, x'), with
    D^past_t = Λ(reversed rows; η_{t-1} + D^past_{t-1}) and the same for the future with the rows
    of the chain. MATHS, section 3, with the metric η_t(y, z) of each step's own noise.
    Chains of order 1, up to 256 states. Bounds round up.
    """
    machine = machine_of(plan)
    motion = machine.runtime.motion
    if motion.memory > 1 or motion.hidden > MOST_STATES_AUDITED:
        raise Refused(
            f"pairwise leakage follows chains of order 1 on up to {MOST_STATES_AUDITED} "
            "states; this one "
            f"has {motion.hidden} hidden states: use loss_path of the stream"
        )
    if not outputs:
        raise InputError("outputs is empty; give the outputs of at least one step")
    stages = [step.noise for step in replay(plan, outputs, start)]
    first = 0 if start is None else 1
    begin = motion.begin() if start is None else machine.init(start).belief.astype(np.float64)
    possible_at, backward = _reverse_motion(motion, begin, first, len(outputs))
    metrics = [_metric(stage, released) for stage, released in zip(stages, outputs, strict=True)]
    past, future = _past(backward, metrics), _future(motion, metrics, first)
    logs = np.zeros((len(outputs), motion.size))
    for row, stage, z in zip(logs, stages, outputs, strict=True):
        if z is not None:
            row[:] = stage.law.log_likelihood(z)
    learned = _learned_ratios(motion, backward, logs, first)
    rows: dict[str, list[float]] = {name: [] for name in SequenceLeakage.__dataclass_fields__}
    for t, stage in enumerate(stages):
        possible = possible_at[t]
        edges = machine.places.policy.edges_among(stage.members)
        pairs = np.concatenate([edges, stage.protected.added])
        pairs = pairs[possible[pairs].all(axis=1)]
        bound = metrics[t] + past[t] + future[t]
        rows["own"].append(_largest_of_pairs(metrics[t], pairs))
        rows["joined"].append(_largest_of_pairs(np.maximum(bound, bound.T), pairs))
        rows["any_two"].append(float(bound[np.ix_(possible, possible)].max(initial=0.0)))
        rows["learned_joined"].append(_largest_of_pairs(learned[t], pairs))
        rows["learned_any_two"].append(float(learned[t][np.ix_(possible, possible)].max(initial=0)))
    return SequenceLeakage(**{name: tuple(values) for name, values in rows.items()})


def _reverse_motion(
    motion: Motion, begin: Floats, first: int, count: int
) -> tuple[list[Bools], list[Floats]]:
    """Which positions each step can have before any output, and log P(X_{t-1} = x | X_t = y).

    With a known start the first position is one move after it. Nothing comes before step 0.
    """
    law, possible, backward = FarLaw.of(begin), [], []
    for t in range(first, first + count):
        logs = np.zeros((len(begin), len(begin)))
        if t:
            law, logs = law.step_back_from(motion.rows(t))
        possible.append(law.possible)
        backward.append(logs)
    return possible, backward


def _metric(stage: StepNoise, output: Sequence[int] | None) -> Floats:
    """η(y, z): the log-ratio one output of the stage can give between two states."""
    size = len(stage.answering)
    if output is None or stage.count < 2:
        return np.zeros((size, size))
    if isinstance(stage.law, GraphExponential):
        first, second = np.divmod(np.arange(size * size), size)
        flat = stage.law.log_ratios(np.stack([first, second], axis=1))
    else:
        assert isinstance(stage.law, LatticeEmission)
        points = stage.law.points
        moves = (points[:, None, :] - points[None, :, :]).reshape(size * size, -1)
        flat = np.where(moves.any(axis=1), stage.law.noise.log_ratios(moves), 0.0)
    metric: Floats = flat.reshape(size, size)
    return metric


def _past(backward: list[Floats], metrics: list[Floats]) -> list[Floats]:
    """D^past of each step: what earlier outputs tell between two positions."""
    size = len(metrics[0])
    found = [np.zeros((size, size))]
    for t in range(1, len(metrics)):
        in_time(AUDIT)
        report_progress(t, 2 * len(metrics))
        logs = backward[t].T
        error = ERROR + (t + 2) * (size + 2) * 2.0**-52  # FarLaw, step after step
        with np.errstate(under="ignore"):
            law = prepare(np.exp(logs), possible=logs > -np.inf, error=error)
        found.append(_bound_of_law(law, metrics[t - 1] + found[-1]))
    return found


def _future(motion: Motion, metrics: list[Floats], first: int) -> list[Floats]:
    """D^future of each step: what later outputs tell between two positions."""
    size = len(metrics[0])
    found = [np.zeros((size, size))]
    law = None
    for t in range(len(metrics) - 2, -1, -1):
        in_time(AUDIT)
        report_progress(2 * len(metrics) - t, 2 * len(metrics))
        if law is None or not motion.homogeneous:
            law = prepare(motion.rows(first + t + 1), error=ERROR)
        found.append(_bound_of_law(law, metrics[t + 1] + found[-1]))
    return found[::-1]


def _bound_of_law(law: Any, growth: Floats) -> Floats:
    """Λ for all pairs, at most the largest growth, which every law keeps."""
    grown = np.maximum(growth, growth.T)
    np.fill_diagonal(grown, 0.0)
    bound = leak(law, grown, "caps")
    return np.asarray(np.minimum(np.maximum(bound, 0.0), grown.max()))


def _learned_ratios(
    motion: Motion, backward: list[Floats], logs: Floats, first: int
) -> list[Floats]:
    """|log P(outputs | X_t = x) - log P(outputs | X_t = x')| of the outputs at hand, exactly."""
    steps, size = logs.shape
    before = [np.zeros(size)]
    for t in range(1, steps):
        before.append(log_sum((before[-1] + logs[t - 1])[:, None] + backward[t]))
    after = [np.zeros(size)]
    for t in range(steps - 2, -1, -1):
        with np.errstate(divide="ignore"):
            moves = np.log(motion.rows(first + t + 1))
        after.append(log_sum((moves + logs[t + 1] + after[-1]).T))
    after.reverse()
    found = []
    for t in range(steps):
        total = logs[t] + before[t] + after[t]
        with np.errstate(invalid="ignore"):
            gap = np.abs(total[:, None] - total[None, :])
        found.append(np.where(np.isnan(gap), 0.0, gap))  # both impossible: nothing to tell apart
    return found


def log_sum(logs: Floats) -> Floats:
    """log Σ_x e^{logs(x, y)} for each y; -inf where there is nothing."""
    highest = logs.max(axis=0)
    safe = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        return np.asarray(np.log(np.exp(logs - safe).sum(axis=0)) + safe)


def _largest_of_pairs(matrix: Floats, pairs: Any) -> float:
    return float(matrix[pairs[:, 0], pairs[:, 1]].max(initial=0.0))


# The loss of a location plan measured on outputs: joined states, step by step.


MOST_PAIRS = 400  # edges of distinct shifts that are tried, the longest first
SHIFTS_TRIED = 3  # outputs up to this many shifts beyond an answer are tried

ASSUMED = (
    "positions follow the chain, and the adversary knows it, the policy and the noise",
    "one output at a time, given the outputs before it",
)
NOT_CHECKED = (
    "what other outputs tell about the same position: shoal.places.audit, or loss_here "
    "and loss_path of the stream",
    "states that are not joined: see the certificate's eta",
    "the code that draws the noise (a black-box audit draws from it)",
)
ENDED = "outputs and pairs of states that were left when the time limit ended the search"


class WorstStep(NamedTuple):
    """The output that tells two joined states apart most: log-ratio, states, output, stage."""

    value: float
    first: int
    second: int
    output: tuple[int, ...]
    stage: StepNoise


def location_audit(plan: Plan, curve: bool) -> Audit:
    """The largest log-ratio between joined states over outputs, and whether the claim is kept.

    Lower end: outputs at and beyond the answers of the joined states, evaluated by the emission
    law itself. Upper end: every edge of the task's policy against the noise as it is. The two
    meet for K-norm, Laplace and tight graph laws.
    """
    machine = machine_of(plan)
    reference, prior = reference_stage(machine)
    stages, eta = later_stages(machine)
    stages.append(reference)
    places = parts(plan.task)[1]
    found = max((_worst(machine, places, stage) for stage in stages), key=lambda one: one.value)
    lower = found.value
    upper = max(loss_as_drawn(plan), lower)  # an output seen overrules what the edges say
    promised = float(plan.guarantee.amount)
    return Audit(
        mechanism=plan.mechanism,
        asked=plan.task.query.describe(),
        protected=plan.task.secrets.describe(),
        notion=plan.guarantee.notion,
        promised=promised,
        claim=(lower, upper),
        lower=lower,
        upper=upper,
        entry_level=math.inf if eta is None else eta,
        witness=_worst_witness(machine, found, prior) if found.value > 0 else None,
        assumptions=ASSUMED,
        not_checked=(*NOT_CHECKED, ENDED) if cut_short() else NOT_CHECKED,
    )


def _worst(machine: LocationMachine, places: Places, stage: StepNoise) -> WorstStep:
    """The largest log-ratio seen over the longest edges of a stage, or those there was time for."""
    points = machine.query.points[stage.answering]
    best = WorstStep(0.0, 0, 0, tuple(points[0].tolist()), stage)
    if stage.count < 2:
        return best
    for first, second in _edges(points, places, stage):
        if time_over():
            break
        move = points[first] - points[second]
        for far in range(SHIFTS_TRIED):
            for output in (points[first] + far * move, points[second] - far * move):
                z = tuple(int(value) for value in output)
                logs = stage.law.log_likelihood(z)
                both = logs[first] == logs[second]  # -inf - -inf is no number
                value = 0.0 if both else float(abs(logs[first] - logs[second]))
                if value > best.value:
                    order = (first, second) if logs[first] >= logs[second] else (second, first)
                    best = WorstStep(value, *order, z, stage)
    return best


def _edges(points: Ints, places: Places, stage: StepNoise) -> list[tuple[int, int]]:
    """Edges of distinct shifts that must hold, the longest in the noise's own terms first.

    `points` are the answers of the states, or of those that answer for them.
    """
    covered = np.ones_like(stage.members) if places.everywhere else stage.members
    pairs = np.concatenate([places.policy.edges_among(covered), stage.protected.added])
    moves: Ints = points[pairs[:, 0]] - points[pairs[:, 1]]
    _, first = np.unique(moves, axis=0, return_index=True)
    lengths = stage.protected.body.norm_upper(moves[first])
    chosen = first[np.argsort(-lengths, kind="stable")[:MOST_PAIRS]]
    return [(int(a), int(b)) for a, b in pairs[chosen]]


def _worst_witness(machine: LocationMachine, worst: WorstStep, prior: Floats) -> Witness:
    """The beliefs in the two states before and after the output, under the chain's own law."""
    even = np.zeros(len(prior))
    even[[worst.first, worst.second]] = 0.5
    pair = [worst.first, worst.second]
    before = prior if (prior[pair] > 0).all() else even
    after = posterior(before, worst.stage.law.log_likelihood(worst.output))
    names, step = machine.query.states, float(machine.query.step)
    return Witness(
        model=0,
        law=machine.chain.describe(),
        subject="the current state",
        facts=(repr(names[worst.first]), repr(names[worst.second])),
        labels=machine.query.labels,
        output=tuple(step * value for value in worst.output),
        unit=machine.query.unit,
        before=(float(before[worst.first]), float(before[worst.second])),
        after=(float(after[worst.first]), float(after[worst.second])),
        log_ratio=worst.value,
    )


def event_audit(plan: Plan, secrets: Secrets) -> Audit:
    """What streams of made-up walks tell of events, and what is promised about them, if anything.

    A lower bound: beliefs along a few walks drawn from the model. The upper one is the promise,
    which every step is certified for before it is drawn; infinite where nothing is promised.
    """
    from shoal.places.rows import rehearse_streams, watch_for

    own, watch = machine_of(plan).watch, watch_for(plan, secrets)
    events = watch.events
    amounts = {} if own is None else dict(zip(own.events.pairs, own.amounts, strict=True))
    promised = [amounts.get(pair) for pair in events.pairs]
    found = rehearse_streams(plan, watch)
    known = [float(each) for each in promised if each is not None]
    most = max(known) if len(known) == len(promised) else None
    largest_change = max(found.largest_changes)
    return Audit(
        mechanism=plan.mechanism,
        asked=plan.task.query.describe(),
        protected=events.describe(),
        notion=None if most is None else "pufferfish",
        promised=most,
        claim=(largest_change, math.inf if most is None else most),
        lower=largest_change,
        upper=math.inf if most is None else most,
        entry_level=math.inf,
        witness=None,
        assumptions=("positions follow the chain", "the adversary sees this one stream"),
        not_checked=(f"outputs other than those of {found.steps} steps of made-up walks",),
    )
