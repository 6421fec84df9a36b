"""A stream that watches events, begun several times: one history, or a refusal."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.core.charge import Charge, StreamStep, empty_history, output_key
from shoal.core.errors import CannotCompose, InputError, OtherHistory
from shoal.core.stream import Slot
from shoal.core.task import Task
from shoal.jobs.live import Live, LiveReading
from shoal.ledger import charging, compose
from shoal.ledger.store import SqlLedger
from shoal.places.events import EventGuard
from shoal.places.packed import from_bytes, to_bytes
from shoal.places.policy import PolicyGraph
from shoal.places.queries import measurement
from shoal.places.rows import GRAPH_ROW
from shoal.places.stream import LocationOutput, LocationStream, output, step_key
from shoal.places.tracks import TrackColumns, release_tracks
from tests.engine_jobs import refused, released
from tests.histories import ByTime, Draw, Scripted, Town, log_odds_moved, run, town, worst_of_all
from tests.settling import Settling

EVENT = shoal.visit("0", between=(1, 2))
THREE = town(3, 4, 0.6, EVENT)
TWO = town(2, 3, 0.7, EVENT)
LOOSE = town(3, 4, 0.6, EVENT, 3.0)  # every step that is read shows something
WITHIN = 1 + 1e-9


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    with shoal.open_ledger(tmp_path / "ledger.db") as opened:
        yield opened


def fresh_runs(steps: int, every: int) -> list[list[int]]:
    """Runs that read every `every`-th step, each from another first one."""
    return [[int(t % every == first) for t in range(steps)] for first in range(every)]


@pytest.mark.parametrize("every", [2, 4])
def test_steps_read_in_turns_by_fresh_streams_stay_within_the_bound(
    every: int, ledger: SqlLedger
) -> None:
    """Keyed by time alone two fresh streams moved the odds by 1.04 where .5 is promised."""
    plan, runs = THREE.plan("2"), fresh_runs(4, every)
    assert worst_of_all(THREE, plan, runs, ByTime(), "a") > 2 * 0.5
    assert worst_of_all(THREE, plan, runs, ledger, "a") <= 0.5 * WITHIN


def test_twelve_fresh_streams_stay_within_the_bound(ledger: SqlLedger) -> None:
    """Each reads another set of steps; what is drawn moves the odds as far as it can."""
    plan = THREE.plan("2")
    runs = [[int(t in some) for t in range(4)] for some in itertools.combinations(range(4), 2)] * 2

    def farthest(draws: list[Draw], draw: Draw) -> int:
        moved = [log_odds_moved(THREE, [*draws, draw._replace(cell=c)]) for c in range(3)]
        return moved.index(max(moved))

    found = []
    for kept in (ByTime(), ledger):
        scripted = Scripted(kept, choose=farthest)
        for reads in runs:
            run(plan, reads, scripted, "ann")
        found.append(log_odds_moved(THREE, scripted.draws))
    assert found[0] > 2 * 0.5
    assert found[1] <= 0.5 * WITHIN


def test_any_two_runs_of_a_small_town_stay_within_the_bound(ledger: SqlLedger) -> None:
    """Every pair of sets of missing readings, every output; the total says what is promised."""
    plan, used, beyond = TWO.plan("2"), 0.0, 0
    for number, runs in enumerate(itertools.product(itertools.product((0, 1), repeat=3), repeat=2)):
        worst = worst_of_all(TWO, plan, runs, ledger, f"pair {number}")
        assert worst <= 0.5 * WITHIN, runs
        used = max(used, worst)
        beyond += worst_of_all(TWO, plan, runs, ByTime(), "p") > 0.5 * WITHIN
    assert used > 0.4
    assert beyond > 3
    total = ledger.spent("pair 63/1")
    assert total is not None
    assert "epsilon = 0.5" in total.explanation
    assert ledger.verify().intact


def test_the_same_readings_give_the_same_outputs_and_more_of_them_go_on(ledger: SqlLedger) -> None:
    plan = LOOSE.plan("1")
    scripted = Scripted(ledger, [1, 2, 0, 1])
    first = run(plan, [1, 0, 1], scripted, "ann")
    assert run(plan, [1, 0, 1], scripted, "ann") == first
    assert run(plan, [1], scripted, "ann") == first[:1]
    longer = run(plan, [1, 0, 1, 1], scripted, "ann")
    assert longer[:3] == first
    assert not any(isinstance(shown, Exception) for shown in longer)
    assert run(plan, [1, 0, 1, 1], scripted, "ann") == longer
    stored = [draw for draw in scripted.draws if draw.epsilon]
    total = ledger.spent("ann")
    assert total is not None
    assert total.charges == len(stored) == len(longer) - longer.count(None)


def test_another_set_of_missing_readings_is_refused_in_one_sentence(ledger: SqlLedger) -> None:
    plan, scripted = LOOSE.plan("1"), Scripted(ledger)
    assert run(plan, [1, 0, 1], scripted, "ann")[0] is not None
    (*_, refusal) = run(plan, [0, 1], scripted, "ann")
    assert isinstance(refusal, OtherHistory)
    assert "drawn from other readings" in str(refusal)
    assert "readings that were released again" in str(refusal)
    known = shoal.LocationStream.begin(plan, "1")  # another start is another history
    with pytest.raises(OtherHistory):
        known.read("0", ledger=ledger, subject="ann")
    assert run(plan, [0, 1], scripted, "bob")[-1] is not None
    assert not isinstance(run(plan, [0, 1], scripted, "bob")[-1], Exception)


def test_outputs_that_were_not_charged_are_no_history(ledger: SqlLedger) -> None:
    """A stream that drew without the ledger goes on without it."""
    plan = LOOSE.plan("1")
    stream, release = shoal.LocationStream.begin(plan).read("0")
    assert release.z is not None
    with pytest.raises(OtherHistory):
        stream.read("0", ledger=ledger, subject="ann")
    run(plan, [1], Scripted(ledger, [1]), "ann")
    other = stream if release.z != (1,) else after_output(plan, 2)
    with pytest.raises(OtherHistory):
        other.read("0", ledger=ledger, subject="ann")


def after_output(plan: Any, cell: int) -> LocationStream:
    """A stream whose first output was `cell`, without any ledger."""
    stream = shoal.LocationStream.begin(plan)
    return stream.absorb(stream.price(Slot()), LocationOutput((cell,), True))


def test_a_stored_output_is_absorbed_at_the_epsilon_it_was_drawn_at(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = LOOSE.plan("1")
    run(plan, [1], Scripted(ledger), "ann")
    usual = EventGuard.choose

    def less(guard: EventGuard, *given: Any) -> Any:
        chosen = usual(guard, *given)
        assert chosen is not None
        return chosen._replace(epsilon=chosen.epsilon / 2)

    monkeypatch.setattr(EventGuard, "choose", less)
    with pytest.raises(OtherHistory):
        shoal.LocationStream.begin(plan).read("0", ledger=ledger, subject="ann")


def test_two_copies_of_a_stored_stream_have_one_history(ledger: SqlLedger) -> None:
    plan = LOOSE.plan("1")
    stream, _ = shoal.LocationStream.begin(plan).read("0", ledger=ledger, subject="ann")
    one, other = (LocationStream.from_bytes(plan, stream.to_bytes()) for _ in range(2))
    one, told = one.read("0", ledger=ledger, subject="ann")
    assert told.z is not None
    _, again = other.read("1", ledger=ledger, subject="ann")
    assert again.z == told.z
    with pytest.raises(OtherHistory):
        other.skip()[0].read("1", ledger=ledger, subject="ann")


def test_streams_begun_at_once_have_one_history(tmp_path: Path) -> None:
    """Several programs begin one stream with other readings missing; one of them goes on."""
    plan, where = TWO.plan("2"), tmp_path / "ledger.db"
    shoal.open_ledger(where).close()
    patterns, ended = [[1, 1, 1], [0, 1, 1], [0, 0, 1], [1, 0, 1]], []
    together = threading.Barrier(len(patterns))

    def begin(reads: list[int]) -> None:
        with shoal.open_ledger(where) as own:
            scripted = Scripted(own)
            together.wait(timeout=60)
            ended.append((run(plan, reads, scripted, "ann"), scripted.draws))

    threads = [threading.Thread(target=begin, args=[reads]) for reads in patterns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(ended) == len(patterns)
    draws = [draw for _, own in ended for draw in own]
    with shoal.open_ledger(where) as ledger:
        total = ledger.spent("ann")
        assert ledger.verify().intact
    assert total is not None
    assert total.charges <= len(draws)  # what was overtaken was drawn and never shown
    refused = [shown for shown, _ in ended if isinstance(shown[-1], OtherHistory)]
    assert refused
    assert len(refused) < len(patterns)


def test_one_batch_has_one_history(ledger: SqlLedger) -> None:
    """Charges that are settled together: the second of another time is refused, not answered."""
    plan = TWO.plan("2")
    begun = shoal.LocationStream.begin(plan)
    charges, draws = [], []
    for stream in (begun, begun.skip()[0], begun):
        charge = stream.price(Slot(subject="ann")).charge
        assert charge is not None
        assert charge.key == output_key("ann", "", plan.fingerprint, 0)
        charges.append(charge)
        draws.append(output(plan, (1,)))
    first, other, twin = ledger.settle_all(charges, lambda some: [draws[at] for at in some])
    assert first == twin
    assert isinstance(other, OtherHistory)
    assert ledger.spent("ann").charges == 1  # type: ignore[union-attr]


def test_only_the_stream_charges_its_outputs(ledger: SqlLedger) -> None:
    plan, plain = TWO.plan("2"), TWO.plan("2", watched=False)
    step = StreamStep(number=0, before=empty_history(None), time=0, epsilon=Fraction(1))
    key = output_key("ann", "", plan.fingerprint, 0)
    one = Charge(plan=plan, subject="ann", key=key, eta=Fraction(1), step=step)
    wrong = [
        (replace(one, step=None), "charged by the stream itself"),
        (replace(one, key="mine"), "has one key"),
        (replace(one, requester="shop"), "has one key"),
        (replace(one, members=("bob",)), "has one key"),
        (replace(one, plan=plain), "keeps no promise about all outputs"),
    ]
    for charge, words in wrong:
        with pytest.raises(InputError, match=words):
            ledger.settle(charge, lambda: output(plan, (1,)))
    assert ledger.spent("ann") is None


def test_steps_of_version_0_2_are_counted_and_not_followed(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their charges do not say what came before: they load, add up and end the stream."""
    plan = TWO.plan("2")
    with monkeypatch.context() as before:
        before.setattr(charging, "check_step", lambda charge: None)
        old = Charge(plan=plan, subject="ann", key=step_key("ann", "", plan, 1), eta=Fraction(1, 2))
        ledger.settle(old, lambda: output(plan, (1,)))
    total = ledger.spent("ann")
    assert total is not None
    assert total.charges == 1
    assert ledger.verify().intact
    for reads in ([1], [0, 1], [0, 0, 1]):
        (*_, refusal) = run(plan, reads, Scripted(ledger), "ann")
        assert isinstance(refusal, OtherHistory)
    assert ledger.spent("ann").charges == 1  # type: ignore[union-attr]


