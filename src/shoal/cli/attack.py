"""`shoal attack`: what an adversary who knows the model learns from a release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import InputError, Refused, ShoalError
from shoal.core.numbers import finite, positive, significant

if TYPE_CHECKING:
    from shoal.attacks.beliefs import Beliefs, Knowledge
    from shoal.chains.audit.events import EventBelief
    from shoal.cli.sources import NamedColumns
    from shoal.core.plan import Plan, Release
    from shoal.core.records import Sequences
    from shoal.core.task import Model, Secrets

app = options.new_app()

EXAMPLES = """\b
Examples:
  shoal attack shoal.toml days.csv
  shoal attack shoal.toml days.csv --who p1 --scale 0.001 --plot beliefs.png
  shoal attack places.toml checkins.csv --friends friends.csv --plot friends.png
  shoal attack town.toml tracks.csv --lat lat --lon lon --series user --plot track.png
  shoal attack slots.toml days.csv --secrets clinic.toml
  shoal attack share out/
"""
SHARED = Path("share")  # in place of a spec: the data are a folder of `shoal share`
MOST_COMPARED = 2000  # entries up to which adversaries who know less or more are shown


@dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """The options of `shoal attack`: the data, the adversary, the noise and the output.

    `model` is the adversary's model in the spec, `adversary` a stored one in its place.
    """

    source: options.PlanSource
    data: options.DataPath
    who: Annotated[str | None, option("NAME", "Whose data to attack; by default the first.")] = None
    model: Annotated[
        int, option(None, "Which of the spec's models the adversary holds, from 0.")
    ] = 0
    adversary: Annotated[
        Path | None, option("FILE", "A stored model that the adversary holds instead.")
    ] = None
    scale: Annotated[
        str | None,
        option("NUMBER", "Attack Laplace noise of this scale instead, in the query's unit."),
    ] = None
    state: options.Column = None
    series: options.Column = None
    time: options.Column = None
    gap: options.Gap = None
    friends: Annotated[
        Path | None, option("FILE", "For places: two columns of people who are friends.")
    ] = None
    latitude: options.Latitude = None
    longitude: options.Longitude = None
    every: options.Every = None
    start: options.Start = None
    steps: Annotated[
        int | None,
        option(None, "For streams of places: attack at most so many; by default 500.", min=1),
    ] = None
    secrets_spec: options.SecretsOf = None
    seed: Annotated[int, option(None, "Of the noise of the release that is attacked.")] = 0
    as_json: options.AsJson = False
    plot: options.PlotPath = None
    time_limit: options.TimeLimit = None
    force: options.Force = False

    @cached_property
    def secrets(self) -> Secrets | None:
        """The secrets of the spec named by --secrets, whose events the attack asks about."""
        from shoal.cli.sources import secrets_of

        found: Secrets | None = None if self.secrets_spec is None else secrets_of(self.secrets_spec)
        return found


class AttackView(NamedTuple):
    """How a family is attacked: the function to run, and the optional options that it accepts."""

    run: Callable[[Plan, str, NamedColumns, AttackOptions], None]
    takes: tuple[str, ...] = ()


# options that only some kinds of plans accept, and the refusal for the other kinds
ONLY_FOR = {
    "friends": "--friends is for a query of kind 'places'; drop it, or ask for places",
    "track": "--lat, --lon, --every, --start and --steps are for streams of places, and {} is "
    "none; drop them",
    "scale": "--scale is for single releases, and {} answers step by step; plan with another "
    "epsilon instead",
    "secrets": "--secrets asks about events over time, and {} is about something else; drop it",
    "adversary": "--adversary is for chains, networks and maps; to attack {} name one of the "
    "spec's models with --model",
}
TRACK = ("latitude", "longitude", "every", "start", "steps")


def refuse_inapplicable_options(plan: Plan, options: AttackOptions, takes: tuple[str, ...]) -> None:
    """Refuse options that do not apply to this kind of plan."""
    for what, sentence in ONLY_FOR.items():
        given = TRACK if what == "track" else (what,)
        if what not in takes and any(getattr(options, name) is not None for name in given):
            raise InputError(sentence.format(plan.mechanism))


def held_by(plan: Plan, options: AttackOptions) -> Model:
    """Return the adversary's model: a stored one, or one of the spec's."""
    if options.adversary is None:
        return member(plan, options.model)
    from shoal.spec.fields import load_model
    from shoal.spec.stored import check_model

    stored: Model = load_model(options.adversary, "--adversary")
    check_model(stored, f"--adversary is {str(options.adversary)!r}")
    return stored


def member(plan: Plan, index: int) -> Model:
    """Return one of the spec's models."""
    family = plan.task.family
    if not 0 <= index < len(family):
        raise InputError(f"--model is {index}; the spec has models 0 to {len(family) - 1}")
    return family[index]


