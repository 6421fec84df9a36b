"""What ties give away about single records, and leaked information in bits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.mechanisms.queries import LinearQuery
from shoal.records.field import PairwiseField
from shoal.records.field_laws import as_field
from shoal.records.pairwise import Dependence

# What ties give away about single records: guessing a value from tied values and a release.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordGuesses:
    """Beliefs about every record, (records, values): without ties and with them, then released.

    The adversary knows all other records. `alone` is P(value) by the model's own law of the record,
    `tied` that law given the values it is tied to; `alone_after` and `tied_after` have seen the
    release too.
    """

    places: Floats
    truth: Ints
    alone: Floats
    tied: Floats
    alone_after: Floats
    tied_after: Floats

    def right(self, beliefs: Floats) -> float:
        """Return the share of records whose likeliest value is the true one."""
        return float((beliefs.argmax(axis=1) == self.truth).mean())

    def distance(self, beliefs: Floats) -> float:
        """Return the mean l1 distance between the true value and the guess of least expected
        distance.
        """
        apart = np.abs(self.places[:, None, :] - self.places[None, :, :]).sum(axis=2)
        guess = (beliefs @ apart).argmin(axis=1)
        return float(apart[guess, self.truth].mean())


def guess_values(
    model: Dependence | PairwiseField,
    query: LinearQuery,
    output: Floats,
    scale: float,
    truth: Ints,
) -> RecordGuesses:
    """Return the beliefs about each record of an adversary who knows the values of all others.

    With ties: P(x | tied values) ∝ P(x) · Π over ties of P(value there | x), exact where ties form
    no loop and the law is that of a field. A release of Σ weights with Laplace noise of `scale`
    adds exp(-|output - others - weight(x)|₁ / scale).
    """
    size = model.domain.size
    if len(truth) != model.records:
        raise InputError(f"truth has {len(truth)} values; the model has {model.records} records")
    own, laws = _own_and_pair_laws(model)
    log_tied = np.log(np.maximum(own, 1e-300))
    with np.errstate(divide="ignore"):
        logs = np.log(laws)
    first, second = model.ties[:, 0].astype(np.int64), model.ties[:, 1].astype(np.int64)
    which = model.law_of
    forth = logs[which, :, truth[second]]  # what the second's value tells about the first
    back = np.swapaxes(logs, 1, 2)[which, :, truth[first]]
    np.add.at(log_tied, first, forth)
    np.add.at(log_tied, second, back)
    weights = np.array([[float(w) for w in row] for row in query.weights])
    others = weights[truth].sum(axis=0) - weights[truth]
    gaps = np.abs(output - others[:, None, :] - weights[None, :, :]).sum(axis=2)
    alone = own if len(own) == len(truth) else np.tile(own, (len(truth), 1))
    log_alone = np.log(np.maximum(alone, 1e-300))
    assert alone.shape == (len(truth), size)
    return RecordGuesses(
        places=model.domain.centres,
        truth=truth,
        alone=_normalise_logs(log_alone),
        tied=_normalise_logs(log_tied),
        alone_after=_normalise_logs(log_alone - gaps / scale),
        tied_after=_normalise_logs(log_tied - gaps / scale),
    )


def _own_and_pair_laws(model: Dependence | PairwiseField) -> tuple[Floats, Floats]:
    """Return a law of each record by itself, and per tie P(second = y | first = x) up to a
    constant.

    Of pairwise laws: the record's own margin, and law(x, y) / (margin(x) margin(y)), so that a
    product over ties counts the margin once. Of a field: own and potentials as they are.
    """
    field = as_field(model)
    if field is not None:
        own = np.broadcast_to(field.own, (field.records, field.domain.size))
        return np.asarray(own / own.sum(axis=1, keepdims=True)), field.potentials
    assert isinstance(model, Dependence)
    size = model.domain.size
    rows, columns = model.laws.sum(axis=2), model.laws.sum(axis=1)
    own = np.full((model.records, size), 1 / size)
    first, second = model.ties[:, 0].astype(np.int64), model.ties[:, 1].astype(np.int64)
    own[second] = columns[model.law_of]
    own[first] = rows[model.law_of]
    independent = rows[:, :, None] * columns[:, None, :]
    ratio = np.divide(model.laws, independent, out=np.zeros_like(model.laws), where=independent > 0)
    return own, ratio


def _normalise_logs(logs: Floats) -> Floats:
    """Return rows of log-weights as laws; a row that rules out everything counts all alike."""
    top = logs.max(axis=1, keepdims=True)
    weights = np.exp(np.where(np.isfinite(top), logs - top, 0.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


# Leaked information in bits.


def entropy_bits(law: Floats) -> float:
    """Return H = -Σ p log2 p; 0 log 0 is 0."""
    seen = law[law > 0]
    return float(-(seen * np.log2(seen)).sum())


def gain_bits(after: Floats, before: Floats) -> float:
    """Return Σ after · log2(after / before): what an observation added to a belief. inf from
    nothing.

    For an ε-DP release and an adversary who knows all other records it is at most ε·log2 e for
    *every* output, since no belief then grows by more than e^ε.
    """
    seen = after > 0
    if (before[seen] == 0).any():
        return math.inf
    return float((after[seen] * np.log2(after[seen] / before[seen])).sum())


def bits_allowed(epsilon: float) -> float:
    """Return ε·log2 e: the most bits an ε-DP release tells, in expectation over its outputs.

    Liu et al. 2016, Theorem 2, prints ε: that is the bound in nats. The mutual information between
    one record and the output, all other records known, is the mean of log ratios of at most ε.
    """
    return epsilon * math.log2(math.e)


def largest_fall_bits(prior: Floats, epsilon: float) -> float:
    """Return the most the entropy of a belief can fall after one single output of an ε-DP release.

    max over r in [1, e^ε]^k of H(prior) - H(prior·r / Σ prior·r). It may exceed ε·log2 e: only
    the mean over outputs is bounded so. Entropy is concave along each coordinate of r, so r is 1
    or e^ε everywhere, and moving mass to likelier values only lowers it: r = e^ε on a prefix of the
    values sorted from likely to unlikely. 0 at least: the output may be one that tells nothing.
    """
    law = np.sort(prior[prior > 0])[::-1]
    boost = math.exp(min(epsilon, 700.0))
    head = np.cumsum(law)
    # with mass m = Σ p r:  H = log2 m - (1/m) Σ p r log2(p r)
    heavy = np.cumsum(boost * law * (np.log2(law) + math.log2(boost)))
    plain = law * np.log2(law)
    light = plain.sum() - np.cumsum(plain)
    mass = boost * head + (head[-1] - head)
    entropies = np.log2(mass) - (heavy + light) / mass
    return max(0.0, entropy_bits(law / law.sum()) - float(entropies.min()))
