"""Golden numbers of the dependent-DP paper: coefficients, fixed points, separation, breaches."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.audit import audit
from shoal.core.codec import Floats
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.plans import accuracy, accuracy_of_laplace
from shoal.mechanisms.queries import count, weighted_sum
from shoal.networks.table import JointTable
from shoal.records.coefficients import published_losses
from shoal.records.domain import RecordDomain
from shoal.records.pairwise import Dependence
from shoal.records.sources import pairs_of_table
from studies.dependent_separation import separations
from tests.records.coefficients import rho_exact, rho_printed

DATA = Path(__file__).parents[1] / "golden" / "data" / "dependent.json"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "golden" / "data" / "dependent.json").read_text()
    )
}
COEFFICIENTS = [name for name in CASES if name.startswith(("rnd.ddp", "002.rho.indep"))]


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_both_coefficients_of_random_laws(name: str) -> None:
    case = CASES[name]
    given, expected = case["inputs"], case["expected"]
    law, points = np.array(given["cond"]), np.array(given["dom"])[:, None]
    exact = float(rho_exact(law, points, given["sigma"]))
    printed = float(rho_printed(law, points, given["sigma"]))
    assert exact == pytest.approx(expected.get("rho14_sup", expected.get("rho14")), abs=1e-8)
    assert printed == pytest.approx(expected["rho18"], abs=1e-8)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_separation_of_three_queries(epsilon: float) -> None:
    """Example 1 and Figure 6."""
    expected = CASES[f"002.ex1.eps{epsilon}"]["expected"]
    found = separations(epsilon)
    for name in ("sum", "subtraction", "multiplication"):
        assert found[name] == pytest.approx(expected[name], abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_fixed_point_of_example_1(epsilon: float) -> None:
    """D_j = D_i/2 + X/2: ρ by Eq. (18) and (14) at σ, and σ = (1 + ρ)/ε, by midpoints."""
    expected = CASES[f"002.rho18.ex1.eps{epsilon}"]["expected"]
    law, points = effect_of_cause(4000)
    printed = float(rho_printed(law, points, expected["sigma"]))
    assert printed == pytest.approx(expected["rho18"], abs=1e-6)
    assert (1 + printed) / epsilon == pytest.approx(expected["sigma"], rel=1e-6)
    coarse, few = effect_of_cause(400)
    assert float(rho_exact(coarse, few, 1 / epsilon)) == pytest.approx(expected["rho14"], abs=1e-6)


def test_the_fixed_point_is_found_from_above() -> None:
    """The row's scale meets its own equation, and 0.1 % less does not."""
    domain = RecordDomain.points([0, 1, 2, 4])
    law = np.array([[4, 2, 1, 1], [2, 4, 2, 1], [1, 2, 4, 2], [1, 1, 2, 4]]) / 34
    model = Dependence.of(domain, 3, [[0, 1], [1, 2], [0, 2]], law)
    query = weighted_sum(model.states or (), {"1": 1, "2": 2, "4": 4})
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(5)):
        plan = calibrate(
            query, EachEntry(), model, epsilon=epsilon, mechanism="dependent-published-18"
        )
        scale = scale_of(plan)
        assert published_losses(model, 4.0, scale, printed=True).max() <= float(epsilon)
        assert published_losses(model, 4.0, 0.999 * scale, printed=True).max() > float(epsilon)


def test_the_exclusive_or_breaks_the_published_row() -> None:
    """Theorem 9: scale 1, exact loss 1.434 at ε = 1, by the auditor, from table and from pairs."""
    expected = CASES["002.thm9.xor"]["expected"]
    table = xor_table()
    query = count("01", "1")
    for model in (table, pairs_of_table(table)):
        plan = calibrate(query, EachEntry(), model, epsilon=1, mechanism="dependent-published")
        assert float(plan.body.noise.scale) == expected["scale"]  # type: ignore[union-attr]
        assert not plan.guarantee.proved
        found = audit(plan)
        assert found.violated
        assert found.lower == pytest.approx(expected["exact_loss"], rel=1e-9)
        sound = calibrate(query, EachEntry(), model, epsilon=1)
        assert sound.guarantee.proved
        assert not audit(sound).violated


