"""Whatever a file, a line or an option holds, a command ends with 0, or with one sentence."""

from __future__ import annotations

import gzip
import random
import resource
from pathlib import Path

import pytest

from tests import fuzzing
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.fuzzing import SERIES, Case, case, fault

PATIENCE = 60.0  # seconds of the processor: a case takes some milliseconds, compiling half a minute
MOST_MEMORY = 2 * 2**20  # KiB of this process, whatever it has loaded


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seeds, in the working folder."""
    monkeypatch.chdir(tmp_path)
    fuzzing.seeds(tmp_path)
    return tmp_path


def faults(corpus: Path, seeds: range) -> list[str]:
    tried = (case(corpus, random.Random(seed)) for seed in seeds)
    return [found for found in (fault(corpus, one, PATIENCE) for one in tried) if found]


def test_three_hundred_spoilt_inputs_end_in_a_sentence(corpus: Path) -> None:
    assert faults(corpus, range(300)) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_twenty_thousand_spoilt_inputs_end_in_a_sentence(corpus: Path, block: int) -> None:
    assert faults(corpus, range(1000 * (block + 1), 1000 * (block + 2))) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MOST_MEMORY


def stored_faults(corpus: Path, seeds: range) -> list[str]:
    fuzzing.stored_seeds(corpus)
    tried = (fuzzing.stored_case(corpus, random.Random(seed)) for seed in seeds)
    return [found for found in (fault(corpus, one, PATIENCE) for one in tried) if found]


def test_a_hundred_changes_to_what_is_stored_end_in_a_sentence(corpus: Path) -> None:
    assert stored_faults(corpus, range(100)) == []


@pytest.mark.slow
def test_five_thousand_changes_to_what_is_stored_end_in_a_sentence(corpus: Path) -> None:
    assert stored_faults(corpus, range(1000, 6000)) == []


def test_the_seeds_themselves_work(corpus: Path) -> None:
    for name in fuzzing.TOMLS:
        assert fault(corpus, Case(("plan", name), {}), PATIENCE) == ""


@pytest.mark.parametrize(
    ("raised", "found"),
    [(KeyError("epsilon"), "KeyError"), (SystemExit(5), "exit code 5"), (MemoryError(), "")],
    ids=["traceback", "code", "caught"],
)
def test_the_fuzzer_sees_a_fault(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, found: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("shoal.spec.request.parse_request", fail)
    seen = fault(corpus, Case(("plan", "series.toml"), {}), PATIENCE)
    assert (found in seen) if found else not seen


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epsilon = 1.0", "epsilon = 1e308", "privacy.epsilon is 1E+308; it must be 0, or between"),
        ("epsilon = 1.0", "epsilon = 1e-320", "privacy.epsilon is 1E-320; it must be 0, or"),
        ("epsilon = 1.0", f"epsilon = {HUGE}", "holds a number with more digits than can be read"),
        ("length = 30", "length = 9223372036854775807", "it must be at most 1,000,000,000,000"),
        ("length = 30", "length = 1e30", "model.length is 1E+30; it must be a whole number"),
        ("walk = 2", f"walk = {'[' * 5000}{']' * 5000}", "nests lists deeper than any spec does"),
        ("walk = 2", "walk = 1e-400", "it must be 0, or between 1e-300 and 1e300 in size"),
        ("walk = 2", f"walk = 0.{'1' * 400}", "it must have at most 300 digits"),
        ('"markov-chain"', '""', "model.kind is ''; it must be one of"),
        ('"markov-chain"', '"\\u0000"', "model.kind is '\\x00'; it must be one of"),
    ],
    ids=lambda value: value[:20],
)
def test_numbers_and_nests_beyond_all_limits(
    run: Run, folder: Path, old: str, new: str, words: str
) -> None:
    (folder / "big.toml").write_text(SERIES.replace(old, new))
    assert words in refused(run("plan", "big.toml"))


def test_weights_and_budgets_at_both_ends_of_the_floats(run: Run, folder: Path) -> None:
    for weight, epsilon in (("1e300", "1"), ("1e-300", "1"), ("1", "1e-299"), ("1", "1e299")):
        text = SERIES.replace("walk = 2", f"walk = {weight}").replace("= 1.0", f"= {epsilon}")
        (folder / "far.toml").write_text(text)
        done = run("release", "far.toml", "days.csv", "-o", "o.json", "--force")
        assert done.exit_code == 0, done.output
    (folder / "far.toml").write_text(
        text.replace("walk = 1", "walk = 1e299").replace("e299\n", "e-299\n")
    )
    refused(run("release", "far.toml", "days.csv", "-o", "o.json", "--force"))


def test_a_limit_beyond_all_numbers_is_not_stored(run: Run, folder: Path) -> None:
    words = refused(run("ledger", "limit", "b.db", "--eta", "1e400"))
    assert "--eta is 1e400; it must be at most 1e300" in words
    assert not (folder / "b.db").exists()


def test_a_network_that_unpacks_to_a_gigabyte_is_not_unpacked(run: Run, folder: Path) -> None:
    with gzip.open(folder / "net.bif.gz", "wb", compresslevel=1) as stream:
        for _ in range(128):
            stream.write(bytes(2**20))
    (folder / "net.toml").write_text(fuzzing.NET.replace("net.bif", "net.bif.gz"))
    assert "has more than 67,108,864 bytes" in refused(run("plan", "net.toml"))
