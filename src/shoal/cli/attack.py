"""`shoal attack`: what somebody who knows the model learns from a release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli import show
from shoal.cli.show import (
    AsJson,
    Column,
    DataPath,
    Every,
    Force,
    Gap,
    Latitude,
    Longitude,
    PlanSource,
    PlotPath,
    SecretsOf,
    Start,
    TimeLimit,
    check_chart,
    limited,
    new_app,
)
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.attacks.beliefs import Beliefs, Knowledge
    from shoal.chains.audit.events import EventBelief
    from shoal.cli.sources import NamedColumns
    from shoal.core.plan import Plan, Release
    from shoal.core.records import Sequences
    from shoal.core.task import Model, Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackWish:
    """For streams of places: the columns of coordinates, and which steps of a track."""

    latitude: str | None = None
    longitude: str | None = None
    every: str | None = None
    start: str | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackWish:
    """Whose data, which adversary, which noise, and how to show what was found.

    `model` is the adversary's model in the spec, `adversary` a stored one in its place; `secrets`
    are those of another spec, whose events are asked about.
    """

    who: str | None
    model: int
    adversary: Path | None
    scale: str | None
    friends: Path | None
    seed: int
    as_json: bool
    plot: Path | None
    track: TrackWish
    secrets: Secrets | None = None


class AttackView(NamedTuple):
    """How a family is attacked: what runs, and which of the options that not all take it takes."""

    run: Callable[[Plan, str, NamedColumns, AttackWish], None]
    takes: tuple[str, ...] = ()


def check_wish(plan: Plan, wish: AttackWish, takes: tuple[str, ...]) -> None:
    """Refuses options that say nothing about this kind of plan."""
    if wish.friends is not None and "friends" not in takes:
        raise InputError("--friends is for a query of kind 'places'; drop it, or ask for places")
    if wish.track != TrackWish() and "track" not in takes:
        raise InputError(
            "--lat, --lon, --every, --start and --steps are for streams of places, and "
            f"{plan.mechanism} is none; drop them"
        )
    if wish.scale is not None and "scale" not in takes:
        raise InputError(
            f"--scale is for single releases, and {plan.mechanism} answers step by step; plan with "
            "another epsilon instead"
        )
    if wish.secrets is not None and "secrets" not in takes:
        raise InputError(
            f"--secrets asks about events over time, and {plan.mechanism} is about something else; "
            "drop it"
        )
    if wish.adversary is not None and "adversary" not in takes:
        raise InputError(
            f"--adversary is for chains, networks and maps; to attack {plan.mechanism} name one of "
            "the spec's models with --model"
        )


def held_by(plan: Plan, wish: AttackWish) -> Model:
    """The model the adversary holds: a stored one, or one of the spec's."""
    if wish.adversary is None:
        return member(plan, wish.model)
    from shoal.spec.fields import load_model
    from shoal.spec.request import check_model

    stored: Model = load_model(wish.adversary, "--adversary")
    check_model(stored, f"--adversary is {str(wish.adversary)!r}")
    return stored


def member(plan: Plan, index: int) -> Model:
    """One of the spec's models."""
    family = plan.task.family
    if not 0 <= index < len(family):
        raise InputError(f"--model is {index}; the spec has models 0 to {len(family) - 1}")
    return family[index]


# `shoal attack`: what an adversary who knows the model believes before and after a release.


app = new_app()

EXAMPLES = """\b
Examples:
  shoal attack shoal.toml days.csv
  shoal attack shoal.toml days.csv --who p1 --scale 0.001 --plot beliefs.png
  shoal attack places.toml checkins.csv --friends friends.csv --plot friends.png
  shoal attack town.toml tracks.csv --lat lat --lon lon --series user --plot track.png
  shoal attack slots.toml days.csv --secrets clinic.toml
"""

