"""What all rows with additive Laplace noise share: from a scale to a plan, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shoal.core.additive import Additive, Noise
from shoal.core.composition import AsEntryDP, Composition
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Certificate, Plan
from shoal.core.task import Task
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.lattice import round_up
from shoal.queries.learning import sampler_for

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


def pufferfish(task: Task, epsilon: Fraction, **rest: object) -> Guarantee:
    """The promise the secrets of `task` ask for, under every model of its family."""
    return Guarantee(
        notion=task.secrets.notion,
        amount=epsilon,
        over=f"{task.secrets.subject}, under every model of the family",
        **rest,  # type: ignore[arg-type]
    )


def not_for_numbers(task: Task) -> str | None:
    """Why noise cannot serve the task: it has no number, or its secrets ask for another notion.

    None when noise can; a row's own conditions come after this one.
    """
    if task.query.lipschitz == 0:
        return "the query has no number to add noise to: a stream shows states as they are"
    if task.secrets.notion not in NOISE_SERVES:
        return f"the secrets ask for {task.secrets.notion}, which noise on one number does not give"
    return None


def laplace_body(plan: Plan) -> Additive:
    """The additive body of a plan made by `laplace_plan`."""
    if not isinstance(plan.body, Additive):
        raise TypeError(f"{plan.mechanism} plan with a {type(plan.body).__name__} body")
    return plan.body


def float_below(value: Fraction) -> float:
    """The largest double that is not above `value`: a budget or a scale rounds down."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def eta_above(eta: Fraction) -> float:
    """The least double that is not below `eta`, so that a loss evaluated at it rounds up."""
    nearest = float(eta)
    return nearest if Fraction(nearest) >= eta else math.nextafter(nearest, math.inf)
