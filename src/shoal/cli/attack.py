"""`shoal attack`: what an adversary who knows the model believes before and after a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.attack_contexts import attack_day
from shoal.cli.attack_neighbours import attack_places, attack_ties, has_ties
from shoal.cli.calendar import shows_contexts
from shoal.cli.options import AsJson, DataPath, Force, PlotPath, new_app
from shoal.cli.outputs import check_chart
from shoal.cli.release_places import asks_for_places
from shoal.cli.stream_location import follows_places
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.attacks.beliefs import Beliefs
    from shoal.core.plan import Plan
    from shoal.core.records import Sequences
    from shoal.core.release import Release
    from shoal.core.task import Model

app = new_app()

EXAMPLES = """\b
Examples:
  shoal attack shoal.toml days.csv
  shoal attack shoal.toml days.csv --series p1 --scale 1 --plot beliefs.png
  shoal attack places.toml checkins.csv --friends friends.csv --plot friends.png
"""

Column = typer.Option(metavar="COLUMN", help="Overrides the column of the spec's [data].")


@app.command(epilog=EXAMPLES)
def attack(
    source: Annotated[
        Path, typer.Argument(metavar="SPEC", help="A spec, or a plan from `shoal plan --save`.")
    ],
    data: DataPath,
    series: Annotated[
        str | None, typer.Option(help="Whose data to attack; by default the first series.")
    ] = None,
    model: Annotated[
        int, typer.Option(help="Which of the spec's models the adversary holds, from 0.")
    ] = 0,
    scale: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Attack Laplace noise of this scale instead."),
    ] = None,
    state: Annotated[str | None, Column] = None,
    time: Annotated[str | None, Column] = None,
    friends: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For places: two columns of people who are friends."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the noise of the release that is attacked.")] = 0,
    as_json: AsJson = False,
    plot: PlotPath = None,
    force: Force = False,
) -> None:
    """Show what an adversary learns from one release.

    Draws a release of the data under the spec's plan (for this demonstration only: the noise is
    seeded and nothing is published), hands it to somebody who knows the model, and compares what
    that person believes about every entry before and after with the truth.
    """
    from shoal.cli.sources import Columns, load_plan, read_data

    check_chart(plot, force=force)
    plan, own = load_plan(source)
    if friends is not None and not asks_for_places(plan):
        raise InputError("--friends is for a query of kind 'places'; drop it, or ask for places")
    if follows_places(plan):
        raise InputError(
            f"{plan.mechanism} is a stream of places, which this command does not attack; "
            "`shoal stream` and `shoal locations` say with each step what it tells (about_now)"
        )
    if scale is not None:
        plan = _with_scale(plan, scale)
    columns = Columns(state, None, time, None, None).over(own)
    if asks_for_places(plan):
        attack_places(plan, data, columns, friends, seed, as_json=as_json, plot=plot)
        return
    dataset = read_data(data, columns)
    name = series if series is not None else dataset.names[0]
    records = plan.task.read(dataset.sequences(plan.task.query.states, series=name))
    if shows_contexts(plan):
        _member(plan, model)
        attack_day(plan, records, seed, as_json=as_json, plot=plot, adversary=model)
        return
    if has_ties(plan, model):
        attack_ties(plan, model, records, seed, as_json=as_json, plot=plot)
        return
    held = _member(plan, model)
    with show.working("attacking"):
        release, found, note = _attacked(plan, held, records, seed)
    truth = [int(state) for chain in records.chains for state in chain]
    if as_json:
        show.print_json(_object(name, release, found, truth, note))
    else:
        _print(plan, name, release, found, truth, note)
    if plot is not None:
        from shoal.data.files import atomic_write

        atomic_write(plot, belief_chart(found, truth, name))
        if not as_json:
            typer.echo(f"\nThe chart is in {plot}")


def _member(plan: Plan, index: int) -> Model:
    family = plan.task.family
    if not 0 <= index < len(family):
        raise InputError(f"--model is {index}; the spec has models 0 to {len(family) - 1}")
    return family[index]


def _with_scale(plan: Plan, scale: str) -> Plan:
    from dataclasses import replace

    from shoal.core.additive import Additive
    from shoal.core.numbers import positive
    from shoal.noise.laplace import LatticeLaplace

    query = plan.task.query
    noise = LatticeLaplace(positive(scale, "--scale"), query.lattice)
    return replace(plan, body=Additive(query, noise))


def _attacked(
    plan: Plan, held: Model, records: Sequences, seed: int
) -> tuple[Release, Beliefs, str]:
    """A release, what it makes the adversary believe, and what was left out."""
    from shoal.attacks.bayes import attack as learn
    from shoal.attacks.seen import one_number, released
    from shoal.core.errors import Refused
    from shoal.noise.bits import SeededRng

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


def _print(
    plan: Plan, name: str, release: Release, found: Beliefs, truth: list[int], note: str
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
            f"entry {entry + 1} (really {found.values[truth[entry]]!r}): the belief in {first!r} "
            f"went from {before[0]:.1%} to {after[0]:.1%}, in {second!r} from {before[1]:.1%} to "
            f"{after[1]:.1%}; the odds changed by {show.odds(learned.log_odds)}.",
        ),
        (
            "Promised",
            f"that no odds change by more than {show.odds(float(plan.guarantee.amount))} "
            f"({plan.guarantee.notion}).",
        ),
        (
            "Best guess",
            f"expected wrong for {errors[0]:.1%} of the entries before and {errors[1]:.1%} after; "
            f"right for {found.privacy(truth).accuracy:.1%} of them in truth.",
        ),
        ("Uncertainty", f"{bits[0]:.3f} bits an entry before, {bits[1]:.3f} after."),
    ]
    if note:
        lines.append(("Note", note))
    out.print(show.paragraphs("\n".join(f"{title}: {text}" for title, text in lines)))


def _object(
    name: str, release: Release, found: Beliefs, truth: list[int], note: str
) -> dict[str, Any]:
    learned = found.largest_change()
    errors, bits = found.expected_errors(), found.entropies()
    return {
        "series": name,
        "released": dict(zip(release.answer.labels, release.values, strict=True)),
        "states": list(found.values),
        "largest_change": {
            "log_odds": show.finite(learned.log_odds),
            "entry": learned.entry,
            "values": list(learned.values),
        },
        "expected_error": {"before": errors[0], "after": errors[1]},
        "entropy_bits": {"before": bits[0], "after": bits[1]},
        "right_guesses": found.privacy(truth).accuracy,
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
