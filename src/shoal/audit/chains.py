"""The loss of additive noise under one Markov chain, of any order."""

from __future__ import annotations

from shoal.audit.result import Finding
from shoal.audit.scalar import scalar_finding
from shoal.audit.setting import Setting
from shoal.audit.vector import vector_finding
from shoal.audit.walk import walk
from shoal.models.chain import MarkovChain
from shoal.models.family import AnyInitialLaw
from shoal.models.order import OrderChain


def chain_finding(setting: Setting) -> Finding:
    """lower ≤ loss ≤ upper under one chain, for data of every length it covers."""
    model = setting.model
    assert isinstance(model, MarkovChain | AnyInitialLaw | OrderChain)
    measure = scalar_finding if len(setting.query.labels) == 1 else vector_finding
    return measure(setting, walk(model))