def test_a_threshold_query_breaks_eq_18() -> None:
    """Two copies of .49 or .51 in [0, 1]: rho .51, DS 1.51, loss 1.325.

    ERRATA's own example has D_i in {0, 1}; the coefficient the other way is then 1 and DS = 2, so
    that only the pair of copies is a breach of Eq. (24), which takes the largest DS_i.
    """
    expected = CASES["002.thm9.nonlinear"]["expected"]
    domain = RecordDomain.points([0, 0.49, 0.51, 1], states="abcd")
    law = np.zeros((4, 4))
    law[1, 1] = law[2, 2] = 0.5
    model = Dependence.of(domain, 2, [[0, 1]], law)
    query = count("abcd", ["c", "d"])
    plan = calibrate(query, EachEntry(), model, epsilon=1, mechanism="dependent-published-18")
    assert scale_of(plan) == pytest.approx(expected["DS"], rel=1e-9)
    found = audit(plan)
    assert found.violated
    assert found.lower == pytest.approx(expected["exact_loss"], rel=1e-6)
    sound = calibrate(query, EachEntry(), model, epsilon=1, mechanism="dependent-means")
    assert scale_of(sound) == pytest.approx(2.0)
    assert audit(sound).lower == pytest.approx(1.0)


def test_errata_threshold_example_is_no_breach_of_the_largest_sensitivity() -> None:
    domain = RecordDomain.points([0, 0.49, 0.51, 1], states="abcd")
    law = np.zeros((4, 4))
    law[0, 1] = law[3, 2] = 0.5
    plan = calibrate(
        count("abcd", ["c", "d"]),
        EachEntry(),
        Dependence.of(domain, 2, [[0, 1]], law),
        epsilon=1,
        mechanism="dependent-published-18",
    )
    assert scale_of(plan) == pytest.approx(2.0)


def test_twenty_copies_of_one_effect_break_the_published_row() -> None:
    """MATHS, section 6: each is tied to the cause only; DS = 4.273, loss 1.495 at ε = 1."""
    law = np.array([[0.95, 0.05], [0.8, 0.2]]) / 2
    ties = [[0, copy] for copy in range(1, 21)]
    model = Dependence.of(RecordDomain.named("01"), 21, ties, law)
    query = count("01", "1")
    plan = calibrate(query, EachEntry(), model, epsilon=1, mechanism="dependent-published")
    scale = scale_of(plan)
    assert scale == pytest.approx(4.273, abs=5e-4)

    def density(output: int, cause: int, effect: float) -> float:
        near, far = (math.exp(-abs(output - cause - c) / scale) for c in (0, 20))
        return (1 - effect) * near + effect * far

    loss = max(abs(math.log(density(o, 1, 0.2) / density(o, 0, 0.05))) for o in range(22))
    assert loss == pytest.approx(1.495, abs=1e-3)
    sound = calibrate(query, EachEntry(), model, epsilon=1)
    assert scale_of(sound) > 15


@pytest.mark.parametrize("name", ["002.thm10.1.5.2.0", "002.thm10.3.0.1.0"])
def test_the_accuracy_of_theorem_10(name: str) -> None:
    given, expected = CASES[name]["inputs"], CASES[name]["expected"]
    scale = given["DS"] / given["eps"]
    assert accuracy_of_laplace(scale, given["alpha"]) == pytest.approx(expected["prob"], abs=1e-12)


def test_accuracy_on_the_lattice_is_that_of_the_error() -> None:
    plan = calibrate(
        count("01", "1"), EachEntry(), pairs_of_table(xor_table()), epsilon=1, mechanism="group"
    )
    for within in (1, 3, 9):
        sure = accuracy(plan, within)
        reached = plan.error(sure)
        assert reached is not None
        assert reached.bound <= within
        rate = math.exp(-1 / 3)
        assert sure == pytest.approx(1 - 2 * rate ** (within + 1) / (1 + rate), abs=1e-9)
        assert sure >= accuracy_of_laplace(3, within)


def xor_table() -> JointTable:
    """Two fair bits and their exclusive or."""
    law = np.zeros((2, 2, 2))
    for a, b in product((0, 1), repeat=2):
        law[a, b, a ^ b] = 0.25
    return JointTable.of(law)


def effect_of_cause(cells: int) -> tuple[Floats, Floats]:
    """P(D_j | D_i = 0) and P(D_j | D_i = 1) on midpoints of [0, 1], whose ends are values too."""
    middles = (np.arange(cells) + 0.5) / cells
    points = np.concatenate([[0.0], middles, [1.0]])
    law = np.zeros((2, cells + 2))
    law[0, 1 : cells // 2 + 1] = law[1, cells // 2 + 1 : -1] = 2 / cells
    return law, points[:, None]


def scale_of(plan: Plan) -> float:
    assert isinstance(plan.body, Additive)
    return float(plan.body.noise.scale)
