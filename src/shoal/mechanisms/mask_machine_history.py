"""The machine of the optimal check: it also remembers the sensitive visits since a release."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from shoal.core.errors import InputError
from shoal.core.rng import Rng
from shoal.core.value import Ints, locked
from shoal.loss.suppression import Day
from shoal.loss.suppression_adaptive import Origin
from shoal.loss.suppression_history import FINE, FineCodes, Remembering, fine_decoded
from shoal.loss.suppression_missing import Belief, log_sums, logs_of, opening, pushed
from shoal.mechanisms.mask_machine import START, MaskState, SegmentMask, Tabled, check_origins

ALWAYS = FINE - 1


@dataclass(frozen=True, slots=True, eq=False)
class HistoryMask(Tabled):
    """Suppression by the last release and, for some slots after it, by the sensitive visits since.

    `origins[k]` is a release with a window of `windows[k]` slots, `codes[starts[k]:starts[k + 1]]`
    its tables in multiples of 2^-32: for slot m of the window one row per history of m visits.
    `digits[j]` is what a visit to state j adds to a history. After the window `tail` takes over.
    """

    tail: SegmentMask
    digits: Ints
    origins: Ints
    windows: Ints
    starts: Ints
    codes: FineCodes

    def __post_init__(self) -> None:
        origins = locked(np.asarray(self.origins).reshape(-1, 2), np.int64)
        if not len(origins) == len(self.windows) == len(self.starts) - 1:
            raise InputError("windows must hold one number per origin, starts one more")
        object.__setattr__(self, "origins", origins)
        for name in ("digits", "windows", "starts"):
            object.__setattr__(self, name, locked(getattr(self, name), np.int64))
        object.__setattr__(self, "codes", locked(self.codes, np.uint32))
        self._check()
        places = zip(self.starts[:-1].tolist(), self.windows.tolist(), strict=True)
        pairs = [(slot, context) for slot, context in origins.tolist()]
        self.remember(self.tail.states, dict(zip(pairs, places, strict=True)))

    def _check(self) -> None:
        """Refuses tables that do not fit the windows: a step would read another table's codes."""
        size = len(self.tail.states)
        check_origins(self.origins, self.tail.slots, size)
        if self.digits.shape != (size,) or (self.digits < 0).any():
            raise InputError(f"digits must hold a number of 0 or more for each of {size} contexts")
        if ((self.windows < 0) | (self.windows > self.tail.slots - 1 - self.origins[:, 0])).any():
            raise InputError("windows holds one that is negative or goes beyond the day")
        base = int(self.digits.max()) + 1
        sizes = [size * sum(base**m for m in range(window)) for window in self.windows.tolist()]
        if self.starts.tolist() != list(accumulate(sizes, initial=0)) or sum(sizes) != len(
            self.codes
        ):
            raise InputError("starts must cut codes into one row per history of each window")

    @classmethod
    def of(
        cls,
        states: tuple[str, ...],
        slots: int,
        policies: dict[Origin, Remembering],
        digits: Ints,
    ) -> HistoryMask:
        """From what follows each release."""
        tail = SegmentMask.of(states, slots, {o: plan.tail for o, plan in policies.items()})
        kept = [origin for origin in sorted(policies) if policies[origin].codes]
        tables = [np.concatenate([c.ravel() for c in policies[o].codes]) for o in kept]
        return cls(
            tail,
            digits,
            np.array(kept, dtype=np.int64),
            np.array([len(policies[origin].codes) for origin in kept], dtype=np.int64),
            np.cumsum([0, *(table.size for table in tables)]),
            np.concatenate([np.empty(0, np.uint32), *tables]),
        )

    def policies(self) -> dict[Origin, Remembering]:
        """What follows each release; those not listed suppress the rest of the day."""
        size, base = len(self.tail.states), int(self.digits.max()) + 1
        tails = self.tail.policies()
        empty = np.empty((0, size), dtype=np.uint16)
        found = {origin: Remembering((), tail) for origin, tail in tails.items()}
        for origin, (first, window) in self._tables.items():
            ends = first + np.cumsum([0, *(base**m * size for m in range(window))])
            tables = [self.codes[a:b].reshape(-1, size) for a, b in pairwise(ends)]
            found[origin] = Remembering(tuple(tables), tails.get(origin, empty))
        return found

    def init(self) -> MaskState:
        return START

    def step(self, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
        """The state after this slot, and the context or None."""
        if state.slot >= self.tail.slots:
            state = START
        first, window = self._tables.get((state.origin, state.context), (0, 0))
        past = state.slot - state.origin - 1
        if past >= window or observed is None or state.unread:
            return self.tail.step(state, observed, rng)
        base, size = int(self.digits.max()) + 1, len(self.tail.states)
        context = self.context_of(observed)
        code = ALWAYS
        if context >= 0:
            skipped = (base**past - 1) // (base - 1) if base > 1 else past
            code = int(self.codes[first + (skipped + state.note) * size + context])
        visit = int(self.digits[context]) if context >= 0 else 0
        if (int(rng.words(1)[0]) & ALWAYS) < code or code == ALWAYS:
            return state.suppressed(state.note * base + visit), None
        return state.released(context), self.tail.states[context]

    def listed(self, origin: Origin) -> bool:
        return origin in self._tables or self.tail.listed(origin)

    def length(self) -> int:
        return self.tail.slots

    def names(self) -> tuple[str, ...]:
        return self.tail.states

    def begun(self, day: Day, origin: Origin, until: int) -> Belief | None:
        """The belief before slot `until`, when all slots since a release were read and suppressed.

        Summed over the histories of visits, which the filter does not look at. None when that
        cannot happen.
        """
        first, window = self._tables.get(origin, (0, 0))
        steps = min(window, until - origin[0] - 1)
        size = len(self.tail.states)
        logs, held = opening(day, origin)
        logs, held = logs[None], held[None]  # [history, j] and [history, j, secret]
        for k in range(steps):
            codes = self.codes[first : first + len(logs) * size].reshape(-1, size)
            first += codes.size
            kept = logs + logs_of(fine_decoded(codes))
            logs, held = pushed(day, origin, origin[0] + 1 + k, kept, held, self.digits)
        law = log_sums(logs)
        share = np.exp(logs - np.where(np.isfinite(law), law, 0.0))
        merged = Belief(law, (share[..., None] * held).sum(axis=0))
        begin = origin[0] + 1 + steps
        alive = merged if np.isfinite(law).any() else None
        return self.tail.onward_from(day, origin, begin, alive, until)

    def describe(self) -> str:
        return (
            "suppression probabilities that depend on the last release and, for up to "
            f"{int(self.windows.max(initial=0))} slots after it, on the sensitive visits since"
        )
