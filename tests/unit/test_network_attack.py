"""The adversary on networks and crowds, against listing every outcome."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.contract.network_tasks import ILL, clinic, crowd, household
from tests.networks import joint_of

from shoal.attacks.bayes import attack
from shoal.attacks.seen import EntriesSeen, Seen, laplace_sum
from shoal.audit.exact import audit
from shoal.audit.statistical import audit_black_box
from shoal.core.errors import InputError, Refused
from shoal.mechanisms.calibration import calibrate
from shoal.models.bayesnet import BayesNet
from shoal.models.contagion import Contagion
from shoal.models.table import JointTable
from shoal.queries.linear import count, histogram
from shoal.secrets.entries import EachEntry

SEEN: dict[str, Callable[[int, np.random.Generator], list[Seen]]] = {
    "count": lambda n, rng: [laplace_sum(count(ILL, "ill"), [3.3], 1.2)],
    "two-releases": lambda n, rng: [
        laplace_sum(count(ILL, "ill"), [2.0], 0.7),
        laplace_sum(histogram(ILL), [2.0, 3.0], 2.0),
    ],
    "entries": lambda n, rng: [EntriesSeen(rng.normal(size=(n, 2)))],
    "both": lambda n, rng: [
        laplace_sum(count(ILL, "ill"), [1.0], 1.0),
        EntriesSeen(rng.normal(size=(n, 2))),
    ],
    "nothing": lambda n, rng: [],
}


@pytest.mark.parametrize("model", [household(), crowd()], ids=["network", "crowd"])
@pytest.mark.parametrize("kind", SEEN)
def test_posteriors_are_those_of_the_written_out_law(
    model: BayesNet | Contagion, kind: str
) -> None:
    entries = len(model.variables)
    seen = SEEN[kind](entries, np.random.default_rng(1))
    table = JointTable.of(joint_of(model), domains=[ILL] * entries)
    found, expected = attack(model, seen, entries), attack(table, seen, entries)
    assert found.before == pytest.approx(expected.before, abs=1e-12)
    assert found.after == pytest.approx(expected.after, abs=1e-10)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)


def test_impossible_sights_and_unlike_variables_are_refused() -> None:
    net = household()
    nothing = np.zeros((5, 2))
    nothing[2] = -np.inf
    with pytest.raises(InputError, match="impossible under the model"):
        attack(net, [EntriesSeen(nothing)], 5)
    with pytest.raises(InputError, match="a number of entries other than 5"):
        attack(net, [EntriesSeen(np.zeros((4, 2)))], 5)
    with pytest.raises(Refused, match="different values"):
        attack(clinic(), [], 3)


@pytest.mark.parametrize("model", [household(), crowd()], ids=["network", "crowd"])
def test_a_black_box_audit_finds_what_ordinary_noise_leaks(model: BayesNet | Contagion) -> None:
    """20,000 draws of an ordinary release: more than it promises, never more than the truth."""
    plan = calibrate(
        count(ILL, "ill"),
        EachEntry(),
        model,
        epsilon=1,
        mechanism="laplace",
    )
    found = audit_black_box(plan, EachEntry(), model, draws=20_000, seed=3)
    truth = audit(plan)
    assert 1.0 < found.lower <= truth.upper
