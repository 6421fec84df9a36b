"""From a [[model]] section to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.contexts.spec import DayModel, day_of
from shoal.core.errors import SpecError
from shoal.core.task import Model
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.spec import ContagionModel, NetworkModel, contagion_of, network_file, network_of
from shoal.networks.table import JointTable
from shoal.places.spec import GridWalkModel, grid_walk_of
from shoal.places.walk import SparseChain
from shoal.records.field import PairwiseField
from shoal.records.spec import DependenceModel, GroupsModel, dependence_of, groups_of
from shoal.records.ties import Dependence
from shoal.spec.document import (
    ChainModel,
    IntervalModel,
    MixingModel,
    ModelFile,
    ModelSection,
    OrderModel,
    TableModel,
)
from shoal.spec.fields import load_stored

# the kind a section names -> what a stored model of that kind may be
STORED: dict[str, tuple[type, ...]] = {
    "markov-chain": (MarkovChain, AnyInitialLaw),
    "order-chain": (OrderChain,),
    "mixing": (MixingSummary,),
    "interval": (IntervalChains,),
    "table": (JointTable,),
    "day-chain": (DayChain,),
    "sparse-chain": (SparseChain,),
    "dependence": (Dependence, PairwiseField),
    "bayes-net": (BayesNet,),
    "contagion": (Contagion,),
}


def model_of(section: ModelSection, folder: Path) -> Model:
    """The model a section describes; files are found relative to `folder`."""
    match section:
        case ChainModel():
            return _chain(section)
        case OrderModel():
            return OrderChain(
                states=tuple(section.states),
                order=section.order,
                conditional=_numbers(section.conditional, "conditional"),
                initial=_numbers(section.initial, "initial"),
                length=section.length,
            )
        case MixingModel():
            return MixingSummary(
                pi_min=float(section.pi_min), gap=float(section.gap), length=section.length
            )
        case IntervalModel():
            return _interval(section)
        case TableModel():
            return JointTable(
                variables=tuple(section.variables),
                domains=tuple(tuple(domain) for domain in section.domains),
                probability=_numbers(section.probability, "probability"),
            )
        case DayModel():
            return day_of(section)
        case DependenceModel():
            return dependence_of(section, folder)
        case NetworkModel():
            return network_of(section)
        case ContagionModel():
            return contagion_of(section, folder)
        case GroupsModel():
            return groups_of(section)
        case GridWalkModel():
            return grid_walk_of(section)
        case ModelFile():
            return _from_file(section, folder)


def states_of(section: ModelSection, model: Model) -> tuple[str, ...]:
    """The values an entry can take: the model's own, or those its section names."""
    if isinstance(section, MixingModel):
        return tuple(section.states)
    if model.states is None:
        raise SpecError(
            "does not say which values an entry can take, or its variables take different ones; "
            "counts, sums, means and histograms need one list of states for all entries"
        )
    return model.states


def _chain(section: ChainModel) -> Model:
    transition = _numbers(section.transition, "transition")
    if section.initial == "any":
        return AnyInitialLaw(
            states=tuple(section.states), transition=transition, length=section.length
        )
    initial: Any = section.initial
    if initial != "stationary":
        initial = _numbers(initial, "initial")
    return MarkovChain.of(transition, states=section.states, initial=initial, length=section.length)


def _interval(section: IntervalModel) -> Model:
    bounds = {"low": section.low, "high": section.high}
    for key, values in bounds.items():
        if len(values) != 2 or any(isinstance(value, list) for value in values):
            raise SpecError(f"{key} holds {len(values)} items; it must be two probabilities")
    return IntervalChains(
        states=tuple(section.states),
        low=(section.low[0], section.low[1]),
        high=(section.high[0], section.high[1]),
        length=section.length,
    )


def _from_file(section: ModelFile, folder: Path) -> Model:
    path = folder / section.file
    stored: Any = network_file(path) or load_stored(path, "file")
    kinds = STORED if section.kind is None else {section.kind: STORED[section.kind]}
    classes = tuple(cls for several in kinds.values() for cls in several)
    if not isinstance(stored, classes):
        wanted = " or ".join(repr(kind) for kind in kinds)
        raise SpecError(
            f"file is {section.file!r}, which holds a {type(stored).__name__}; it must hold a "
            f"model of kind {wanted} (write one with `shoal fit`)"
        )
    return cast(Model, stored)


def _numbers(nested: list[Any], field: str) -> Any:
    try:
        return np.array(nested, dtype=np.float64)
    except ValueError:
        raise SpecError(
            f"{field} has rows of different lengths; give every row one number per state"
        ) from None
