"""The loss of additive noise under one Markov chain, of any order."""

from __future__ import annotations

from shoal.audit.result import Finding
from shoal.audit.scalar import scalar_finding
from shoal.audit.setting import Setting
from shoal.audit.vector import vector_finding
from shoal.audit.walk import Walk, walk
from shoal.core.task import Query
from shoal.models.chain import MarkovChain
from shoal.models.family import AnyInitialLaw
from shoal.models.order import OrderChain


def chain_finding(setting: Setting) -> Finding:
    """lower ≤ loss ≤ upper under one chain, for every length that it and the query admit."""
    model = setting.model
    assert isinstance(model, MarkovChain | AnyInitialLaw | OrderChain)
    measure = scalar_finding if len(setting.query.labels) == 1 else vector_finding
    return measure(setting, admitted(walk(model), setting.query))


def admitted(path: Walk, query: Query) -> Walk:
    """The chain cut to the entries a query with a public length takes: longer data is refused."""
    longest = getattr(query, "length", None)
    if longest is None or path.fixed:
        return path
    return path.cut(path.at_most(max(longest - path.order + 1, 1)))
