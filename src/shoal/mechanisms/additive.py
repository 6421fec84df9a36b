"""What all rows with additive Laplace noise share: from a scale to a plan, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shoal.core.additive import Additive, Noise
from shoal.core.composition import AsEntryDP, Composition
from shoal.core.errors import PromiseBroken
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Certificate, Plan
from shoal.core.task import Query, Task
from shoal.mechanisms.measured import Measured
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.lattice import round_up
from shoal.noise.zero_sum import ZeroSumLaplace
from shoal.queries.external import ExternalQuery
from shoal.queries.learning import sampler_for
from shoal.queries.linear import LinearQuery

NOISE_SERVES = ("entry-dp", "group", "pufferfish", "dependent")  # notions of a noisy number


def laplace_plan(
    task: Task,
    mechanism: str,
    guarantee: Guarantee,
    scale: Fraction | float,
    certificate: Certificate,
    *,
    rules: Callable[[Fraction], tuple[Composition, ...]] = lambda eta: (),
) -> Plan:
    """A plan that adds lattice Laplace noise of at least `scale` (in the query's units).

    The scale is rounded up to a rational. Drawn on a lattice that holds every answer, the noise
    has the density of continuous Laplace noise at a subset of its outputs, with one normaliser for
    all answers, so its loss is at most that of the continuous noise. The plan always carries
    `AsEntryDP(eta)`, eta = L / scale, whatever calibrated it, after its mechanism's own `rules`.
    """
    noise = LatticeLaplace(scale=round_up(scale), step=task.query.lattice)
    return noisy_plan(task, mechanism, guarantee, noise, certificate, rules=rules)


def noisy_plan(
    task: Task,
    mechanism: str,
    guarantee: Guarantee,
    noise: Noise,
    certificate: Certificate,
    *,
    rules: Callable[[Fraction], tuple[Composition, ...]] = lambda eta: (),
) -> Plan:
    """A plan that adds `noise`, whose entry-level eta is the query's Lipschitz constant / scale."""
    body = sampler_for(task.query, noise)
    return Plan(
        mechanism=mechanism,
        task=task,
        body=body,
        cost=noise.expected_error() * len(task.query.labels),
        guarantee=guarantee,
        certificate=certificate,
        composition=(*rules(body.eta), AsEntryDP(body.eta)),
    )


def pufferfish(task: Task, epsilon: Fraction) -> Guarantee:
    """The promise the secrets of `task` ask for, under every model of its family."""
    return Guarantee(
        notion=task.secrets.notion,
        amount=epsilon,
        over=f"{task.secrets.subject}, under every model of the family",
    )


def entry_dp(task: Task, epsilon: Fraction) -> Guarantee:
    """Ordinary differential privacy for one entry, which says nothing about correlation."""
    return Guarantee(notion="entry-dp", amount=epsilon, over="one entry when all others are fixed")


def not_for_numbers(task: Task) -> str | None:
    """Why noise cannot serve the task: it has no number, or its secrets ask for another notion.

    None when noise can; a row's own conditions come after this one.
    """
    if task.query.lipschitz == 0:
        return "the query has no number to add noise to: a stream shows states as they are"
    if task.secrets.notion not in NOISE_SERVES:
        return f"the secrets ask for {task.secrets.notion}, which noise on one number does not give"
    return None


def keeps_total(query: Query) -> bool:
    """Whether every entry adds the same to the sum of all coordinates, so that it is public."""
    return (
        isinstance(query, LinearQuery)
        and len(query.labels) > 1
        and len({sum(row) for row in query.weights}) == 1
    )


def entry_level(plan: Plan) -> Fraction:
    """The entry-level eta of what a plan draws, whatever it says: L / scale, or what is vouched.

    PromiseBroken where it draws no such thing. An external mechanism has the eta it is held to.
    """
    if isinstance(plan.body, Measured) and isinstance(plan.task.query, ExternalQuery):
        return plan.body.eta
    return additive_body(plan).eta


def additive_body(plan: Plan) -> Additive:
    """The body of a plan that draws its task's query with noise that is (L / scale)-DP on it.

    PromiseBroken tells when it draws something else: nothing would follow from its scale.
    """
    body, query = plan.body, plan.task.query
    if not isinstance(body, Additive):
        raise PromiseBroken(f"{plan.mechanism} draws a {type(body).__name__}, which adds no noise")
    if body.query != query or type(body) is not type(sampler_for(query, body.noise)):
        raise PromiseBroken(
            f"the plan of {plan.mechanism} draws another query than its task asks for; "
            "its promise says nothing about that"
        )
    if not _entry_noise(body.noise, query):
        raise PromiseBroken(
            f"the plan of {plan.mechanism} draws {type(body.noise).__name__} noise, which is not "
            "L / scale private for one entry of this query"
        )
    return body


def laplace_body(plan: Plan) -> Additive:
    """`additive_body` of a plan whose noise is independent Laplace noise; PromiseBroken else."""
    body = additive_body(plan)
    if not isinstance(body.noise, LatticeLaplace):
        raise PromiseBroken(
            f"{plan.mechanism} speaks about independent Laplace noise only, and this plan draws "
            f"{body.describe()}"
        )
    return body


def entry_rules(plan: Plan) -> tuple[Composition, ...]:
    """What every additive plan adds by: `AsEntryDP` of what it draws."""
    return (AsEntryDP(entry_level(plan)),)


def _entry_noise(noise: Noise, query: Query) -> bool:
    """Whether noise of its scale is (L / scale)-DP for one entry of `query`."""
    if isinstance(noise, ZeroSumLaplace):
        return keeps_total(query) and noise.dimension == len(query.labels)
    return isinstance(noise, LatticeLaplace)


def float_below(value: Fraction) -> float:
    """The largest double that is not above `value`: a budget or a scale rounds down."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def eta_above(eta: Fraction) -> float:
    """The least double that is not below `eta`, so that a loss evaluated at it rounds up."""
    nearest = float(eta)
    return nearest if Fraction(nearest) >= eta else math.nextafter(nearest, math.inf)
