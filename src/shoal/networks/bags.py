"""The lift on a tree decomposition: bags of variables that overlap. Proof: bags.md.

A network of small treewidth need not fall into small blocks. Neighbouring bags share variables,
their separator; a message tells how much everything behind a bag moves with the separator alone.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from shoal.additive.cone import UP, PairLaws
from shoal.core.codec import Floats, Ints
from shoal.core.walk import Wide
from shoal.networks.bayesnet import BayesNet
from shoal.networks.graph import moral
from shoal.networks.influence import joint_law
from shoal.networks.lift import Block, Forest, NetworkLift, rows_of
from shoal.networks.marginals import good_order


@lru_cache(maxsize=32)
def tree_bags(net: BayesNet) -> Forest:
    """A tree decomposition of the moral graph, one tree for each component; parents come first.

    The bags of a greedy order of elimination: a variable with those it is tied to when its turn
    comes hangs on the bag of the one among them whose turn comes next. A bag that lies in one
    hanging on it is replaced by that one.
    """
    order = good_order(net.above, net.sizes, range(len(net.variables))).order
    turn = {v: number for number, v in enumerate(order)}
    ties = {v: set(near) for v, near in enumerate(moral(net.above))}
    bags: dict[int, frozenset[int]] = {}
    hangs_on: dict[int, int | None] = {}
    for v in order:
        near = ties.pop(v)
        bags[v] = frozenset({v, *near})
        hangs_on[v] = min(near, key=turn.__getitem__, default=None)
        for u in near:
            ties[u] |= near
            ties[u] -= {u, v}
    for v in order:
        above = hangs_on[v]
        if above is not None and bags[above] <= bags[v]:
            bags[above] = bags.pop(v)
            hangs_on.update((u, above) for u in bags if hangs_on[u] == v)
    kept = [v for v in reversed(order) if v in bags]
    place = {v: number for number, v in enumerate(kept)}
    parents = (hangs_on[v] for v in kept)
    return Forest(
        tuple(tuple(sorted(bags[v])) for v in kept),
        tuple(None if above is None else place[above] for above in parents),
    )


class BagLift(NetworkLift):
    """The lift of a network along the bags of a tree decomposition.

    With S the variables that bags C and D share, E over the variables of D outside S, and bag
    states d:

        message(D → C)(s, s') = Λ( P(X_D | X_S = s), P(X_D | X_S = s'); G of D without C ),
        G of D without C (d, d') = E(d, d') + Σ over other bags next to D of their messages,

    each at the values d and d' have on their own separator.
    """

    @cached_property
    def forest(self) -> Forest:
        return tree_bags(self.net)

    @cached_property
    def _separators(self) -> dict[tuple[int, int], tuple[Block, Ints]]:
        """For bags next to each other what they share, and which of its possible values each state
        of the first has, counted in one order for both."""
        found = {}
        for one, two in self._ways():
            shared = tuple(v for v in self.forest.blocks[one] if v in self.forest.blocks[two])
            states = self.states[one]
            places = [states.variables.index(v) for v in shared]
            values = states.values[:, places]
            _, which = np.unique(values, axis=0, return_inverse=True)
            found[one, two] = shared, which.ravel()
        return found

    def _ways(self) -> list[tuple[int, int]]:
        pairs = [(c, p) for c, p in enumerate(self.forest.parent) if p is not None]
        return [way for c, p in pairs for way in ((c, p), (p, c))]

    def _growth(
        self,
        block: int,
        without: int | None,
        eta: float,
        messages: dict[tuple[int, int], Floats],
    ) -> Floats:
        """G of a bag, the messages of one neighbour and the variables shared with it left out."""
        gone = () if without is None else self._separators[block, without][0]
        total = eta * self._moved(block, gone)
        for near in self.forest.neighbours(block):
            if near != without:
                which = self._separators[block, near][1]
                total = total + messages[near, block][np.ix_(which, which)]
        return np.asarray(total * UP)

    def _moved(self, block: int, gone: Block) -> Floats:
        """E over the variables of a bag but for some of them, per unit of eta."""
        states = self.states[block]
        total = np.zeros((len(states.values),) * 2)
        for place, v in enumerate(states.variables):
            if v not in gone:
                own = states.values[:, place]
                total += self.metrics[v][np.ix_(own, own)]
        return total

    def _given(self, source: int, target: int) -> PairLaws:
        states, which = self.states[source], self._separators[source, target][1]
        law = joint_law(self.net, states.variables)
        weight = law.values.arranged(lambda table: table.ravel()[states.kept])
        holds = np.arange(which.max() + 1)[:, None] == which[None, :]
        return rows_of(weight.times(Wide.of(holds)), law.roundings)

    def _count(self, source: int, target: int) -> int:
        """Variables behind a bag, seen from one next to it."""
        seen, waiting, held = {target, source}, [source], set[int]()
        while waiting:
            bag = waiting.pop()
            held.update(self.forest.blocks[bag])
            fresh = [near for near in self.forest.neighbours(bag) if near not in seen]
            seen.update(fresh)
            waiting += fresh
        return len(held.difference(self.forest.blocks[target]))
