"""The loss of additive noise under one Markov chain, of any order."""

from __future__ import annotations

from dataclasses import replace

from shoal.audit.result import Finding
from shoal.audit.scalar import scalar_finding
from shoal.audit.setting import Setting
from shoal.audit.tables import table_finding
from shoal.audit.vector import vector_finding
from shoal.audit.walk import walk
from shoal.models.chain import MarkovChain
from shoal.models.family import AnyInitialLaw
from shoal.models.order import OrderChain
from shoal.models.table import JointTable


def chain_finding(setting: Setting) -> Finding:
    """lower ≤ loss ≤ upper under one chain, for data of every length it covers."""
    model = setting.model
    assert isinstance(model, MarkovChain | AnyInitialLaw | OrderChain)
    measure = scalar_finding if len(setting.query.labels) == 1 else vector_finding
    found = [measure(setting, walk(model))]
    if isinstance(model, OrderChain):
        found += [table_finding(replace(setting, model=table)) for table in prefixes(model)]
    worst = max(found, key=lambda finding: finding.lower)
    return replace(worst, upper=max(finding.upper for finding in found))


def prefixes(model: OrderChain) -> tuple[JointTable, ...]:
    """The laws of data shorter than the order: the first 1 … order-1 entries by themselves."""
    law = model.initial.reshape((len(model.states),) * model.order)
    return tuple(
        JointTable.of(
            law.sum(axis=tuple(range(count, model.order))),
            variables=[f"entry {i + 1}" for i in range(count)],
            domains=[model.states] * count,
        )
        for count in range(1, model.order)
    )
