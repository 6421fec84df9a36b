"""`shoal attack` and `shoal release` for tied records: what friendships and other ties give away
about people, and their places, check-ins in, centroids out."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import typer

from shoal.cli import show
from shoal.cli.attack import AttackOptions, AttackView, chosen_records
from shoal.cli.sources import ALL_SERIES, NamedColumns, ReleaseView, rows_hint
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.plan import Additive, Plan, Release
from shoal.core.progress import doing
from shoal.core.records import shown_names
from shoal.core.task import Model
from shoal.data.read import Paths
from shoal.mechanisms.queries import LinearQuery
from shoal.noise.primitives import SeededRng
from shoal.records.attack import RecordGuesses, bits_allowed, guess_values, largest_fall_bits
from shoal.records.classifier import LinearClassifier
from shoal.records.field import PairwiseField
from shoal.records.kmeans import Centroids
from shoal.records.pairwise import Dependence
from shoal.records.place_attack import (
    City,
    FriendAdversary,
    LocatedPerson,
    People,
    ReleasedCentroids,
    distances_of_pairs,
    locate,
)
from shoal.records.queries import DegreeDistribution
from shoal.records.schema import RecordSchema

MAX_TARGETS = 200  # people attacked, spread evenly over all who have friends
NEAR, FAR, RELEASED, MIDDLE = "#1b7f8c", "#b7c4cc", "#c8553d", "#e0a458"
Curve = tuple[Floats, str, str]  # values, what they are, their colour


def view_of(plan: Plan, held: Model | None) -> AttackView | None:
    """Return how tied records, or people's places, are attacked; None: entry by entry, as anything
    else.

    Records too many to write out are guessed from the values they are tied to.
    """
    query = plan.task.query
    schema: RecordSchema | None = getattr(query, "schema", None)
    if schema is not None or isinstance(query, DegreeDistribution):
        raise InputError(
            "rows of a table and friendships of a graph have no named values that could be guessed "
            "one by one; `shoal audit` measures what their release leaks"
        )
    if isinstance(query, Centroids):
        return AttackView(attack_places, ("friends", "scale"))
    if isinstance(held, Dependence | PairwiseField) and isinstance(plan.task.query, LinearQuery):
        return AttackView(attack_records, ("scale",))
    return None


def _print_attack(
    options: AttackOptions,
    summary: dict[str, Any],
    words: Mapping[str, str],
    chart: Callable[[Any], None],
) -> None:
    """Print an attack as JSON or in words, and write its chart where one is asked for."""
    if options.as_json:
        show.print_json(summary)
    else:
        lines = "\n".join(f"{title}: {text}" for title, text in words.items())
        show.console().print(show.paragraphs(lines))
    if options.plot is not None:
        show.write_chart(options.plot, _png(chart), as_json=options.as_json)


def attack_places(plan: Plan, data: str, columns: NamedColumns, options: AttackOptions) -> None:
    """Locate the people of a file of check-ins who have friends, with and without friendships."""
    if options.friends is None:
        raise InputError(
            "--friends is missing; the attack on places needs a file with two columns of people, "
            "one friendship a row"
        )
    people = people_in(plan, data, columns, options.friends)
    with show.working("attacking"):
        found = _locate_people(plan, people, options.seed)
    summary = _attack_summary(plan, people, found)
    _print_attack(
        options,
        summary,
        _place_words(plan, summary),
        lambda figure: _places_chart(figure, people, found),
    )


def _locate_people(plan: Plan, people: People, seed: int) -> dict[str, list[LocatedPerson]]:
    """Return beliefs before and after one release, without and with friendships."""
    body, query = plan.body, plan.task.query
    assert isinstance(body, Additive)
    assert isinstance(query, Centroids)
    answer = body.draw(query.read(people.vectors), SeededRng(seed))
    seen = ReleasedCentroids(query, answer, float(body.noise.scale), people)
    tied = np.unique(people.friends)
    if not len(tied):
        raise InputError("no two people of the check-ins are friends; check the names in --friends")
    some = tied[np.linspace(0, len(tied) - 1, min(len(tied), MAX_TARGETS)).astype(np.int64)]
    all_known = np.ones(len(people), dtype=bool)
    plain = FriendAdversary(people=people, known=all_known, ties=False)
    social = FriendAdversary(people=people, known=all_known, ties=True)
    asked = {
        "before": (plain, None),
        "friends": (social, None),
        "release": (plain, seen),
        "both": (social, seen),
    }
    found: dict[str, list[LocatedPerson]] = {name: [] for name in asked}
    for number, person in enumerate(some):
        doing("the attack on people", number, len(some))
        for name, (adversary, release) in asked.items():
            found[name].append(locate(adversary, release, int(person)))
    return found


def _attack_summary(
    plan: Plan, people: People, found: dict[str, list[LocatedPerson]]
) -> dict[str, Any]:
    """Return the figures of an attack on places, as JSON values."""
    assert isinstance(plan.body, Additive)
    eta = float(plan.body.eta)
    return {
        "people": len(people),
        "friendships": len(people.friends),
        "attacked": len(found["before"]),
        "mechanism": plan.mechanism,
        "error_km": {name: fmean(one.error_km for one in some) for name, some in found.items()},
        "leaked_bits": {
            name: fmean(one.leaked_bits for one in some) for name, some in found.items()
        },
        "release_bits": {
            name: fmean(one.release_bits for one in found[name]) for name in ("release", "both")
        },
        "entry_epsilon": eta,
        "bits_allowed": bits_allowed(eta),
        "one_output_bits": max(largest_fall_bits(one.before, eta) for one in found["before"]),
    }


def _place_words(plan: Plan, summary: dict[str, Any]) -> dict[str, str]:
    """Return the figures of an attack on places in sentences, by title."""
    errors, bits = summary["error_km"], summary["leaked_bits"]
    added_bits = summary["release_bits"]["both"]
    return {
        "In short": "an adversary who knows the friendships and sees the release locates a user "
        f"within {errors['both']:.1f} km instead of {errors['before']:.1f} km (mean of "
        f"{summary['attacked']} people with friends).",
        "Friendships": f"alone, before any release: {errors['friends']:.1f} km, "
        f"{bits['friends']:.2f} bits. No noise can take this back.",
        "The release": f"alone, by {plan.mechanism}: {errors['release']:.1f} km; it adds "
        f"{added_bits:.3f} bits to what an adversary with the friendships believes.",
        "Allowed": f"{significant(summary['bits_allowed'])} bits on average over releases about "
        "a person all of whose friends are known "
        f"(epsilon·log2 e at {significant(summary['entry_epsilon'])}); one single output can "
        f"make the adversary surer by up to {significant(summary['one_output_bits'])} bits.",
        "Known": f"the places of the other {summary['people'] - 1} people and "
        f"{summary['friendships']} friendships.",
    }


def _places_chart(figure: Any, people: People, found: dict[str, list[LocatedPerson]]) -> None:
    """Draw the errors of the best guesses, and how near friends live, into `figure`."""
    left, right = figure.subplots(1, 2)
    names = {
        "before": ("nothing more", FAR),
        "friends": ("friendships", NEAR),
        "release": ("the release", MIDDLE),
        "both": ("both", RELEASED),
    }
    errors = [
        (np.array([one.error_km for one in found[name]]), label, colour)
        for name, (label, colour) in names.items()
    ]
    _plot_cumulative(
        left, errors, "Located by an adversary who also knows", "error of the best guess, km"
    )
    left.set_ylabel("share of people below")
    close, far = distances_of_pairs(people)
    pairs = [(close, "friends", NEAR), (far, "strangers", FAR)]
    what = "distance between two people's places, km"
    _plot_cumulative(right, pairs, "Friends live near each other", what)


def attack_records(plan: Plan, data: str, columns: NamedColumns, options: AttackOptions) -> None:
    """Guess every record from the values it is tied to and one release."""
    _, records = chosen_records(plan, data, columns, options.who)
    model, query, body = plan.task.family[options.model], plan.task.query, plan.body
    assert isinstance(model, Dependence | PairwiseField)
    assert isinstance(query, LinearQuery)
    assert isinstance(body, Additive)
    answer = plan.release(records, rng=SeededRng(options.seed)).answer
    truth = np.concatenate(records.chains)
    found = guess_values(model, query, np.array(answer.values), float(body.noise.scale), truth)
    summary = _guess_summary(plan, found)
    _print_attack(
        options, summary, _guess_words(plan, summary), lambda figure: _guess_chart(figure, found)
    )


def _guess_summary(plan: Plan, found: RecordGuesses) -> dict[str, Any]:
    """Return the figures of guessed records, as JSON values."""
    beliefs = {
        "alone": found.alone,
        "ties": found.tied,
        "release": found.alone_after,
        "both": found.tied_after,
    }
    return {
        "records": len(found.truth),
        "mechanism": plan.mechanism,
        "right_guesses": {name: found.right(law) for name, law in beliefs.items()},
        "distance": {name: found.distance(law) for name, law in beliefs.items()},
    }


def _guess_words(plan: Plan, summary: dict[str, Any]) -> dict[str, str]:
    """Return the figures of guessed records in sentences, by title."""
    right, apart = summary["right_guesses"], summary["distance"]
    proved = "." if plan.guarantee.proved else ", but that is claimed, not proved."
    return {
        "In short": "an adversary who knows the ties, all other records and the release guesses "
        f"{right['both']:.1%} of the records right instead of {right['alone']:.1%}, off by "
        f"{significant(apart['both'])} on average instead of {significant(apart['alone'])}.",
        "Ties": f"alone, before any release: {right['ties']:.1%} right, off by "
        f"{significant(apart['ties'])}. No noise can take this back.",
        "The release": f"alone, by {plan.mechanism}: {right['release']:.1%} right, off by "
        f"{significant(apart['release'])}.",
        "Promised": "that no odds about one record change by more than "
        f"{show.odds(float(plan.guarantee.amount))} by the release{proved}",
    }


def _guess_chart(figure: Any, found: RecordGuesses) -> None:
    """Draw the beliefs in the true values into `figure`."""
    axes, rows = figure.subplots(), np.arange(len(found.truth))
    laws = [
        (found.alone, "nothing more", FAR),
        (found.tied, "the ties", NEAR),
        (found.tied_after, "ties and release", RELEASED),
    ]
    curves = [(law[rows, found.truth], label, colour) for law, label, colour in laws]
    title = "Believed by an adversary who knows all other records and"
    _plot_cumulative(axes, curves, title, "belief in the true value")
    axes.set_ylabel("share of records below")


def _plot_cumulative(axes: Any, curves: Sequence[Curve], title: str, what: str) -> None:
    """Plot the share of values below each value, one curve per kind."""
    for values, label, colour in curves:
        shares = np.linspace(0, 1, len(values))
        axes.plot(np.sort(values), shares, color=colour, label=label)
    axes.set_xlabel(what)
    axes.set_title(title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _png(draw: Callable[[Any], None]) -> bytes:
    """Return a chart as PNG bytes; `draw` fills the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    draw(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


# `shoal release` for people's places.


def people_in(
    plan: Plan, data: Paths, columns: NamedColumns, friends: Path | None = None
) -> People:
    """Return the people of a file of check-ins, in the box of the plan's query."""
    from shoal.data.entries import people_of, read_table

    if columns.series is None or columns.state is None:
        raise InputError(
            "[data] must name series, the column of people, and state, that of places; add both"
        )
    query = plan.task.query
    assert isinstance(query, Centroids)
    south, west = (float(end) for end in query.low[:2])
    north, east = (float(end) for end in query.high[:2])
    with show.working("reading"):
        table = read_table(data)
        people, _ = people_of(
            table,
            None if friends is None else read_table(friends),
            City(south=south, west=west, north=north, east=east),
            user=columns.series,
            place=columns.state,
            latitude=_coordinate_column(table.columns, "latitude"),
            longitude=_coordinate_column(table.columns, "longitude"),
            top=len(query.columns) // 2,
        )
    return people


def place_records(plan: Plan, data: Paths, columns: NamedColumns) -> dict[str, Any] | None:
    """Return all location vectors as the one record to release, under the name of all together."""
    if not isinstance(plan.task.query, Centroids):
        return None
    return {ALL_SERIES: plan.task.read(people_in(plan, data, columns).vectors)}


def print_centroids(plan: Plan, releases: Mapping[str, Release]) -> None:
    """Print the centroids after the last round, as places: each cluster's most visited place."""
    query = plan.task.query
    assert isinstance(query, Centroids)
    rows = [
        (str(k + 1), f"{centre[0]:.4f}", f"{centre[1]:.4f}")
        for k, centre in enumerate(query.centroids(releases[ALL_SERIES].answer))
    ]
    out = show.console()
    out.print(show.table(("cluster", "latitude", "longitude"), rows, numbers=(1, 2)))
    _warn_of_clamped(query, releases, f"{len(rows)} centres lie on the edge of the box")


def _warn_of_clamped(query: Centroids, releases: Mapping[str, Release], where: str) -> None:
    """Print a warning where noise put coordinates of centres on the edge of what is public."""
    clamped = query.clamped(releases[ALL_SERIES].answer)
    if clamped:
        typer.echo(
            f"WARNING: {clamped} of the {query.start.size} coordinates of the {where}, where noise "
            "put them; ask for fewer clusters or rounds, or allow a larger epsilon.",
            err=True,
        )


def _coordinate_column(present: list[str], name: str) -> str:
    for candidate in (name, name[:3]):
        if candidate in present:
            return candidate
    raise InputError(f"the check-ins have no column {name!r} or {name[:3]!r}; rename theirs")


def table_records(plan: Plan, data: Paths, columns: NamedColumns) -> dict[str, Any]:
    """Return the rows of a table as the one record to release, read by the query's schema.

    Columns that the schema does not declare are left out. A cell is never refused.
    """
    import polars as pl

    from shoal.data.entries import read_table

    query: Any = plan.task.query
    schema: RecordSchema = query.schema
    with show.working("reading"):
        table = read_table(data)
    missing = [name for name in schema.all_names if name not in table.columns]
    if missing:
        raise InputError(
            f"the table has no column {missing[0]!r}, which the query declares; it has "
            f"{shown_names(table.columns)}: correct the name under [query.columns] or in the file"
        )
    wanted = [
        pl.col(name).cast(pl.String if isinstance(column[0], str) else pl.Float64, strict=False)
        for name, column in zip(schema.names, schema.columns, strict=True)
    ]
    labels = [pl.col(schema.label).cast(pl.String)] if schema.label else []
    return {ALL_SERIES: plan.task.read(table.select(*wanted, *labels))}


def edge_records(plan: Plan, data: Paths, columns: NamedColumns) -> dict[str, Any]:
    """Return a table of two columns of people's numbers as the one graph to release."""
    import polars as pl

    from shoal.data.entries import read_table

    with show.working("reading"):
        table = read_table(data)
    if table.width != 2 or not all(kind.is_integer() for kind in table.dtypes):
        raise InputError(
            f"the table has the columns {shown_names(table.columns)}; a graph is two columns of "
            "whole numbers, the two people of a friendship, numbered from 0: drop other columns "
            "and number the people"
        )
    return {ALL_SERIES: plan.task.read(table.cast(pl.Int64).to_numpy())}


def print_clusters(plan: Plan, releases: Mapping[str, Release]) -> None:
    """Print the centroids after the last round, in the units of the columns."""
    query: Any = plan.task.query
    answer = releases[ALL_SERIES].answer
    rows = [
        (str(k + 1), *(significant(value) for value in centre))
        for k, centre in enumerate(query.centroids(answer).tolist())
    ]
    numbers = tuple(range(1, len(query.columns) + 1))
    show.console().print(show.table(("cluster", *query.columns), rows, numbers=numbers))
    _warn_of_clamped(query, releases, f"{len(rows)} centres lie on the edge of the ranges")


def print_weights(plan: Plan, releases: Mapping[str, Release]) -> None:
    """Print the weight of each feature, and how they are used."""
    query: Any = plan.task.query
    answer = releases[ALL_SERIES].answer
    rows = [
        (name, f"{value:.4g}") for name, value in zip(answer.labels, answer.values, strict=True)
    ]
    out = show.console()
    out.print(show.table(("feature", "weight"), rows, numbers=(1,)))
    out.print(
        f"A row is of class {query.schema.classes[1]!r} if the weights times its features, each "
        "from 0 to 1, add up to more than 0."
    )


def print_degrees(plan: Plan, releases: Mapping[str, Release]) -> None:
    """Print how many people have how many friends, in ranges that double."""
    query: Any = plan.task.query
    counts = query.histogram(releases[ALL_SERIES].answer)
    ends = [0, 1, *(2**k for k in range(1, 40) if 2**k <= query.cap)]
    rows = []
    for first, after in zip(ends, [*ends[1:], query.cap + 1], strict=True):
        last = after - 1
        degrees = str(first) if last == first else f"{first} to {last}"
        degrees += " or more" if last == query.cap else ""
        rows.append((degrees, f"{counts[first:after].sum():.0f}"))
    out = show.console()
    out.print(show.table(("friends", "people"), rows, numbers=(1,)))


def release_view(plan: Plan) -> ReleaseView:
    """Return how tied records are read; tables and people's places are one release of all rows."""
    query = plan.task.query
    if isinstance(query, DegreeDistribution):
        return ReleaseView(read=edge_records, tell=print_degrees, whole=True)
    if isinstance(query, LinearClassifier) and query.schema is not None:
        return ReleaseView(read=table_records, tell=print_weights, whole=True)
    if isinstance(query, Centroids) and query.schema is not None:
        return ReleaseView(read=table_records, tell=print_clusters, whole=True)
    if isinstance(query, Centroids):
        return ReleaseView(read=place_records, tell=print_centroids, whole=True)
    return ReleaseView(hint=_series_hint)


def _series_hint(plan: Plan, columns: NamedColumns) -> str:
    """Return what is likely wrong when rows of people are treated separately, but people are the
    entries.
    """
    if columns.series is None or not isinstance(plan.task.family[0], Dependence | PairwiseField):
        return ""
    return rows_hint(columns.series)
