"""Live streams of places for jobs: a person's rows at a time, from a stored state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import CannotCompose, InputError, OverBudget
from shoal.core.plan import Plan
from shoal.jobs.live import UNUSABLE, Live, LiveRow, Reading
from shoal.jobs.replayable_rng import KeyedRng
from shoal.places.jobs.traces import grid_in_km, locator_of, names_at
from shoal.places.machine import machine_of
from shoal.places.packed import Kept, read_state, write_state
from shoal.places.stream import LocationStream


class LivePlaces:
    """Live streams of places: rows are steps, in the order of their times."""

    days = False

    def advance(
        self, live: Live, subject: str, stored: str | None, rows: Sequence[Reading]
    ) -> tuple[str, list[LiveRow]]:
        plan = live.plan
        machine = machine_of(plan)
        if stored is None:
            kept = Kept(machine.init(), None)
        else:
            kept = read_state(stored, machine.runtime.motion.hidden)
        stream, last = LocationStream(plan, kept.state), kept.last
        told = []
        for row in sorted(rows, key=lambda row: row.at or 0):
            at = int(row.at or 0)
            if last is not None and at <= last:
                told.append(LiveRow(row.day, at, late=True))
                continue
            rng = KeyedRng(live.key, [plan.fingerprint, subject, *row, stream.state.fingerprint])
            account = _account(live, subject, stream.state.time)
            try:
                stream, release = (
                    stream.skip()
                    if row.state is None
                    else stream.read(row.state, rng=rng, **account)
                )
            except (OverBudget, CannotCompose):
                stream, release = stream.skip()
            except InputError:  # a state the model does not know, a name no ledger takes
                told.append(LiveRow(row.day, at, error=UNUSABLE))
                continue
            last = at
            cells = self._cells(plan, release.z, release.estimate)
            told.append(LiveRow(row.day, at, cells=cells))
        return write_state(Kept(stream.state, last)), told

    def columns(self, plan: Plan) -> dict[str, str]:
        """Points on a map in km have degrees too."""
        located = {"multiples": "array<long>", "estimate": "array<double>"}
        if grid_in_km(plan) is not None:
            located |= {"value_degrees": "array<double>", "estimate_degrees": "array<double>"}
        return located

    def states_at(self, plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
        return names_at(plan, latitudes, longitudes)

    def check_map(self, plan: Plan) -> None:
        locator_of(plan)

    def _cells(self, plan: Plan, multiples: Any, estimate: Any) -> dict[str, Any]:
        """Multiples and estimate of a step, and on a map both in degrees."""
        cells = {"multiples": multiples, "estimate": estimate}
        grid = grid_in_km(plan)
        if grid is None:
            return cells
        step = float(plan.task.query.lattice)
        point = None if multiples is None else grid.to_degrees(np.array(multiples) * step).tolist()
        return {
            **cells,
            "value_degrees": point,
            "estimate_degrees": grid.to_degrees(estimate).tolist(),
        }


def _account(live: Live, subject: str, step: int) -> dict[str, Any]:
    """The charge of one step, under a key of its own: run again, it costs nothing more."""
    if live.ledger is None:
        return {}
    key = json.dumps([live.job, subject, "", live.plan.fingerprint, step], ensure_ascii=False)
    rest = {"subject": subject, "requester": live.requester, "key": key}
    return {"ledger": live.opened_ledger(), **rest}


LIVE = LivePlaces()
