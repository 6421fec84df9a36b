"""What noise tells about tied records: the worst joint law of the pairs, by linear programs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from shoal.audit.case import AuditCase
from shoal.audit.exact import entry_bound
from shoal.audit.result import Finding, Witness
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.progress import doing, time_over
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.plans import eta_above, float_below
from shoal.networks.audit import network_finding, table_finding
from shoal.networks.table import JointTable
from shoal.records.field import PairwiseField, field_of_pairs
from shoal.records.field_laws import as_field, as_network, summable
from shoal.records.pairwise import Dependence, RecordGroups


@dataclass(frozen=True)
class WorstLawSettings:
    """How far the search for the worst joint law goes."""

    max_outcomes: int = 1024  # outcomes of a component whose joint laws are searched
    max_program_cells: int = 100_000  # programs times outcomes; beyond, some programs are left out
    pair_tolerance: float = 1e-9  # how exactly a law must have the pairs to count
    slack_factor: float = 4.0  # how much further off a law that has the pairs exactly may be
    min_value_probability: float = 1e-4  # laws given a rarer value would drown in rounding
    max_outputs: int = 64  # outputs tried for each record and pair of values


WORST_LAW = WorstLawSettings()


class WorstLaw(NamedTuple):
    """A joint law (flat, last record fastest), and the record and pair of values it gives away.

    `complete` says that every record, pair of values and candidate output was tried. `slack` is
    what the log-ratio may owe to the solver's tolerance: the law has the pairs only up to that.
    """

    law: Floats
    record: int
    pair: tuple[int, int]
    log_ratio: float
    complete: bool
    slack: float = 0.0


def list_outcomes(model: Dependence) -> Ints:
    """Return all outcomes as rows of cells, the last record varying fastest."""
    size, count = model.domain.size, model.records
    return np.stack(np.unravel_index(np.arange(size**count), (size,) * count), axis=1)


def has_joint_law(model: Dependence) -> bool:
    """Return whether any joint law has the model's pairwise laws, up to the solver's tolerance."""
    from scipy.optimize import linprog

    rows, known = _pair_equations(model, list_outcomes(model))
    found = linprog(np.zeros(rows.shape[1]), A_eq=rows, b_eq=known, method="highs")
    return bool(found.status != 2)


def worst_law(model: Dependence, answers: Floats, outputs: Floats, scale: float) -> WorstLaw | None:
    """Return the joint law with the model's pairs under which noise of `scale` tells most.

    answers (outcomes, labels) and outputs (count, labels) are in one unit. For each record i,
    values a, a' and output o the ratio E[K(o-F) | a] / E[K(o-F) | a'] is linear over linear in
    the joint law, and P(a), P(a') are fixed by the pairs: a linear program after Charnes and
    Cooper. When they would take long they are thinned out evenly, which the result then
    says. None when no program has a clean solution.
    """
    grid = list_outcomes(model)
    equations = _pair_equations(model, grid)
    tasks = [
        (record, pair, place)
        for record in range(model.records)
        for pair in _value_pairs(model, record)
        for place in range(len(outputs))
    ]
    step = max(1, -(-len(tasks) * len(grid) // WORST_LAW.max_program_cells))
    best: WorstLaw | None = None
    what = f"the search for joint laws of {model.records} records"
    for number, (record, pair, place) in enumerate(tried := tasks[::step]):
        if time_over():
            return None if best is None else best._replace(complete=False)
        doing(what, number, len(tried), bounded=True)
        distance = np.abs(answers - outputs[place]).sum(axis=1) / scale
        kernel = np.exp(distance.min() - distance)
        solved = _solve_program(grid[:, record], pair, kernel, equations)
        if solved is not None and (best is None or solved[1] > best.log_ratio):
            best = WorstLaw(solved[0], record, pair, solved[1], step == 1, solved[2])
    return best


def _solve_program(
    values: Ints, pair: tuple[int, int], kernel: Floats, equations: tuple[Floats, Floats]
) -> tuple[Floats, float, float] | None:
    """Return the law with the largest ratio for one record, pair of values and output, and its
    slack.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    rows, known = equations
    top, bottom = (np.where(values == v, kernel, 0.0) for v in pair)
    equal = csr_array(np.block([[rows, -known[:, None]], [bottom[None], np.zeros((1, 1))]]))
    right = np.append(np.zeros(len(rows)), bottom.sum() / len(bottom))
    found = linprog(-np.append(top, 0.0), A_eq=equal, b_eq=right, method="highs")
    if found.status != 0 or found.x[-1] <= 0:
        return None
    law = np.maximum(found.x[:-1] / found.x[-1], 0.0)
    amiss = np.abs(rows @ law - known)
    if amiss.max() > WORST_LAW.pair_tolerance:
        return None
    seen = [float((law * side).sum()) for side in (top, bottom)]
    mass = [float(law[values == v].sum()) for v in pair]
    if min(seen) <= 0:
        return None
    slack = (
        WORST_LAW.slack_factor
        * float(amiss.sum())
        * (1 / seen[0] + 1 / seen[1] + 1 / mass[0] + 1 / mass[1])
    )
    return law / law.sum(), math.log(seen[0] / mass[0]) - math.log(seen[1] / mass[1]), slack


def _pair_equations(model: Dependence, grid: Ints) -> tuple[Floats, Floats]:
    """Return the linear equations of joint laws with the given pairs: rows and right sides."""
    size = model.domain.size
    rows, known = [np.ones(len(grid))], [1.0]
    for (one, other), which in zip(model.ties.tolist(), model.law_of, strict=True):
        code = grid[:, one] * size + grid[:, other]
        for place, probability in enumerate(model.laws[which].ravel().tolist()):
            rows.append((code == place).astype(np.float64))
            known.append(probability)
    return np.array(rows), np.array(known)


def _value_pairs(model: Dependence, record: int) -> list[tuple[int, int]]:
    """Return the ordered pairs of values the record takes, but for the very rare."""
    near = model.neighbours()
    mine = np.flatnonzero(near.record == record)
    if not len(mine):  # no tie: any law, every value possible
        possible = np.arange(model.domain.size)
    else:
        law = int(near.law[mine[0]])
        table = model.laws[law % len(model.laws)]
        margin = table.sum(axis=1 if law < len(model.laws) else 0)
        possible = np.flatnonzero(margin >= WORST_LAW.min_value_probability)
    return [(int(a), int(b)) for a in possible for b in possible if a != b]


# What noise tells about tied records: the worst joint law with the given pairs, and a bound.


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


def dependence_finding(setting: AuditCase) -> Finding:
    """Return the worst law of any component, and the bound of conditional means.

    An adversary who knows the records of all other components is as strong as any: they are
    independent, so only what they add to the answer is known. Equal components are tried once.
    """
    model = setting.model
    assert isinstance(model, Dependence)
    upper = ties_bound(setting, model)
    found, notes = Finding(lower=0.0, upper=upper), {PAIRS_ONLY}
    for part, members in _different_components(model):
        if time_over():  # the upper bound covers all of them
            break
        large = part.domain.size**part.records > WORST_LAW.max_outcomes or part.states is None
        if large:
            notes.add(TOO_LARGE)
        worst = (
            _tree_law_finding(setting, part)
            if large
            else _component_finding(setting, part, members)
        )
        if worst is None:
            notes.add(EMPTY)
            continue
        notes.update(worst.notes)
        if worst.lower > found.lower:
            found = worst
    return replace(found, upper=max(upper, found.lower), notes=tuple(sorted(notes)))


def field_finding(setting: AuditCase) -> Finding:
    """Return the loss itself when the field is a network or a small table, else what reach
    allows.
    """
    model = setting.model
    assert isinstance(model, PairwiseField)
    upper = entry_bound(model, setting.query, setting.eta)
    found = _field_law_finding(setting, model)
    if found is not None:
        return replace(found, upper=max(found.lower, min(found.upper, upper)))
    return Finding(lower=0.0, upper=upper, notes=(LARGE_FIELD,))


def ties_bound(setting: AuditCase, model: Dependence) -> float:
    """Return the least of group privacy and, for Laplace noise on a sum, conditional means."""
    bound = entry_bound(model, setting.query, setting.eta)
    return min(bound, model.noise_bound(setting.query, setting.noise))


def _component_finding(setting: AuditCase, part: Dependence, members: Ints) -> Finding | None:
    """Return the worst law of one component, audited as a table; None when no law has its pairs."""
    if part.records == 1:
        eta = eta_above(setting.eta)
        return Finding(lower=eta, upper=eta)
    if not has_joint_law(part):
        return None
    answers = setting.multiples[list_outcomes(part)].sum(axis=1).astype(np.float64)
    worst = worst_law(part, answers, _candidate_outputs(answers), setting.scale)
    if worst is None:
        return Finding(lower=0.0, upper=0.0)
    table, secrets = _as_table(part, members, worst)
    found = table_finding(replace(setting, model=table, secrets=secrets))
    found = replace(found, lower=max(found.lower - worst.slack, 0.0))
    found = found if worst.complete else replace(found, notes=(*found.notes, THINNED))
    law = f"a joint law of {part.records} records that has the pairwise laws"
    return found if found.witness is None else _with_law_name(found, law)


def _tree_law_finding(setting: AuditCase, part: Dependence) -> Finding:
    """Return what the one law tells in which a large component depends along its ties only."""
    nothing = Finding(lower=0.0, upper=0.0)
    try:
        field = field_of_pairs(part)
    except InputError:  # a loop, or ties that do not agree: no such law
        return nothing
    return _field_law_finding(setting, field) or nothing


def _field_law_finding(setting: AuditCase, field: PairwiseField) -> Finding | None:
    """Return the loss under a field that is a network or a small table; None when it is neither."""
    law = as_network(field)
    if as_field(law) is not None and not summable(law):
        return None
    finding = table_finding if isinstance(law, JointTable) else network_finding
    try:
        found = finding(replace(setting, model=law))
    except Refused:  # too many answers to enumerate
        return None
    return found if found.witness is None else _with_law_name(found, field.describe())


def _as_table(part: Dependence, members: Ints, worst: WorstLaw) -> tuple[JointTable, SecretPairs]:
    """Return the law found, and the one pair of facts it was found for."""
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


def _candidate_outputs(answers: Floats) -> Floats:
    """Outputs to try: the answers themselves, which hold the supremum when there is one label."""
    distinct = np.unique(answers, axis=0)
    step = -(-len(distinct) // WORST_LAW.max_outputs)
    return np.unique(np.concatenate([distinct[::step], distinct[-1:]]), axis=0)


def _different_components(model: Dependence) -> list[tuple[Dependence, Ints]]:
    """Return the model of each component, and its records; equal ones once."""
    names = model.components()
    order = np.argsort(names, kind="stable")
    starts = np.flatnonzero(np.diff(names[order], prepend=-1))
    found: dict[tuple[object, ...], tuple[Dependence, Ints]] = {}
    for members in np.split(order, starts[1:]):
        if model.domain.size ** len(members) > WORST_LAW.max_outcomes:
            key: tuple[object, ...] = ("large",)
        elif len(members) == 1:
            key = ("alone",)
        else:
            part = model.part(members.tolist())
            key = (part.ties.tobytes(), part.law_of.tobytes())
        if key not in found:
            found[key] = model.part(members.tolist()), members
    return list(found.values())


def _with_law_name(found: Finding, law: str) -> Finding:
    assert found.witness is not None
    return replace(found, witness=replace(found.witness, law=law))


# What noise tells about records in groups of which only the size is known: records all alike.


def groups_finding(setting: AuditCase) -> Finding:
    """Return the loss itself, n·L/scale for groups of n: no law tells more, and equal records do.

    All records of one group take the value a, or all the value b, with the same chance, and
    all other records are known. Where the output is beyond all answers, on the side of a in every
    number in which a and b differ, the odds change by n·|w(a) - w(b)|_1 / scale.
    """
    model = setting.model
    assert isinstance(model, RecordGroups)
    size, weights = model.largest, setting.weights
    names = setting.query.states
    pairs = [(a, b) for a in range(len(names)) for b in range(len(names))]
    top, bottom = max(pairs, key=lambda pair: abs(weights[pair[0]] - weights[pair[1]]).sum())
    loss = float_below(size * setting.eta)
    after = 1 / (1 + math.exp(-loss))
    seen = Witness(
        model=setting.index,
        law=f"a group of {size} records that are always alike, all other records being known",
        subject="the group",
        facts=(repr(names[top]), repr(names[bottom])),
        labels=setting.query.labels,
        output=_extreme_output(weights[top] - weights[bottom]),
        unit=setting.query.unit,
        before=(0.5, 0.5),
        after=(after, 1 - after),
        log_ratio=loss,
    )
    return Finding(lower=loss, upper=eta_above(size * setting.eta), witness=seen)


def _extreme_output(gap: Floats) -> tuple[float, ...]:
    """Return an output beyond all answers wherever two values differ; elsewhere any answer will
    do.
    """
    return tuple(math.copysign(math.inf, step) if step else 0.0 for step in gap.tolist())
