"""Would steps do better than a slope? `python -m benchmarks.staircase`.

A count on a chain of two states, released with noise on whole numbers whose law falls evenly (the
geometric law that `exact` draws) or in steps of some width. Both get the least error that keeps ε,
by the laws of the count given every entry, written out here in floats: a measurement, no promise.
The last column is the geometric law with its output moved into 0..T, at the worst answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LogLaw = Callable[[npt.NDArray[np.int64]], Floats]
# stay in the first and in the second state
CHAINS = {
    "independent": (0.5, 0.5),
    "stays with .9": (0.9, 0.9),
    "stays with .99": (0.99, 0.99),
    "alternates": (0.1, 0.1),
    "uneven": (0.95, 0.6),
    "rare": (0.99, 0.3),
}
WIDTHS = (2, 3, 4, 5, 6, 8, 10, 13, 17, 21, 27, 34, 50)


def counts(stay: tuple[float, float], length: int) -> tuple[Floats, Floats]:
    """Laws of the count of the second state given each entry: is the first, is the second."""
    matrix = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    initial = np.array([1 - stay[1], 1 - stay[0]]) / (2 - sum(stay))
    found: list[list[Floats]] = [[], []]
    for entry in range(length):
        for value in (0, 1):
            law = np.zeros((2, length + 1))
            law[0, 0], law[1, 1] = initial
            for t in range(length):
                if t:
                    came = matrix.T @ law
                    law = np.stack([came[0], np.concatenate([[0.0], came[1, :-1]])])
                if t == entry:
                    law[1 - value] = 0.0
            found[value].append(law.sum(axis=0) / law.sum())
    return np.array(found[0]), np.array(found[1])


def slope(scale: float) -> LogLaw:
    return lambda k: -np.abs(k) / scale


def steps(step: float, width: int, lead: int) -> LogLaw:
    """The logarithm falls by `step` after every `width` numbers, first after width - lead."""
    return lambda k: -step * np.floor((np.abs(k) + lead) / width)


def loss(law: LogLaw, laws: tuple[Floats, Floats], width: int) -> float:
    """The largest log-ratio of an output; beyond these outputs it repeats itself."""
    length = laws[0].shape[1] - 1
    outputs = np.arange(-2 * width - 1, length + 2 * width + 2)
    logs = law(outputs[:, None] - np.arange(length + 1))
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return float(np.abs(np.log(weights @ laws[0].T) - np.log(weights @ laws[1].T)).max())


def error(law: LogLaw, reach: int, clamp: int | None = None) -> float:
    """The mean of |noise|; with `clamp` that of outputs moved into 0..clamp, at the worst."""
    k = np.arange(-reach, reach + 1)
    chances = np.exp(law(k) - law(k).max())
    chances /= chances.sum()
    if clamp is None:
        return float(chances @ np.abs(k))
    moved = (np.abs(np.clip(k + x, 0, clamp) - x) for x in range(clamp + 1))
    return max(float(chances @ off) for off in moved)


def least(keeps: Callable[[float], bool], low: float, high: float) -> float:
    """The end of a bracket that keeps ε, by halving."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def best_steps(laws: tuple[Floats, Floats], epsilon: float, scale: float) -> tuple[float, str]:
    """The least error of a law in steps that keeps ε, and its width and lead; inf for none."""
    found, reach = (float("inf"), ""), int(80 * scale) + 200
    for width in (w for w in WIDTHS if w < laws[0].shape[1]):
        for lead in sorted({0, width // 4, width // 2, 3 * width // 4, width - 1}):

            def keeps(wide: float, width: int = width, lead: int = lead) -> bool:
                return loss(steps(1 / wide, width, lead), laws, width) <= epsilon

            # the loss need not fall with the step: the first that keeps ε, from large to small
            tried = np.geomspace(1 / (1.5 * epsilon), scale / (0.3 * width), 24)
            first = next((at for at, wide in enumerate(tried) if keeps(wide)), None)
            if first is None:
                continue
            wide = tried[0] if first == 0 else least(keeps, tried[first - 1], tried[first])
            taken = error(steps(1 / wide, width, lead), reach + 60 * width)
            found = min(found, (taken, f"{width} wide, {lead} before 0"))
    return found


def main() -> None:
    """A table over chains, lengths and ε."""
    print("| chain | entries | ε | an even fall | in steps | even, moved into the range |")
    print("|---|---|---|---|---|---|")
    for length in (20, 80):
        for name, stay in CHAINS.items():
            laws = counts(stay, length)
            for epsilon in (1.0, 3.0):

                def keeps(scale: float, laws: object = laws, epsilon: float = epsilon) -> bool:
                    assert isinstance(laws, tuple)
                    return loss(slope(scale), laws, 1) <= epsilon

                scale = least(keeps, 0.05, 4.0 * length)
                reach = int(80 * scale) + 200
                even, moved = error(slope(scale), reach), error(slope(scale), reach, length)
                stepped, which = best_steps(laws, epsilon, scale)
                told = f"{stepped:.3f} ({which})" if stepped < even else "no better"
                print(f"| {name} | {length} | {epsilon:g} | {even:.3f} | {told} | {moved:.3f} |")


if __name__ == "__main__":
    main()
