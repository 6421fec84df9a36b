"""The lift on Bayesian networks: messages along a forest of blocks of variables, or of bags.

Messages along the edges of a network's skeleton are unsound through a collider. A partition into
blocks such that blocks, tied when some of their variables are tied in the moral graph, form a
forest has no such trouble: given a block, everything on one side is independent of the rest.
A network of small treewidth may have no such partition into small blocks. There the bags of a tree
decomposition overlap, and a message depends on the values of the variables that two bags share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import Refused
from shoal.core.progress import OutOfTime, doing
from shoal.core.task import LiftedModel
from shoal.core.walk import UNIT, Wide
from shoal.mechanisms.cone import (
    RULES,
    UP,
    PairLaws,
    Rule,
    bearable,
    prepare,
    round_up_eta,
    steady_leak,
)
from shoal.mechanisms.lift import climb
from shoal.networks.bayesnet import BayesNet
from shoal.networks.graph import (
    Neighbours,
    connected_components,
    distances,
    greedy_order,
    moral_graph,
)
from shoal.networks.influence import joint_law, normalise_rows

Block = tuple[int, ...]
Messages = dict[tuple[int, int], Floats]
MAX_ROOTS = 128  # of a component, evenly spread, are tried


class Forest(NamedTuple):
    """Blocks of variables, and for every block the number of its parent (None for a root).

    Parents come before their children.
    """

    blocks: tuple[Block, ...]
    parent: tuple[int | None, ...]

    def neighbours(self, block: int) -> list[int]:
        """Return the blocks next to one."""
        above = self.parent[block]
        below = [b for b, p in enumerate(self.parent) if p == block]
        return below if above is None else [above, *below]

    def directed_edges(self) -> list[tuple[int, int]]:
        """Return the directed pairs of neighbouring blocks: from the leaves inwards, and back."""
        pairs = [(c, p) for c, p in enumerate(self.parent) if p is not None]
        return [*reversed(pairs), *((p, c) for c, p in pairs)]

    def block_of_variables(self) -> dict[int, int]:
        """Return the block of every variable; one of its blocks where they overlap."""
        return {v: b for b, block in enumerate(self.blocks) for v in block}


@lru_cache(maxsize=32)
def block_forest(net: BayesNet) -> Forest:
    """Return a forest of small blocks: of the roots tried, the best for each component."""
    graph = moral_graph(net.above)
    blocks: list[Block] = []
    parent: list[int | None] = []
    for part in connected_components(graph):
        roots = part[:: -(-len(part) // MAX_ROOTS)]
        options = (_layer_blocks(graph, root) for root in roots)
        chosen = min(options, key=lambda option: _state_counts(net.sizes, option[0]))
        offset = len(blocks)
        blocks += chosen[0]
        parent += [None if p is None else p + offset for p in chosen[1]]
    return Forest(tuple(blocks), tuple(parent))


def _layer_blocks(graph: Neighbours, root: int) -> tuple[list[Block], list[int | None]]:
    """Return layers by distance from a root, split where nothing farther out connects them.

    Variables of one layer that are connected through the same or later layers form a block; what
    such a set is tied to one layer further in is connected through it, so lies in one block.
    """
    far = distances(graph, root)
    blocks: list[Block] = []
    parent: list[int | None] = []
    home: dict[int, int] = {}
    for depth in range(max(far.values()) + 1):
        outside = [v for v, distance in far.items() if distance >= depth]
        for part in connected_components(graph, outside):
            block = tuple(v for v in part if far[v] == depth)
            above = {home[near] for v in block for near in graph[v] if far[near] < depth}
            home.update((v, len(blocks)) for v in block)
            blocks.append(block)
            parent.append(min(above) if above else None)
    return blocks, parent


def _state_counts(sizes: Sequence[int], blocks: list[Block]) -> tuple[int, int]:
    """Return the states of the largest block, then of all together."""
    states = [math.prod(sizes[v] for v in block) for block in blocks]
    return max(states), sum(states)


# Messages along trees of blocks.
#
# With blocks B, C, … whose quotient of the moral graph is a forest, block states
# being tuples of values, and E(b, b') the sum of the entry metric over the variables of a block:
#
#     G_B(b, b')   = E(b, b') + Σ over blocks C next to B of message(C → B)(b, b'),
#     message(C → B)(b, b') = Λ( P(X_C | X_B = b), P(X_C | X_B = b'); G of C without B ),
#     loss(i; x, x') = Λ( P(X_B | X_i = x), P(X_B | X_i = x'); G_B )   for i in B.
#
# On a tree-shaped network blocks are single variables, and the loss is E plus the messages of a
# variable's neighbours. Every message is at most eta for each variable behind it (group privacy).
# Proof: mechanisms/lift.md. Everything rounds up.


MAX_BLOCK_STATES = 1024  # of one block; beyond, every message would take minutes


class BlockStates(NamedTuple):
    """The possible states of a block: values of its variables, (states, variables)."""

    variables: tuple[int, ...]
    values: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]


@dataclass(eq=False)
class NetworkLift:
    """A network and the metric of each of its variables, per unit of eta.

    metrics[v][x, y] ≤ 1 bounds the move of a mechanism's log-density when variable v changes from
    x to y, divided by eta; 1 off the diagonal for any eta-DP mechanism.
    """

    net: BayesNet
    metrics: tuple[Floats, ...]

    def __post_init__(self) -> None:
        """Refuse a network whose smallest blocks are too large."""
        if self.largest > MAX_BLOCK_STATES:
            raise Refused(
                f"the lift needs blocks of variables with at most {MAX_BLOCK_STATES} values "
                f"together, and the smallest found for this network have {self.largest}; use "
                "markov-quilt or group"
            )

    @cached_property
    def largest(self) -> int:
        """The values of the largest block."""
        return max(math.prod(self.net.sizes[v] for v in b) for b in self.forest.blocks)

    @cached_property
    def forest(self) -> Forest:
        return block_forest(self.net)

    @cached_property
    def states(self) -> tuple[BlockStates, ...]:
        """The states each block can take."""
        found = []
        for block in self.forest.blocks:
            law = joint_law(self.net, block)
            kept = np.flatnonzero(law.possible.ravel())
            values = np.stack(np.unravel_index(kept, law.possible.shape), axis=1)
            found.append(BlockStates(block, values, kept))
        return tuple(found)

    @cached_property
    def towards(self) -> dict[tuple[int, int], PairLaws]:
        """For blocks C, B next to each other: the rows P(X_C | X_B = b), ready for Λ."""
        return {(c, b): self._rows_given(c, b) for c, b in self.forest.directed_edges()}

    @cached_property
    def behind(self) -> dict[tuple[int, int], int]:
        """How many variables lie behind C as seen from B."""
        return {(c, b): self._count_behind(c, b) for c, b in self.towards}

    @cached_property
    def own(self) -> tuple[PairLaws, ...]:
        """For every variable i in block B: the rows P(X_B | X_i = x)."""
        home = self.forest.block_of_variables()
        return tuple(self._rows_of_variable(i, home[i]) for i in range(len(self.net.variables)))

    @cached_property
    def possible(self) -> tuple[npt.NDArray[np.bool_], ...]:
        """The values each variable can take: the others are no secrets."""
        return tuple(joint_law(self.net, (i,)).possible for i in range(len(self.net.variables)))

    @cached_property
    def rule(self) -> Rule:
        """The loosest of the rules that are used: each law takes the tightest it can bear."""
        used = {bearable(laws) for laws in (*self.towards.values(), *self.own)}
        return next(rule for rule in RULES if rule in used)

    def loss(self, eta: float, rule: Rule | None = None) -> LiftedModel:
        """Return what any release that is eta-DP for one variable tells about a variable. Rounds
        up.

        The same for the same eta, independent of earlier calls, and for any that is a little
        smaller (`steady_leak`).
        """
        at = round_up_eta(eta)
        messages = self._messages(at, rule)
        part_of = {v: len(part) for part in self.net.parts for v in part}
        home = self.forest.block_of_variables()
        growth = [self._block_growth(b, None, at, messages) for b in range(len(self.states))]
        worst = LiftedModel.at(eta, 0.0, None, 0.0, rule or self.rule)
        for i, laws in enumerate(self.own):
            together = eta * part_of[i] * UP
            losses = steady_leak(laws, growth[home[i]], rule)
            losses = np.minimum(losses, together) * UP
            worst = larger_loss(worst, i, losses, self.possible[i], self.metrics[i])
        return worst

    def largest_eta(self, epsilon: float, rule: Rule | None = None) -> LiftedModel | None:
        """Return the loss at the largest eta found with loss ≤ epsilon; None when there is none
        above 0.

        The loss grows with eta; it is at most eta for each variable tied together and at least
        what the variable itself tells.
        """
        low = epsilon / max(map(len, self.net.parts)) * (1 - 2.0**-40)
        high = epsilon / max(self._largest_metric(), 1 / 64) * UP
        first = self.loss(low, rule)
        if first.value > epsilon:
            return None
        best = first

        def try_eta(eta: float, _: LiftedModel | None) -> LiftedModel:
            nonlocal best
            found = self.loss(eta, rule)
            best = found if found.value <= epsilon and found.eta > best.eta else best
            return found

        try:
            return climb(try_eta, first, epsilon, high)
        except OutOfTime:
            return best

    def _largest_metric(self) -> float:
        """Return the largest metric between two possible values of a variable."""
        return max(
            float(metric[np.ix_(laws.present, laws.present)].max(initial=0.0))
            for metric, laws in zip(self.metrics, self.own, strict=True)
        )

    def _messages(self, eta: float, rule: Rule | None) -> Messages:
        """Return message(C → B), (states of B, states of B), for all neighbours."""
        messages: Messages = {}
        for number, (source, target) in enumerate(ways := self.forest.directed_edges()):
            doing("the lift, block by block", number, len(ways))
            growth = self._block_growth(source, target, eta, messages)
            laws = self.towards[source, target]
            message = steady_leak(laws, growth, rule)
            group = eta * self.behind[source, target] * UP
            np.minimum(message, group, out=message)
            np.fill_diagonal(message, 0.0)
            messages[source, target] = message
        return messages

    def _block_growth(
        self, block: int, without: int | None, eta: float, messages: Messages
    ) -> Floats:
        """Return G of a block, (states, states), without the message of the block `without`.

        Variables that the two blocks share are left out too.
        """
        total = eta * self._block_metric(block, self._shared_variables(block, without))
        for near in self.forest.neighbours(block):
            if near != without:
                total = total + self._message_between_states(near, block, messages)
        return np.asarray(total * UP)

    def _block_metric(self, block: int, excluded: Block) -> Floats:
        """Return E(b, b') of a block: the sum of the metrics of its variables, per unit of eta.

        Variables in `excluded` add nothing. Each pair of arguments is computed once.
        """
        if (block, excluded) not in self._block_metrics:
            states = self.states[block]
            total = np.zeros((len(states.values),) * 2)
            for position, v in enumerate(states.variables):
                if v not in excluded:
                    own = states.values[:, position]
                    total += self.metrics[v][np.ix_(own, own)]
            self._block_metrics[block, excluded] = total
        return self._block_metrics[block, excluded]

    @cached_property
    def _block_metrics(self) -> dict[tuple[int, Block], Floats]:
        """The results of `_block_metric` so far."""
        return {}

    def _shared_variables(self, block: int, other: int | None) -> Block:
        """Return the variables that two neighbouring blocks share: none, blocks are disjoint."""
        return ()

    def _message_between_states(self, source: int, target: int, messages: Messages) -> Floats:
        """Return the message of `source` for each pair of states of `target`."""
        return messages[source, target]

    def _rows_given(self, source: int, target: int) -> PairLaws:
        """Return the rows P(X_source | X_target = b) over possible states, ready for Λ."""
        one, two = self.states[target], self.states[source]
        law = joint_law(self.net, (*one.variables, *two.variables))
        cells = math.prod(self.net.sizes[v] for v in one.variables)
        chosen = np.ix_(one.kept, two.kept)
        values = law.values.map_layout(lambda table: table.reshape(cells, -1)[chosen])
        return pair_laws(values, law.roundings)

    def _rows_of_variable(self, variable: int, block: int) -> PairLaws:
        """Return the rows P(X_block | X_variable = x) over possible states, ready for Λ."""
        states = self.states[block]
        law = joint_law(self.net, states.variables)
        place = states.variables.index(variable)
        shown = states.values[:, place]
        weight = law.values.map_layout(lambda table: table.ravel()[states.kept])
        holds = np.arange(self.net.sizes[variable])[:, None] == shown[None, :]
        return pair_laws(weight.times(Wide.of(holds)), law.roundings)

    def _count_behind(self, source: int, target: int) -> int:
        """Return how many variables lie in blocks reached from `source` without passing
        `target`.
        """
        seen, waiting, held = {target, source}, [source], set[int]()
        while waiting:
            block = waiting.pop()
            held.update(self.forest.blocks[block])
            fresh = [near for near in self.forest.neighbours(block) if near not in seen]
            seen.update(fresh)
            waiting += fresh
        return len(held.difference(self.forest.blocks[target]))


def larger_loss(
    worst: LiftedModel, variable: int, losses: Floats, possible: Bools, metric: Floats
) -> LiftedModel:
    """Return `worst`, or the largest loss between two possible values of a variable, if more."""
    losses = np.where(possible[:, None] & possible[None, :], losses, 0.0)
    np.fill_diagonal(losses, 0.0)
    x, other = (int(n) for n in np.unravel_index(int(losses.argmax()), losses.shape))
    if losses[x, other] <= worst.loss:
        return worst
    at_node = float(worst.eta * metric[x, other])
    value, rule = float(losses[x, other]), worst.rule
    return LiftedModel.at(worst.eta, value, variable, at_node, rule, (x, other))


def hamming_metrics(net: BayesNet) -> tuple[Floats, ...]:
    """Return the metric of each variable in which any change counts 1."""
    return tuple(1.0 - np.eye(size) for size in net.sizes)


def pair_laws(values: Wide, roundings: int) -> PairLaws:
    """Return the rows of a joint table divided by their sums, with the rounding error of their
    logs.
    """
    error = 1.01 * (roundings + values.shape[1] + 4) * UNIT
    return prepare(normalise_rows(values), possible=values.possible, error=2 * error)


# Messages along a tree decomposition: bags of variables that overlap. Proof: bags.md.


@lru_cache(maxsize=32)
def bag_forest(net: BayesNet) -> Forest:
    """Return a tree decomposition of the moral graph, one tree for each component.

    The bags come from a greedy order of elimination. The bag of a variable holds the variable and
    those it is tied to when it is eliminated. Its parent is the bag of the one among them that is
    eliminated next. A bag that is a subset of a child is replaced by that child.
    """
    order = greedy_order(net.above, net.sizes, range(len(net.variables))).order
    turn = {v: number for number, v in enumerate(order)}
    ties = {v: set(near) for v, near in enumerate(moral_graph(net.above))}
    bags: dict[int, frozenset[int]] = {}
    parent: dict[int, int | None] = {}
    for v in order:
        near = ties.pop(v)
        bags[v] = frozenset({v, *near})
        parent[v] = min(near, key=turn.__getitem__, default=None)
        for u in near:
            ties[u] |= near
            ties[u] -= {u, v}
    for v in order:
        above = parent[v]
        if above is not None and bags[above] <= bags[v]:
            bags[above] = bags.pop(v)
            parent.update((u, above) for u in bags if parent[u] == v)
    kept = [v for v in reversed(order) if v in bags]
    position = {v: number for number, v in enumerate(kept)}
    parents = (parent[v] for v in kept)
    return Forest(
        tuple(tuple(sorted(bags[v])) for v in kept),
        tuple(None if above is None else position[above] for above in parents),
    )


class BagLift(NetworkLift):
    """The lift of a network along the bags of a tree decomposition.

    With S the variables that bags C and D share, E over the variables of D outside S, and bag
    states d:

        message(D → C)(s, s') = Λ( P(X_D | X_S = s), P(X_D | X_S = s'); G of D without C ),
        G of D without C (d, d') = E(d, d') + Σ over other bags next to D of their messages,

    each at the values that d and d' give to the variables the two bags share.
    """

    @cached_property
    def forest(self) -> Forest:
        return bag_forest(self.net)

    @cached_property
    def _separators(self) -> dict[tuple[int, int], tuple[Block, Ints]]:
        """For neighbouring bags C, D: the variables they share, and the separator value of each
        state of C.

        Separator values are numbers of the possible ones, in the same order for (C, D) and (D, C).
        """
        found = {}
        for one, two in self.forest.directed_edges():
            shared = tuple(v for v in self.forest.blocks[one] if v in self.forest.blocks[two])
            states = self.states[one]
            values = states.values[:, [states.variables.index(v) for v in shared]]
            _, numbers = np.unique(values, axis=0, return_inverse=True)
            found[one, two] = shared, numbers.ravel()
        return found

    def _shared_variables(self, block: int, other: int | None) -> Block:
        """Return the variables that two neighbouring bags share; none without a second bag."""
        return () if other is None else self._separators[block, other][0]

    def _message_between_states(self, source: int, target: int, messages: Messages) -> Floats:
        """Return the message of `source` for each pair of states of `target`, by their separator
        values.
        """
        numbers = self._separators[target, source][1]
        return messages[source, target][np.ix_(numbers, numbers)]

    def _rows_given(self, source: int, target: int) -> PairLaws:
        """Return the rows P(X_source | X_S = s), S the shared variables, ready for Λ."""
        states, numbers = self.states[source], self._separators[source, target][1]
        law = joint_law(self.net, states.variables)
        weight = law.values.map_layout(lambda table: table.ravel()[states.kept])
        holds = np.arange(numbers.max() + 1)[:, None] == numbers[None, :]
        return pair_laws(weight.times(Wide.of(holds)), law.roundings)