def test_a_stream_stored_by_version_0_2_goes_on_without_a_ledger_only(ledger: SqlLedger) -> None:
    plan = TWO.plan("2")
    stream, _ = shoal.LocationStream.begin(plan).read("0", ledger=ledger, subject="ann")
    old = to_bytes(from_bytes(stream.to_bytes())._replace(drawn=0, history="", shown=b""))
    assert old[3] == 3  # the form of version 0.2
    again = LocationStream.from_bytes(plan, old)
    assert to_bytes(again.kept()) == old
    with pytest.raises(OtherHistory, match="stored by a version up to"):
        again.read("0", ledger=ledger, subject="ann")
    again.read("0")


def test_two_plans_that_watch_one_event_are_not_added(ledger: SqlLedger) -> None:
    """What both tell is more than either promises, and the ledger refuses the second."""
    where, worst = TWO, 0.0
    plans = where.plan("2"), where.plan("1"), where.plan("2", watched=False)
    for cells in itertools.product(range(2), repeat=6):
        one, other = (Scripted(_Free(), own) for own in (cells[:3], cells[3:]))
        run(plans[0], [1, 1, 1], one, "ann")
        run(plans[1], [1, 1, 1], other, "ann")
        worst = max(worst, log_odds_moved(where, [*one.draws, *other.draws]))
    assert worst > 0.5 * 1.5
    run(plans[0], [1], Scripted(ledger), "ann")
    for plan in plans[1:]:
        with pytest.raises(CannotCompose, match="does not add to anything else"):
            shoal.LocationStream.begin(plan).read("0", ledger=ledger, subject="ann")
    with pytest.raises(CannotCompose, match="does not add to anything else"):
        compose([plans[0], plans[1]])


