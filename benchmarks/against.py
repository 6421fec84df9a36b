"""This tree against an older commit, in turns in one run: `python -m benchmarks.against 7151a25`.

7151a25 is the last commit before the families became packages. Every act below runs in a fresh
process of either tree, once to load and compile and then again as often as a second of the
processor allows; the table gives medians of processor seconds and how many times as fast this
tree is. Only names that both trees have are used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
HERE = Path(__file__).resolve().parents[1]
CHAIN = """
def chain(i):
    e = 1e-7 * i  # another chain each time: what was found for one may be remembered
    m = [[.8 - e, .15 + e, .05], [.3, .5, .2], [.1, .3, .6]]
    return shoal.MarkovChain.of(m, length=10080, initial=[.3, .4, .3])
"""
WALK = """
import numpy as np
k = 20
near = np.eye(k, k=1) + np.eye(k, k=-1)
def chain(i):
    e = .05 + 1e-7 * i
    m = .9 * np.eye(k) + (.1 - e) * near / near.sum(1, keepdims=True) + e / k
    return shoal.MarkovChain.of(m.tolist(), length=10000)
"""
DAY = """
def mask(i, check):
    e = 1e-7 * i
    slots = [[[.7 - e, .2 + e, .1], [.3, .5, .2], [.2, .3, .5]]] * 11
    d = shoal.DayChain.of(slots, initial=[.5, .3, .2])
    return shoal.mask(d, shoal.SensitiveContexts.of(d.states[0]), delta=.1, check=check)
"""
TOWN = """
from scipy.sparse import csr_array
import numpy as np
side = 20
at = np.array([(i % side, i // side) for i in range(side * side)])
near = (np.abs(at[:, None] - at[None]).max(-1) <= 1).astype(float)
start = np.full(side**2, side**-2)
c = shoal.SparseChain.of(csr_array(near / near.sum(1, keepdims=True)), initial=start)
q = shoal.measurement(c.states, at.tolist(), labels=("east", "north"))
hidden = shoal.LocationSet(policy=shoal.PolicyGraph.complete(c.states), delta=.01)
p = shoal.calibrate(q, hidden, c, epsilon=1, mechanism="location-knorm")
def steps():
    x = shoal.LocationStream.begin(p)
    for i in range(20):
        x, _ = x.read(c.states[210 + i % 3])
"""
TASK = "(c.states{what}), shoal.EachEntry(), c, epsilon=1, mechanism={row!r})"


def _plan(row: str, asked: str = "count", what: str = ", [c.states[0]]") -> str:
    return f"c = chain(i); p = shoal.calibrate(shoal.{asked}" + TASK.format(what=what, row=row)


PLANNED = CHAIN + f"i = 0\n{_plan('exact')}\nseries = [c.states[i % 3] for i in range(10080)]\n"
LEDGER = "import os, tempfile\nl = shoal.open_ledger(os.path.join(tempfile.mkdtemp(), 'l.db'))\n"
# name: what comes before, and the act that is timed
ACTS = {
    "exact, 3 states": (CHAIN, _plan("exact")),
    "lift, 3 states": (CHAIN, _plan("lift")),
    "quilt, 3 states": (CHAIN, _plan("markov-quilt")),
    "best, 3 states": (CHAIN, _plan("best")),
    "exact, 20 states": (WALK, _plan("exact")),
    "lift, 20 states": (WALK, _plan("lift")),
    "histogram, 20 states": (WALK, _plan("best", "histogram", "")),
    "leakage, 20 states": (WALK, "shoal.leakage(chain(i), .1)"),
    "audit": (PLANNED, "shoal.audit(p)"),
    "release": (PLANNED, "p.release(series)"),
    "charged release": (PLANNED + LEDGER, "p.release(series, ledger=l, subject='a')"),
    "mask-simulatable": (DAY, "mask(i, 'mask-simulatable')"),
    "mask-adaptive": (DAY, "mask(i, 'mask-adaptive')"),
    "mask-optimal": (DAY, "mask(i, 'mask-optimal')"),
    "20 steps of places": (TOWN, "steps()"),
    "store a plan": (PLANNED, "shoal.loads(shoal.dumps(p))"),
}
PROGRAM = """
import statistics, time, warnings
warnings.simplefilter("ignore")
import shoal
{before}
def act(i):
    {act}
act(1)
times = []
while len(times) < 3 or (sum(times) < 1 and len(times) < 200):
    begun = time.process_time()
    act(2 + len(times))
    times.append(time.process_time() - begun)
print(statistics.median(times))
"""


def seconds(tree: Path, name: str) -> float | str:
    """Median processor seconds of an act in `tree`, or the last line of what went wrong."""
    before, act = ACTS[name]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, act=act)],
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return float(said[-1]) if done.returncode == 0 else said[-1]


def compare(old: Path, name: str) -> str:
    """A row of the table."""
    taken: dict[Path, list[float]] = {old: [], HERE: []}
    for _ in range(ROUNDS):
        for tree, times in taken.items():
            found = seconds(tree, name)
            if isinstance(found, str):
                return f"| {name} | {'then' if tree == old else 'now'}: {found} | | |"
            times.append(found)
    then, now = (statistics.median(times) for times in taken.values())
    return f"| {name} | {then:.4g} s | {now:.4g} s | {then / now:.2f} |"


def main() -> None:
    """A table of all acts, or of those whose names hold a word given with --only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    git = ["git", "-C", str(HERE)]
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run(
            [*git, "worktree", "add", "-q", "--detach", str(old), asked.commit], check=True
        )
        try:
            print("| act | then | now | times as fast |\n|---|---|---|---|")
            for name in ACTS:
                if asked.only in name:
                    print(compare(old, name), flush=True)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(old)], check=True)


if __name__ == "__main__":
    main()
