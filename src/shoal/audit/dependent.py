"""What noise tells about tied records: the worst joint law with the given pairs, and a bound."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from shoal.audit.bounds import entry_bound
from shoal.audit.dependent_program import (
    MOST_OUTCOMES,
    WorstLaw,
    has_joint_law,
    outcomes,
    worst_law,
)
from shoal.audit.networks import network_finding
from shoal.audit.result import Finding
from shoal.audit.setting import Setting
from shoal.audit.tables import table_finding
from shoal.core.errors import InputError, Refused
from shoal.core.task import Query
from shoal.core.value import Floats, Ints
from shoal.loss.dependence import mean_sensitivities
from shoal.mechanisms.additive import eta_above, float_below
from shoal.mechanisms.dependent_task import contributions
from shoal.models.dependence import Dependence
from shoal.models.dependence_field import PairwiseField, field_of_pairs
from shoal.models.dependence_network import followed, summable
from shoal.models.table import JointTable
from shoal.noise.laplace import LatticeLaplace
from shoal.secrets.pairs import Event, SecretPairs

MOST_OUTPUTS = 64
PAIRS_ONLY = (
    "joint laws other than the worst one found: the upper bound covers every law with these "
    "pairs, the lower one is reached by one of them"
)
TOO_LARGE = (
    "components with more than 1,024 outcomes, but for the law along ties where they form no loop: "
    "the upper bound covers them"
)
THINNED = "some records, pairs of values and outputs of components with many outcomes"
EMPTY = "a component whose pairwise laws no joint law has: it promises nothing"
LARGE_FIELD = "the field itself: it is too large to be written out, only the upper bound covers it"


def dependence_finding(setting: Setting) -> Finding:
    """The worst law of any component, and the bound of conditional means.

    An adversary who knows the records of all other components is as strong as any: they are
    independent, so only what they add to the answer is known. Equal components are tried once.
    """
    model = setting.model
    assert isinstance(model, Dependence)
    upper = ties_bound(setting, model)
    found, notes = Finding(lower=0.0, upper=upper), {PAIRS_ONLY}
    for part, members in _different_components(model):
        large = part.domain.size**part.records > MOST_OUTCOMES or part.states is None
        if large:
            notes.add(TOO_LARGE)
        worst = _along_ties(setting, part) if large else _component(setting, part, members)
        if worst is None:
            notes.add(EMPTY)
            continue
        notes.update(worst.notes)
        if worst.lower > found.lower:
            found = worst
    return replace(found, upper=max(upper, found.lower), notes=tuple(sorted(notes)))


def field_finding(setting: Setting) -> Finding:
    """The loss itself when the field is a network or a small table, else what reach allows."""
    model = setting.model
    assert isinstance(model, PairwiseField)
    upper = entry_bound(model, setting.query, setting.eta)
    found = _law_finding(setting, model)
    if found is not None:
        return replace(found, upper=max(found.lower, min(found.upper, upper)))
    return Finding(lower=0.0, upper=upper, notes=(LARGE_FIELD,))


def ties_bound(setting: Setting, model: Dependence) -> float:
    """The least of group privacy and, for Laplace noise on a sum, conditional means."""
    bound = entry_bound(model, setting.query, setting.eta)
    return min(bound, means_bound(model, setting.query, setting.noise))


def means_bound(model: Dependence, query: Query, noise: object) -> float:
    """What Laplace noise on a sum over tied records tells, by conditional means; inf for others."""
    adds = contributions(query, model)
    if adds is None or not isinstance(noise, LatticeLaplace):
        return math.inf
    return float(mean_sensitivities(model, adds).max()) / float_below(noise.scale)


def _component(setting: Setting, part: Dependence, members: Ints) -> Finding | None:
    """The worst law of one component, audited as a table; None when no law has its pairs."""
    if part.records == 1:
        eta = eta_above(setting.eta)
        return Finding(lower=eta, upper=eta)
    if not has_joint_law(part):
        return None
    answers = setting.multiples[outcomes(part)].sum(axis=1).astype(np.float64)
    worst = worst_law(part, answers, _candidates(answers), setting.scale)
    if worst is None:
        return Finding(lower=0.0, upper=0.0)
    table, secrets = _as_table(part, members, worst)
    found = table_finding(replace(setting, model=table, secrets=secrets))
    found = replace(found, lower=max(found.lower - worst.slack, 0.0))
    found = found if worst.complete else replace(found, notes=(*found.notes, THINNED))
    law = f"a joint law of {part.records} records that has the pairwise laws"
    return found if found.witness is None else _renamed(found, law)


def _along_ties(setting: Setting, part: Dependence) -> Finding:
    """What the one law tells in which a large component depends along its ties only."""
    nothing = Finding(lower=0.0, upper=0.0)
    try:
        field = field_of_pairs(part)
    except InputError:  # a loop, or ties that do not agree: no such law
        return nothing
    return _law_finding(setting, field) or nothing


def _law_finding(setting: Setting, field: PairwiseField) -> Finding | None:
    """The loss under a field that is a network or a small table; None when it is neither."""
    law = followed(field)
    if isinstance(law, PairwiseField) and not summable(law):
        return None
    finding = table_finding if isinstance(law, JointTable) else network_finding
    try:
        found = finding(replace(setting, model=law))
    except Refused:  # too many answers to enumerate
        return None
    return found if found.witness is None else _renamed(found, field.describe())


def _as_table(part: Dependence, members: Ints, worst: WorstLaw) -> tuple[JointTable, SecretPairs]:
    """The law found, and the one pair of facts it was found for."""
    states = part.states
    assert states is not None  # asked for before
    names = [f"record {member}" for member in members.tolist()]
    table = JointTable.of(
        worst.law.reshape((part.domain.size,) * part.records),
        variables=names,
        domains=[states] * part.records,
    )
    name = names[worst.record]
    facts = [Event.of(f"{name} = {states[v]}", {name: states[v]}) for v in worst.pair]
    return table, SecretPairs.of([(facts[0], facts[1])])


def _candidates(answers: Floats) -> Floats:
    """Outputs to try: the answers themselves, which hold the supremum when there is one label."""
    distinct = np.unique(answers, axis=0)
    step = -(-len(distinct) // MOST_OUTPUTS)
    return np.unique(np.concatenate([distinct[::step], distinct[-1:]]), axis=0)


def _different_components(model: Dependence) -> list[tuple[Dependence, Ints]]:
    """The model of each component, and its records; equal ones once."""
    names = model.components()
    order = np.argsort(names, kind="stable")
    starts = np.flatnonzero(np.diff(names[order], prepend=-1))
    found: dict[tuple[object, ...], tuple[Dependence, Ints]] = {}
    for members in np.split(order, starts[1:]):
        if model.domain.size ** len(members) > MOST_OUTCOMES:
            key: tuple[object, ...] = ("large",)
        elif len(members) == 1:
            key = ("alone",)
        else:
            part = model.part(members.tolist())
            key = (part.ties.tobytes(), part.law_of.tobytes())
        if key not in found:
            found[key] = model.part(members.tolist()), members
    return list(found.values())


def _renamed(found: Finding, law: str) -> Finding:
    assert found.witness is not None
    return replace(found, witness=replace(found.witness, law=law))