@app.command(epilog=EXAMPLES)
@options.takes(AttackOptions)
def attack(options: AttackOptions) -> None:
    """Show what an adversary learns from what is released.

    Draws a release of the data under the spec's plan, or a stream of one person's places (for this
    demonstration only: the noise is seeded and nothing is published), hands it to somebody who
    knows the model, and compares what that person believes before and after with the truth.
    """
    from shoal.cli.sources import columns_in, load_plan

    if options.source == SHARED:
        from shoal.cli.share import attack_shared

        attack_shared(Path(options.data), as_json=options.as_json)
        return
    show.check_chart(options.plot, force=options.force)
    _ = options.secrets  # refused before a plan is made, where the spec that names them is
    with show.limit_time(options.time_limit) as watch:
        plan, own = load_plan(options.source)
        columns = replace(columns_in(options), every=None).over(own).with_own(options.data)
        view = _view_of(plan, options.model)
        refuse_inapplicable_options(plan, options, view.takes)
        if options.scale is not None:
            plan = with_scale(plan, options.scale)
        view.run(plan, options.data, columns, options)
    show.say_cut(watch, "the beliefs are those that were known by then")


def _view_of(plan: Plan, model: int) -> AttackView:
    """Return how the plan's family is attacked; by default entry by entry."""
    from shoal.core.family import act_of

    family = plan.task.family
    held = family[model] if 0 <= model < len(family) else None
    view = act_of("show_attack", plan.body, plan.task.query, held)
    found: AttackView | None = None if view is None else view(plan, held)
    return found or AttackView(attack_entries, ("scale", "adversary", "secrets"))


def chosen_records(
    plan: Plan, data: str, columns: NamedColumns, who: str | None
) -> tuple[str, Any]:
    """Return name and records of the attacked series: the named one, else the first."""
    from shoal.cli.sources import series_in

    people = series_in(plan, data, replace(columns, together=None)).reads
    name = next(iter(people)) if who is None else who
    if name not in people:
        shown = ", ".join(map(repr, list(people)[:8])) + (", …" if len(people) > 8 else "")
        raise InputError(f"--who is {name!r}; it must be one of {shown}")
    return name, people[name]()


class SeriesAttack(NamedTuple):
    """A release of one series, the adversary's beliefs after it, and the truth.

    `note` says what was left out. `known` holds the beliefs of adversaries who know less or more.
    """

    name: str
    truth: list[int]
    release: Release
    beliefs: Beliefs
    note: str
    known: Knowledge | None
    events: tuple[EventBelief, ...]


