"""What a release is made from: a plan, stored or calibrated from a spec, and columns of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import show
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.data.dataset import Dataset


PLACES = ("state", "latitude", "longitude")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the entries are in a data file; None where neither spec nor options say."""

    state: str | None = None
    series: str | None = None
    time: str | None = None
    gap: str | None = None
    together: bool | None = None
    latitude: str | None = None
    longitude: str | None = None

    def over(self, other: Columns) -> Columns:
        """These columns, and those of `other` where these say nothing.

        Entries are states or coordinates: who names a column of either takes neither from `other`.
        """
        missing = [name for name in self.__slots__ if getattr(self, name) is None]
        if any(getattr(self, name) is not None for name in PLACES):
            missing = [name for name in missing if name not in PLACES]
        return replace(self, **{name: getattr(other, name) for name in missing})


def load_plan(path: Path) -> tuple[Plan, Columns]:
    """The plan in `path`: stored by `shoal plan --save`, or calibrated from a spec."""
    from shoal.spec.request import parse_request
    from shoal.spec.stored import parse_stored, read_text

    text = read_text(path, "spec or plan")
    if text.lstrip().startswith("{"):
        from shoal.engines.plans import rechecked

        stored = parse_stored(text, path, "plan")
        with show.working("checking the plan"):
            return rechecked(stored, path), Columns()
    request = parse_request(text, folder=path.parent, name=str(path))
    from shoal.mechanisms import choose

    with show.working("calibrating"), request.limited():
        plan = choose(request.task, request.epsilon(), request.mechanism, every=False).plan
    data = request.data
    if data is None:
        return plan, Columns()
    together = data.release == "together"
    return plan, Columns(data.state, data.series, data.time, data.gap, together, data.lat, data.lon)


def check_single(plan: Plan) -> None:
    """Refuses a plan of a stream, where a command makes one release of data at rest."""
    from shoal.cli.stream_location import follows_places
    from shoal.core.plan import Machine

    if isinstance(plan.body, Machine):
        also = " or `shoal locations`" if follows_places(plan) else ""
        raise InputError(
            f"{plan.mechanism} answers step by step, not once; use `shoal stream`{also}"
        )


def read_data(path: str, columns: Columns) -> Dataset:
    """The data set in `path`; refused when nothing says which column holds the states."""
    from shoal.data.durations import parse_duration
    from shoal.data.read import read

    if columns.state is None:
        raise InputError(
            "no column of states is named; give [data] state in the spec, or --state COLUMN"
        )
    gap = None if columns.gap is None else parse_duration(columns.gap)
    if gap is not None and columns.time is None:
        raise InputError("gap is given without a time column; name it with --time, or drop gap")
    with show.working("reading"):
        return read(path, state=columns.state, series=columns.series, time=columns.time, gap=gap)
