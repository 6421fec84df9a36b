"""The strongest adversary: the posterior of every entry given all that was released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from shoal.attacks.beliefs import Beliefs
from shoal.attacks.seen import EntriesSeen, Seen
from shoal.core.codec import Floats
from shoal.core.task import Model


def attack(model: Model, seen: Sequence[Seen], entries: int | Sequence[int]) -> Beliefs:
    """What somebody who holds `model` believes about every entry after seeing `seen`.

    Exact: forward and backward over states and sums (chains), enumeration (tables), elimination
    (Bayesian networks), or group by group and person by person (contagion). `entries` is the
    length of the data, or the lengths of several chains that are independent of each other and
    follow one another in the result.
    """
    return cast(Beliefs, model.posterior(seen, entries))


def belief_over_time(model: Model, seen: EntriesSeen) -> Floats:
    """P(entry t = value | what was seen of entries up to t), (entries, values): belief as it grows.

    The filter of a hidden Markov model; `attack` also uses what comes later.
    """
    found: Floats = model.adversary(len(seen.log_likelihood)).over_time([seen])
    return found


def most_likely(
    model: Model, seen: Sequence[Seen], entries: int | Sequence[int]
) -> tuple[str, ...]:
    """The data that is likeliest as a whole given `seen`.

    Viterbi over states and sums (chains), group by group and person by person (contagion),
    enumeration (tables, and networks with at most 2^24 outcomes). Of several that are equally
    likely it is one.
    """
    found: tuple[str, ...] = model.adversary(entries).likeliest(seen)
    return found