def attack_entries(plan: Plan, data: str, columns: NamedColumns, options: AttackOptions) -> None:
    """Draw a release of one series, or one record of variables, and print what it reveals."""
    name, records = chosen_records(plan, data, columns, options.who)
    held = held_by(plan, options)
    if options.adversary is not None:
        _check_states(plan, held)
    with show.working("attacking"):
        release, beliefs, note = _attack_release(plan, held, records, options.seed)
        truth = [int(state) for chain in records.chains for state in chain]
        known = None if note else _by_knowledge(plan, held, records, release)
        events = _event_beliefs(plan, release, truth, options.secrets)
    found = SeriesAttack(name, truth, release, beliefs, note, known, events)
    if options.as_json:
        show.print_json(_attack_object(found))
    else:
        named = getattr(held, "variables", None) or getattr(plan.task.query, "variables", None)
        entries = named or [f"entry {i + 1}" for i in range(len(truth))]
        lines = _attack_lines(plan, found, entries, options.scale is None)
        words = "\n".join(f"{title}: {text}" for title, text in lines)
        show.console().print(show.paragraphs(words))
    drawn = None if options.plot is None else belief_chart(beliefs, truth, name)
    show.write_chart(options.plot, drawn, as_json=options.as_json)


def _check_states(plan: Plan, held: Model) -> None:
    """Refuse an adversary's model whose entries have other states than the query's."""
    states = held.states
    if states is not None and states != plan.task.query.states:
        raise InputError(
            f"--adversary has the states {list(states)}; the query counts "
            f"{list(plan.task.query.states)}: give a model on these, in this order"
        )


def with_scale(plan: Plan, scale: str) -> Plan:
    """Return the plan with Laplace noise of another scale, which its guarantee does not cover."""
    from shoal.core.plan import Additive
    from shoal.noise.laplace import LatticeLaplace

    query = plan.task.query
    noise = LatticeLaplace(positive(scale, "--scale"), query.lattice)
    return replace(plan, mechanism=f"Laplace noise of scale {scale}", body=Additive(query, noise))


def _attack_release(
    plan: Plan, held: Model, records: Sequences, seed: int
) -> tuple[Release, Beliefs, str]:
    """Return a release, the adversary's beliefs after it, and a note of what was left out."""
    from shoal.attacks.beliefs import attack as learn, one_number, released
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
    """Return the beliefs of adversaries who know less or more; None where they are infeasible."""
    from shoal.attacks.beliefs import by_knowledge, released

    truth = [int(state) for chain in records.chains for state in chain]
    if len(truth) > MOST_COMPARED:
        return None
    lengths = [len(chain) for chain in records.chains]
    try:
        return by_knowledge(held, [released(plan, release)], lengths, truth)
    except ShoalError:  # too many sums, or data with probability 0 under the adversary's model
        return None


def _attack_lines(
    plan: Plan, found: SeriesAttack, entries: Sequence[str], planned: bool
) -> list[tuple[str, str]]:
    """Return the attack in words, each line with its title; `planned`: the noise is the plan's."""
    beliefs, release = found.beliefs, found.release
    learned = beliefs.largest_change()
    entry, (first, second) = learned.entry, learned.values
    places = [beliefs.values.index(first), beliefs.values.index(second)]
    before, after = beliefs.before[entry, places], beliefs.after[entry, places]
    errors, bits = beliefs.expected_errors(), beliefs.entropies()
    values = ", ".join(f"{name} {significant(value)}" for name, value in release.as_dict().items())
    lines = [
        ("Released", f"{values} {release.answer.unit}, by {plan.mechanism}, about {found.name}"),
        (
            "Most learned",
            f"{entries[entry]} (really {beliefs.values[found.truth[entry]]!r}): the belief in "
            f"{first!r} went from {before[0]:.1%} to {after[0]:.1%}, in {second!r} from "
            f"{before[1]:.1%} to {after[1]:.1%}; the odds changed by "
            f"{show.odds(learned.log_odds)}.",
        ),
        *_event_lines(found.events),
        _promise_text(plan, planned=planned),
        (
            "Best guess",
            f"expected wrong for {errors[0]:.1%} of the entries before and {errors[1]:.1%} after; "
            f"right for {beliefs.privacy(found.truth).accuracy:.1%} of them in truth.",
        ),
        ("Uncertainty", f"{bits[0]:.3f} bits an entry before, {bits[1]:.3f} after."),
    ]
    if found.known is not None:
        weak, _, strong = found.known.log_odds()
        lines.append(
            (
                "Other knowledge",
                f"for somebody who takes entries for independent odds change by {show.odds(weak)}, "
                f"for somebody who knows all other entries by {show.odds(strong)}.",
            )
        )
    return [*lines, ("Note", found.note)] if found.note else lines


