"""The loop of every random attacker: one seed after the other, and what came of them in a line.

`SHOAL_ATTACK_SECONDS` of processor, 600 unless told; `SHOAL_ATTACK_SEED` is the first seed. With 0
seconds one instance is attacked: that of the first seed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from itertools import count

REFUSED = "refused"  # what an attack counts where a row, a release or an account refused

Attack = Callable[[int, Counter[str]], object]


def attack_for_long(attack: Attack, tell: Callable[[str, object], None], first: int) -> None:
    """Let `attack(seed, seen)` count what it judged until the time is over; at least one instance.

    What fails is raised with its seed and the call that repeats it. `tell` is the test's
    `record_property`: the line is at the end of the run, and printed (-s) as soon as it is known.
    """
    first = int(os.environ.get("SHOAL_ATTACK_SEED", first))
    end = time.process_time() + float(os.environ.get("SHOAL_ATTACK_SECONDS", "600"))
    seen: Counter[str] = Counter()
    for seed in count(first):
        try:
            attack(seed, seen)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}; SHOAL_ATTACK_SEED={seed} SHOAL_ATTACK_SECONDS=0 repeats it: {error}"
            ) from error
        if time.process_time() >= end:
            break
    judged = {what: number for what, number in sorted(seen.items()) if what != REFUSED}
    line = (
        f"{seed - first + 1} instances, seeds {first} to {seed}, {seen[REFUSED]} refusals, "
        f"{sum(judged.values())} judged: {', '.join(f'{n} {what}' for what, n in judged.items())}"
    )
    tell("attack", line)
    print(line)
    assert judged or seed == first, "every instance was refused"
