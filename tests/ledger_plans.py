"""Plans that are cheap to release, and conversions a person can check in the head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from shoal.chains.model import MarkovChain
from shoal.core.charge import Alone, AsEntryDP, Composition, Guarantee, SameQuilts
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Model, Secrets
from shoal.ledger.totals import Conversions
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.plans import laplace_body
from shoal.mechanisms.queries import count
from shoal.noise.laplace import LatticeLaplace

MATRIX = [[0.9, 0.1], [0.4, 0.6]]
CHAIN = MarkovChain.of(MATRIX, length=20)
ENDLESS = MarkovChain.of(MATRIX)
TENTH = Fraction(1, 10)
DATA = [0, 1, 1, 0, 0, 0, 1, 0, 0, 0]


def laplace(epsilon: str | Fraction, family: Model = CHAIN) -> Plan:
    """Ordinary DP for one entry: eta = epsilon when 1/epsilon is a short rational."""
    query = count(["0", "1"], "1")
    return calibrate(query, EachEntry(), family, epsilon=epsilon, mechanism="laplace")


def group(epsilon: str | Fraction, family: Model = CHAIN) -> Plan:
    """Group privacy for all entries of the chain."""
    query = count(["0", "1"], "1")
    return calibrate(query, EachEntry(), family, epsilon=epsilon, mechanism="group")


def with_eta(eta: Fraction) -> Plan:
    """A Laplace plan of exactly this eta, however long the rational is."""
    plan = laplace("1")
    body = replace(laplace_body(plan), noise=LatticeLaplace(scale=1 / eta, step=Fraction(1)))
    return replace(plan, body=body, composition=(AsEntryDP(eta),))


def carrying(
    *rules: Composition,
    promise: str = "pufferfish",
    amount: Fraction = Fraction(1),
    proved: bool = True,
    family: Sequence[Model] = (ENDLESS,),
    secrets: Secrets | None = None,
) -> Plan:
    """A plan with any composition and guarantee, for the rules; its noise has the eta they name."""
    plan = with_eta(next((r.eta for r in rules if isinstance(r, AsEntryDP | SameQuilts)), TENTH))
    caveat = "" if proved else "nobody could prove it"
    guarantee = Guarantee(notion=promise, amount=amount, over="x", proved=proved, caveat=caveat)
    task = replace(plan.task, family=tuple(family), secrets=secrets or plan.task.secrets)
    return replace(plan, task=task, guarantee=guarantee, composition=rules)


def alone(reason: str = "two such releases may reveal anything") -> Plan:
    """A plan that adds to nothing."""
    return carrying(Alone(reason))


def conversions(
    factor: float = 2.0, quilts: float = float("inf"), calls: list[Fraction] | None = None
) -> Conversions:
    """A lift that multiplies eta by `factor`, and a quilt sum that is a constant."""

    def leakage(family: tuple[Model, ...], eta: Fraction) -> float:
        if calls is not None:
            calls.append(eta)
        return factor * float(eta)

    return Conversions(leakage, lambda plans: quilts)
