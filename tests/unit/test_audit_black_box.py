"""What a black-box audit refuses, takes from its release, and says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from shoal.audit.statistical import audit_black_box
from shoal.chains.families import AnyInitialLaw, MixingSummary, OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.task import EachEntry

CHAIN = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["sit", "walk"], length=30)


def plain(data: list[str]) -> int:
    """No noise at all."""
    return data.count("walk")


def noisy(data: list[str], rng: np.random.Generator) -> float:
    return data.count("walk") + float(rng.laplace(0, 40))


def test_a_release_without_noise_is_unmasked() -> None:
    found = audit_black_box(plain, EachEntry(), CHAIN, claimed=3, draws=4000, lengths=(1, 2))
    assert found.violated
    assert found.hits[1] == 0
    assert found.estimate > 5
    assert "THE CLAIM IS VIOLATED" in found.describe()


def test_much_noise_gives_no_reason_to_complain() -> None:
    found = audit_black_box(noisy, EachEntry(), CHAIN, claimed=1, draws=8000)
    assert not found.violated
    assert found.verdict == "no violation found"
    assert "does not prove that there is none" in found.describe()
    assert found == audit_black_box(noisy, EachEntry(), CHAIN, claimed=1, draws=8000)


def test_without_a_claim_there_is_only_a_bound() -> None:
    found = audit_black_box(noisy, EachEntry(), CHAIN, draws=8000)
    assert found.promised is None
    assert found.verdict == "no claim"
    assert "Claim: none was made." in found.describe()


@pytest.mark.parametrize(
    "model",
    [
        AnyInitialLaw.of(CHAIN.transition, states=CHAIN.states, length=9),
        MixingSummary(pi_min=0.2, gap=0.5, length=9),
        OrderChain(
            states=("sit", "walk"),
            order=2,
            conditional=np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]]),
            initial=np.full(4, 0.25),
            length=9,
        ),
        MarkovChain.of([CHAIN.transition] * 2, states=CHAIN.states, initial=[0.5, 0.5], length=3),
    ],
    ids=["any-initial", "mixing", "order", "per-step"],
)
def test_every_kind_of_model_can_be_drawn_from(model: Any) -> None:
    found = audit_black_box(
        plain, EachEntry(), model, claimed=1, states=("sit", "walk"), draws=9000
    )
    assert found.violated
    assert math.isfinite(found.lower)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 100}, "draws is 100"),
        ({"draws": 2000, "lengths": range(1, 30)}, "for each of"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"claimed": -1}, "claimed is -1"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_black_box(plain, EachEntry(), CHAIN, **options)


def test_nothing_to_tell_apart_is_refused() -> None:
    certain = MarkovChain.of([[1, 0], [0, 1]], initial=[1, 0], length=3)
    with pytest.raises(InputError, match="nothing to tell apart"):
        audit_black_box(plain, EachEntry(), certain, claimed=1)


def test_a_family_without_states_needs_them() -> None:
    with pytest.raises(InputError, match="give states="):
        audit_black_box(plain, EachEntry(), MixingSummary(pi_min=0.2, gap=0.5), claimed=1)