class _Free(Settling):
    """A ledger that takes every charge."""

    def settle(self, charge: Any, sample: Any) -> Any:
        return sample()


def test_the_law_written_here_is_the_one_that_is_drawn() -> None:
    for where in (THREE, TWO):
        noise = shoal.LocationStream.begin(where.plan("2")).price(Slot()).law.noise
        assert noise is not None
        epsilon = float(noise.eta or 0)
        for cell in range(where.cells):
            logs = noise.law.log_likelihood((cell,))
            same = [math.exp(epsilon) if cell == own else 1.0 for own in range(where.cells)]
            own = [math.log(one / (math.exp(epsilon) + where.cells - 1)) for one in same]
            assert logs.tolist() == pytest.approx(own, abs=1e-12)


def tables(out: Path) -> list[pl.DataFrame]:
    """What a job released; nothing where everybody was refused at once."""
    return [released(out)] if list(out.rglob("*.parquet")) else []


def people(where: Town, count: int) -> pl.DataFrame:
    """Walks of so many people, a row for each step."""
    rng = np.random.default_rng(1)
    rows = []
    for number in range(count):
        here = int(rng.choice(where.cells, p=where.initial))
        for step in range(where.steps):
            rows.append((f"u{number:03d}", step, str(here)))
            here = int(rng.choice(where.cells, p=where.matrix[here]))
    return pl.DataFrame(rows, schema=["user", "at", "place"], orient="row")


