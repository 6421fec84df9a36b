"""The loss of noise on a sum over named variables: exact by enumeration, or part by part."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import cast

import numpy as np

from shoal.audit.case import (
    AuditCase,
    VectorPeak,
    plane_peak,
    plane_size,
    product_peak,
    product_size,
)
from shoal.audit.exact import entry_bound
from shoal.audit.result import Finding, Witness, same
from shoal.core.codec import Floats, Ints
from shoal.core.errors import Refused
from shoal.core.progress import OutOfTime, doing
from shoal.core.task import each_entry
from shoal.mechanisms.mixture import evaluation_slack, smooth_laws
from shoal.mechanisms.plans import eta_above
from shoal.networks.exact import can_convolve_rest, laws_of_whole_sum
from shoal.networks.laws import SecretLaws, SecretsPart, distinct_answers, secrets_part_of_table
from shoal.networks.parts import Independent, Parted, convolve_sums, independent_parts
from shoal.networks.table import JointTable
from shoal.noise.laplace import is_zero_sum

MAX_OUTPUTS_COMPARED = 20_000_000
RAREST_ENTRY, RAREST_EVENT = (
    1e-290,
    1e-200,
)  # least masses of a contagion law that doubles keep when divided
MAX_CORNER_LABELS = 10  # numbers of a vector whose 2^n extreme outputs are tried
TOO_WIDE = (
    "the weights of the query span too many steps of its lattice to add up answers one by one; "
    "round the weights to a coarser lattice"
)
TOO_RARE = (
    "outcomes of probability below 1e-290: so little noise shows them, and doubles do not hold them"
)
NO_WITNESS = "an output that shows it: in so large a network only bounds of the loss are followed"
BETWEEN = "outputs at which what other, independent parts add would have to be averaged over"


@dataclass(frozen=True, slots=True)
class NoisySum:
    """The laws of an answer given the secrets of a part, and without them, in logs.

    `exact` says that the answer is all that was released, not only this part's share of it.
    """

    values: Ints
    logs: Floats
    anyway: Floats
    part: SecretsPart
    exact: bool


def table_finding(setting: AuditCase) -> Finding:
    """Return the loss itself under a law that is written out, over all outputs and pairs of
    secrets.
    """
    table = setting.model
    assert isinstance(table, JointTable)
    if setting.wide:
        raise Refused(TOO_WIDE)
    part = secrets_part_of_table(table, setting.query, setting.secrets)
    if not part.laws.pairs.any():  # no two compared secrets are possible
        return Finding(lower=0.0, upper=0.0)
    _, place = distinct_answers(table, setting.query)
    anyway = np.asarray(np.bincount(place, table.probability.ravel()), dtype=np.float64)
    seen = _noisy_sum(setting, part.laws, anyway, part, exact=True)
    peak = _worst_output(setting, seen)
    if peak.value == -math.inf:
        return Finding(lower=0.0, upper=0.0)
    return _finding_of_witness(_witness_at(setting, seen, peak), peak, peak.value + peak.slack)


def network_finding(setting: AuditCase) -> Finding:
    """Return lower ≤ loss ≤ upper over all outputs and secrets, with the output that tells most.

    A part alone bounds the loss from above, and its extreme outputs tell as much about the whole
    sum. Where the two differ the whole sum is evaluated, if that is affordable.
    """
    try:
        return _sum_finding(setting)
    except OutOfTime:  # group privacy needs no search
        tied = setting.model.tied
        if tied is None or not each_entry(setting.secrets):
            raise
        return Finding(lower=0.0, upper=eta_above(tied * setting.eta))


def _sum_finding(setting: AuditCase) -> Finding:
    """Return bounds of the loss of noise on a sum, part by part or from the model's own
    interval.
    """
    model = setting.model
    if setting.wide:
        raise Refused(TOO_WIDE)
    interval = getattr(model.answer_laws(setting.query, setting.secrets), "interval", None)
    if interval is not None:  # too large to be followed value by value
        lower, upper = interval(setting.scale / setting.finer)
        upper = max(lower, min(upper, entry_bound(model, setting.query, setting.eta)))
        return Finding(lower=lower, upper=upper, notes=(NO_WITNESS,))
    task = independent_parts(cast(Parted, model), setting.query, setting.secrets)
    found = []
    for number, part in enumerate(task.parts):
        doing("the audit of independent parts", number, len(task.parts))
        found.append(_part_finding(setting, task, part))
    if not found:
        return Finding(lower=0.0, upper=0.0)
    worst = max(found, key=lambda finding: finding.lower)
    upper = max(finding.upper for finding in found)
    if each_entry(setting.secrets) and not same(worst.lower, upper):
        upper = max(worst.lower, min(upper, entry_bound(model, setting.query, setting.eta)))
    notes = tuple(dict.fromkeys(note for finding in found for note in finding.notes))
    return Finding(lower=worst.lower, upper=upper, witness=worst.witness, notes=notes)


def _part_finding(setting: AuditCase, task: Independent, part: SecretsPart) -> Finding:
    """Return bounds of the loss about the secrets of one part, with a witness where there is
    one.
    """
    if _underflow_decides(setting, part):
        entries = each_entry(setting.secrets)
        bound = entry_bound(setting.model, setting.query, setting.eta) if entries else math.inf
        return Finding(lower=0.0, upper=bound, notes=(TOO_RARE,))
    alone = sum(task.copies) == len(part.spans)
    own = _noisy_sum(setting, part.laws, _unconditional_law(task, part), part, exact=alone)
    peak = _worst_output(setting, own)
    if peak.value == -math.inf:
        return Finding(lower=0.0, upper=0.0)
    upper = max(peak.value + peak.slack, 0.0)
    if alone or (np.isinf(peak.output).all() and not _zero_sum(setting)):
        return _finding_of_witness(_witness_at(setting, own, peak), peak, upper)
    if can_convolve_rest(task) and not _zero_sum(setting):
        whole = laws_of_whole_sum(task, part)
        if float(np.ptp(whole.values)) / setting.scale <= whole.deepest:
            everything = _noisy_sum(setting, whole, _mixture_law(whole, part), part, exact=True)
            reached = _worst_output(setting, everything)
            upper = min(upper, reached.value + reached.slack)
            return _finding_of_witness(_witness_at(setting, everything, reached), reached, upper)
    corner = _worst_corner(setting, own)
    if corner is None:
        return Finding(lower=0.0, upper=upper, notes=(BETWEEN,))
    return replace(
        _finding_of_witness(_witness_at(setting, own, corner), corner, upper), notes=(BETWEEN,)
    )


def _underflow_decides(setting: AuditCase, part: SecretsPart) -> bool:
    """Return whether masses that doubles cannot hold may decide: answers lie so many scales apart.

    Where they do not, any other answer outweighs what was lost.
    """
    model = setting.model
    rarest = min((float(law[law > 0].min()) for law in getattr(model, "laws", ())), default=1.0)
    least = RAREST_ENTRY if each_entry(setting.secrets) else RAREST_EVENT
    span = float(np.ptp(part.laws.values, axis=0).sum()) * setting.finer / setting.scale
    deep = span > part.laws.deepest
    return deep and (part.laws.lossy or rarest < least)


def _finding_of_witness(seen: Witness, peak: VectorPeak, upper: float) -> Finding:
    """Return the finding whose lower end is the witness; one above the upper end is shown, not
    hidden.
    """
    lower = max(seen.log_ratio - peak.slack, 0.0)
    return Finding(lower=lower, upper=max(upper, lower), witness=seen)


def _worst_output(setting: AuditCase, seen: NoisySum) -> VectorPeak:
    """Return the output with the largest log-ratio of two secrets; refused when there are too
    many.
    """
    zero_sum = _zero_sum(setting)
    size = plane_size(seen.values) * len(seen.values) if zero_sum else product_size(seen.values)
    if size * len(seen.logs) > MAX_OUTPUTS_COMPARED:
        raise Refused(
            f"the answers span {size} outputs, more than are tried; ask for fewer numbers"
        )
    evaluate = plane_peak if zero_sum else product_peak
    peak = evaluate(seen.values, seen.logs, 1 / setting.scale, seen.part.laws.pairs)
    return peak._replace(slack=peak.slack + seen.part.laws.roundings * 2.0**-51)


def _worst_corner(setting: AuditCase, seen: NoisySum) -> VectorPeak | None:
    """Return the extreme output that tells most: there independent parts cancel.

    Noise that keeps the total never moves all coordinates the same way.
    """
    labels = seen.values.shape[1]
    if labels > MAX_CORNER_LABELS:
        return None
    best: VectorPeak | None = None
    for signs in product((-1.0, 1.0), repeat=labels):
        if _zero_sum(setting) and len(set(signs)) == 1:
            continue
        tilt = seen.values @ np.array(signs) / setting.scale
        logs = np.logaddexp.reduce(seen.logs + tilt, axis=1)
        gap = np.where(seen.part.laws.pairs, logs[:, None] - logs[None, :], -math.inf)
        one, two = (int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape))
        if best is None or gap[one, two] > best.value:
            slack = evaluation_slack(float(np.ptp(tilt)), len(tilt), float(np.abs(logs).max()))
            best = VectorPeak(float(gap[one, two]), slack, (one, two), np.array(signs) * math.inf)
    return best


def _witness_at(setting: AuditCase, seen: NoisySum, peak: VectorPeak) -> Witness:
    """Return the witness of the loss at an output: the beliefs before and after it was seen."""
    low, high = seen.values.min(axis=0), seen.values.max(axis=0)
    output = np.where(np.isposinf(peak.output), high, peak.output)
    output = np.where(np.isneginf(peak.output), low, output)
    noise = -np.abs(seen.values - output).sum(axis=1) / setting.scale
    log_density = np.logaddexp.reduce(seen.logs + noise, axis=1)
    everything = float(np.logaddexp.reduce(seen.anyway + noise))
    before = [float(seen.part.prior[s]) for s in peak.pair]
    after = [
        b * math.exp(log_density[s] - everything) for b, s in zip(before, peak.pair, strict=True)
    ]
    first, second = (seen.part.laws.names[s] for s in peak.pair)
    step = float(setting.step)
    return Witness(
        model=setting.index,
        law=setting.model.describe(),
        subject="the data",
        facts=(f"'{first}'", f"'{second}'"),
        labels=setting.query.labels,
        output=tuple(float(v) * step for v in peak.output),
        unit=setting.query.unit,
        before=(before[0], before[1]),
        after=(min(after[0], 1.0), min(after[1], 1.0)),
        log_ratio=float(log_density[peak.pair[0]] - log_density[peak.pair[1]]),
        curve=_density_curve(setting, seen, peak) if setting.curve and seen.exact else (),
    )


def _density_curve(
    setting: AuditCase, seen: NoisySum, peak: VectorPeak
) -> tuple[tuple[float, float, float], ...]:
    """Return (output, log density given the first secret, given the second) at the answers."""
    if seen.values.shape[1] > 1:
        return ()
    values = seen.values[:, 0].astype(np.float64)
    density = smooth_laws(seen.logs[list(peak.pair)], values / setting.scale, logs=True)
    density += math.log(math.tanh(0.5 / setting.scale))  # the mass of one point of the lattice
    step = float(setting.query.lattice)
    return tuple(
        (float(v) * step, float(a), float(b))
        for v, a, b in zip(values, density[0], density[1], strict=True)
    )


def _noisy_sum(
    setting: AuditCase, laws: SecretLaws, anyway: Floats, part: SecretsPart, *, exact: bool
) -> NoisySum:
    values = setting.finer * laws.values
    with np.errstate(divide="ignore"):
        return NoisySum(values, np.log(laws.laws), np.log(anyway), part, exact)


def _unconditional_law(task: Independent, part: SecretsPart) -> Floats:
    """Return the law of the part's sum, for every secret, on the part's own values (same
    order).
    """
    values = np.zeros((1, part.laws.values.shape[1]), dtype=np.int64)
    law = np.ones(1)
    for c in part.spans:
        component = task.components[c]
        values, law = convolve_sums(values, law, component.values, component.given({}).law)
    return law


def _mixture_law(laws: SecretLaws, part: SecretsPart) -> Floats:
    """Return the law of the whole sum, averaged over the values of one variable or over two events.

    For two events that do not cover everything this is their mixture only, so the beliefs shown
    are those of an adversary who knows that one of the two holds.
    """
    own = laws.pairs[0] | (np.arange(len(laws.names)) == 0)
    weight = np.where(own, part.prior, 0.0)
    return np.asarray((weight / weight.sum()) @ laws.laws)


def _zero_sum(setting: AuditCase) -> bool:
    return is_zero_sum(setting.noise)
