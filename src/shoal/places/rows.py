"""What all rows for location streams share: which tasks they take, what they promise and why."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from shoal.core.charge import Composition, Guarantee, OneStream, PerStep, Rng, categorical, uniforms
from shoal.core.codec import Floats
from shoal.core.errors import InputError, Refused
from shoal.core.motion import motion_of, posterior
from shoal.core.numbers import significant
from shoal.core.plan import Plan, Proof
from shoal.core.progress import OutOfTime, in_time, no_time_limit, report_progress
from shoal.core.task import Secrets, Task, as_events
from shoal.events.secrets import Events
from shoal.mechanisms.plans import Mechanism
from shoal.noise.graph_exponential import MOST_GRAPH_STATES
from shoal.noise.primitives import SeededRng
from shoal.places.events import event_curve, guard_of
from shoal.places.machine import LocationMachine, machine_of, step_promise
from shoal.places.packed import LocationRelease
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import EventWatch, Measurement, remap_answer
from shoal.places.step import Places, StepNoise, edge_loss

HORIZON = 32  # steps after which the chain's own law is the prior that errors are stated for
STAGES = 16  # constraints followed from the first one, each held to the promise
DRAWS = 200  # from which expected errors are estimated, always the same ones

ASSUMPTIONS = (
    "positions follow the chain, and everything released about them comes from this one stream",
    "the promise is about each single step given the outputs before it; what the whole stream "
    "tells is reported as loss_here and loss_path",
    "which steps are skipped does not depend on where one is",
    "a state that the model calls impossible answers as the nearest possible one",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationCertificate(Proof):
    """The numbers of a location plan, at the chain's own law after some steps.

    `loss` is the largest log-ratio over all edges of the policy, repaired, over `stages`
    constraints. `eta` bounds that between any two states at every step of a stream that begins
    with the chain's first law, and of any stream when the policy joins all states (None: no bound
    is public in advance; what each step gives is charged with it). Errors are root mean squares in
    the query's unit: of the released point, of the estimate, and of the best guess without any
    release.
    """

    kind = "location-certificate"

    reason: str
    loss: float
    stages: int
    eta: float | None
    possible: int
    repaired: int
    raw_error: float
    estimate_error: float
    guess_error: float

    @property
    def theorem(self) -> str:
        """What is proved about joined and other states, and the errors; root mean squares in the
        unit.
        """
        beyond = (
            "between two states that are not joined nothing is promised beforehand"
            if self.eta is None
            else f"between any two states they change by at most {significant(self.eta)} a step "
            "when the stream begins with the chain's first law"
        )
        return (
            f"{self.reason}; over {self.stages} constraint(s) the log-odds between joined states "
            f"change by at most {significant(self.loss)}, and {beyond}; among {self.possible} "
            f"states the point is off by {significant(self.raw_error)}, the estimate by "
            f"{significant(self.estimate_error)}, a guess without release by "
            f"{significant(self.guess_error)} (root mean squares, in the unit asked for)"
        )

    ASSUMED: ClassVar[tuple[str, ...]] = ASSUMPTIONS


def refuse(task: Task) -> str | None:
    """Location rows are for a measurement under a policy or a location set, and one chain."""
    if not isinstance(task.secrets, PolicyGraph | LocationSet):
        return "the secrets are not a policy on states, so there is no graph to shape noise by"
    if not isinstance(task.query, Measurement):
        return "the query is not a measurement of the current state, which a policy of secrets asks"
    if len(task.family) != 1:
        return "the family holds several models, and beliefs are followed under one chain only"
    try:
        motion_of(task.family[0])
    except InputError as error:
        return str(error)
    return None


def parts(task: Task) -> tuple[Measurement, Places]:
    """The query and the secrets of a task that `refuse` takes."""
    query, places = task.query, task.secrets
    if not (isinstance(query, Measurement) and isinstance(places, PolicyGraph | LocationSet)):
        raise TypeError("calibrate called on a task that `refuse` refuses")
    return query, places


def location_plan(task: Task, name: str, epsilon: Fraction, noise: str, reason: str) -> Plan:
    """A plan around a machine, with the numbers that certify it."""
    query, places = parts(task)
    machine = LocationMachine(
        chain=task.family[0], query=query, places=places, epsilon=epsilon, noise=noise
    )
    stages, eta = later_stages(machine)
    reference, prior = reference_stage(machine)
    errors = expected_errors(machine, reference, prior)
    certificate = LocationCertificate(
        reason=reason,
        loss=max(edge_loss(places, query, stage) for stage in [*stages, reference]),
        stages=len(stages) + 1,
        eta=eta,
        possible=reference.count,
        repaired=len(reference.protected.added),
        raw_error=errors[0],
        estimate_error=errors[1],
        guess_error=errors[2],
    )
    plan = Plan(
        mechanism=name,
        task=task,
        body=machine,
        cost=float(f"{errors[1]:.2g}"),  # no finer than DRAWS outputs tell: near ties go to K-norm
        guarantee=promise(task, epsilon),
        certificate=certificate,
        composition=ways_to_add(machine),
    )
    if machine.watch is None:
        return plan
    # some kinds of noise are bounded more tightly than others where events decide
    return replace(plan, cost=float(f"{rehearse_streams(plan, machine.watch).error:.2g}"))


def ways_to_add(machine: LocationMachine) -> tuple[Composition, ...]:
    """Per step; and what all steps promise about events together, if they do.

    Steps add by ε, and by η only where it is the same at every step of every stream.
    """
    complete = machine.places.policy.is_complete
    steps = PerStep(machine.epsilon, machine.epsilon if complete else None)
    return (steps,) if machine.watch is None else (steps, OneStream(machine.watch.promises))


def add_event_watch(plan: Plan, events: Events, event_epsilon: Any, **watch: Any) -> Plan:
    """The plan of a stream that promises something about events too; `policy.watching` of one."""
    machine = machine_of(plan)
    if machine.watch is not None:
        raise InputError("the plan watches events already; begin its stream without naming others")
    places = machine.places.watching(events, event_epsilon, **watch)
    body = replace(machine, places=places)
    task = Task(query=plan.task.query, secrets=places, family=plan.task.family)
    return replace(plan, task=task, body=body, composition=ways_to_add(body))


def promise(task: Task, epsilon: Fraction) -> Guarantee:
    """What a step of a location plan promises about the places of a task."""
    return step_promise(task.secrets, epsilon)


def rules(plan: Plan) -> tuple[Composition, ...]:
    """Per step, as the machine draws, and the promise about events."""
    return ways_to_add(machine_of(plan))


def loss(plan: Plan, noise: str) -> float:
    """The largest log-ratio over all edges that must hold, over the constraints that can follow.

    From the plan as stored: hulls are built again from the task's policy and compared with the
    noise of the machine, which must be `noise`. inf when the plan says what its machine does not
    do: another model, query, policy or noise, a promise below the machine's ε, another rule by
    which steps add, or a certificate below what is measured here.
    """
    machine = machine_of(plan)
    query, places = parts(plan.task)
    promised = plan.guarantee.amount
    certificate = plan.certificate
    if (
        (machine.chain, machine.query, machine.places, machine.noise)
        != (plan.task.family[0], query, places, noise)
        or machine.epsilon > promised
        or plan.guarantee != machine.promise(promised)
        or plan.composition != ways_to_add(machine)
        or not isinstance(certificate, LocationCertificate)
    ):
        return math.inf
    with no_time_limit():  # what decides whether a promise is kept
        stages, eta = later_stages(machine)
        stages.append(reference_stage(machine)[0])
        found = max(edge_loss(places, query, stage) for stage in stages)
    unsaid = certificate.eta is not None and (eta is None or certificate.eta < eta)
    return math.inf if unsaid or certificate.loss < found else found


def later_stages(machine: LocationMachine) -> tuple[list[StepNoise], float | None]:
    """The stages that follow the first law, and η of any step of a stream that begins with it.

    Those of the supports that come one after the other, each once, up to STAGES of them. With a
    body of full dimension no output changes the support, so for a policy they are the stages of
    every stream without a known start. None for η unless they are the stages of all such streams:
    constraints are supports, outputs rule no state out, and the supports come round, or the model
    ends, before STAGES are seen. ε itself when the policy joins every two states.
    """
    motion, runtime = machine.runtime.motion, machine.runtime
    support, stages, last = (
        motion.initial > 0,
        dict[bytes, StepNoise](),
        motion.length or STAGES * 2,
    )
    passed: set[bytes] = set()
    closed = last <= STAGES * 2 and motion.length is not None
    for time in range(min(STAGES * 2, last)):
        in_time("following a stream's constraints")
        support = motion.reach(time, support) if time else support
        members = motion.states_possible(time, support)
        if members.tobytes() not in stages:
            if len(stages) >= STAGES:
                closed = False
                break
            stages[members.tobytes()] = runtime.noise(members)
        if motion.homogeneous and time >= motion.memory - 1:
            if support.tobytes() in passed:
                closed = True
                break
            passed.add(support.tobytes())
    found = list(stages.values())
    if machine.places.policy.is_complete:
        return found, float(machine.epsilon)
    bounded = closed and machine.places.delta == 0
    bounded = bounded and not any(stage.tells for stage in found)
    return found, max(stage.spread for stage in found) if bounded else None


def reference_stage(machine: LocationMachine) -> tuple[StepNoise, Floats]:
    """The stage and prior that expected errors are stated for: the chain's law after HORIZON."""
    motion = machine.runtime.motion
    steps = min(HORIZON, (motion.length or HORIZON) - 1)
    belief, support = motion.begin(), motion.initial > 0
    for time in range(1, steps + 1):
        belief, support = motion.predict(time, belief), motion.reach(time, support)
    prior = machine.runtime.prior(
        0, np.asarray(belief, np.float32), machine.runtime.pack_support(support)
    )
    return prior.noise, motion.on_states(steps, belief)


