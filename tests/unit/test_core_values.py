"""Values: locked, compared by content, and known by a fingerprint that does not drift."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from shoal.chains.model import MarkovChain
from shoal.core.charge import AsEntryDP, AsGroupDP
from shoal.core.codec import Value, as_read_only
from shoal.mechanisms.queries import count, histogram
from shoal.networks.table import JointTable
from tests.examples import examples


def chain() -> MarkovChain:
    return MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit", "stand"], length=100)


# these change only with the stored format, and then the schema version must change too
STABLE = {
    "fcd547992f80476102a4fd4b015ee6b5faff0f795ef221e87cd0426dd5a5dac4": chain(),
    "f8454d209acfb0e02e144f4ac83fb0e04a8fb9e916afb575982ba9e1f85cbbcc": histogram(
        "ab", relative=True, length=10
    ),
    "be6bd6667cabdc9e56070de1d9612f848f8a302461cc70e5bab8a87e4b71f340": AsEntryDP(Fraction(1, 3)),
}


@pytest.mark.parametrize(("fingerprint", "value"), STABLE.items(), ids=["chain", "query", "rule"])
def test_fingerprints_are_the_same_on_every_machine_and_run(fingerprint: str, value: Value) -> None:
    assert value.fingerprint == fingerprint


def test_fingerprints_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "import shoal; print(shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], "
        "states=['sit', 'stand'], length=100).fingerprint)"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "12345")
    }
    assert runs == {chain().fingerprint}


def test_equal_content_is_equal_and_hashes_alike() -> None:
    assert chain() == chain()
    assert chain() is not chain()
    assert len({chain(), chain()}) == 1


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(chain(), length=99),
        dataclasses.replace(chain(), states=("sit", "walk")),
        dataclasses.replace(chain(), initial=np.array([0.8 + 1e-15, 0.2 - 1e-15])),
        dataclasses.replace(chain(), transition=np.array([[0.9, 0.1], [0.5, 0.5]])),
    ],
)
def test_any_other_content_is_unequal(other: MarkovChain) -> None:
    assert other != chain()
    assert other.fingerprint != chain().fingerprint


def test_kinds_with_the_same_fields_are_unequal() -> None:
    assert AsEntryDP(Fraction(1)) != AsGroupDP(Fraction(1))
    assert dataclasses.replace(chain()) == chain()
    assert chain() != chain().fingerprint


def test_how_a_value_was_written_does_not_matter() -> None:
    listed = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=("sit", "stand"), length=100)
    typed = MarkovChain.of(
        np.asfortranarray([[0.9, 0.1], [0.4, 0.6]]),
        states=["sit", "stand"],
        length=int(np.int64(100)),
    )
    assert listed == typed == chain()
    assert MarkovChain.of([[1, 0], [1, 0]], initial=[1, 0]) == MarkovChain.of(
        [[1.0, -0.0], [1.0, 0.0]], initial=[1.0, -0.0]
    )
    assert count("ab", "b") == count(["a", "b"], ["b"])


def test_fields_cannot_be_set() -> None:
    for value in examples():
        name = next(iter(dataclasses.fields(value)), None)
        if name is not None:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, name.name, None)


def test_values_take_no_new_attributes() -> None:
    for value in examples():
        with pytest.raises((AttributeError, TypeError)):
            value.note = "hello"


def test_arrays_inside_values_are_private_and_locked() -> None:
    mine = np.array([[0.9, 0.1], [0.4, 0.6]])
    held = MarkovChain.of(mine, states=["sit", "stand"], length=100)
    mine[0] = [0, 1]
    assert held == chain()
    for value in examples():
        for field in dataclasses.fields(value):
            array = getattr(value, field.name)
            if isinstance(array, np.ndarray):
                assert not array.flags.writeable, f"{type(value).__name__}.{field.name}"
                with pytest.raises(ValueError, match=r"WRITEABLE|read-only"):
                    array.setflags(write=True) if array.base is not None else array.fill(0)


def test_a_table_cannot_be_unlocked_through_its_view() -> None:
    table = JointTable.of([[0.5, 0.0], [0.0, 0.5]])
    with pytest.raises(ValueError, match="read-only"):
        table.probability[0, 0] = 1.0


def test_locked_copies_and_keeps_the_type() -> None:
    source = np.array([1, 2], dtype=np.int64)
    held = as_read_only(source, np.int64)
    source[0] = 5
    assert held.tolist() == [1, 2]
    assert held.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 3


def test_copies_and_pickles_are_equal_and_still_locked() -> None:
    for again in (copy.copy(chain()), copy.deepcopy(chain()), pickle.loads(pickle.dumps(chain()))):
        assert again == chain()
        assert isinstance(again, Value)
