"""`shoal stream` for places: a position a line in, a released point and its estimate a line out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.cli.stream import StreamWish
    from shoal.core.plan import Plan
    from shoal.core.rng import Rng
    from shoal.ledger.store import SqlLedger
    from shoal.places.machine import LocationRelease
    from shoal.places.stream import LocationStream

MOST_SKIPPED = 1_000_000  # steps of a line: a slip such as a time in seconds would run for hours


def follows_places(plan: Plan) -> bool:
    """Whether a plan is a stream of places."""
    from shoal.places.machine import LocationMachine

    return isinstance(plan.body, LocationMachine)


class PlaceLines:
    """Lines of positions: a state, a latitude and longitude, or steps to skip."""

    charged = True

    def __init__(self, plan: Plan, wish: StreamWish) -> None:
        self._plan, self._wish = plan, wish
        if wish.field != "context":
            raise InputError(
                f"--field is {wish.field!r}, but {plan.mechanism} reads lat and lon, or state; "
                "drop it"
            )
        if wish.clock is not None:
            raise InputError("--clock is for the contexts of a day; drop it for other streams")
        if wish.start is not None:
            begun(plan, wish.start)  # refuses a start that is no state

    def begin(self) -> LocationStream:
        if self._wish.ledger is not None:
            self._warn_of_stored(self._wish.ledger)
        return begun(self._plan, self._wish.start)

    def goes_on(self, stored: Plan) -> bool:
        return stored == self._plan

    def step(
        self, runner: LocationStream, reading: dict[str, Any], rng: Rng
    ) -> tuple[LocationStream, dict[str, Any]]:
        """The stream after a line, and the line to write.

        A line holds "state", or "lat" and "lon"; {"skip": 3} passes three steps without a release.
        A time stamp in "at" is written out again, as it is.
        """
        after, out = self._stepped(runner, reading, rng)
        at = reading.get("at")
        return after, {"at": at, **out} if isinstance(at, str | int | float) else out

    def _stepped(
        self, runner: LocationStream, reading: dict[str, Any], rng: Rng
    ) -> tuple[LocationStream, dict[str, Any]]:
        """The same without the time stamp.

        With a ledger the step is charged first, under a key made of its time, so that a line sent
        again after a crash gets the output that was stored.
        """
        if "skip" in reading:
            return _line(runner, *runner.skip(_whole(reading["skip"])))
        observed = _position(reading)
        if observed is None:
            return _line(runner, *runner.skip())
        if not isinstance(observed, tuple):
            _check_state(runner, observed)
        if self._wish.ledger is None:
            return _line(runner, *runner.read(observed, rng=rng))
        subject, period = self._wish.subject, self._wish.period
        step = [subject, period, runner.plan.fingerprint, runner.state.time]
        key = json.dumps(step, ensure_ascii=False)
        account: dict[str, Any] = {
            "ledger": self._wish.ledger,
            "subject": subject,
            "period": period,
            "key": key,
        }
        return _line(runner, *runner.read(observed, **account))

    def doubt(self, runner: LocationStream, reading: dict[str, Any]) -> str:
        return place_doubt(runner, reading)

    def _warn_of_stored(self, ledger: SqlLedger) -> None:
        """Tells that a stream begun again gets the outputs its ledger holds, not new ones."""
        subject, period = self._wish.subject, self._wish.period
        if ledger.has(subject, period):
            typer.echo(
                f"WARNING: the ledger holds steps of {subject!r} in period {period!r}: these are "
                "answered as before, whatever the lines say. A stream that goes on keeps its place "
                "with --state; one that is independent of it has another --period.",
                err=True,
            )


def begun(plan: Plan, start: str | None) -> LocationStream:
    """The stream before its first step, or after one whose state everybody knows."""
    from shoal.places.stream import LocationStream

    fresh = LocationStream.begin(plan)
    if start is None:
        return fresh
    _check_state(fresh, start, "--start")
    return LocationStream.begin(plan, start)


def place_doubt(runner: LocationStream, reading: dict[str, Any]) -> str:
    """What the owner of the readings should know about a line; empty when nothing is odd."""
    from shoal.places.walk import SparseChain

    chain = runner.machine.chain
    if not isinstance(chain, SparseChain) or chain.grid is None or chain.cells is None:
        return ""
    latitude, longitude = reading.get("lat"), reading.get("lon")
    if not (isinstance(latitude, int | float) and isinstance(longitude, int | float)):
        return ""
    if int(chain.grid.cell_of(latitude, longitude)) in chain.cells:
        return ""
    return (
        f"lat {latitude:g} and lon {longitude:g} lie off the model's map, so its nearest state "
        "counts; check the map, and that lat and lon are not swapped"
    )


def _line(
    before: LocationStream, after: LocationStream, release: LocationRelease
) -> tuple[LocationStream, dict[str, Any]]:
    from shoal.places.walk import SparseChain

    shown = release.as_dict()
    chain = before.machine.chain
    if isinstance(chain, SparseChain) and chain.grid is not None and release.unit == "km":
        degrees = chain.grid.to_degrees
        shown["estimate_degrees"] = degrees(release.estimate).tolist()
        shown["z_degrees"] = None if release.point is None else degrees(release.point).tolist()
    return after, shown


def _position(reading: dict[str, Any]) -> Any:
    if "lat" in reading or "lon" in reading:
        if "state" in reading:
            raise InputError("the line has a state and lat and lon; give one of them")
        if "lat" not in reading or "lon" not in reading:
            raise InputError('lat and lon go together; give both, or {"skip": 1}')
        missing = reading["lat"] is None or reading["lon"] is None
        return None if missing else (_degrees(reading, "lat", 90), _degrees(reading, "lon", 180))
    if "state" in reading:
        return reading["state"]
    raise InputError('the line has neither state nor lat and lon; give one, or {"skip": 1}')


def _degrees(reading: dict[str, Any], key: str, most: int) -> float:
    value = reading[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not -most <= value <= most:
        raise InputError(
            f'{key} is {value!r}; it must be a number from -{most} to {most}, or give {{"skip": 1}}'
        )
    return float(value)


def _check_state(runner: LocationStream, name: object, field: str = "state") -> None:
    from shoal.core.records import label

    try:
        runner.machine.runtime.locator.state_of(label(name))
    except InputError:
        states = map(str, (runner.machine.chain.states or ())[:8])
        raise InputError(
            f"{field} is {name!r}, which is not one of the model's states; name one of them "
            f"({', '.join(states)}, …)"
        ) from None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SKIPPED:
        raise InputError(f"skip is {value!r}; it must be a whole number from 1 to {MOST_SKIPPED:,}")
    return value
