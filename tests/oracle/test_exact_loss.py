"""The exact loss of sums on chains against the whole joint law written out."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from shoal.chains.exact.answers import least_vector_scale, vector_sum, vector_sum_loss
from shoal.chains.exact.sums import ChainSum, chain_sum
from shoal.chains.exact.windows import least_scale, sum_loss, window_loss
from shoal.core.codec import Floats
from shoal.mechanisms.mixture import TooLarge, lattice_loss, mixture_loss, vector_loss

Law = dict[int, float]
CLOSE = 1e-9  # how far above the truth a loss may be rounded


def paths(initial: Floats, matrices: Floats, length: int) -> list[tuple[tuple[int, ...], float]]:
    """Every possible path with its probability."""
    found = []
    for path in product(range(len(initial)), repeat=length):
        chance = float(initial[path[0]])
        for step, (one, two) in enumerate(pairwise(path)):
            chance *= float(matrices[step % len(matrices), one, two])
        if chance > 0:
            found.append((path, chance))
    return found


def given_laws(
    outcomes: list[tuple[tuple[int, ...], float]], weights: list[int], label: list[int]
) -> list[list[Law]]:
    """For each node, the law of the sum given each possible secret."""
    nodes = []
    for node in range(len(outcomes[0][0])):
        laws: dict[int, Law] = {}
        for path, chance in outcomes:
            law = laws.setdefault(label[path[node]], {})
            total = sum(weights[state] for state in path)
            law[total] = law.get(total, 0.0) + chance
        nodes.append([_normal(law) for law in laws.values()])
    return nodes


def truth(nodes: list[list[Law]], scale: float) -> float:
    """The supremum over a fine grid of real outputs, support points and far ends included."""
    worst = 0.0
    for laws in nodes:
        support = sorted({c for law in laws for c in law})
        grid = np.unique(
            np.concatenate(
                [np.linspace(support[0] - 9 * scale, support[-1] + 9 * scale, 801), support]
            )
        )
        logs = np.array([log_density(law, grid, scale) for law in laws])
        worst = max(worst, float((logs.max(axis=0) - logs.min(axis=0)).max()))
    return worst


def log_density(law: Law, grid: Floats, scale: float) -> Floats:
    terms = np.array([math.log(p) - np.abs(grid - c) / scale for c, p in law.items()])
    top = terms.max(axis=0)
    return np.asarray(top + np.log(np.exp(terms - top).sum(axis=0)))


def chain_truth(
    initial: Floats, matrices: Floats, weights: list[int], length: int, scale: float
) -> float:
    label = list(range(len(initial)))
    return truth(given_laws(paths(initial, matrices, length), weights, label), scale)


def random_rows(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Floats:
    """Rows of probabilities: dense, with zeros, or nearly deterministic."""
    rows = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    if kind == "zeros":
        rows = rows * (rng.random(shape) < 0.6)
        rows[..., 0] += rows.sum(axis=-1) == 0
    if kind == "sharp":
        rows = rows**12 + 1e-9
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def random_chain(seed: int) -> tuple[Floats, Floats, list[int], int, float]:
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 4)), int(rng.integers(1, 7))
    kind = ["dense", "zeros", "sharp"][seed % 3]
    several = seed % 2 == 0 and length > 2
    initial = random_rows(rng, (size,), ["zeros", "dense", "sharp"][seed % 3])
    matrices = random_rows(rng, (length - 1 if several else 1, size, size), kind)
    unit = int(rng.choice([1, 3]))
    weights = [unit * int(w) for w in rng.integers(-2, 4, size=size)]
    return initial, matrices, weights, length, float(rng.choice([0.3, 1.0, 4.0, 20.0]))


def _normal(law: Law) -> Law:
    total = math.fsum(law.values())
    return {c: p / total for c, p in law.items()}


def _task(
    initial: Floats | None, matrices: Floats, weights: list[int], length: int | None, **more: object
) -> ChainSum:
    transitions = matrices[0] if len(matrices) == 1 else matrices
    return chain_sum(initial, transitions, weights, length, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(60))
def test_the_loss_of_a_short_chain_is_the_supremum_over_all_outputs(seed: int) -> None:
    initial, matrices, weights, length, scale = random_chain(seed)
    expected = chain_truth(initial, matrices, weights, length, scale)
    found = sum_loss(_task(initial, matrices, weights, length), scale).value
    assert expected - 1e-12 <= found <= expected + CLOSE


def test_the_worst_node_pair_and_output_are_the_ones_reported() -> None:
    for seed in range(12):
        initial, matrices, weights, length, scale = random_chain(seed)
        found = sum_loss(_task(initial, matrices, weights, length), scale)
        if found.value == 0 or found.node is None or found.pair is None or found.output is None:
            continue
        outcomes = paths(initial, matrices, length)
        densities = []
        for secret in found.pair:
            kept = [(path, chance) for path, chance in outcomes if path[found.node] == secret]
            law = given_laws(kept, weights, [0] * len(initial))[0][0]
            densities.append(float(log_density(law, np.array([found.output]), scale)[0]))
        assert densities[0] - densities[1] == pytest.approx(found.value, abs=CLOSE)


@pytest.mark.parametrize("seed", range(12))
def test_shorter_lengths_are_covered_when_asked_for(seed: int) -> None:
    initial, matrices, weights, length, scale = random_chain(seed)
    expected = max(
        chain_truth(initial, matrices[: max(1, end - 1)], weights, end, scale)
        for end in range(1, length + 1)
    )
    found = sum_loss(_task(initial, matrices, weights, length, shorter=True), scale).value
    assert expected - 1e-12 <= found <= expected + CLOSE


@pytest.mark.parametrize("seed", range(1, 31, 2))
def test_secrets_may_be_groups_of_states(seed: int) -> None:
    initial, matrices, weights, length, scale = random_chain(seed)
    label = [state % 2 for state in range(len(initial))]
    expected = truth(given_laws(paths(initial, matrices, length), weights, label), scale)
    found = sum_loss(_task(initial, matrices, weights, length, label=label), scale).value
    assert expected - 1e-12 <= found <= expected + CLOSE


def test_only_the_pairs_asked_for_count() -> None:
    initial, matrices = (
        np.array([0.2, 0.3, 0.5]),
        random_rows(np.random.default_rng(5), (1, 3, 3), "dense"),
    )
    weights, length, scale = [0, 1, 5], 4, 2.0
    nodes = given_laws(paths(initial, matrices, length), weights, [0, 1, 2])
    expected = truth([laws[:2] for laws in nodes], scale)
    pairs = [[False, True, False], [True, False, False], [False, False, False]]
    found = sum_loss(_task(initial, matrices, weights, length, pairs=pairs), scale).value
    assert expected - 1e-12 <= found <= expected + CLOSE
    assert found < sum_loss(_task(initial, matrices, weights, length), scale).value - 0.1


@pytest.mark.parametrize("seed", range(8))
def test_entries_inside_the_first_tuple_of_an_order_2_chain_are_secrets_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, entries, scale = 2, 5, float(rng.choice([0.5, 3.0]))
    first = random_rows(rng, (size * size,), "dense")
    rule = random_rows(rng, (size * size, size), ["dense", "zeros"][seed % 2])
    weights = np.array([0, 2])
    outcomes = []
    for path in product(range(size), repeat=entries):
        chance = float(first[path[0] * size + path[1]])
        for t in range(2, entries):
            chance *= float(rule[path[t - 2] * size + path[t - 1], path[t]])
        if chance > 0:
            outcomes.append((path, chance))
    expected = truth(given_laws(outcomes, weights.tolist(), [0, 1]), scale)
    tuples = np.array(list(product(range(size), repeat=2)))
    matrix = np.zeros((4, 4))
    for row, (_, newest) in enumerate(tuples):
        matrix[row, newest * size : newest * size + size] = rule[row]
    found = sum_loss(
        chain_sum(
            first,
            matrix,
            weights[tuples[:, 1]],
            entries - 1,
            label=tuples[:, 1],
            first_weights=weights[tuples].sum(axis=1),
            first_labels=(tuples[:, 0],),
        ),
        scale,
    ).value
    assert expected - 1e-12 <= found <= expected + CLOSE


@pytest.mark.parametrize("seed", range(10))
def test_every_initial_law_is_covered_and_the_worst_one_is_reached(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length, scale = 2 + seed % 2, int(rng.integers(2, 5)), float(rng.choice([0.7, 3.0]))
    matrices = random_rows(rng, (1, size, size), ["dense", "zeros"][seed % 2])
    weights = [0, 1, 3][:size]
    found = sum_loss(_task(None, matrices, weights, length), scale).value
    pure = list(np.eye(size))
    mixed = [
        (1 - t) * pure[a] + t * pure[b]
        for a in range(size)
        for b in range(a)
        for t in 1 / (1 + np.exp(np.linspace(-14, 14, 141)))
    ]
    spread = list(rng.dirichlet(np.full(size, 0.5), size=20))
    losses = [chain_truth(law, matrices, weights, length, scale) for law in pure + mixed + spread]
    assert max(losses) <= found + 1e-12
    assert found <= max(losses) + 0.02  # the grid of two-point laws is coarse, the answer is not


@pytest.mark.parametrize("seed", range(24))
def test_windows_are_never_below_the_loss_and_nested_ones_never_grow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length, scale = 2 + seed % 2, 11, float(rng.choice([0.01, 0.5, 2.0, 10.0]))
    kind = ["dense", "sharp", "zeros"][seed % 3]
    several = seed % 4 == 0
    matrices = random_rows(rng, (length - 1 if several else 1, size, size), kind)
    initial = random_rows(rng, (size,), ["zeros", "dense"][seed % 2])
    task = _task(initial, matrices, [0, 1, 3][:size], length)
    exact = sum_loss(task, scale).value
    bounds = [window_loss(task, scale, reach).value for reach in range(1, 6)]
    assert all(exact <= bound + CLOSE for bound in bounds)
    assert all(later <= earlier + CLOSE for earlier, later in pairwise(bounds))
    if kind == "dense":
        assert bounds[-1] < math.inf


@pytest.mark.parametrize("seed", range(12))
def test_windows_for_every_initial_law_are_never_below_the_worst_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrices = random_rows(rng, (1, 2 + seed % 2, 2 + seed % 2), "dense")
    scale = float(rng.choice([0.5, 2.0, 10.0]))
    task = _task(None, matrices, [0, 1, 3][: 2 + seed % 2], 9)
    exact = sum_loss(task, scale).value
    bounds = [window_loss(task, scale, reach).value for reach in range(1, 5)]
    assert all(exact <= bound + CLOSE for bound in bounds)
    assert all(later <= earlier + CLOSE for earlier, later in pairwise(bounds))
    pure = [
        sum_loss(_task(row, matrices, [0, 1, 3][: len(row)], 9), scale).value
        for row in np.eye(2 + seed % 2)
    ]
    assert max(pure) <= exact + CLOSE


def test_the_start_of_a_chain_is_covered_however_unlike_its_limit() -> None:
    # node 8 (of 0 .. 80) is the first with a state held 8 before it, and its law is far from π
    matrices = np.array([[[0.98, 0.02], [0.005, 0.995]]])
    for initial in ([1.0, 0.0], [0.999, 0.001], [0.1, 0.9]):
        task = _task(np.array(initial), matrices, [0, 1], 81)
        exact, bound = sum_loss(task, 4.0).value, window_loss(task, 4.0, 8).value
        assert exact <= bound + CLOSE


@pytest.mark.parametrize("seed", range(6))
def test_any_length_covers_every_short_chain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrices = random_rows(rng, (1, 2, 2), "dense")
    initial = None if seed % 2 else random_rows(rng, (2,), "zeros")
    scale = float(rng.choice([0.6, 3.0]))
    bound = sum_loss(_task(initial, matrices, [0, 1], None), scale).value
    losses = [sum_loss(_task(initial, matrices, [0, 1], end), scale).value for end in range(1, 60)]
    assert max(losses) <= bound + CLOSE  # both are rounded up, the longer chains a little more
    assert bound <= max(losses) + 1e-5


def test_the_least_scale_meets_its_budget_and_nothing_smaller_does() -> None:
    for seed in range(10):
        initial, matrices, weights, length, _ = random_chain(seed)
        task = _task(initial, matrices, weights, length)
        found = least_scale(task, 0.8)
        assert sum_loss(task, found.scale, enough=0.8).value <= 0.8
        if found.scale > task.step / 32:
            assert chain_truth(initial, matrices, weights, length, found.scale * 0.999) > 0.8


def test_a_possible_value_whose_probability_underflows_is_still_a_secret() -> None:
    # X_1 = 1 has probability 1e-320: doubles nearly lose it, the loss must not
    rows = [[1.0, 0.0], [0.0, 1.0]]
    tiny = sum_loss(chain_sum([1.0, 1e-320], rows, [0, 1], 3), 1.0).value
    assert tiny == pytest.approx(3.0, abs=1e-6)


def test_a_law_whose_tail_underflows_keeps_its_say() -> None:
    # 200 steps of chance 1e-6: the tail is 1e-1200, and at a small scale it decides
    rows = [[1 - 1e-6, 1e-6], [1e-6, 1 - 1e-6]]
    found = sum_loss(chain_sum([0.5, 0.5], rows, [0, 1], 200), 0.05).value
    expected = _logarithmic_truth(0.5, 1e-6, 200, 0.05)
    assert expected - 1e-9 <= found <= expected + 1e-6


def test_outputs_far_beyond_underflow_can_decide() -> None:
    # independent entries, each 1 with chance 1e-6: only at a sum of 200, of chance 1e-1200, do
    # the laws given 0 and given 1 differ by a whole step of the noise
    rows = [[1 - 1e-6, 1e-6]] * 2
    found = sum_loss(chain_sum(rows[0], rows, [0, 1], 200), 0.05)
    assert found.value == pytest.approx(20.0, abs=1e-6)
    assert found.output == 200


def _logarithmic_truth(start: float, flip: float, length: int, scale: float) -> float:
    """The loss of a symmetric binary chain, all in logarithms, node by node and value by value."""
    stay, move = math.log1p(-flip), math.log(flip)
    count = length + 1

    def onward(table: Floats) -> Floats:
        same, other = table + stay, table[::-1] + move
        out = np.logaddexp(same, other)
        out[1, 1:] = out[1, :-1].copy()
        out[1, 0] = -math.inf
        return np.asarray(out)

    ahead = [np.full((2, count), -math.inf)]
    ahead[0][:, 0] = 0.0
    for _ in range(length - 1):
        table = ahead[-1].copy()
        table[1, 1:], table[1, 0] = ahead[-1][1, :-1], -math.inf
        ahead.append(np.logaddexp(table + stay, table[::-1] + move))
    behind = np.full((2, count), -math.inf)
    behind[0, 0] = behind[1, 1] = math.log(start)
    gaps = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) / scale
    worst = 0.0
    for node in range(length):
        rest = ahead[length - 1 - node]
        laws = np.full((2, count), -math.inf)
        for c in range(count):
            laws[:, c:] = np.logaddexp(laws[:, c:], behind[:, c, None] + rest[:, : count - c])
        density = np.logaddexp.reduce(laws[:, None, :] - gaps, axis=2)
        worst = max(worst, float(np.abs(density[0] - density[1]).max()))
        behind = onward(behind)
    return worst


@pytest.mark.parametrize("seed", range(20))
def test_mixtures_on_any_values_reach_the_supremum_over_a_fine_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.uniform(0.2, 3.0, size=7))
    laws = random_rows(rng, (3, 7), ["dense", "zeros", "sharp"][seed % 3])
    scale = float(rng.choice([0.1, 1.0, 5.0]))
    grid = np.unique(np.concatenate([np.linspace(-20, 40, 4001), values]))
    logs = np.array(
        [
            log_density({v: p for v, p in zip(values, law, strict=True) if p > 0}, grid, scale)
            for law in laws
        ]
    )
    expected = float((logs.max(axis=0) - logs.min(axis=0)).max())
    found = mixture_loss(laws, scale, values=values)
    assert expected - 1e-12 <= found <= expected + CLOSE


def test_lattice_noise_finer_than_the_support_costs_the_same() -> None:
    rng = np.random.default_rng(2)
    laws = random_rows(rng, (2, 6), "dense")
    finer = np.zeros((2, 16))
    finer[:, ::3] = laws  # lattice points that are not support points lie in between
    coarse, fine = lattice_loss(laws, Fraction(3, 5)), lattice_loss(finer, Fraction(1, 5))
    assert coarse == pytest.approx(fine, abs=1e-12)
    assert coarse == pytest.approx(mixture_loss(laws, 5 / 3), abs=1e-12)


def vector_truth(laws: list[dict[tuple[int, ...], float]], scale: float, fine: int) -> float:
    """The supremum over a fine grid of vectors, between and beyond the support coordinates."""
    axes = []
    for axis in range(len(next(iter(laws[0])))):
        seen = sorted({point[axis] for law in laws for point in law})
        axes.append(np.unique([*np.linspace(seen[0] - scale, seen[-1] + scale, fine), *seen]))
    grid = np.array(list(product(*axes)))
    logs = []
    for law in laws:
        terms = np.array(
            [math.log(p) - np.abs(grid - c).sum(axis=1) / scale for c, p in law.items()]
        )
        top = terms.max(axis=0)
        logs.append(top + np.log(np.exp(terms - top).sum(axis=0)))
    return float((np.max(logs, axis=0) - np.min(logs, axis=0)).max())


@pytest.mark.parametrize("seed", range(6))
def test_vector_sums_reach_the_supremum_over_a_fine_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length, scale = 2 + seed % 2, 3, float(rng.choice([0.8, 3.0]))
    initial, matrices = rng.dirichlet(np.ones(size)), random_rows(rng, (1, size, size), "zeros")
    weights = rng.integers(-1, 3, size=(size, 2))
    expected = 0.0
    for node in range(length):
        laws: dict[int, dict[tuple[int, ...], float]] = {}
        for path, chance in paths(initial, matrices, length):
            law = laws.setdefault(path[node], {})
            point = tuple(int(v) for v in weights[list(path)].sum(axis=0))
            law[point] = law.get(point, 0.0) + chance
        given = [{c: p / math.fsum(law.values()) for c, p in law.items()} for law in laws.values()]
        expected = max(expected, vector_truth(given, scale, 41))
    task = vector_sum(_task(initial, matrices, [0] * size, length), weights)
    found = vector_sum_loss(task, scale)
    assert expected - 1e-12 <= found <= expected + CLOSE
    least = least_vector_scale(task, 1.0)
    assert vector_sum_loss(task, least) <= 1.0
    if least > 1 / 32:
        assert vector_sum_loss(task, least * 0.999) > 1.0


def test_support_points_alone_are_not_enough_for_vectors() -> None:
    # the worst output (2, 2) is a grid point neither law can take
    laws = np.zeros((2, 3, 3))
    laws[0, 0, 2] = laws[0, 2, 0] = 0.5
    laws[1, 0, 0] = 1.0

    def gap(point: tuple[int, int]) -> float:
        return log_density_2d(laws[0], point) - log_density_2d(laws[1], point)

    found = vector_loss(laws, 1.0, pairs=[[False, True], [False, False]])
    assert found == pytest.approx(gap((2, 2)), abs=1e-12)
    assert found > max(gap((0, 0)), gap((0, 2)), gap((2, 0))) + 0.6


def log_density_2d(law: Floats, at: tuple[int, int]) -> float:
    return math.log(
        sum(p * math.exp(-abs(at[0] - i) - abs(at[1] - j)) for (i, j), p in np.ndenumerate(law))
    )


def test_vectors_with_too_many_values_are_refused_with_the_numbers() -> None:
    task = chain_sum([0.5, 0.5], [[0.9, 0.1], [0.4, 0.6]], [0, 1], 400)
    with pytest.raises(TooLarge, match="160801 values"):
        vector_sum(task, [[1, 0], [0, 1]])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("other_way", [("cover.COMPILED", 0), ("blocks.DEEPEST_TABLE", -1.0)])
def test_compiled_sweeps_and_logarithms_say_the_same(
    seed: int, other_way: tuple[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    size, scale = 2 + seed % 2, float(rng.choice([0.5, 4.0]))
    matrices = random_rows(rng, (1, size, size), ["dense", "zeros"][seed % 2])
    initial = random_rows(rng, (size,), "zeros")
    settled = np.linalg.matrix_power(matrices[0], 4096)[0]
    tasks = [_task(initial, matrices, [0, 1, 3][:size], length) for length in (17, None)]
    tasks += [_task(law, matrices, [0, 1, 3][:size], None) for law in (settled, None)]
    plain = [window_loss(task, scale, 5) for task in tasks]
    monkeypatch.setattr("shoal.chains.exact." + other_way[0], other_way[1])
    again = [window_loss(task, scale, 5) for task in tasks]
    for one, other in zip(plain, again, strict=True):
        assert other.value == pytest.approx(one.value, abs=CLOSE)


@pytest.mark.parametrize("epsilon", [1e-6, 1 / 3])
@pytest.mark.parametrize("stays", [0.8, 0.9])
def test_windows_settle_within_a_share_of_the_loss(epsilon: float, stays: float) -> None:
    """Not within an absolute 1e-6, which at a small budget is all of it."""
    moves = 1 - stays
    matrix = np.array([[[stays, moves], [2 * moves, 1 - 2 * moves]]])
    task = _task(np.array([2 / 3, 1 / 3]), matrix, [0, 1], None)
    scale = least_scale(task, epsilon).scale
    assert sum_loss(task, scale).value <= epsilon * (1 + 1e-6)
