"""Which of the three engines of `exact` still wins somewhere: each is left out in turn.

Run as `python -m benchmarks.exact_engines [CHAINS]`, with SHOAL_DATA for the real chains too. A
chain is taken whole, by windows, or past and future apart; the choice among them is compared with
the choice without one of them, in noise and in time. One line of JSON a chain, then the figures.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shoal.chains.exact.cover import NodeBlocks
from shoal.chains.exact.past_future import PastFutureBound
from shoal.chains.exact.sums import ChainSum, walked_sum
from shoal.chains.exact.windows import least_scale
from shoal.chains.fit import fit_chain
from shoal.chains.model import MarkovChain
from shoal.mechanisms.queries import count
from studies.sources import activity, power

LIMIT = 6  # seconds a search may take
NOISIER = 1e-6  # relative
SLOWER, NOTICED = 1.5, 0.05  # times as slow, and seconds that somebody would notice


class NoWhole(NodeBlocks):
    """Without the whole chain."""

    def whole_work(self) -> float:
        return math.inf


class NoWindows(NodeBlocks):
    """Without windows of both sides together."""

    @cached_property
    def hopeless(self) -> bool:
        return True


class NoApart(NodeBlocks):
    """Without past and future apart."""

    @cached_property
    def apart(self) -> PastFutureBound | None:
        return None


ENGINES = {"all": NodeBlocks, "whole": NoWhole, "windows": NoWindows, "apart": NoApart}


class Found(NamedTuple):
    """The least scale and the seconds it took; inf when it was not found in time."""

    scale: float
    seconds: float


def searched(task: ChainSum, cover: type[NodeBlocks], epsilon: float) -> Found:
    def stop(signum: int, frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, 4 * LIMIT)
    try:
        scale = least_scale(task, epsilon, cover=cover(task)).scale
    except (TimeoutError, MemoryError):
        scale = math.inf
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Found(scale, time.process_time() - start)


def random_tasks(number: int) -> Iterator[tuple[str, ChainSum, float]]:
    """Chains of 2 to 6 states, fast and slow, of 5 to 3,000 entries or any length."""
    rng = np.random.default_rng(16)
    for place in range(number):
        states = int(rng.integers(2, 7))
        matrix = rng.dirichlet(np.full(states, rng.choice([0.3, 1.0, 5.0])), states)
        stay = float(rng.choice([0.0, 0.5, 0.9, 0.99, 0.999]))
        matrix = stay * np.eye(states) + (1 - stay) * matrix
        length = None if rng.random() < 0.2 else int(np.exp(rng.uniform(np.log(5), np.log(3000))))
        chain = MarkovChain.of(matrix / matrix.sum(axis=1, keepdims=True), length=length)
        weights = rng.integers(0, int(rng.choice([2, 5])), states)
        weights[0], weights[-1] = 0, max(int(weights[-1]), 1)
        epsilon = float(rng.choice([0.1, 0.5, 1.0, 3.0]))
        name = f"random {place}: {states} states, stays {stay}, length {length}"
        yield name, walked_sum(chain.walk(), weights), epsilon


def real_tasks() -> Iterator[tuple[str, ChainSum, float]]:
    """Chains fitted to real people and a real house, where SHOAL_DATA names their folder."""
    for where, data in (*activity(), *power()):
        for length in (60, 1440, None):
            chain = fit_chain(data, length=length)
            for state in chain.states[:4]:
                weights = np.array(count(chain.states, state).multiples())[:, 0]
                name = f"{where} {state}, length {length}"
                yield name, walked_sum(chain.walk(), weights), 1.0


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    wins: dict[str, Counter[str]] = {name: Counter() for name in ENGINES if name != "all"}
    total = Counter[str]()
    for tasks in (real_tasks(), random_tasks(number)):
        for name, task, epsilon in tasks:
            found = {key: searched(task, cover, epsilon) for key, cover in ENGINES.items()}
            print(json.dumps({"task": name, "epsilon": epsilon, **found}), flush=True)
            total["chains"] += 1
            best = found["all"]
            for key, counted in wins.items():
                other = found[key]
                if other.scale > best.scale * (1 + NOISIER):
                    counted["noise"] += 1
                    counted["refused without"] += other.scale == math.inf
                elif other.seconds > max(SLOWER * best.seconds, best.seconds + NOTICED):
                    counted["time"] += 1
    print(dict(total))
    for key, counted in wins.items():
        print(f"without {key}: {dict(counted)}")


if __name__ == "__main__":
    main()
