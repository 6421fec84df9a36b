"""`shoal attack` for single releases: beliefs about every entry before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from shoal.cli import show
from shoal.cli.attack import Wish, held_by
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.attacks.beliefs import Beliefs, Knowledge
    from shoal.chains.audit.events import EventBelief
    from shoal.core.plan import Plan, Release
    from shoal.core.records import Sequences
    from shoal.core.task import Model, Secrets

MOST_COMPARED = 2000  # entries for which adversaries who know less and more are shown too


def attack_entries(plan: Plan, name: str, records: Sequences, wish: Wish) -> None:
    """Draws a release about `name` and shows what it makes the adversary believe."""
    held = held_by(plan, wish)
    if wish.adversary is not None:
        _check_states(plan, held)
    with show.working("attacking"):
        release, found, note = _attacked(plan, held, records, wish.seed)
        truth = [int(state) for chain in records.chains for state in chain]
        known = None if note else _by_knowledge(plan, held, records, release)
        events = _events(plan, release, truth, wish.secrets)
    entries = _entry_names(plan, held, len(truth))
    if wish.as_json:
        told = {**_kinds(known), "events": _event_objects(events)}
        show.print_json({**_object(name, release, found, truth, note), **told})
    else:
        planned = wish.scale is None
        _print(plan, name, release, found, truth, note, entries, known, events, planned=planned)
    if wish.plot is not None:
        from shoal.data.write import atomic_write

        atomic_write(wish.plot, belief_chart(found, truth, name))
        if not wish.as_json:
            typer.echo(f"\nThe chart is in {wish.plot}")


def _check_states(plan: Plan, held: Model) -> None:
    """Refuses an adversary whose entries take other values than the query's."""
    states = held.states
    if states is not None and states != plan.task.query.states:
        raise InputError(
            f"--adversary has the states {list(states)}; the query counts "
            f"{list(plan.task.query.states)}: give a model on these, in this order"
        )


def _entry_names(plan: Plan, held: Model, count: int) -> list[str]:
    """What to call the entries: by variable where they have names, else by number."""
    names = getattr(held, "variables", None) or getattr(plan.task.query, "variables", None)
    return list(names) if names else [f"entry {i + 1}" for i in range(count)]


def with_scale(plan: Plan, scale: str) -> Plan:
    """The plan with Laplace noise of another scale, which its promise says nothing about."""
    from dataclasses import replace

    from shoal.core.numbers import positive
    from shoal.core.plan import Additive
    from shoal.noise.laplace import LatticeLaplace

    query = plan.task.query
    noise = LatticeLaplace(positive(scale, "--scale"), query.lattice)
    return replace(plan, mechanism=f"Laplace noise of scale {scale}", body=Additive(query, noise))


def _attacked(
    plan: Plan, held: Model, records: Sequences, seed: int
) -> tuple[Release, Beliefs, str]:
    """A release, what it makes the adversary believe, and what was left out."""
    from shoal.attacks.beliefs import attack as learn
    from shoal.attacks.seen import one_number, released
    from shoal.core.errors import Refused
    from shoal.noise.primitives import SeededRng

    release = plan.release(records, rng=SeededRng(seed))
    lengths = [len(chain) for chain in records.chains]
    try:
        return release, learn(held, [released(plan, release)], lengths), ""
    except Refused:
        if len(release.values) == 1:
            raise
    beliefs = [
        learn(held, [one_number(plan, release, label)], lengths)
        for label in range(len(release.values))
    ]
    place = max(range(len(beliefs)), key=lambda i: beliefs[i].largest_change().log_odds)
    note = (
        f"The adversary looked at {release.answer.labels[place]!r} alone, the most telling of "
        f"{len(beliefs)} numbers: all together are too many to work through. They tell no less."
    )
    return release, beliefs[place], note


def _by_knowledge(
    plan: Plan, held: Model, records: Sequences, release: Release
) -> Knowledge | None:
    """What somebody who knows less or more believes; None where that is out of reach."""
    from shoal.attacks.beliefs import by_knowledge
    from shoal.attacks.seen import released
    from shoal.core.errors import ShoalError

    truth = [int(state) for chain in records.chains for state in chain]
    if len(truth) > MOST_COMPARED:
        return None
    lengths = [len(chain) for chain in records.chains]
    try:
        return by_knowledge(held, [released(plan, release)], lengths, truth)
    except ShoalError:  # too many sums, or data the adversary's model calls impossible
        return None


def _kinds(known: Knowledge | None) -> dict[str, Any]:
    """For every kind of adversary the largest log posterior/prior ratio and change of odds."""
    if known is None:
        return {"adversaries": None}
    rows = zip(known._fields, known.log_ratios(), known.log_odds(), strict=True)
    return {
        "adversaries": {
            kind: {"log_ratio": show.finite(ratio), "log_odds": show.finite(odds)}
            for kind, ratio, odds in rows
        }
    }


