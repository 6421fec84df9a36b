"""Figures 6, 7 and 8 of the MaskIt paper: utility against delta, and against weaker adversaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import fmean
from typing import Any

from shoal.contexts.checks.rows import mask
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact
from studies.mask_study import choose_sensitive, expected_shares, halves
from studies.mask_traces import NOTHING, Person, generated, people
from studies.report import Figure, Report, Table

DELTAS = (Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(2, 5))
CHECKS = (
    "mask-sensitive",
    "mask-probabilistic",
    "mask-simulatable",
    "mask-hybrid",
    "mask-adaptive",
    "mask-optimal",
)


def for_set_labels(
    secrets: SensitiveContexts, labels: Mapping[str, Sequence[str]], delta: Number
) -> tuple[SensitiveContexts, Fraction]:
    """What protects from an adversary who knows the day only up to sets of contexts.

    `labels` maps each state of the generalised chain to the contexts it may stand for. Sensitive
    are then the states whose set holds a sensitive context, at δ/μ, μ being the most states one
    sensitive context may hide in. Promised is δ for the contexts themselves, to everybody between
    that adversary and one who knows all. Götz, Nath & Gehrke 2012, Theorem 7.
    """
    if secrets.moments or secrets.groups:
        raise InputError("set labels are for contexts sensitive at every slot, without groups")
    hidden_in = {
        name: [state for state, several in labels.items() if name in several]
        for name in secrets.contexts
    }
    for name, states in hidden_in.items():
        if not states:
            raise InputError(f"labels has no state that may stand for {name!r}; add it to a set")
    most = max(len(states) for states in hidden_in.values())
    chosen = [state for state, several in labels.items() if set(several) & set(secrets.contexts)]
    return SensitiveContexts.of(chosen), exact(delta, "delta") / most


def run() -> Report:
    """A table per source and choice of the sensitive context; a figure of the first."""
    tables = []
    for source, persons in people():
        tables.append(_table(f"{source}, one random sensitive context", persons, home=False))
        if persons and persons[0].home:
            tables.append(_table(f"{source}, home is sensitive", persons, home=True))
    tables.append(_weaker(generated(12)))
    return Report(
        name="mask-tradeoff",
        source="Götz, Nath & Gehrke 2012, Section 7.2, Figures 6, 7 and 8.",
        tables=tuple(tables),
        figures=(_figure(tables[0]),),
    )


def _table(title: str, persons: list[Person], *, home: bool) -> Table:
    chosen = [
        (person, [person.home] if home and person.home else choose_sensitive(person, 1, 6))
        for person in persons
    ]
    known = [(person, secret) for person, secret in chosen if set(secret) & set(person.contexts)]
    shown: dict[str, list[float]] = {check: [] for check in CHECKS}
    for delta in DELTAS:
        shares = [
            expected_shares(person, secret, delta=delta, checks=CHECKS) for person, secret in known
        ]
        for check in CHECKS:
            shown[check].append(100 * fmean(share[check] for share in shares))
    return Table(
        title=f"{title}, {len(known)} people: expected share of slots shown, in %",
        columns=("check", *(f"δ = {float(delta):g}" for delta in DELTAS)),
        rows=tuple((check, *values) for check, values in shown.items()),
        notes=("mask-sensitive is not private at any delta",),
    )


def _weaker(persons: list[Person]) -> Table:
    """Adversaries unsure of more and more labels: Theorem 7, δ = .1 per sensitive label."""
    rows = []
    for unsure in (0, 1, 2, 3):
        shares = []
        for person in persons:
            day, _ = halves(person)
            secret = choose_sensitive(person, 1, 6)[0]
            others = [c for c in person.contexts if c not in (secret, NOTHING)][:unsure]
            labels = {c: [c, secret] if c in others else [c] for c in person.contexts}
            wanted = Fraction(1, 10) * (1 + unsure)
            secrets, delta = for_set_labels(SensitiveContexts.of(secret), labels, wanted)
            plan = mask(day, secrets, delta=delta, check="mask-adaptive", seconds=1, clock=None)
            shares.append(100 * -plan.cost / day.slots)
        rows.append((unsure + 1, float(wanted), float(delta), fmean(shares)))
    return Table(
        title=(
            f"generated phones, {len(persons)} people: slots the adaptive check shows to weaker "
            "adversaries, in %"
        ),
        columns=("states that may be sensitive", "δ promised", "δ/μ used", "expected"),
        rows=tuple(rows),
        notes=("the paper's Figure 7 grows δ with the number of sensitive labels in the same way",),
    )


def _figure(table: Table) -> Figure:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for name, *values in table.rows:
            style = "--" if name == "mask-sensitive" else "-"
            axes.plot([float(d) for d in DELTAS], values, style, marker="o", label=name)
        axes.set_xlabel("δ: the most a belief may rise")
        axes.set_ylabel("slots shown, %")
        axes.legend(frameon=False)

    return Figure(name="mask-tradeoff", caption=table.title, draw=draw)
