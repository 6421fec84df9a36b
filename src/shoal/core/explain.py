"""A plan in plain words: what is protected, from whom, how much noise, why, and what it adds to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.plan import Plan


def explain(plan: Plan) -> str:
    """Several short paragraphs, one question each, for a person who has to act on them."""
    error = plan.error()
    parts = [
        ("Asked", plan.task.query.describe()),
        ("Protected", plan.task.secrets.describe()),
        ("From", _adversary(plan)),
        ("Promise", plan.guarantee.describe()),
        ("Mechanism", f"{plan.mechanism}: {plan.body.describe()}."),
        ("Error", f"each value is {error.describe()}." if error else ""),
        ("Why it holds", f"{plan.certificate.theorem}."),
        ("Assumes", "; ".join(plan.certificate.assumptions) + "."),
        ("Adding up", "; or ".join(rule.describe() for rule in plan.composition) + "."),
    ]
    width = max(len(title) for title, _ in parts) + 2
    return "\n".join(f"{title + ':':<{width}}{text}" for title, text in parts if text)


def _adversary(plan: Plan) -> str:
    models = [model.describe() for model in plan.task.family]
    shown = models[:3] + ([f"{len(models) - 3} more models"] if len(models) > 3 else [])
    return "an adversary who knows everything but the data, and may believe " + "; or ".join(shown)