def _print(
    plan: Plan,
    name: str,
    release: Release,
    found: Beliefs,
    truth: list[int],
    note: str,
    entries: list[str],
    known: Knowledge | None,
    events: tuple[EventBelief, ...],
    *,
    planned: bool,
) -> None:
    from shoal.core.numbers import significant

    out = show.console()
    learned = found.largest_change()
    entry, (first, second) = learned.entry, learned.values
    places = [found.values.index(first), found.values.index(second)]
    before, after = found.before[entry, places], found.after[entry, places]
    errors, bits = found.expected_errors(), found.entropies()
    values = ", ".join(
        f"{label} {significant(value)}"
        for label, value in zip(release.answer.labels, release.values, strict=True)
    )
    lines = [
        ("Released", f"{values} {release.answer.unit}, by {plan.mechanism}, about {name}"),
        (
            "Most learned",
            f"{entries[entry]} (really {found.values[truth[entry]]!r}): the belief in {first!r} "
            f"went from {before[0]:.1%} to {after[0]:.1%}, in {second!r} from {before[1]:.1%} to "
            f"{after[1]:.1%}; the odds changed by {show.odds(learned.log_odds)}.",
        ),
        *_event_lines(events),
        _promised(plan, planned=planned),
        (
            "Best guess",
            f"expected wrong for {errors[0]:.1%} of the entries before and {errors[1]:.1%} after; "
            f"right for {found.privacy(truth).accuracy:.1%} of them in truth.",
        ),
        ("Uncertainty", f"{bits[0]:.3f} bits an entry before, {bits[1]:.3f} after."),
    ]
    if known is not None:
        weak, _, strong = known.log_odds()
        lines.append(
            (
                "Other knowledge",
                f"for somebody who takes entries for independent odds change by {show.odds(weak)}, "
                f"for somebody who knows all other entries by {show.odds(strong)}.",
            )
        )
    if note:
        lines.append(("Note", note))
    out.print(show.paragraphs("\n".join(f"{title}: {text}" for title, text in lines)))


def _events(
    plan: Plan, release: Release, truth: list[int], asked: Secrets | None
) -> tuple[EventBelief, ...]:
    """The belief in each event, before and after: those the plan hides, or those asked about."""
    from shoal.audit.case import AuditCase
    from shoal.chains.audit.events import event_beliefs
    from shoal.core.errors import InputError, Refused
    from shoal.core.plan import Additive
    from shoal.core.task import as_events
    from shoal.noise.laplace import is_zero_sum

    secrets = as_events(plan.task.secrets if asked is None else asked)
    body, model = plan.body, plan.task.family[0]
    if asked is not None and secrets is None:
        raise InputError("--secrets names no events; give a spec with [[secrets.event]]")
    if secrets is None or not isinstance(body, Additive) or len(truth) != model.tied:
        return ()
    query: Any = body.query
    if is_zero_sum(body.noise):
        return ()
    if asked is not None:
        secrets.check((model,))
    try:
        case = AuditCase(query, body.noise, secrets, model)
        return tuple(event_beliefs(case, release.values, truth))
    except Refused:
        return ()


def _event_lines(events: tuple[EventBelief, ...]) -> list[tuple[str, str]]:
    return [
        (
            f"Event {number}",
            f"{one.event.describe()} ({'it did' if one.happened else 'it did not'} happen): the "
            f"belief went from {one.before:.1%} to {one.after:.1%}; its odds changed by "
            f"{show.odds(abs(one.log_odds))}.",
        )
        for number, one in enumerate(events, start=1)
    ]


def _event_objects(events: tuple[EventBelief, ...]) -> list[dict[str, Any]]:
    return [
        {
            "event": one.event.describe(),
            "happened": one.happened,
            "before": one.before,
            "after": one.after,
            "log_odds": show.finite(one.log_odds),
        }
        for one in events
    ]


def _promised(plan: Plan, *, planned: bool) -> tuple[str, str]:
    """What the plan promises, or what the spec wants and this noise was not made for."""
    from shoal.core.task import each_entry

    of = "" if each_entry(plan.task.secrets) else f" of {plan.task.secrets.subject}"
    most = f"that no odds{of} change by more than {show.odds(float(plan.guarantee.amount))}"
    if planned:
        return "Promised", f"{most} ({plan.guarantee.notion})."
    return "Promised", f"nothing: the noise was given by --scale. The spec wants {most}."


def _object(
    name: str, release: Release, found: Beliefs, truth: list[int], note: str
) -> dict[str, Any]:
    learned = found.largest_change()
    errors, bits = found.expected_errors(), found.entropies()
    rise, privacy = found.largest_rise(), found.privacy(truth)
    return {
        "series": name,
        "released": dict(zip(release.answer.labels, release.values, strict=True)),
        "states": list(found.values),
        "largest_change": {
            "log_odds": show.finite(learned.log_odds),
            "entry": learned.entry,
            "values": list(learned.values),
        },
        "largest_rise": {
            "log_ratio": show.finite(rise.log_ratio),
            "entry": rise.entry,
            "value": rise.value,
        },
        "expected_error": {"before": errors[0], "after": errors[1]},
        "entropy_bits": {"before": bits[0], "after": bits[1]},
        "right_guesses": privacy.accuracy,
        "correctness": privacy.correctness,
        "before": found.before.tolist(),
        "after": found.after.tolist(),
        "note": note,
    }


def belief_chart(found: Beliefs, truth: list[int], name: str) -> bytes:
    """A PNG: the belief in the true value of each entry, before and after."""
    import io

    from matplotlib.figure import Figure

    entries = range(1, len(truth) + 1)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    for table, label, colour in (
        (found.before, "before the release", "#b7c4cc"),
        (found.after, "after it", "#c8553d"),
    ):
        axes.plot(entries, table[range(len(truth)), truth], label=label, color=colour)
    axes.set_ylim(0, 1)
    axes.set_xlabel("entry")
    axes.set_ylabel("belief in the true value")
    axes.set_title(f"What somebody who knows the model believes about {name}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
