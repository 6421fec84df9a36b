"""The strongest adversary: the posterior of every entry given all that was released."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shoal.attacks.beliefs import Beliefs
from shoal.attacks.codes import coded as as_code
from shoal.attacks.seen import EntriesSeen, Seen
from shoal.chains.audit.walk import AuditedChain, Coded, backward, by_value, pushed, shifted, walk
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.task import Model
from shoal.networks.attack import (
    VariableColumns,
    added_by,
    added_in_chain,
    columns_of,
    crowd_beliefs,
    entries_seen,
    likeliest_crowd,
    log_likelihood,
    network_beliefs,
    too_deep,
)
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import MAX_OUTCOMES, JointTable

MOST_CELLS = 2_000_000_000  # nodes × states² × codes of one pass
MOST_PATHS = 200_000_000  # cells of the best-path table
MOST_LISTED = 2**20  # outcomes of a network that is listed where doubles would lose some


def attack(model: Model, seen: Sequence[Seen], entries: int | Sequence[int]) -> Beliefs:
    """What somebody who holds `model` believes about every entry after seeing `seen`.

    Exact: forward and backward over states and sums (chains), enumeration (tables), elimination
    (Bayesian networks), or group by group and person by person (contagion). `entries` is the
    length of the data, or the lengths of several chains that are independent of each other and
    follow one another in the result.
    """
    if isinstance(model, JointTable) or (
        isinstance(model, BayesNet) and _better_listed(model, seen)
    ):
        return _listed(model, seen)
    if isinstance(model, BayesNet):
        return network_beliefs(model, seen)
    if isinstance(model, Contagion):
        return crowd_beliefs(model, seen)
    coded, likelihood, nodes = _observed(model, seen, entries)
    joint = np.concatenate(_joints(coded, nodes, likelihood))
    return Beliefs.from_joint(coded.walk.values, _log_priors(coded.walk, nodes), joint)


def belief_over_time(model: Model, seen: EntriesSeen) -> Floats:
    """P(entry t = value | what was seen of entries up to t), (entries, values): belief as it grows.

    The filter of a hidden Markov model; `attack` also uses what comes later.
    """
    coded, _, nodes = _observed(model, [seen], len(seen.log_likelihood))
    path = coded.walk
    assert path.initial is not None
    with np.errstate(divide="ignore"):
        law = np.log(path.initial)
    rows = []
    for node in range(nodes):
        for entry, shown in path.brought(node):  # the first node of a longer memory brings several
            law = law + (0.0 if coded.tilt is None else coded.tilt[entry][shown])
            total = np.logaddexp.reduce(law)
            if total == -math.inf:
                raise InputError("what was seen is impossible under the model")
            law = law - total
            rows.append(by_value(law, shown, len(path.values)))
        law = pushed(law[:, None], path.matrix(node))[:, 0] if node + 1 < nodes else law
    return np.exp(np.array(rows))


def most_likely(
    model: Model, seen: Sequence[Seen], entries: int | Sequence[int]
) -> tuple[str, ...]:
    """The data that is likeliest as a whole given `seen`.

    Viterbi over states and sums (chains), group by group and person by person (contagion),
    enumeration (tables, and networks with at most 2^24 outcomes). Of several that are equally
    likely it is one.
    """
    if isinstance(model, Contagion):
        return likeliest_crowd(model, seen)
    if isinstance(model, JointTable | BayesNet):
        weight = _outcome_logs(model, seen)
        if weight.max() == -math.inf:
            raise InputError("what was seen is impossible under the model")
        best = np.unravel_index(int(np.argmax(weight)), weight.shape)
        return tuple(domain[int(i)] for domain, i in zip(model.domains, best, strict=True))
    coded, likelihood, nodes = _observed(model, seen, entries)
    if nodes * coded.walk.size * coded.width(nodes) > MOST_PATHS:
        raise Refused("the data is too long for its best path; attack a shorter stretch")
    states = _best_states(coded, nodes, likelihood)
    path = coded.walk
    first = [int(values[states[0]]) for values in path.first]
    rest = [int(path.shown[state]) for state in states[1:]]
    return tuple(path.values[value] for value in first + rest)


def _observed(
    model: Model, seen: Sequence[Seen], entries: int | Sequence[int]
) -> tuple[Coded, Floats, int]:
    """The walk with all sums as one code, the likelihood of each code, and the number of nodes."""
    path, nodes = joined_walk(model, entries)
    total = nodes + path.order - 1
    columns = VariableColumns(path.values, (np.arange(len(path.values)),) * total)
    tilts = entries_seen(seen, columns)
    code = as_code(added_in_chain(path.values, total, seen))
    cells = code.width * nodes * path.size**2
    if cells > MOST_CELLS:
        raise Refused(
            f"the attack on {len(code.start)} numbers at once would take {cells:.1g} steps; "
            "look at one of them, or at a shorter stretch of data"
        )
    alike = bool((code.added == code.added[:1]).all())
    coded = Coded(path, code.added[0] if alike else code.added, tilts)
    return coded, log_likelihood(seen, code.numbers()[: coded.width(nodes)]), nodes


def joined_walk(model: Model, entries: int | Sequence[int]) -> tuple[AuditedChain, int]:
    """One walk through all chains, and its nodes: a new chain draws its first state afresh.

    Chains without entries are left out. A model with one matrix per step also gives the law of
    data that ends earlier, never of data that goes on for longer.
    """
    if isinstance(model, DayChain):
        model = _as_chain(model)
    if not isinstance(model, MarkovChain | OrderChain):
        raise Refused(f"an adversary holds one law; {model.describe()} is not one")
    lengths = [n for n in ([entries] if isinstance(entries, int) else entries) if n != 0]
    path = walk(model)
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    if shortest < path.order:
        raise Refused(f"data of {shortest} entries is shorter than the model's order")
    if path.fixed and longest > len(path.matrices) + 1:
        raise Refused(
            f"data of {longest} entries is longer than the model, which has one matrix for each "
            f"step of {len(path.matrices) + 1}; give it more, or attack a shorter stretch"
        )
    if len(lengths) == 1:
        return path, longest - path.order + 1
    if path.order > 1:
        raise Refused("several chains of higher order are not attacked together; take one")
    assert path.initial is not None
    restart = np.broadcast_to(path.initial, (path.size, path.size))
    matrices = []
    for length in lengths:
        matrices += [path.matrix(step) for step in range(length - 1)] + [restart]
    joined = AuditedChain(
        path.values, path.initial, np.array(matrices[:-1]), path.shown, path.first, sum(lengths)
    )
    return joined, sum(lengths)


def _as_chain(day: DayChain) -> MarkovChain:
    """The same law as a chain with one matrix per step; a day of one slot has none to use."""
    if day.slots == 1:
        return MarkovChain(
            states=day.states, transition=np.eye(day.size), initial=day.initial, length=1
        )
    return MarkovChain(
        states=day.states, transition=day.transition, initial=day.initial, length=day.slots
    )


def _joints(coded: Coded, nodes: int, likelihood: Floats) -> list[Floats]:
    """log P(entry = value, output) of every entry, in order.

    Forward tables are kept at every √nodes-th node only and made again where they are needed.
    """
    path = coded.walk
    assert path.initial is not None
    block = max(1, math.isqrt(nodes))
    with np.errstate(divide="ignore"):
        table = np.log(path.initial)[:, None]
    kept = [table]
    for node in range(nodes - 1):
        table = _stepped(coded, table, node)
        if (node + 1) % block == 0:
            kept.append(table)
    later = backward(coded, nodes, likelihood)
    rows: list[Floats] = []
    for number in range(len(kept) - 1, -1, -1):
        first, last = number * block, min((number + 1) * block, nodes)
        earlier = [kept[number]]
        for node in range(first, last - 1):
            earlier.append(_stepped(coded, earlier[-1], node))
        for node in range(last - 1, first - 1, -1):
            joint = np.logaddexp.reduce(earlier[node - first] + next(later), axis=1)
            brought = [by_value(joint, shown, len(path.values)) for _, shown in path.brought(node)]
            rows.append(np.array(brought))
    return rows[::-1]


def _stepped(coded: Coded, table: Floats, node: int) -> Floats:
    seen = shifted(table + coded.tilts(node)[:, None], coded.codes(node))
    return pushed(seen, coded.walk.matrix(node))


def _log_priors(path: AuditedChain, nodes: int) -> Floats:
    """log P(entry = value) of every entry; in logs, so that no rare value becomes impossible."""
    assert path.initial is not None
    with np.errstate(divide="ignore"):
        law = np.log(path.initial)
    rows = []
    for node in range(nodes):
        rows += [by_value(law, shown, len(path.values)) for _, shown in path.brought(node)]
        law = pushed(law[:, None], path.matrix(node))[:, 0] if node + 1 < nodes else law
    return np.array(rows)


def _best_states(coded: Coded, nodes: int, likelihood: Floats) -> list[int]:
    """The states of the likeliest path: the largest over predecessors instead of their sum."""
    path = coded.walk
    assert path.initial is not None
    with np.errstate(divide="ignore"):
        table = np.log(path.initial)[:, None]
    pointers: list[Ints] = []
    for node in range(nodes - 1):
        ready = shifted(table + coded.tilts(node)[:, None], coded.codes(node))
        with np.errstate(divide="ignore"):
            moves = np.log(path.matrix(node))[:, :, None] + ready[:, None, :]
        pointers.append(np.argmax(moves, axis=0).astype(np.int16))
        table = moves.max(axis=0)
    last = shifted(table + coded.tilts(nodes - 1)[:, None], coded.codes(nodes - 1)) + likelihood
    if last.max() == -math.inf:
        raise InputError("what was seen is impossible under the model")
    state, code = (int(i) for i in np.unravel_index(int(np.argmax(last)), last.shape))
    states = [state]
    code -= int(coded.codes(nodes - 1)[state])
    for node in range(nodes - 2, -1, -1):
        state = int(pointers[node][state, code])
        code -= int(coded.codes(node)[state])
        states.append(state)
    return states[::-1]


def _outcome_logs(model: JointTable | BayesNet, seen: Sequence[Seen]) -> Floats:
    """log P(outcome, output) for every outcome of a table, or of a network that can be listed."""
    columns, prior = columns_of(model), _log_outcomes(model)
    places = np.indices(prior.shape).reshape(prior.ndim, -1)
    answers = sum(rows[own] for rows, own in zip(added_by(model, seen), places, strict=True))
    out = prior.ravel() + log_likelihood(seen, np.asarray(answers))
    logs = entries_seen(seen, columns)
    if logs is not None:
        rows = [logs[v, own][places[v]] for v, own in enumerate(columns.places)]
        out = out + np.sum(rows, axis=0)
    return np.asarray(out.reshape(prior.shape))


def _log_outcomes(model: JointTable | BayesNet) -> Floats:
    """log P(outcome), one axis per variable; a network's in logs from the start."""
    with np.errstate(divide="ignore"):
        if isinstance(model, JointTable):
            return np.asarray(np.log(model.probability))
        outcomes = math.prod(model.sizes)
        if outcomes > MAX_OUTCOMES:
            raise Refused(
                f"the network has {outcomes:.3g} outcomes, and the likeliest of them is found by "
                f"looking at each; at most {MAX_OUTCOMES} are tried: attack() believes without that"
            )
        out = np.zeros(model.sizes)
        for scope, table in model.factors():
            order = np.argsort(scope)
            shape = [size if v in scope else 1 for v, size in enumerate(model.sizes)]
            out = out + np.log(table).transpose(order).reshape(shape)
        return out


def _better_listed(net: BayesNet, seen: Sequence[Seen]) -> bool:
    """Whether a network is small, and doubles would lose some of its outcomes in an elimination."""
    return math.prod(net.sizes) <= MOST_LISTED and too_deep(net, seen)


def _listed(model: JointTable | BayesNet, seen: Sequence[Seen]) -> Beliefs:
    columns, axes = columns_of(model), range(len(model.domains))

    def by_variable(logs: Floats) -> Floats:
        laws = [
            np.logaddexp.reduce(logs, axis=tuple(a for a in axes if a != axis)) for axis in axes
        ]
        return columns.spread(laws, -math.inf)

    prior = by_variable(_log_outcomes(model))
    return Beliefs.from_joint(columns.values, prior, by_variable(_outcome_logs(model, seen)))
