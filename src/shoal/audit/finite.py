"""The loss of any release with finitely many outputs, about data whose joint law is written out."""

from __future__ import annotations

import math
from itertools import permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.audit.facts import table_facts
from shoal.core.errors import InputError
from shoal.core.task import Secrets
from shoal.core.value import Floats
from shoal.models.table import JointTable


class FiniteLoss(NamedTuple):
    """The largest log-ratio over outputs and pairs of secrets, and where it is reached."""

    value: float
    facts: tuple[str, str]
    output: int
    before: tuple[float, float]
    after: tuple[float, float]


def finite_loss(table: JointTable, release: npt.ArrayLike, secrets: Secrets) -> FiniteLoss:
    """max over pairs (s, s') and outputs z of log P(z | s) / P(z | s'), by enumeration.

    `release` (…outcomes, outputs) is P(z | outcome): randomised response, several releases at
    once (outputs are then tuples, numbered), anything finite. 0/0 is no constraint, c/0 is
    infinite; secrets of probability 0 are left out.
    """
    law = _checked(table, release)
    chances = table.probability.ravel()
    whole = chances @ law
    best = FiniteLoss(0.0, ("", ""), 0, (0.0, 0.0), (0.0, 0.0))
    for one, two in table_facts(table, secrets):
        joint = [np.where(fact.holds.ravel(), chances, 0.0) @ law for fact in (one, two)]
        for (top, over), (bottom, under) in permutations(zip((one, two), joint, strict=True)):
            with np.errstate(divide="ignore", invalid="ignore"):
                gap = np.log(over / top.probability) - np.log(under / bottom.probability)
            gap = np.where(np.isnan(gap), -math.inf, gap)
            place = int(np.argmax(gap))
            if gap[place] > best.value:
                best = FiniteLoss(
                    float(gap[place]),
                    (top.name, bottom.name),
                    place,
                    (top.probability, bottom.probability),
                    (float(over[place] / whole[place]), float(under[place] / whole[place])),
                )
    return best


def _checked(table: JointTable, release: npt.ArrayLike) -> Floats:
    law = np.asarray(release, dtype=np.float64)
    if law.shape[:-1] != table.probability.shape:
        raise InputError(
            f"release has shape {law.shape}; it must be {table.probability.shape} and the outputs"
        )
    flat = law.reshape(-1, law.shape[-1])
    if not ((flat >= 0).all() and np.abs(flat.sum(axis=1) - 1).max() <= 1e-9):
        raise InputError("release must hold a law of the outputs for every outcome")
    return flat