Who = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose data to attack; by default the first.")
]
ModelPlace = Annotated[
    int, typer.Option(help="Which of the spec's models the adversary holds, from 0.")
]
AdversaryFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A stored model that the adversary holds instead."),
]
NoiseScale = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="Attack Laplace noise of this scale instead, in the query's unit."
    ),
]
Friends = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="For places: two columns of people who are friends."),
]
MostSteps = Annotated[
    int | None,
    typer.Option(min=1, help="For streams of places: attack at most so many; by default 500."),
]
Seed = Annotated[int, typer.Option(help="Of the noise of the release that is attacked.")]


@app.command(epilog=EXAMPLES)
def attack(
    source: PlanSource,
    data: DataPath,
    who: Who = None,
    model: ModelPlace = 0,
    adversary: AdversaryFile = None,
    scale: NoiseScale = None,
    state: Column = None,
    series: Column = None,
    time: Column = None,
    gap: Gap = None,
    friends: Friends = None,
    latitude: Latitude = None,
    longitude: Longitude = None,
    every: Every = None,
    start: Start = None,
    steps: MostSteps = None,
    secrets: SecretsOf = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    plot: PlotPath = None,
    time_limit: TimeLimit = None,
    force: Force = False,
) -> None:
    """Show what an adversary learns from what is released.

    Draws a release of the data under the spec's plan, or a stream of one person's places (for this
    demonstration only: the noise is seeded and nothing is published), hands it to somebody who
    knows the model, and compares what that person believes before and after with the truth.
    """
    from shoal.cli.sources import NamedColumns, load_plan, secrets_of

    check_chart(plot, force=force)
    track = TrackWish(latitude=latitude, longitude=longitude, every=every, start=start, steps=steps)
    wish = AttackWish(
        who=who,
        model=model,
        adversary=adversary,
        scale=scale,
        friends=friends,
        seed=seed,
        as_json=as_json,
        plot=plot,
        track=track,
        secrets=None if secrets is None else secrets_of(secrets),
    )
    with limited(time_limit) as watch:
        plan, own = load_plan(source)
        columns = NamedColumns(state, series, time, gap, None, latitude, longitude).over(own)
        view = _view_of(plan, model) or AttackView(
            _attack_series, ("scale", "adversary", "secrets")
        )
        check_wish(plan, wish, view.takes)
        if scale is not None:
            from shoal.cli.attack import with_scale

            plan = with_scale(plan, scale)
        view.run(plan, data, columns, wish)
    show.say_cut(watch, "the beliefs are those that were known by then")


def _view_of(plan: Plan, model: int) -> AttackView | None:
    """How the plan's family is attacked; None for entries of a series or variables."""
    from shoal.core.registry import hook

    family = plan.task.family
    held = family[model] if 0 <= model < len(family) else None
    view = hook("attack", plan.body, plan.task.query, held)
    found: AttackView | None = None if view is None else view(plan, held)
    return found


def _attack_series(plan: Plan, data: str, columns: NamedColumns, wish: AttackWish) -> None:
    """The attack on one series of a file of states, or on one record of variables."""
    from shoal.cli.attack import attack_entries

    attack_entries(plan, *chosen_records(plan, data, columns, wish.who), wish)


def chosen_records(
    plan: Plan, data: str, columns: NamedColumns, who: str | None
) -> tuple[str, Any]:
    """The name and the records of the one who is attacked: the first, unless somebody is named."""
    from shoal.cli.sources import series_in

    people = series_in(plan, data, replace(columns, together=None)).reads
    name = next(iter(people)) if who is None else who
    if name not in people:
        shown = ", ".join(map(repr, list(people)[:8])) + (", …" if len(people) > 8 else "")
        raise InputError(f"--who is {name!r}; it must be one of {shown}")
    return name, people[name]()


# `shoal attack` for single releases: beliefs about every entry before and after.


MOST_COMPARED = 2000  # entries for which adversaries who know less and more are shown too


def attack_entries(plan: Plan, name: str, records: Sequences, wish: AttackWish) -> None:
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
    from shoal.attacks.beliefs import attack as learn, one_number, released
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
    from shoal.attacks.beliefs import by_knowledge, released
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
