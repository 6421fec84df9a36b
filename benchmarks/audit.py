"""Exact audits per second against direct numerical maximisation, in one run.

Chains of 100 entries and a count. The reference does what one does without the theorem: it writes
down the law of the count given each value of each entry, evaluates both noisy densities on a grid
of outputs and takes the largest ratio, all entries at once by matrix products. The log-ratio moves
by at most 2/scale per unit of output, so a spacing of 0.0001 scales proves its maximum to 0.0001;
the exact loss is proved to about 1e-12. First both at full length; then both for data of every
length up to 100, where the audit also finds the worst output and the posterior there, and the grid
is timed at every tenth length (5, 15, …, 95) and multiplied by ten. Seconds are processor time.

    python -m benchmarks.audit

With `--streams` instead: whole audits of adaptive suppression plans on days of 19 contexts, beside
the mechanism's own compiled evaluation, which judges itself and names no output. The audit follows
every release under the chain and under frequencies alone, and runs the machine.

    python -m benchmarks.audit --streams
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.mask import dense_chain
from shoal.audit.exact import audit, audit_noise
from shoal.chains.exact.sums import chain_sum
from shoal.chains.exact.whole import whole_loss
from shoal.chains.model import MarkovChain
from shoal.contexts.checks.rows import mask
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Floats
from shoal.core.task import EachEntry
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import verify_promise

LENGTH = 100
SPACING = 1e-4  # of the grid, in scales: what its maximum is proved to
BEYOND = 1.0  # scales beyond the answers on either side, where nothing changes any more
CHUNK = 4096  # outputs evaluated together
CHAINS = {
    "[[.9,.1],[.4,.6]]": [[0.9, 0.1], [0.4, 0.6]],
    "[[.8,.2],[.3,.7]]": [[0.8, 0.2], [0.3, 0.7]],
    "[[.1,.9],[.6,.4]]": [[0.1, 0.9], [0.6, 0.4]],
}
SCALES = (0.5, 3.0, 20.0)
SEARCHES = ((96, 8), (288, 20), (1440, 30))  # slots of a day, seconds to search for a plan


def laws_of_count(chain: MarkovChain, length: int) -> Floats:
    """P(count = c | X_i = x) for every entry, (entries · values, counts), by convolution."""
    past = [np.array(chain.initial[:, None])]
    future = [np.ones((2, 1))]
    for _ in range(length - 1):
        past.append(chain.transition.T @ _with_own(past[-1]))
        future.append(chain.transition @ _with_own(future[-1]))
    laws = np.zeros((length, 2, length + 1))
    for entry in range(length):
        for value in (0, 1):
            law = np.convolve(past[entry][value], future[length - 1 - entry][value])
            laws[entry, value, value : value + len(law)] = law / past[entry][value].sum()
    return laws.reshape(2 * length, length + 1)


def maximised(chain: MarkovChain, scale: float, length: int = LENGTH) -> float:
    """The largest log-ratio over a fine grid of outputs."""
    laws = laws_of_count(chain, length)
    answers = np.arange(length + 1)
    grid = np.arange(-BEYOND * scale, length + BEYOND * scale, SPACING * scale)
    worst = 0.0
    for start in range(0, len(grid), CHUNK):
        kernel = np.exp(-np.abs(grid[start : start + CHUNK, None] - answers) / scale)
        logs = np.log(kernel @ laws.T)
        worst = max(worst, float(np.abs(logs[:, ::2] - logs[:, 1::2]).max()))
    return worst


def maximised_at_some_lengths(chain: MarkovChain, scale: float) -> float:
    """The same for data of every tenth length."""
    return max(maximised(chain, scale, length) for length in range(5, LENGTH, 10))


def full_length(chain: MarkovChain, scale: float) -> float:
    """The exact loss at full length: the outputs that can be worst, at every entry."""
    found = whole_loss(chain_sum(chain.initial, chain.transition, [0, 1], LENGTH), scale)
    assert found is not None
    return found.value


def audited(chain: MarkovChain, scale: float) -> float:
    """The whole audit: every length, and what an adversary believes at the worst output."""
    found = audit_noise(count(chain.states, "1"), EachEntry(), chain, scale=scale)
    assert found.exact
    return found.loss


def _with_own(table: Floats) -> Floats:
    out = np.zeros((2, table.shape[1] + 1))
    out[0, :-1], out[1, 1:] = table[0], table[1]
    return out


def timed(
    function: Callable[[MarkovChain, float], float], chain: MarkovChain, scale: float, runs: int = 3
) -> tuple[float, float]:
    """Value and seconds, the best of some runs."""
    value, best = 0.0, float("inf")
    for _ in range(runs):
        start = time.process_time()
        value = function(chain, scale)
        best = min(best, time.process_time() - start)
    return value, best


def compared(
    name: str, scale: float, slow: tuple[float, float], quick: tuple[float, float]
) -> float:
    """A line of the table, and how many times as fast the exact evaluation is."""
    assert quick[0] >= slow[0] - 1e-9, "an exact loss below the grid's maximum"
    ratio = slow[1] / quick[1]
    print(
        f"{name:20} {scale:6} {slow[0]:10.6f} {quick[0]:10.6f} {1 / slow[1]:9.3f} "
        f"{1 / quick[1]:9.1f} {ratio:7.0f}"
    )
    return ratio


def streams() -> None:
    """Audits of long days: both values, seconds of both, and what the audit adds."""
    print(f"{'slots':>6} {'tables':>7} {'own':>12} {'audited':>15} {'own s':>7} {'audit s':>8}")
    for slots, seconds in SEARCHES:
        day = dense_chain(19, slots)
        secrets = SensitiveContexts.of([day.states[0]])
        plan = mask(
            day,
            secrets,
            delta="0.1",
            check="mask-adaptive",
            seconds=seconds,
            clock=time.process_time,
        )
        begun = time.process_time()
        own = verify_promise(plan)
        middle = time.process_time()
        found = audit(plan)
        ended = time.process_time()
        assert found.exact, "the two ends of an audit apart"
        assert abs(found.loss - own) < 1e-9, "an audit that differs from the mechanism"
        tables = len(getattr(plan.body, "origins", ()))
        print(
            f"{slots:6} {tables:7} {own:12.9f} {found.loss:15.12f} {middle - begun:7.2f} "
            f"{ended - middle:8.2f}"
        )


def main() -> None:
    if "--streams" in sys.argv[1:]:
        streams()
        return
    head = (
        f"{'chain':20} {'scale':>6} {'grid':>10} {'exact':>10} {'grid/s':>9} {'exact/s':>9} ratio"
    )
    print(f"count over {LENGTH} entries; the grid proves its maximum to {SPACING:g}\n\n{head}")
    chains = {name: MarkovChain.of(rows, length=LENGTH) for name, rows in CHAINS.items()}
    # what is compiled on first use is not timed
    full_length(chains["[[.9,.1],[.4,.6]]"], 3.0)
    audited(chains["[[.9,.1],[.4,.6]]"], 3.0)
    ratios = [
        compared(name, scale, timed(maximised, chain, scale, 1), timed(full_length, chain, scale))
        for name, chain in chains.items()
        for scale in SCALES
    ]
    print(f"\nevery length up to {LENGTH}, with the worst output and the posterior\n{head}")
    every = []
    for name, chain in chains.items():
        value, seconds = timed(maximised_at_some_lengths, chain, 3.0, 1)
        every.append(compared(name, 3.0, (value, 10 * seconds), timed(audited, chain, 3.0)))
    print(
        f"\nfull length: {min(ratios):.0f} to {max(ratios):.0f} times as fast; "
        f"every length: {min(every):.0f} to {max(every):.0f} times; never lower"
    )


if __name__ == "__main__":
    main()
