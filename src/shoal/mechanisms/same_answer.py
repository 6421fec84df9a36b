"""What any number of releases tell that read the data through one and the same number.

Proof: same_answer.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import numpy as np

from shoal.core.errors import InputError
from shoal.core.task import Model, Query
from shoal.loss.exact_convolution import DEEPEST_TABLE
from shoal.loss.exact_cover import Cover
from shoal.loss.frameworks import table_laws
from shoal.loss.path_ratio import chain_ratio, path_ratio
from shoal.mechanisms.additive import eta_above
from shoal.mechanisms.exact import model_sum
from shoal.models.bayesnet import BayesNet
from shoal.models.chain import MarkovChain
from shoal.models.order import OrderChain
from shoal.models.table import JointTable
from shoal.queries.linear import LinearQuery, weighted_sum
from shoal.secrets.entries import EachEntry

MAX_TABLE = 2**14  # outcomes of a law that is written out


def one_number(query: Query) -> LinearQuery | None:
    """The sum that determines the answer of `query` on data of a public size, and no more.

    Weights are whole, from 0, without a common factor, and not turned round: equal for a count of
    either of two states, for their histogram, for a sum and its mean. None for other queries.
    """
    if not isinstance(query, LinearQuery):
        return None
    if len(query.states) == 2:
        column = [0, 1]
    elif len(query.labels) == 1:
        column = [row[0] for row in query.multiples()]
    else:
        return None
    raised = [weight - min(column) for weight in column]
    divisor = reduce(math.gcd, raised)
    weights = [weight // divisor for weight in raised]
    least = min(weights, [max(weights) - weight for weight in weights])
    return weighted_sum(query.states, dict(zip(query.states, least, strict=True)))


def same_answer_loss(number: LinearQuery, model: Model, eta: Fraction) -> float:
    """What releases about `number`, together eta-DP for one entry, tell about one entry.

    Each must read all entries of the same data, and only through the answer. Rounds up; inf where
    it is not known.
    """
    reach = int(number.lipschitz)
    decay = math.nextafter(eta_above(eta) / reach, math.inf)
    if isinstance(model, MarkovChain | OrderChain):
        return chain_ratio(Cover(model_sum(number, model)), decay)
    table = _written_out(model)
    return math.inf if table is None else _table_ratio(table, number, decay)


def _written_out(model: Model) -> JointTable | None:
    if isinstance(model, BayesNet) and math.prod(model.sizes) <= MAX_TABLE:
        try:
            return model.as_table()
        except InputError:  # an outcome too rare for a table
            return None
    small = isinstance(model, JointTable) and model.probability.size <= MAX_TABLE
    return model if small and isinstance(model, JointTable) else None


def _table_ratio(table: JointTable, number: LinearQuery, decay: float) -> float:
    found = table_laws(table, number, EachEntry())
    growth = np.nextafter(np.diff(found.values[:, 0]) * decay, math.inf)
    if found.lossy or float(growth.sum()) > DEEPEST_TABLE:
        return math.inf
    one, other = np.nonzero(found.pairs)
    roundings = found.roundings + 2 * table.probability.size
    return path_ratio(found.laws[one], found.laws[other], growth, roundings=roundings, known=0.0)
