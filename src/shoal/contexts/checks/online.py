"""The online check: events nobody may become surer of, decided slot by slot by a public filter.

Proof: mask_online.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.additive.plans import Mechanism
from shoal.contexts.checks.task import ALONE, in_order
from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.online import OnlineMask, output_chances
from shoal.contexts.secrets import CurrentState
from shoal.core.charge import Composition, Guarantee
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.plan import Plan, Proof
from shoal.core.task import Task
from shoal.events.cuts import improved
from shoal.events.filter import Program, chances
from shoal.events.secrets import Events

NAME = "mask-online"
BRANCHES = 1000  # outputs of a day up to which the mean number shown is exact
STEPS = 1000  # slots of sampled histories otherwise: a second or two
CUT_ROUNDS = (2, 16)  # fewest and most rounds of cuts
STAGES = 900  # linear programs the cuts of a plan may take, beyond the fewest rounds
LONGEST = 200  # slots of a day that is decided looking ahead; fewer rounds than four add nothing
SEED = 20120  # histories are drawn from the model, never from data: equal calls give equal plans


@dataclass(frozen=True, slots=True, eq=False)
class OnlineCertificate(Proof):
    """The numbers of an online plan: what it shows on average, and what anything could.

    `releases` is exact when `histories` is 0, and otherwise the mean over that many histories drawn
    from the model, with its standard error `spread`. `most` bounds every causal mechanism.
    """

    releases: float
    spread: float
    histories: int
    most: float
    slots: int

    @property
    def share(self) -> float:
        """Of what any causal mechanism could show, at least, up to the error of `releases`."""
        return self.releases / self.most if self.most > 0 else 1.0

    @property
    def theorem(self) -> str:
        about = f" ± {significant(self.spread, 2)}" if self.histories else ""
        return (
            "Theorem 1 of mask_online.md: at every slot, whatever was shown before, every output "
            "that is possible leaves every belief within its bound (certified with rounding); "
            f"{significant(self.releases, 4)}{about} of {self.slots} slots are shown on average, "
            f"{min(self.share, 1.0):.1%} of what any causal mechanism could show "
            f"(at most {significant(self.most, 4)})"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "the path follows the chain, from the first slot to the last (other days, or weeks, "
            "are independent of it)",
            "all applications of one person see one and the same stream",
            "whether a slot is read does not depend on the contexts, given what was shown before",
            "nothing is promised about other events, nor about combinations of those named: name "
            "them too",
        )


def refuse(task: Task) -> str | None:
    """For events on day chains of the same contexts and length."""
    if not isinstance(task.secrets, Events):
        return "the secrets are not events (shoal.visit, at_least, stay, sequence)"
    if not isinstance(task.query, CurrentState):
        return "the query asks for a number, and the online check shows contexts or suppresses them"
    days = day_chains(task.family)
    if len(days) < len(task.family):
        return "the models are not all day chains (shoal.DayChain)"
    if len({day.slots for day in days}) > 1:
        return "the day chains of the family have different numbers of slots"
    return None


def calibrate(task: Task, amount: Fraction) -> Plan:
    """The plan of the online check: greedy in each slot, or looking ahead where that shows more.

    The events' `options.ahead` says which; by default both are tried where the day is short enough.
    """
    events = _events(task, amount)
    memory, ahead = events.options.memory, events.options.ahead
    mask = OnlineMask(_days(task), events, amount, memory, events.options.mixture)
    cuts, most = _cuts(mask)
    candidates = [mask]
    looking = OnlineMask(mask.days, mask.secrets, amount, memory, mask.mixture, cuts)
    if memory == "events" and (ahead or (ahead is None and mask.slots <= LONGEST)):
        candidates = [looking] if ahead else [mask, looking]
    measured = [(_shown(one), one) for one in candidates]
    (releases, spread, count), best = max(measured, key=lambda pair: pair[0][0])
    certificate = OnlineCertificate(releases, spread, count, most, mask.slots)
    return Plan(
        mechanism=NAME,
        task=task,
        body=best,
        cost=-releases,
        guarantee=promise(task, amount),
        certificate=certificate,
        composition=(ALONE,),
    )


def promise(task: Task, amount: Fraction) -> Guarantee:
    """What the online check promises about the events of a task."""
    secrets = task.secrets
    known = "the chain" if len(task.family) == 1 else f"any of the {len(task.family)} chains"
    assert isinstance(secrets, Events)
    if secrets.options.mixture:
        known += ", or is unsure which of them holds as `mixture` says,"
    notion = secrets.notion
    over = f"{secrets.subject}, for an adversary who knows {known} and the plan"
    return Guarantee(notion=notion, amount=amount, over=over)


def rules(plan: Plan) -> tuple[Composition, ...]:
    """None adds suppression to anything."""
    return (ALONE,)


def loss(plan: Plan) -> float:
    """The amount, when the machine is the task's own; infinity when it promises something else.

    Every slot is certified when it comes, so that a plan can be wrong only by being about another
    day, other events, or more than the amount it names; its numbers of releases are words.
    """
    body, certificate, amount = plan.body, plan.certificate, plan.guarantee.amount
    if not isinstance(body, OnlineMask) or not isinstance(certificate, OnlineCertificate):
        return math.inf
    events = _events(plan.task, amount)
    if (body.days, body.secrets) != (_days(plan.task), events):
        return math.inf
    if (body.memory_kind, body.mixture) != (events.options.memory, events.options.mixture):
        return math.inf
    said = certificate.releases, certificate.slots
    if body.amount > amount or said != (-plan.cost, body.slots) or plan.composition != (ALONE,):
        return math.inf
    body.program()  # refuses cuts that do not fit
    return float(body.amount)


def _days(task: Task) -> tuple[DayChain, ...]:
    """The day chains, contexts by name: the order of writing then changes no plan."""
    names = sorted(task.query.states)
    return tuple(in_order(day, names) for day in day_chains(task.family))


def _events(task: Task, amount: Fraction) -> Events:
    secrets = task.secrets
    if not isinstance(secrets, Events):
        raise TypeError("called on a task that `refuse` refuses")
    if secrets.change != "odds" and not 0 < amount < 1:
        raise InputError(
            f"delta is {significant(amount)}; it must be between 0 and 1, both excluded"
        )
    return secrets


def _cuts(mask: OnlineMask) -> tuple[tuple[Any, ...], float]:
    """What the rest of the day is worth at every slot, and the most that can be shown at all."""
    seeing = mask
    if mask.memory_kind != "events":
        seeing = OnlineMask(mask.days, mask.secrets, mask.amount)
    fewest, most = CUT_ROUNDS
    rounds = max(fewest, min(most, STAGES // mask.slots))
    return improved(seeing.program(), rounds)


def _shown(mask: OnlineMask) -> tuple[float, float, int]:
    """The mean number of slots shown, its standard error, and the number of histories; 0: exact."""
    program = mask.program()
    if (mask.days[0].size + 1) ** mask.slots <= BRANCHES:
        return mean_releases(program), 0.0, 0
    rng = np.random.default_rng(SEED)
    count = max(4, min(40, STEPS // mask.slots))
    means = [
        sum(float(chance[:-1].sum()) for chance in output_chances(program, rng))
        for _ in range(count)
    ]
    return float(np.mean(means)), float(np.std(means, ddof=1) / math.sqrt(count)), count


def mean_releases(program: Program) -> float:
    """The mean number of slots shown, over every history of outputs."""

    def rest(held: Any, slot: int) -> float:
        if slot == program.slots:
            return 0.0
        here = program.arrive(held, slot, read=True)
        codes = program.allowed(here, slot)
        chance = chances(program, here, codes)
        total = float(chance[:-1].sum())
        for output in np.flatnonzero(chance > 0).tolist():
            after = program.after(here, codes, None if output == program.size else output)
            total += float(chance[output]) * rest(after, slot + 1)
        return total

    return rest(program.begin(), 0)


ROW = Mechanism(NAME, refuse, calibrate, loss, promise, rules)
