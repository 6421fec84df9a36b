"""Tables in and out: every public function that takes data takes them, and results give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import shoal
from shoal.chains.fit import fit_order, fit_private
from shoal.chains.held_out import check_held_out
from shoal.core.errors import DataError, InputError
from shoal.core.plan import Releases
from shoal.core.task import Task
from shoal.data.entries import column_arrays
from shoal.mechanisms.choice import choose

STATES = ["sit", "stand", "walk"]
CHAIN = shoal.MarkovChain.of(
    [[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]], states=STATES, length=40
)
PLAN = shoal.calibrate(shoal.histogram(STATES), shoal.EachEntry(), CHAIN, epsilon=2)
ROWS = pd.DataFrame(
    {
        "who": ["anna"] * 20 + ["ben"] * 12,
        "t": pd.date_range("2024-05-01", periods=32, freq="1min"),
        "what": (STATES * 11)[:32],
    }
)
NAMED: dict[str, Any] = {"state": "what", "series": "who", "time": "t", "gap": "10min"}
LIBRARIES: dict[str, Any] = {
    "pandas": lambda f: f,
    "polars": pl.from_pandas,
    "pyarrow": pa.Table.from_pandas,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_release_of_each_series_comes_back_in_its_library(library: str) -> None:
    frame = LIBRARIES[library](ROWS)
    found = PLAN.release_each(frame, **NAMED, rng=1)
    assert list(found) == ["anna", "ben"]
    again = PLAN.release(ROWS["what"][:20].to_list(), rng=1)
    assert found["anna"].as_dict() == again.as_dict()  # the same entries, the same noise
    table = found.to_frame()
    assert type(table).__module__.partition(".")[0] == library
    assert found["ben"].to_frame("polars")["label"].to_list() == STATES
    assert not found["anna"].secure


def test_several_series_are_released_together_only_when_asked() -> None:
    with pytest.raises(InputError, match=r"the data holds 2 series; release each by itself"):
        PLAN.release(ROWS, **NAMED)
    whole = PLAN.release(ROWS, **NAMED, together=True, rng=3)
    flat = PLAN.release([ROWS["what"][:20].to_list(), ROWS["what"][20:].to_list()], rng=3)
    assert whole.as_dict() == flat.as_dict()
    one = PLAN.release(ROWS[ROWS["who"] == "ben"], **NAMED, rng=3)
    assert one.library == "pandas"


def test_a_file_and_a_ledger_may_be_paths(tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "d.csv", index=False)
    made = PLAN.release_each(tmp_path / "d.csv", **NAMED, ledger=tmp_path / "b.db", key="k")
    again = PLAN.release_each(
        str(tmp_path / "d.csv"), **NAMED, ledger=str(tmp_path / "b.db"), key="k"
    )
    assert made == again
    one = PLAN.release(ROWS["what"], ledger=str(tmp_path / "b.db"), subject="all")
    with shoal.open_ledger(tmp_path / "b.db") as ledger:
        assert ledger.to_frame()["subject"].to_list() == ["anna", "ben", "all"]
        assert "<table>" in ledger._repr_html_()
        assert ledger.plot().get_ylabel() == "entry-level eta spent"
    assert one.secure
    with pytest.raises(InputError, match="rng is seeded; a ledger takes only real releases"):
        PLAN.release(["sit", "walk"], ledger=str(tmp_path / "b.db"), subject="x", rng=1)


@pytest.mark.parametrize("rng", [np.random.default_rng(1), "1", 1.5, True])
def test_odd_sources_of_randomness_are_refused_in_a_sentence(rng: Any) -> None:
    with pytest.raises(InputError, match=r"rng is a .*; leave it out for a real release"):
        PLAN.release(["sit", "walk"], rng=rng)


def test_a_path_for_the_ledger_of_a_stream_is_refused_in_a_sentence() -> None:
    from shoal.core.charge import source_for

    with pytest.raises(InputError, match=r"ledger is 'b.db', a path; open it first"):
        source_for("b.db", None)  # type: ignore[arg-type]


def test_columns_of_what_has_none_and_odd_keywords_are_refused() -> None:
    with pytest.raises(InputError, match="state is given, but the data is a list"):
        PLAN.release(["sit", "walk"], state="what")
    with pytest.raises(InputError, match="'colour' is no keyword for data; there are state, ser"):
        PLAN.release(ROWS, state="what", colour="x")
    with pytest.raises(InputError, match="name the one with the states by state="):
        PLAN.release(ROWS)
    with pytest.raises(InputError, match="is a file; name the column of states"):
        PLAN.release("d.csv")
    short = shoal.MarkovChain.of(CHAIN.transition, states=STATES, length=15)
    plan = shoal.calibrate(shoal.count(STATES, "sit"), shoal.EachEntry(), short, epsilon=1)
    with pytest.raises(DataError, match="series 'anna': the longest chain of the data exceeds"):
        plan.release_each(ROWS, **NAMED)
    assert PLAN.release(ROWS[["what"]], rng=1).library == "pandas"  # one column needs no name


def test_models_are_fitted_and_checked_from_tables() -> None:
    direct = shoal.fit_chain(ROWS, **NAMED, smoothing=1, length=40)
    assert direct == shoal.fit_chain(
        shoal.read(pl.from_pandas(ROWS), **NAMED).sequences(), smoothing=1, length=40
    )
    assert shoal.fit_chain(ROWS["what"].to_list(), smoothing=1).states == ("sit", "stand", "walk")
    more = shoal.fit_chain(ROWS, **NAMED, smoothing=1, states=[*STATES, "run"])
    assert more.states == (*STATES, "run")
    assert fit_order(ROWS, 2, **NAMED, smoothing=1).order == 2
    assert shoal.check_fit(ROWS, direct, **NAMED).transitions == 30
    assert check_held_out(ROWS, direct, **NAMED).steps == 30
    with pytest.raises(InputError, match="states is missing; give the public states"):
        fit_private(ROWS, eta=1, **NAMED)
    assert fit_private(ROWS, eta=1, states=STATES, rng=1, **NAMED).chain.states == tuple(STATES)


def test_records_of_numbers_may_be_a_column() -> None:
    frame = pd.DataFrame({"income": [1.0, 2, 3, 4], "age": [4, 3, 2, 1], "name": list("abcd")})
    assert column_arrays(frame, "income").tolist() == [1, 2, 3, 4]
    assert column_arrays(frame[["income"]], None).tolist() == [1, 2, 3, 4]
    assert column_arrays(frame, ["income", "age"]).shape == (4, 2)
    with pytest.raises(DataError, match="column 'name' holds String values; name columns of num"):
        column_arrays(frame, None)
    with pytest.raises(DataError, match="has no column 'wage'; its columns are income, age, name"):
        column_arrays(frame, "wage")


def test_results_show_themselves(tmp_path: Path) -> None:
    task = Task(query=shoal.count(STATES, "sit"), secrets=shoal.EachEntry(), family=(CHAIN,))
    choice = choose(task, 1)
    assert choice.to_frame().filter(pl.col("chosen"))["mechanism"].to_list() == [
        choice.plan.mechanism
    ]
    release = choice.plan.release(["sit"] * 20, rng=1)
    frame = release.to_frame()
    assert frame.columns == ["label", "value", "low", "high", "unit"]
    assert frame["low"][0] < frame["value"][0] < frame["high"][0]
    audit, leak = shoal.audit(choice.plan), shoal.leakage(CHAIN, 1)
    each = Releases({"a": release, "b": release})
    for value in (choice, release, each, audit, leak, choice.plan):
        assert "<table>" in value._repr_html_()
        axes = value.plot()
        axes.figure.savefig(tmp_path / "x.png")
        assert value.plot(axes) is axes
        assert value.to_frame("pandas").shape[0] >= 1
    with pytest.raises(DataError, match="library is 'r'; it must be 'polars', 'pandas' or 'pyarr"):
        release.to_frame("r")


def test_a_plan_is_one_line_and_tells_its_scale() -> None:
    text = repr(PLAN)
    assert "\n" not in text
    assert text.startswith(f"<Plan {PLAN.mechanism}: pufferfish 2, noise of scale ")
    assert PLAN.scale == float(PLAN.body.noise.scale)  # type: ignore[union-attr]


def test_the_library_of_a_table_is_no_content_of_a_release() -> None:
    made = PLAN.release(ROWS, **NAMED, together=True, rng=1)
    assert made.library == "pandas"
    loaded = shoal.loads(shoal.dumps(made))
    assert loaded == made
    assert loaded.library is None


# Frames of every kind give the chains that plain Python finds.

DTYPES: dict[str, Any] = {
    "text": lambda values: pl.Series(values, dtype=pl.String),
    "categorical": lambda values: pl.Series(values, dtype=pl.Categorical),
    "object": lambda values: pd.Series(values, dtype=object),
    "arrow text": lambda values: pd.Series(values, dtype="string"),
    "pandas category": lambda values: pd.Series(values).astype("category"),
}
TIMES: dict[str, Any] = {
    "datetime": lambda ts: pd.to_datetime(ts, unit="s"),
    "zoned": lambda ts: pd.to_datetime(ts, unit="s", utc=True).tz_convert("Europe/Berlin"),
    "iso": lambda ts: pd.to_datetime(ts, unit="s").strftime("%Y-%m-%dT%H:%M:%S"),
    "seconds": lambda ts: np.array(ts, dtype=np.int64),
    "floats": lambda ts: np.array(ts, dtype=np.float64),
}
START = 1_700_000_000
ROW = st.tuples(st.sampled_from("xy"), st.integers(0, 50), st.sampled_from(["a", "b", "c", None]))


def expected(rows: list[tuple[str, int, str | None]], missing: str, gap: int) -> dict[str, Any]:
    """The chains, row by row in plain Python."""
    found: dict[str, list[list[str]]] = {}
    for who in sorted({row[0] for row in rows}):
        own = sorted(
            (t, s) for w, t, s in rows if w == who and (s is not None or missing != "drop")
        )
        chains: list[list[str]] = []
        last, cut = None, True
        for t, s in own:
            cut = cut or (last is not None and t - last > gap)
            if s is None and missing == "gap":
                cut, last = True, t
                continue
            if cut:
                chains.append([])
            chains[-1].append("missing" if s is None else s)
            last, cut = t, False
        if own:
            found[who] = chains
    return found


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(ROW, min_size=2, max_size=14, unique_by=lambda row: (row[0], row[1])),
    dtype=st.sampled_from(sorted(DTYPES)),
    time=st.sampled_from(sorted(TIMES)),
    missing=st.sampled_from(["drop", "gap", "state"]),
    gap=st.integers(1, 30),
    library=st.sampled_from(sorted(LIBRARIES)),
)
def test_every_table_gives_the_chains_plain_python_finds(
    rows: list[Any], dtype: str, time: str, missing: str, gap: int, library: str
) -> None:
    states = [s for _, _, s in rows]
    if sum(s is not None for s in states) < 2:
        return
    column = DTYPES[dtype](states)
    frame = pd.DataFrame({"who": [w for w, _, _ in rows]})
    frame["t"] = TIMES[time]([START + t for _, t, _ in rows])
    frame["what"] = column.to_pandas() if isinstance(column, pl.Series) else column.to_numpy()
    if dtype == "pandas category":
        frame["what"] = column
    found = shoal.read(
        LIBRARIES[library](frame), state="what", series="who", time="t", gap=gap, missing=missing
    )
    chains = {
        name: [[found.states[i] for i in chain] for chain in own]
        for name, own in zip(found.names, found.chains, strict=True)
        if own
    }
    assert chains == {n: c for n, c in expected(rows, missing, gap).items() if c}


def test_charts_of_many_series_stay_readable() -> None:
    """A line with its interval for very many single values, a picture of colours for histograms."""
    pytest.importorskip("matplotlib")
    from shoal.core.plan import Releases

    one = PLAN.release(["sit", "walk"] * 20, rng=1)
    some = Releases({f"person-{number}": one for number in range(5)})
    assert [text.get_text() for text in some.plot().get_xticklabels()] == list(some)
    days = Releases({f"house 2024-03-0{number}": one for number in range(1, 5)}).plot()
    assert days.get_xlabel() == "house"
    assert next(text.get_text() for text in days.get_xticklabels()) == "2024-03-01"
    many = Releases({f"person-{number}": one for number in range(300)})
    axes = many.plot()
    assert len(axes.get_xticklabels()) <= 25
    assert len(axes.patches) <= 2  # no thousands of bars
    assert repr(many) == "<300 releases: " + ", ".join(list(many)[:6]) + ", …>"
    assert repr(one).startswith("<Release by ")
    assert repr(one).endswith("seeded, protects nothing>")
