"""The stored state of a live location stream: exactly what was kept, or a refusal in a sentence."""

from __future__ import annotations

import base64
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.core.errors import StoredError
from shoal.core.registry import dumps, loads
from shoal.jobs.live import KeyedRng, Live, LiveReading
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.places.packed import (
    HEADER,
    VERSION,
    Kept,
    LocationState,
    from_bytes,
    read_state,
    to_bytes,
    write_state,
)
from shoal.places.stream import LocationStream
from tests.locations import running_task, town_task

SECRET = bytes(range(32))
singles = st.floats(width=32, allow_nan=False)


@st.composite
def states(draw: st.DrawFn) -> Kept:
    """Any state at all: beliefs with many zeros or none, supports that follow them or do not."""
    size = draw(st.integers(1, 70))
    zeros = st.sampled_from([0.0, -0.0])
    entry = draw(st.sampled_from([singles, st.one_of(zeros, zeros, zeros, singles)]))
    belief = np.array(draw(st.lists(entry, min_size=size, max_size=size)), dtype=np.float32)
    bits = st.lists(st.booleans(), min_size=size, max_size=size)
    support = np.array(draw(bits)) if draw(st.booleans()) else belief.view(np.uint32) != 0
    amounts = st.floats(min_value=0, allow_nan=False)
    state = LocationState(
        draw(st.integers(0, 2**63)),
        belief,
        np.packbits(support),
        draw(amounts),
        draw(amounts),
        draw(st.booleans()),
    )
    return Kept(state, draw(st.none() | st.integers(-(2**63), 2**63 - 1)))


def same(one: Kept, two: Kept) -> bool:
    """Whether every bit is the same, also signs of zeros."""
    return (
        one.last == two.last
        and one.state.fingerprint == two.state.fingerprint
        and one.state.belief.tobytes() == two.state.belief.tobytes()
        and one.state.support.tobytes() == two.state.support.tobytes()
    )


@settings(deadline=None)
@given(kept=states())
def test_a_state_comes_back_bit_by_bit(kept: Kept) -> None:
    text = write_state(kept)
    found = read_state(text, len(kept.state.belief))
    assert same(found, kept)
    assert not found.state.belief.flags.writeable
    assert not found.state.support.flags.writeable
    assert write_state(found) == text
    assert len(to_bytes(kept)) <= HEADER.size + 8 + 4 * len(kept.state.belief) + len(
        kept.state.support
    )


@settings(deadline=None)
@given(kept=states(), place=st.integers(0, 2**16), bit=st.integers(0, 7))
def test_a_changed_bit_is_refused(kept: Kept, place: int, bit: int) -> None:
    raw = bytearray(to_bytes(kept))
    raw[place % len(raw)] ^= 1 << bit
    with pytest.raises(StoredError):
        from_bytes(bytes(raw))


@settings(deadline=None)
@given(kept=states(), cut=st.integers(0, 2**16))
def test_a_state_cut_short_is_refused(kept: Kept, cut: int) -> None:
    raw = to_bytes(kept)
    with pytest.raises(StoredError):
        from_bytes(raw[: cut % len(raw)])
    with pytest.raises(StoredError):
        from_bytes(raw + b"\0")


def some(size: int = 400, *, known: int | None = None) -> Kept:
    """A state of a stream on `size` cells; with `known`, all belief on so many of them."""
    belief = np.zeros(size, dtype=np.float32)
    belief[: known or size] = 1 / (known or size)
    return Kept(LocationState(7, belief, np.packbits(belief > 0), 1.5, 3.0), 60)


def test_what_is_zero_takes_no_room() -> None:
    assert len(to_bytes(some())) == HEADER.size + 1600 + 8
    assert len(to_bytes(some(known=9))) == HEADER.size + 50 + 36 + 8
    old = json.dumps({"state": dumps(some().state), "last": 60})
    assert len(write_state(some())) < 0.7 * len(old)


def test_the_json_of_earlier_versions_is_read() -> None:
    kept = some(known=30)
    old = json.dumps({"state": dumps(kept.state), "last": kept.last})
    assert same(read_state(old, 400), kept)
    fresh = json.dumps({"state": dumps(kept.state), "last": None})
    assert read_state(fresh, 400).last is None


@pytest.mark.parametrize("delta", [None, Fraction(1, 5)], ids=["policy", "location-set"])
def test_a_stream_stored_as_json_goes_on_as_if_nothing_had_happened(
    delta: Fraction | None,
) -> None:
    plan = calibrate_and_check(MECHANISMS["location-knorm"], running_task(delta=delta), Fraction(1))
    live = Live.of(plan, SECRET)
    rows = [LiveReading("", 10 * step, f"s{step * 5 % 6 + 1}") for step in range(8)]
    stored, _ = live.advance("ann", None, rows[:4])
    kept = read_state(stored, 6)
    old = json.dumps({"state": dumps(kept.state), "last": kept.last})
    assert live.advance("ann", old, rows[4:]) == live.advance("ann", stored, rows[4:])


def test_replayed_rows_draw_what_earlier_versions_drew() -> None:
    # a batch that was seen and is run again after an upgrade must show the same values
    plan = calibrate_and_check(MECHANISMS["location-knorm"], running_task(), Fraction(1))
    rows = [LiveReading("", 10 * step, f"s{step * 5 % 6 + 1}") for step in range(5)]
    _, told = Live.of(plan, SECRET).advance("ann", None, rows)
    stream = LocationStream.begin(plan)
    for row, shown in zip(rows, told, strict=True):
        stream = LocationStream(plan, loads(dumps(stream.state)))
        label = [plan.fingerprint, "ann", *row, stream.state.fingerprint]
        stream, release = stream.read(row.state, rng=KeyedRng(SECRET, label))
        assert shown.cells["multiples"] == release.z


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no state of a location stream"),
        ("AAAA", "is no state of a location stream"),
        ("not base64!", "is no state of a location stream"),
        ("{", "is no state of a location stream"),
        ('{"state": 3}', "is no state of a location stream"),
        (json.dumps({"state": dumps(some().state), "last": "x"}), "is no state of a location"),
        (base64.b64encode(b"PK\3\4" + bytes(90)).decode(), "is no state of a location stream"),
    ],
    ids=["empty", "short", "text", "half", "fields", "last", "zip"],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(StoredError, match=reason):
        read_state(text, 400)


def test_other_versions_models_and_damage_are_told_apart() -> None:
    raw = bytearray(to_bytes(some()))
    raw[3] = VERSION + 8
    with pytest.raises(StoredError, match="has version 9; this program reads versions 1 to 4"):
        from_bytes(bytes(raw))
    with pytest.raises(StoredError, match="has 400 hidden states, and the plan's model 36"):
        read_state(write_state(some()), 36)
    raw = bytearray(to_bytes(some()))
    raw[100] ^= 1
    with pytest.raises(StoredError, match="is damaged; restore the checkpoint"):
        from_bytes(bytes(raw))
    old = json.dumps({"state": dumps(some().state), "last": 60})
    with pytest.raises(StoredError, match="400 hidden states"):
        read_state(old, 36)


def test_a_stream_on_a_map_is_stored_and_taken_up_again() -> None:
    plan = calibrate_and_check(MECHANISMS["location-knorm"], town_task(4, 4), Fraction(1))
    live = Live.of(plan, SECRET)
    stored, _ = live.advance("ann", None, [LiveReading("", 1, "1,1"), LiveReading("", 2, None)])
    kept = read_state(stored, 16)
    assert (kept.state.time, kept.last) == (2, 2)
    stream = LocationStream(plan, kept.state)
    assert stream.skip()[0].state.time == 3