def expected_errors(
    machine: LocationMachine, stage: StepNoise, prior: Floats
) -> tuple[float, float, float]:
    """Root mean square errors of the point, of the estimate, and of a guess without release.

    That of the estimate is a mean over DRAWS outputs of a fixed seed, so that calibration stays
    deterministic, of the expected squared error given each output. It says which mechanism is
    better on average, and promises nothing.
    """
    values = machine.runtime.values
    guess = remap_answer(prior, values, machine.query.estimate)[1]
    if stage.count < 2:
        return 0.0, guess, guess
    raw = stage.law.expected_error(prior) * float(machine.query.step)
    rng, total = SeededRng(0), 0.0
    for uniform in uniforms(DRAWS, rng):
        in_time("the estimate of a stream's errors")
        z = stage.law.draw(categorical(prior, float(uniform)), rng)
        belief = posterior(prior, stage.law.log_likelihood(z))
        total += remap_answer(belief, values, machine.query.estimate)[1] ** 2
    return raw, math.sqrt(total / DRAWS), guess


# The rows: one kind of noise each, with its own proof beside this file.


def _noise_mechanism(
    name: str, noise: str, reason: str, refuse: Callable[[Task], str | None] = refuse
) -> Mechanism:
    """The row of a kind of noise; refused where the computation shows that it does not apply."""

    def calibrate(task: Task, epsilon: Fraction) -> Plan:
        try:
            return location_plan(task, name, epsilon, noise, reason)
        except InputError as error:
            raise Refused(f"{name} does not apply: {error}") from None

    return Mechanism(name, refuse, calibrate, partial(loss, noise=noise), promise, rules)