def _event_beliefs(
    plan: Plan, release: Release, truth: list[int], asked: Secrets | None
) -> tuple[EventBelief, ...]:
    """Return the belief before and after in each event that the plan hides or --secrets names."""
    from shoal.audit.case import AuditCase
    from shoal.chains.audit.events import event_beliefs
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
    """Return one titled line per event: the belief before and after, and the change of odds."""
    return [
        (
            f"Event {number}",
            f"{one.event.describe()} ({'it did' if one.happened else 'it did not'} happen): the "
            f"belief went from {one.before:.1%} to {one.after:.1%}; its odds changed by "
            f"{show.odds(abs(one.log_odds))}.",
        )
        for number, one in enumerate(events, start=1)
    ]


def _promise_text(plan: Plan, *, planned: bool) -> tuple[str, str]:
    """Return the plan's guarantee in words, or that the noise was not calibrated for the spec."""
    from shoal.core.task import each_entry

    of = "" if each_entry(plan.task.secrets) else f" of {plan.task.secrets.subject}"
    most = f"that no odds{of} change by more than {show.odds(float(plan.guarantee.amount))}"
    if planned:
        return "Promised", f"{most} ({plan.guarantee.notion})."
    return "Promised", f"nothing: the noise was given by --scale. The spec wants {most}."


def _attack_object(found: SeriesAttack) -> dict[str, Any]:
    """Return the JSON object of an attack; infinite numbers become null."""
    beliefs, known = found.beliefs, found.known
    learned, rise = beliefs.largest_change(), beliefs.largest_rise()
    errors, bits = beliefs.expected_errors(), beliefs.entropies()
    privacy = beliefs.privacy(found.truth)
    kinds = (
        ()
        if known is None
        else zip(known._fields, known.log_ratios(), known.log_odds(), strict=True)
    )
    return {
        "series": found.name,
        "released": found.release.as_dict(),
        "states": list(beliefs.values),
        "largest_change": {
            "log_odds": finite(learned.log_odds),
            "entry": learned.entry,
            "values": list(learned.values),
        },
        "largest_rise": {
            "log_ratio": finite(rise.log_ratio),
            "entry": rise.entry,
            "value": rise.value,
        },
        "expected_error": {"before": errors[0], "after": errors[1]},
        "entropy_bits": {"before": bits[0], "after": bits[1]},
        "right_guesses": privacy.accuracy,
        "correctness": privacy.correctness,
        "before": beliefs.before.tolist(),
        "after": beliefs.after.tolist(),
        "note": found.note,
        "adversaries": None
        if known is None
        else {
            kind: {"log_ratio": finite(ratio), "log_odds": finite(odds)}
            for kind, ratio, odds in kinds
        },
        "events": [
            {
                "event": one.event.describe(),
                "happened": one.happened,
                "before": one.before,
                "after": one.after,
                "log_odds": finite(one.log_odds),
            }
            for one in found.events
        ],
    }


def belief_chart(found: Beliefs, truth: list[int], name: str) -> bytes:
    """Return a PNG of the belief in the true value of each entry, before and after."""
    from matplotlib.figure import Figure

    from shoal.cli.charts import ALARM, OTHER, _png

    entries = range(1, len(truth) + 1)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    for table, label, colour in (
        (found.before, "before the release", OTHER),
        (found.after, "after it", ALARM),
    ):
        axes.plot(entries, table[range(len(truth)), truth], label=label, color=colour)
    axes.set_ylim(0, 1)
    axes.set_xlabel("entry")
    axes.set_ylabel("belief in the true value")
    axes.set_title(f"What somebody who knows the model believes about {name}")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)