def stored_draws(ledger: SqlLedger) -> dict[str, list[Draw]]:
    """What was drawn about each person, as the ledger has it."""
    found: dict[str, list[Draw]] = {}
    for entry in ledger.charges():
        told = json.loads(entry.value or "")
        draw = Draw(told["history"][2], float(Fraction(entry.eta or 0)), told["multiples"][0])
        found.setdefault(entry.subject, []).append(draw)
    return found


@pytest.mark.parametrize(("every", "absent"), [(2, False), (4, False), (2, True)])
def test_jobs_of_late_rows_stay_within_the_bound(every: int, absent: bool, tmp_path: Path) -> None:
    """Keyed by time two such runs moved the odds of the worst of 200 by 1.00, four by 1.68.

    Rows that come late have no state in the first files, or are `absent` from them.
    """
    where = town(3, 5, 0.7, shoal.visit("0", between=(1, 3)))
    plan, whole = where.plan("2"), people(where, 40)
    for number in range(every):
        some = pl.col("at") % every == number
        late = whole.filter(some) if absent else whole
        late = late.with_columns(place=pl.when(some).then(pl.col("place")))
        for name, frame in (("a", late), ("b", late)):  # the same rows again: the same outputs
            data, out = tmp_path / f"{number}{name}.parquet", tmp_path / f"{number}{name}"
            frame.write_parquet(data)
            names: Any = {"by": "user", "state": "place", "time": "at"}
            shoal.release_files(plan, data, out=out, ledger=str(tmp_path / "ledger"), **names)
        first, again = (tables(tmp_path / f"{number}{name}") for name in "ab")
        assert [one.rows() for one in first] == [one.rows() for one in again]
        reasons = refused(tmp_path / f"{number}a")
        assert (len(reasons) > 20) == (number > 0)
        assert all("late rows" in reason for reason in reasons.values())
    with shoal.open_ledger(tmp_path / "ledger") as ledger:
        draws = stored_draws(ledger)
        assert ledger.verify().intact
    assert len(draws) == 40
    assert max(log_odds_moved(where, own) for own in draws.values()) <= 0.5 * WITHIN