def refuse_graph(task: Task) -> str | None:
    """As the other rows, and not on large maps or with images of outside edges."""
    reason = refuse(task)
    if reason is not None:
        return reason
    size = len(task.query.states)
    if size > MOST_GRAPH_STATES:
        wider = math.ceil(10 * math.sqrt(size / MOST_GRAPH_STATES)) / 10
        return (
            f"the model has {size:,} states; distances in the graph are followed up to "
            f"{MOST_GRAPH_STATES:,}: take cells {wider:g} times as wide, or a smaller map"
        )
    if parts(task)[1].everywhere:
        return "the secrets cover edges outside the location set, which distances inside it do not"
    return None


# P(z | s) ∝ exp(-ε |z - f(s)|_K) on the lattice, K the hull of the policy at each step: the planar
# isotropic mechanism. Xiao & Xiong 2016, Definition 3.3, Theorem 6.2; Xiao 2017, Algorithm 2 (PIM).
KNORM_ROW = _noise_mechanism(
    "location-knorm",
    "k-norm",
    "lattice K-norm noise under the sensitivity hull of the repaired policy (the planar isotropic "
    "mechanism is this very distribution: its transform changes nothing)",
)
# Independent noise exp(-ε |z_i - f_i(s)| / S), for comparison; the cross-polytope decides who is
# exposed, as Theorem 5.2 needs. Xiao & Xiong 2016, Theorem 5.1.
LAPLACE_ROW = _noise_mechanism(
    "location-laplace",
    "laplace",
    "discrete Laplace noise of scale S/ε on each coordinate, S the l1 sensitivity of the repaired "
    "policy: K-norm noise whose body is the cross-polytope of radius S",
)
# P(z | s) ∝ exp(-ε ⌊|z - f(s)|_K + 1 - width⌋), the width of least error. Worth it from ε = 2 on:
# 5 % less squared error there, 27 % at 4.
STAIRCASE_ROW = _noise_mechanism(
    "location-staircase",
    "staircase",
    "staircase noise under the norm of the sensitivity hull of the repaired policy; states that "
    "are not joined are protected in whole steps of epsilon, less than by K-norm noise",
)
# q(z | s) ∝ w_z exp(-r d(s, z)), d counting edges of the policy among the members. w = Φ⁻¹1 with
# Φ = exp(-ε d) gives ε without the usual factor 2 when no weight is negative; otherwise w = 1 and r
# is the largest rate that keeps every edge within ε.
GRAPH_ROW = _noise_mechanism(
    "location-graph-exponential",
    "graph-exponential",
    "a state drawn by its distance in the repaired policy graph, with tight constants where they "
    "are not negative; states that are not joined are protected less than by K-norm noise, and "
    "separate parts of the graph not at all",
    refuse_graph,
)


