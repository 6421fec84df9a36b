"""Figures 3, 5 and 10 of the dependent-DP paper: locating people from released centroids."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Ints
from shoal.core.plan import Additive, Plan
from shoal.noise.primitives import SeededRng
from shoal.records.attack import bits_allowed, entropy_bits, largest_fall_bits
from shoal.records.place_attack import (
    FriendAdversary,
    LocatedPerson,
    People,
    ReleasedCentroids,
    distances_of_pairs,
    locate,
)
from studies.dependent_kmeans import models_for
from studies.dependent_plans import plan_or_none
from studies.dependent_sources import people
from studies.report import Cell, Figure, Report, Table

EPSILONS = (Fraction(1), Fraction(10), Fraction(50), Fraction(200), Fraction(1000))
ROUNDS = 3
TARGETS = 60  # people with friends, spread over the list
RELEASES = 3
PLANS = {
    "ordinary DP": "laplace",
    "published, Eq. 14": "dependent-published",
    "group over components": "group",
}


class Curve(NamedTuple):
    """Means over targets and releases at each ε."""

    plan: str
    adversary: str
    error_km: tuple[float, ...]
    cell_error_km: tuple[float, ...]
    leaked: tuple[float, ...]
    from_release: tuple[float, ...]


def run() -> Report:
    """Per source: what is known before, what releases add, and how close friends live."""
    tables, figures = [], []
    for source, town in people():
        targets = targets_of(town)
        before = before_table(source, town, targets)
        curves = tuple(curves_of(town, targets))
        tables += [distance_table(source, town), before]
        tables += [error_table(source, curves), bits_table(source, curves, town)]
        tables.append(knowledge_table(source, town, targets))
        figures.append(_figure(source, town, curves))
    return Report(
        name="dependent-attack",
        source="Liu, Chakraborty & Mittal 2016, Section IV, Figures 3 and 5, and Figure 10.",
        tables=tuple(tables),
        figures=tuple(figures),
    )


def targets_of(town: People) -> Ints:
    """People with at least one friend, evenly spread."""
    tied = np.unique(town.friends)
    return tied[np.linspace(0, len(tied) - 1, min(TARGETS, len(tied))).astype(np.int64)]


def adversaries(town: People, targets: Ints) -> dict[str, FriendAdversary]:
    """Attack 1 and 2 knowing everybody else, and attack 2 knowing every second person."""
    everybody = np.ones(len(town), dtype=bool)
    half = np.arange(len(town)) % 2 == 0
    half[targets] = False
    return {
        "1: no friendships": FriendAdversary(people=town, known=everybody, ties=False),
        "2: friendships": FriendAdversary(people=town, known=everybody, ties=True),
        "2, half of the people": FriendAdversary(people=town, known=half, ties=True),
    }


def curves_of(town: People, targets: Ints) -> Iterator[Curve]:
    """The attack on every plan by every adversary, at every ε."""
    query = town.city.query(town.places, clusters=8, rounds=ROUNDS)
    pairs, _ = models_for(town, np.arange(len(town)))
    for title, row in PLANS.items():
        by = adversaries(town, targets)
        found: dict[str, list[list[LocatedPerson]]] = {name: [] for name in by}
        for epsilon in EPSILONS:
            plan = plan_or_none(row, query, pairs, epsilon)
            assert plan is not None  # these rows take every query over tied records
            for name, located in _attacked(town, targets, plan, by).items():
                found[name].append(located)
        for name, at_epsilon in found.items():
            yield Curve(
                title,
                name,
                tuple(fmean(one.error_km for one in some) for some in at_epsilon),
                tuple(fmean(one.cell_error_km for one in some) for some in at_epsilon),
                tuple(fmean(one.leaked_bits for one in some) for some in at_epsilon),
                tuple(fmean(one.release_bits for one in some) for some in at_epsilon),
            )


def _attacked(
    town: People, targets: Ints, plan: Plan, by: dict[str, FriendAdversary]
) -> dict[str, list[LocatedPerson]]:
    body = plan.body
    assert isinstance(body, Additive)
    found: dict[str, list[LocatedPerson]] = {}
    for seed in range(RELEASES):
        answer = body.draw(body.query.read(town.vectors), SeededRng(seed))
        seen = ReleasedCentroids(body.query, answer, float(body.noise.scale), town)  # type: ignore[arg-type]
        for name, adversary in by.items():
            beliefs = [locate(adversary, seen, int(target)) for target in targets]
            found.setdefault(name, []).extend(beliefs)
    return found


def knowledge_table(source: str, town: People, targets: Ints) -> Table:
    """Fig. 10(b): attack 2 on the plans at ε = 50 by adversaries who know more and more people."""
    query = town.city.query(town.places, clusters=8, rounds=ROUNDS)
    pairs, _ = models_for(town, np.arange(len(town)))
    by = {}
    for quarters in (1, 2, 3, 4):
        known = np.arange(len(town)) % 4 < quarters
        known[targets] = quarters == 4
        by[f"{quarters}/4"] = FriendAdversary(people=town, known=known, ties=True)
    found = {}
    for title, row in PLANS.items():
        plan = plan_or_none(row, query, pairs, EPSILONS[2])
        assert plan is not None
        found[title] = _attacked(town, targets, plan, by)
    rows: list[tuple[Cell, ...]] = [
        (
            share,
            *(
                value
                for title in PLANS
                for value in (
                    fmean(one.error_km for one in found[title][share]),
                    fmean(one.release_bits for one in found[title][share]),
                )
            ),
        )
        for share in by
    ]
    columns = [f"{title}, {what}" for title in PLANS for what in ("km", "bits added")]
    return Table(
        title=f"{source}: attack 2 at ε = {float(EPSILONS[2]):g} by the share of people known",
        columns=("people known", *columns),
        rows=tuple(rows),
        notes=(
            "with unknown people beliefs are approximate (their sums are taken as normal), and may "
            "be surer than they are right",
        ),
    )


def distance_table(source: str, town: People) -> Table:
    """Fig. 3: quantiles of the distance of Eq. (5)."""
    close, far = distances_of_pairs(town)
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    return Table(
        title=f"{source}: distance between location vectors (Eq. 5), km",
        columns=("pairs", "count", *(f"{share:.0%} are below" for share in shares)),
        rows=(
            ("friends", len(close), *(float(np.quantile(close, share)) for share in shares)),
            ("strangers", len(far), *(float(np.quantile(far, share)) for share in shares)),
        ),
    )


def before_table(source: str, town: People, targets: Ints) -> Table:
    """What the adversaries believe before any release."""
    rows: list[tuple[Cell, ...]] = []
    for name, adversary in adversaries(town, targets).items():
        found = [locate(adversary, None, int(target)) for target in targets]
        rows.append(
            (
                name,
                fmean(one.error_km for one in found),
                fmean(one.cell_error_km for one in found),
                fmean(entropy_bits(one.prior) for one in found),
                fmean(one.leaked_bits for one in found),
            )
        )
    return Table(
        title=f"{source}: before any release, {len(targets)} people with friends",
        columns=(
            "adversary",
            "error (km)",
            "error of Eq. 7 (km)",
            "H (bits)",
            "gain by ties (bits)",
        ),
        rows=tuple(rows),
        notes=(
            f"{len(town)} people, {len(town.friends)} friendships, top {town.places} places, "
            f"{town.city.cells} × {town.city.cells} cells",
            "paper (three cities, 6,969 people): H = 8.38 bits; only New York is available to us",
        ),
    )


def error_table(source: str, curves: tuple[Curve, ...]) -> Table:
    """Fig. 5(a): the inference error of Eq. (10)."""
    return Table(
        title=f"{source}: inference error after a release, km",
        columns=("plan", "adversary", *(f"ε = {float(e):g}" for e in EPSILONS)),
        rows=tuple((one.plan, one.adversary, *one.error_km) for one in curves),
        notes=(
            f"K = 8, {ROUNDS} rounds, all of them in the likelihood; mean over {RELEASES} releases",
        ),
    )


def bits_table(source: str, curves: tuple[Curve, ...], town: People) -> Table:
    """Fig. 5(b) and 10(a): leaked information, Eq. (11), and the part the release itself told."""
    rows: list[tuple[Cell, ...]] = []
    for one in curves:
        cells = [
            f"{leaked:.3f} ({told:.3f})"
            for leaked, told in zip(one.leaked, one.from_release, strict=True)
        ]
        rows.append((one.plan, one.adversary, *cells))
    share = np.bincount(town.cells(), minlength=town.city.size) / len(town)
    allowed = [bits_allowed(float(e)) for e in EPSILONS]
    single = [largest_fall_bits(share, float(e)) for e in EPSILONS]
    rows.append(("bound, mean over outputs", "knows all others", *allowed))
    rows.append(("one output could take", "knows all others", *single))
    return Table(
        title=f"{source}: leaked information of Eq. 11 (in brackets what the release added), bits",
        columns=("plan", "adversary", *(f"ε = {float(e):g}" for e in EPSILONS)),
        rows=tuple(rows),
        notes=(
            "the bound is ε·log2 e, in expectation; the paper prints ε, which is in nats",
            "what friendships tell before any release is part of Eq. 11, but no release causes it: "
            "the paper's breach of the bound by attack 2 is of this kind",
        ),
    )


def _figure(source: str, town: People, curves: tuple[Curve, ...]) -> Figure:
    def draw(figure: Any) -> None:
        distance, error, leak = figure.subplots(1, 3)
        for values, label in zip(distances_of_pairs(town), ("friends", "strangers"), strict=True):
            distance.plot(values, np.linspace(0, 1, len(values)), label=label)
        distance.set_xlabel("distance of location vectors, km")
        distance.set_ylabel("share of pairs below")
        distance.legend(frameon=False, fontsize="small")
        epsilons = [float(e) for e in EPSILONS]
        for axes, field, label in (
            (error, "error_km", "inference error, km"),
            (leak, "leaked", "leaked information, bits"),
        ):
            _draw_curves(axes, curves, field)
            axes.set_xscale("log")
            axes.set_xlabel("ε")
            axes.set_ylabel(label)
        bottom, top = leak.get_ylim()
        leak.plot(epsilons, [bits_allowed(e) for e in epsilons], "k:", label="ε·log2 e")
        leak.set_ylim(bottom, 1.6 * top)
        leak.legend(frameon=False, fontsize="xx-small")
        for axes in (distance, error, leak):
            axes.spines[["top", "right"]].set_visible(False)

    caption = f"{source}: friends and strangers, inference error and leaked information"
    name = "dependent-attack-" + source.split(maxsplit=1)[0].lower()
    return Figure(name=name, caption=caption, draw=draw)


def _draw_curves(axes: Any, curves: tuple[Curve, ...], field: str) -> None:
    colours = {
        name: f"C{place}" for place, name in enumerate(dict.fromkeys(c.adversary for c in curves))
    }
    styles = {"ordinary DP": "-", "published, Eq. 14": "--", "group over components": ":"}
    for one in curves:
        axes.plot(
            [float(e) for e in EPSILONS],
            getattr(one, field),
            styles[one.plan],
            color=colours[one.adversary],
            label=f"{one.plan}, {one.adversary}",
        )
