"""Chains of very many states: the lift answers by the quilts, or says why not, at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shoal
from shoal.chains import OrderChain
from shoal.chains.lift import chain as row
from shoal.core.errors import Refused


def sticky(size: int) -> shoal.MarkovChain:
    return shoal.MarkovChain.of(0.5 * np.eye(size) + 0.5 / size, length=200)


def test_beyond_the_limit_the_quilts_serve_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never less noise than the lift itself asks for, and marked as the quilts' bound."""
    tight = sticky(5).lift(None).largest(1.0)
    row.chain_lift.cache_clear()
    monkeypatch.setattr(row, "MOST_SPARSE", 4)
    found = sticky(5).lift(None)
    coarse = found.largest(1.0)
    row.chain_lift.cache_clear()
    assert coarse.rule == "quilt"
    assert coarse.eta <= tight.eta
    assert found.loss(coarse.eta) <= 1.0 + 1e-12
    assert found.loss(0.1) >= 0.1


def test_many_tuples_are_refused_before_anything_is_made() -> None:
    even = np.full((1024, 2), 0.5)
    chain = OrderChain(
        states=("a", "b"), order=10, conditional=even, initial=np.full(1024, 1 / 1024), length=50
    )
    assert chain.lift(None).loss(0.1) == math.inf
    with pytest.raises(Refused, match=r"1024 tuples.*at most 600 are compared"):
        chain.lift(None).largest(1.0)


def test_quilts_of_very_many_states_are_refused_at_once() -> None:
    said = sticky(601).quilts()
    assert isinstance(said, str)
    assert "601 states are too many" in said
    assert not isinstance(sticky(5).quilts(), str)