# Streams of made-up walks: what they would show, and what they would tell of events.
#
# Walks are drawn from the model and released with predictable noise: no data is looked at, and
# equal plans give equal figures.


SEED = 0
# of all walks together: a step whose constraint is new takes a tenth of a second
REHEARSED_STEPS = 96
MOST_WALKS = 4


class Rehearsal(NamedTuple):
    """What made-up walks came to; beliefs are those of somebody who knows the chain and the plan.

    `skipped` is the share of steps that showed nothing, `epsilon` the mean over all steps, `error`
    the root mean square error of the estimate, in the query's unit. Of each event `before` is its
    prior, `low` and `high` the ends of what was believed, and `largest_changes` the
    largest change of its log-odds.
    """

    steps: int
    skipped: float
    epsilon: float
    error: float
    before: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    largest_changes: tuple[float, ...]


def rehearse_streams(plan: Plan, watch: EventWatch) -> Rehearsal:
    """Streams of `plan`, and what they tell of the events of `watch`, its own or others.

    A time limit ends it after a whole walk, and `steps` says how many there were.
    """
    machine, rng = machine_of(plan), SeededRng(SEED)
    length = min(watch.law(machine.chain).length, REHEARSED_STEPS)
    spent, errors, curves = [], [], []
    walks = max(1, min(MOST_WALKS, REHEARSED_STEPS // length))
    for number in range(walks):
        report_progress(number, walks)
        walk = sample_path(machine, length, rng)
        try:
            releases = _stream_releases(plan, walk, rng)
            curves.append(event_curve(plan, [release.z for release in releases], watch))
        except OutOfTime:
            if not curves:
                raise
            break
        for place, release in zip(walk, releases, strict=True):
            guarantee = release.guarantee
            spent.append(0.0 if guarantee is None else float(guarantee.amount))
            errors.append(((np.array(release.estimate) - machine.query.values[place]) ** 2).sum())
    curve = np.concatenate(curves)
    odds = log_odds(curve)
    return Rehearsal(
        len(spent),
        float(np.mean([each == 0 for each in spent])),
        float(np.mean(spent)),
        float(np.sqrt(np.mean(errors))),
        tuple(curve[0].tolist()),
        tuple(curve.min(axis=0).tolist()),
        tuple(curve.max(axis=0).tolist()),
        tuple(np.abs(odds - odds[0]).max(axis=0).tolist()),
    )


def log_odds(beliefs: Floats) -> Floats:
    """log P/(1 - P); infinite where somebody is sure."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(beliefs) - np.log1p(-beliefs))


def without_watch(plan: Plan) -> Plan:
    """The same plan without its promise about events: what an ordinary stream of it would do."""
    machine = machine_of(plan)
    policy: Any = replace(machine.places.policy, watch=None)
    places = policy if machine.places.notion == "policy" else replace(machine.places, policy=policy)
    task = replace(plan.task, secrets=places)
    rules = tuple(rule for rule in plan.composition if not rule.promises)
    return replace(plan, task=task, body=replace(machine, places=places), composition=rules)


def watch_for(plan: Plan, secrets: Secrets) -> EventWatch:
    """The watch that asks `plan` about events, or about those that a policy watches.

    Events alone have the slots and clock of the plan's own watch, if it has one.
    """
    machine, events = machine_of(plan), as_events(secrets)
    found: EventWatch | None = getattr(secrets, "watch", None)  # of a policy or a location set
    if events is not None:
        own = machine.watch
        found = EventWatch.of(events, 1) if own is None else replace(own, events=events)
    if found is None:
        raise Refused(
            f"what {plan.mechanism} tells about {secrets.subject} is not computed; ask about "
            "events, such as those of a spec with [[secrets.event]]"
        )
    found.check(machine.chain)
    return found


def sample_path(machine: LocationMachine, steps: int, rng: Rng) -> list[int]:
    """One random sequence of states of the machine's chain, of any kind."""
    motion = machine.runtime.motion
    belief, places = motion.begin(), []
    for step, draw in enumerate(uniforms(steps, rng)):
        belief = motion.predict(step, belief) if step else belief
        hidden = categorical(belief, float(draw))
        places.append(int(motion.at(step)[hidden]))
        belief = np.zeros(motion.hidden)
        belief[hidden] = 1.0  # what comes next depends on where one is
    return places


def _stream_releases(plan: Plan, walk: list[int], rng: Rng) -> list[LocationRelease]:
    """What a stream of the plan shows of a walk."""
    machine, found = machine_of(plan), list[LocationRelease]()
    guard = None if machine.watch is None else guard_of(plan, machine.watch)
    state, held = machine.init(), () if guard is None else guard.begin()
    for place in walk:
        in_time("the rehearsal on a made-up walk")
        if guard is None:
            state, release = machine.step(state, machine.query.states[place], rng)
        else:
            state, release, held = guard.step(state, held, place, rng)
        found.append(release)
    return found
