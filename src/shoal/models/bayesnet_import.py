"""Networks made by other software, told apart by the methods they have."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.errors import InputError
from shoal.core.records import label
from shoal.core.value import Floats
from shoal.models.bayesnet import BayesNet

PRINTED = 1e-3  # rows this close to 1 were rounded when they were printed, and are divided


def imported(network: Any) -> BayesNet:
    """The network of a pgmpy object (it has get_cpds) or a pyAgrum one (it has cpt).

    Rows that miss 1 by at most 1e-3, as tables printed with a few digits do, are divided by their
    sum; rows further off are refused.
    """
    if hasattr(network, "get_cpds") and hasattr(network, "nodes"):
        return _from_pgmpy(network)
    if hasattr(network, "cpt") and hasattr(network, "names") and hasattr(network, "variable"):
        return _from_pyagrum(network)
    raise InputError(
        f"network is a {type(network).__name__}; it must have pgmpy's get_cpds and nodes, or "
        "pyAgrum's cpt, names and variable (or store it as .bif and use BayesNet.from_bif)"
    )


def _from_pgmpy(network: Any) -> BayesNet:
    """From TabularCPDs: axes are the variable, then its parents; state_names holds the values."""
    names = [str(node) for node in network.nodes()]
    parents: dict[str, tuple[str, ...]] = {}
    domains: dict[str, tuple[str, ...]] = {}
    tables: dict[str, Floats] = {}
    for node in network.nodes():
        law = network.get_cpds(node)
        if law is None:
            raise InputError(f"the network has no table for {node!r}; add its CPD first")
        name = str(node)
        parents[name] = tuple(str(variable) for variable in law.variables[1:])
        domains[name] = tuple(label(value) for value in law.state_names[node])
        tables[name] = np.moveaxis(np.asarray(law.values, dtype=np.float64), 0, -1)
    return _network(names, domains, parents, tables)


def _from_pyagrum(network: Any) -> BayesNet:
    """From CPTs: `names` lists the variable first, and the array's axes are that list reversed."""
    names = [str(name) for name in network.names()]
    parents: dict[str, tuple[str, ...]] = {}
    domains: dict[str, tuple[str, ...]] = {}
    tables: dict[str, Floats] = {}
    for name in names:
        law = network.cpt(name)
        axes = [str(axis) for axis in reversed(list(law.names))]
        array = np.asarray(law.toarray(), dtype=np.float64)
        own = axes.index(name)
        parents[name] = tuple(axis for axis in axes if axis != name)
        domains[name] = tuple(label(value) for value in network.variable(name).labels())
        tables[name] = np.moveaxis(array, own, -1)
    return _network(names, domains, parents, tables)


def _network(
    names: list[str],
    domains: dict[str, tuple[str, ...]],
    parents: dict[str, tuple[str, ...]],
    tables: dict[str, Floats],
) -> BayesNet:
    return BayesNet(
        variables=tuple(names),
        domains=tuple(domains[name] for name in names),
        parents=tuple(parents[name] for name in names),
        tables=tuple(_divided(tables[name]) for name in names),
    )


def _divided(table: Floats) -> Floats:
    totals = table.sum(axis=-1, keepdims=True)
    return np.where(np.abs(totals - 1.0) <= PRINTED, table / totals, table)
