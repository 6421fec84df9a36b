"""The loss of noise on a query about a joint law that is written out: exact, by enumeration."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from shoal.audit.facts import table_facts, table_secrets
from shoal.audit.result import Finding, Witness
from shoal.audit.setting import Setting
from shoal.audit.suprema import Peak, plane_peak, plane_size, product_peak, product_size
from shoal.core.errors import Refused
from shoal.core.value import Floats
from shoal.loss.frameworks import SecretLaws, table_laws
from shoal.loss.mixture import smoothed
from shoal.models.table import JointTable
from shoal.noise.zero_sum import ZeroSumLaplace
from shoal.secrets.pairs import SecretPairs

MOST_POINTS = 20_000_000
TOO_WIDE = (
    "the weights of the query span too many steps of its lattice to add up answers one by one; "
    "round the weights to a coarser lattice"
)


def table_finding(setting: Setting) -> Finding:
    """The loss itself, over all outputs and pairs of secrets."""
    table = setting.model
    assert isinstance(table, JointTable)
    if setting.wide:
        raise Refused(TOO_WIDE)
    if not table_facts(table, setting.secrets):  # nothing that can be told apart ever holds
        return Finding(lower=0.0, upper=0.0)
    laws = table_laws(table, setting.query, setting.secrets)
    laws = replace(laws, values=setting.finer * laws.values)
    zero_sum = isinstance(setting.noise, ZeroSumLaplace)
    size = plane_size(laws.values) * len(laws.values) if zero_sum else product_size(laws.values)
    if size * len(laws.laws) > MOST_POINTS:
        raise Refused(
            f"the table's answers span {size} outputs, more than are tried; ask for fewer numbers"
        )
    with np.errstate(divide="ignore"):
        logs = np.log(laws.laws)
    evaluate = plane_peak if zero_sum else product_peak
    peak = evaluate(laws.values, logs, 1 / setting.scale, laws.pairs)
    if peak.value == -math.inf:
        return Finding(lower=0.0, upper=0.0)
    told = _witness(setting, table, laws, logs, peak)
    lower = max(told.log_ratio - peak.slack, 0.0)
    return Finding(lower=lower, upper=max(peak.value + peak.slack, lower), witness=told)


def _witness(
    setting: Setting, table: JointTable, laws: SecretLaws, logs: Floats, peak: Peak
) -> Witness:
    low, high = laws.values.min(axis=0), laws.values.max(axis=0)
    output = np.where(np.isposinf(peak.output), high, peak.output)
    output = np.where(np.isneginf(peak.output), low, output)
    noise = -np.abs(laws.values - output).sum(axis=1) / setting.scale
    seen = np.logaddexp.reduce(logs + noise, axis=1)
    everything = np.logaddexp.reduce(_all_outcomes(table, setting) + noise)
    facts = table_secrets(table, setting.secrets)
    before = [facts[s].probability for s in peak.pair]
    after = [b * math.exp(seen[s] - everything) for b, s in zip(before, peak.pair, strict=True)]
    first, second = (laws.names[s] for s in peak.pair)
    told = Witness(
        model=setting.index,
        law=setting.model.describe(),
        subject="the data",
        facts=(f"'{first}'", f"'{second}'"),
        labels=setting.query.labels,
        output=tuple(float(v) * float(setting.step) for v in peak.output),
        unit=setting.query.unit,
        before=(before[0], before[1]),
        after=(min(after[0], 1.0), min(after[1], 1.0)),
        log_ratio=float(seen[peak.pair[0]] - seen[peak.pair[1]]),
    )
    if not (setting.curve and laws.values.shape[1] == 1):
        return told
    return replace(told, curve=_curve(setting, laws, logs, peak))


def _all_outcomes(table: JointTable, setting: Setting) -> Floats:
    """log P(answer), whatever the secret."""
    total = table_laws(table, setting.query, _certainty(table))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(total.laws[0]))


def _certainty(table: JointTable) -> SecretPairs:
    """A pair of facts that always hold, whose law is that of the answer itself."""
    from shoal.secrets.pairs import Event

    sure = Event.of("anything", {table.variables[0]: table.domains[0]})
    return SecretPairs(((sure, sure),))


def _curve(
    setting: Setting, laws: SecretLaws, logs: Floats, peak: Peak
) -> tuple[tuple[float, float, float], ...]:
    """(output, log density given the first secret, given the second) at the answers."""
    values = laws.values[:, 0].astype(np.float64)
    density = smoothed(logs[list(peak.pair)], values / setting.scale, logs=True)
    density += math.log(math.tanh(0.5 / setting.scale))  # the mass of one point of the lattice
    step = float(setting.query.lattice)
    return tuple(
        (float(v) * step, float(a), float(b))
        for v, a, b in zip(values, density[0], density[1], strict=True)
    )