def test_tracks_of_late_rows_are_refused_and_the_same_rows_are_given_again(
    ledger: SqlLedger,
) -> None:
    where = town(3, 5, 0.7, EVENT, 3.0)
    plan, whole = where.plan("1"), people(where, 3)
    columns = TrackColumns(user="user", time="at", state="place")
    first = whole.filter(pl.col("at") < 3)

    def release(table: pl.DataFrame, **rest: Any) -> pl.DataFrame:
        made: pl.DataFrame = release_tracks(plan, table, columns, ledger=ledger, **rest)
        return made

    shown = release(first, period="1")
    assert release(first, period="1").equals(shown)
    fewer = release(first.filter(pl.col("at") < 2), period="1")
    assert fewer.equals(shown.filter(pl.col("step") < 2))
    longer = release(whole, period="1")
    assert longer.filter(pl.col("step") < 3).equals(shown)
    assert ledger.spent("u000", "1").charges == 5  # type: ignore[union-attr]
    for other in (whole.filter(pl.col("at") != 1), whole.with_columns(pl.col("at") + 1)):
        with pytest.raises(OtherHistory, match="give the readings that were released again"):
            release(other, period="1")
    assert not release(whole.filter(pl.col("at") != 1), period="2").is_empty()
    with pytest.raises(InputError, match="need times"):
        release_tracks(
            plan, whole, TrackColumns(user="user", state="place"), ledger=ledger, period="3"
        )
    apart = whole.with_columns(at=pl.when(pl.col("at") > 2).then(99).otherwise(0) + pl.col("at"))
    with pytest.raises(InputError, match="cuts the readings of 'u000'"):
        release_tracks(plan, apart, replace(columns, gap=10))


def test_a_live_query_begun_again_goes_on_or_shows_nothing(tmp_path: Path) -> None:
    """A query with a new checkpoint and the ledger of the old one."""
    where = town(3, 4, 0.6, EVENT, 3.0)
    plan, rows = where.plan("1"), [LiveReading("", 10 * t, "1") for t in range(4)]
    path = str(tmp_path / "ledger")
    one, two = (Live.of(plan, bytes([k]) * 32, ledger=path) for k in (1, 2))
    _, first = one.advance("ann", None, rows[:3])
    _, again = two.advance("ann", None, rows)
    shown = [[row.cells["multiples"] for row in told] for told in (first, again)]
    assert shown[1][:3] == shown[0]
    assert None not in shown[1]
    _, late = two.advance("ann", None, [rows[0], LiveReading("", 5, "2"), *rows[1:3]])
    assert [row.cells["multiples"] for row in late] == [shown[0][0], None, None, None]
    with pytest.raises(InputError, match="leave requester out"):
        Live.of(plan, bytes(32), ledger=path, requester="shop").advance("bob", None, rows)


def test_a_plain_step_is_not_absorbed_under_another_law(ledger: SqlLedger) -> None:
    """What rules states out under one law does not under another: then a wrong set is protected."""
    names, own = "abcdef", {"a": 0, "b": 11, "c": 1, "d": 2, "e": 10, "f": 9}
    first = {"a": "ac", "b": "ac", "c": "c", "d": "d", "e": "bdef", "f": "bdef"}
    then = {"a": "ab", "b": "b", "c": "cdef", "d": "cdef", "e": "e", "f": "f"}
    matrices = [
        [[(other in to[name]) / len(to[name]) for other in names] for name in names]
        for to in (first, then)
    ]
    initial = [0.25 if name in "abef" else 0.0 for name in names]
    day = shoal.DayChain.of(matrices, initial=initial, states=names)
    query = measurement(names, [[own[name]] for name in names], step=1)
    policy = PolicyGraph.categories(names, [("a", "b"), ("c", "d"), ("e", "f")])
    plan = GRAPH_ROW.calibrate(Task(query=query, secrets=policy, family=(day,)), Fraction(1))

    scripted = Scripted(ledger, [own["a"], own["c"]])
    stream, begun = shoal.LocationStream.begin(plan), shoal.LocationStream.begin(plan)
    for key in ("0", "1"):  # at a all the time; c is shown, which nothing has ruled out
        stream, _ = stream.read("a", ledger=scripted, subject="ann", key=key)
    late = begun.skip()[0]
    wrong = late.absorb(late.price(Slot()), LocationOutput((own["c"],), True))
    noise = wrong.price(Slot()).law.noise
    assert noise is not None
    logs = [noise.law.log_likelihood((own[name],)) for name in "cdef"]
    joined = [(told[0], told[1]) for told in logs]  # a and b, which the policy joins
    assert any(min(pair) == -math.inf < max(pair) for pair in joined)
    with pytest.raises(OtherHistory, match="drawn with other noise"):
        late.read("a", ledger=ledger, subject="ann", key="1")
    again = begun
    for key in ("0", "1"):
        again, _ = again.read("b", ledger=ledger, subject="ann", key=key)
    assert again.state == stream.state
    other, _ = begun.skip()[0].read("a", ledger=ledger, subject="bob", key="bob 1")
    assert other.state.time == 2
