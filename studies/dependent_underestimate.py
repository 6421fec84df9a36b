"""Figure 7 of the dependent-DP paper: what leaks when coefficients are underestimated.

The paper attacks clustering whose noise was set with 0.8 and 0.9 of every ρ_ij. Here the loss and
the leaked information are computed exactly for friends whose joint law is known, and the attack on
centroids is run as in the paper.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import fmean

import numpy as np

from shoal.audit.exact import audit_noise
from shoal.core.codec import Floats
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.plans import sampler_for
from shoal.mechanisms.queries import LinearQuery, weighted_sum
from shoal.networks.laws import laws_of_table
from shoal.networks.table import JointTable
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.primitives import SeededRng, round_up
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField, field_of_pairs, friend_field
from shoal.records.place_attack import People, ReleasedCentroids, locate
from shoal.records.published import published_scale
from shoal.records.sources import FriendModel
from studies.dependent_attack import ROUNDS, adversaries, targets_of
from studies.dependent_kmeans import models_for
from studies.dependent_sources import people
from studies.report import Cell, Report, Table

SHARES = {"ρ": 1.0, "0.9 ρ": 0.9, "0.8 ρ": 0.8, "0, ordinary DP": 0.0}
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
ATTACKED = (Fraction(10), Fraction(100), Fraction(1000))
PLACES = RecordDomain.points([0, 1, 2, 3])
FRIENDS = [[0, 1], [1, 2], [1, 3], [3, 4]]
RELEASES = 2


def run() -> Report:
    """Exact losses and leaked bits of small groups of friends, then the attack on centroids."""
    tables = [
        exact_table("a tree of friends, pair laws of Eq. (26)", _tree()),
        exact_table("a loop of friends, potentials of Eq. (26)", _loop()),
    ]
    tables += [attack_table(source, town) for source, town in people()]
    return Report(
        name="dependent-underestimate",
        source="Liu, Chakraborty & Mittal 2016, Section VI-D3, Figure 7.",
        tables=tuple(tables),
    )


def exact_table(title: str, field: PairwiseField) -> Table:
    """Per equation and share: loss over ε, and the bits one release tells about a record."""
    table, query = field.table(), position_sum()
    rows: list[tuple[Cell, ...]] = []
    for equation, printed in (("(14)", False), ("(18)", True)):
        for name, share in SHARES.items():
            cells = [_loss_and_bits(field, table, query, e, printed, share) for e in EPSILONS]
            rows.append((equation, name, *cells))
    return Table(
        title=f"{title}: loss / ε (and leaked bits) of the sum of positions",
        columns=("equation", "coefficients", *(f"ε = {float(e):g}" for e in EPSILONS)),
        rows=tuple(rows),
        notes=(
            "a loss above ε breaks the claim; ordinary DP is the published scale with ρ = 0",
            "bits: the largest mutual information of one record and the released sum",
        ),
    )


def attack_table(source: str, town: People) -> Table:
    """Leaked information of the second attack on released centroids, as in the paper's figure."""
    query = town.city.query(town.places, clusters=8, rounds=ROUNDS)
    pairs, _ = models_for(town, np.arange(len(town)))
    task = Task(query=query, secrets=EachEntry(), family=(pairs,))
    rows: list[tuple[Cell, ...]] = []
    for name, share in SHARES.items():
        bits = []
        for epsilon in ATTACKED:
            scale = published_scale(task, epsilon, printed=True, share=share)
            bits.append(_attacked_bits(task, town, round_up(scale)))
        rows.append((name, *bits))
    return Table(
        title=f"{source}: bits the released centroids tell an adversary who knows friendships",
        columns=("coefficients, Eq. (18)", *(f"ε = {float(e):g}" for e in ATTACKED)),
        rows=tuple(rows),
        notes=(
            f"K = 8, {ROUNDS} rounds, mean over {RELEASES} releases; what friendships tell before "
            "any release is left out",
        ),
    )


def position_sum() -> LinearQuery:
    """The sum of everybody's place on the line."""
    states = PLACES.states or ()
    return weighted_sum(states, {state: int(state) for state in states}, unit="places")


def leaked_bits(table: JointTable, query: LinearQuery, scale: Fraction) -> float:
    """max over records of the mutual information with the noisy answer, in bits."""
    laws = laws_of_table(table, query, EachEntry())
    steps = float(scale / query.lattice)
    reach = int(40 * steps) + 1
    values = laws.values[:, 0]
    outputs = np.arange(values.min() - reach, values.max() + reach + 1)
    noise = np.exp(-np.abs(outputs[None, :] - values[:, None]) / steps)
    seen = laws.laws @ (noise * math.tanh(0.5 / steps))
    owner = np.array([name.split(" = ")[0] for name in laws.names])
    best = 0.0
    for variable in table.variables:
        rows = np.flatnonzero(owner == variable)
        values_of = [laws.names[row].split(" = ")[1] for row in rows]
        chance = table.marginal(variable)
        weights = np.array([chance[(query.states).index(value)] for value in values_of])
        best = max(best, _information(seen[rows], weights))
    return best


def _information(seen: Floats, weights: Floats) -> float:
    whole = weights @ seen
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(seen > 0, seen * np.log2(seen / whole), 0.0)
    return float(weights @ terms.sum(axis=1))


def _loss_and_bits(
    field: PairwiseField,
    table: JointTable,
    query: LinearQuery,
    epsilon: Fraction,
    printed: bool,
    share: float,
) -> str:
    task = Task(query=query, secrets=EachEntry(), family=(field,))
    scale = round_up(published_scale(task, epsilon, printed=printed, share=share))
    loss = audit_noise(query, EachEntry(), table, scale=scale).loss
    return f"{loss / float(epsilon):.3f} ({leaked_bits(table, query, scale):.3f})"


def _attacked_bits(task: Task, town: People, scale: Fraction) -> float:
    """The mean bits that releases with this noise tell the second adversary about a person."""
    sampler = sampler_for(task.query, LatticeLaplace(scale=scale, step=task.query.lattice))
    targets = targets_of(town)
    adversary = adversaries(town, targets)["2: friendships"]
    told = []
    for seed in range(RELEASES):
        answer = sampler.draw(task.query.read(town.vectors), SeededRng(seed))
        seen = ReleasedCentroids(task.query, answer, float(scale), town)  # type: ignore[arg-type]
        told += [locate(adversary, seen, int(target)).release_bits for target in targets]
    return fmean(told)


def _tree() -> PairwiseField:
    return field_of_pairs(FriendModel(b=0.5, c=1.5).ties(PLACES, 5, FRIENDS))


def _loop() -> PairwiseField:
    return friend_field(FriendModel(b=0.5, c=1.05), PLACES, 5, [*FRIENDS, [0, 4]])
