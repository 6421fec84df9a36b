"""What a day leaks whose sensitive contexts are hidden, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.cli import show
from shoal.cli.leak import StreamLeak
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.events.secrets import Events

if TYPE_CHECKING:
    from shoal.spec.request import Request

NAIVE = "mask-sensitive"


def _leak_of_events(request: Request) -> StreamLeak:
    """What hiding exactly the contexts that events name gives away, on random days."""
    from shoal.contexts.attack import naive_event_rises

    task, amount = request.task, request.epsilon()
    with show.working("measuring"):
        found = naive_event_rises(task, amount)
    plain = show.console().options.ascii_only
    sentence = "; ".join(
        f"the belief in having been {name} goes from {before:.2f} up to {most:.2f}"
        for name, before, most in found
    )
    rows = [
        (name, f"{before:.2f} -> {most:.2f}", show.bar(most, 1.0, ascii_only=plain))
        for name, before, most in found
    ]
    rises = [most - before for _, before, most in found]
    unit = "belief_delta" if task.secrets.notion == "delta-privacy" else "epsilon"
    return StreamLeak(
        {
            unit: float(amount),
            "mechanism": NAIVE,
            "events": [{"event": n, "before": b, "most": m} for n, b, m in found],
            "in_words": sentence,
        },
        (
            "Hiding exactly the contexts that events name and showing all others is what people "
            "try first. The gap itself tells:",
            f"On 24 random days {sentence}. `shoal plan` finds what can be shown safely.",
        ),
        ("event", "belief", ""),
        rows,
        ([name for name, *_ in found], rises, float(amount)),
    )


def leak_of_contexts(request: Request, eta: str | None) -> StreamLeak:
    """What hiding exactly the sensitive contexts gives away."""
    from shoal.additive.choice import choose
    from shoal.contexts.checks.task import MaskCertificate

    if eta is not None:
        raise InputError(
            f"--eta is {eta}, but contexts are hidden without noise, so there is no epsilon; drop "
            "it: what may be learned is privacy.belief_delta"
        )
    task, delta = request.task, request.epsilon()
    if isinstance(task.secrets, Events):
        return _leak_of_events(request)
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
