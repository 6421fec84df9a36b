"""What a black box leaks, at least: a lower bound on its loss, with its confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from shoal.audit.adaptive_testing import (
    Looked,
    Scope,
    TellingEvent,
    chosen,
    default_scope,
    log_ratio_at_least,
    named_scope,
    trials,
)
from shoal.audit.black_box import (
    BlackBox,
    FunctionBox,
    PlanBox,
    Progress,
    Runner,
    as_box,
    as_plan,
    runner,
)
from shoal.audit.fact_pairs import DrawBudget, FactPair, Pool, laws
from shoal.audit.result import factor, plain
from shoal.core.charge import Rng, SystemRng
from shoal.core.codec import Floats, Ints, Value
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive, significant, whole
from shoal.core.plan import Sampler
from shoal.core.task import EachEntry, Model, Secrets, as_family
from shoal.events.pairs import SecretPairs
from shoal.events.secrets import Events
from shoal.mechanisms.plans import eta_above
from shoal.noise.primitives import SeededRng

CONFIDENCE = 0.99  # one false alarm in a hundred audits
DRAWS = 100_000  # default number of releases to draw


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate(Value):
    """A lower bound on the loss of a black box: true with probability `confidence` at least.

    log P(event | first fact) / P(event | second fact) ≥ lower, where pair and event were chosen
    on other draws than the `trials` counted here. A low bound is no evidence of privacy: sampling
    can only prove a violation. `lengths`, `refused` and `beyond` say which data of a chain
    was looked at (`Looked`); all are empty where data has one length only.
    """

    kind = "estimate"

    notion: str | None
    promised: float | None
    lower: float
    estimate: float
    confidence: float
    draws: int
    seed: int
    model: int
    law: str
    subject: str
    facts: tuple[str, str]
    event: str
    hits: tuple[int, int]
    trials: tuple[int, int]
    lengths: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    beyond: int | None = None

    @property
    def violated(self) -> bool:
        """Whether the claim is broken, at the stated confidence.

        A claim of entry-level DP is about one entry when all others are fixed: more may leak than
        its epsilon says without breaking it.
        """
        return self.exceeded and self.notion != "entry-dp"

    @property
    def exceeded(self) -> bool:
        """Whether more leaks than the claimed epsilon, at the stated confidence."""
        return self.promised is not None and self.lower > self.promised

    @property
    def verdict(self) -> str:
        """One of "VIOLATED", "kept, but", "no violation found", "no claim"."""
        if self.promised is None:
            return "no claim"
        if self.violated:
            return "VIOLATED"
        return "kept, but" if self.exceeded else "no violation found"

    def describe(self) -> str:
        """The whole audit in words, one line per question."""
        claim = "none was made."
        if self.promised is not None:
            claim = f"{self.notion}, epsilon = {significant(self.promised)}."
        verdict = {
            "VIOLATED": "THE CLAIM IS VIOLATED",
            "kept, but": "the claim is about one entry when all others are fixed; because entries "
            f"depend on each other, a single entry loses at least {self._times()} times as much",
            "no violation found": "no violation found, which does not prove that there is none",
            "no claim": "no claim to hold it to",
        }[self.verdict]
        shares = [h / t for h, t in zip(self.hits, self.trials, strict=True)]
        first, second = self.facts
        lines = [
            ("Claim", claim),
            (
                "Measured",
                f"the loss is at least {significant(self.lower)} ({self.confidence:.4g} "
                f"confidence; estimate {significant(self.estimate)}): the odds change by at least "
                f"{factor(self.lower)}.",
            ),
            ("Verdict", f"{verdict}."),
            (
                "Evidence",
                f"under {self.law}, {self.event} in {shares[0]:.2%} of {self.trials[0]:,} releases "
                f"when {self.subject} is {first}, and in {shares[1]:.2%} of {self.trials[1]:,} "
                f"when it is {second}.",
            ),
            ("Looked at", self._lengths_text()),
            ("Not checked", "; ".join(NOT_CHECKED) + "."),
        ]
        return "\n".join(f"{title}: {text}" for title, text in lines if text)

    def as_json(self) -> dict[str, Any]:
        """Return all fields of the audit as plain JSON data; null means infinity."""
        return {
            "kind": "black-box",
            **plain(self, "notion", "promised", "verdict", "violated", "lower", "estimate"),
            **plain(self, "confidence", "draws", "seed", "lengths"),
            "refused_lengths": list(self.refused),
            "worst_case": plain(
                self, "model", "law", "subject", "facts", "event", "hits", "trials"
            ),
            "not_checked": list(NOT_CHECKED),
            "in_words": self.describe(),
        }

    def _lengths_text(self) -> str:
        words = Looked(self.lengths, self.refused, self.beyond).describe()
        if words and self.trials[0] < trials(DrawBudget(self.draws), 1):
            words += " The longer data is, the fewer of the draws it gets, unless it is named."
        return words

    def _times(self) -> str:
        return significant(self.lower / self.promised) if self.promised else "0"


NOT_CHECKED = (
    "outputs too rare to be counted, where the loss may be larger",
    "entries, lengths and laws of the family that were not tried",
)


class Sampling(NamedTuple):
    """How much to draw, on how many processes, and how sure to be."""

    draws: int = DRAWS
    confidence: float = CONFIDENCE
    seed: int = 0
    workers: int = 1
    progress: Progress | None = None

    def checked(self) -> Sampling:
        """The same, refused where a number is out of range."""
        if whole(self.draws, "draws", least=0) < 1000:
            raise InputError(f"draws is {self.draws}; it must be at least 1,000")
        if not 0.5 <= self.confidence < 1:
            raise InputError(f"confidence is {self.confidence}; it must be in [0.5, 1)")
        whole(self.seed, "seed", least=0)
        whole(self.workers, "workers")
        return self


def audit_black_box(
    release: Any,
    secrets: Secrets,
    family: Model | Sequence[Model],
    *,
    claimed: Number | None = None,
    notion: str | None = None,
    states: Sequence[str] | None = None,
    labels: tuple[str, ...] = (),
    unit: str = "",
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    lengths: Sequence[int] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Estimate:
    """A lower bound on what `release` leaks about a secret, from `draws` releases of drawn data.

    `release` is a plan, or a function from a list of states to a number or several; `claimed` is
    the epsilon it is held to and `notion` what that is about, by default what a plan or an adapter
    says of itself. Data is drawn from the models given a fact: of the `lengths` given, else of 1
    entry up to the model's own length in ever longer steps, as far as the function takes it; the
    longest gets fewer draws (`DrawBudget`). Half of the draws choose which
    facts to compare and the set of outputs that tells them apart, in rounds with ever fewer
    rivals; the other half is counted: Clopper–Pearson limits on both probabilities give a bound
    that is wrong with probability at most 1 - confidence, for every choice, if releases are
    independent. The same seed gives the same answer on any number of `workers` when the
    release is a plan or takes its randomness as `rng`; others are called in one process.
    """
    sampling = Sampling(draws, confidence, seed, workers, progress).checked()
    if not isinstance(secrets, EachEntry | SecretPairs | Events):
        raise InputError(
            f"secrets are {secrets.describe()}; sampling is for single entries (EachEntry), named "
            "pairs of facts (SecretPairs) or events over time (Events)"
        )
    members = as_family(family)
    secrets.check(members)
    names = _states_of_data(release, members, states)
    claim = _claim(release, secrets, claimed, notion)
    plan = as_plan(release)
    query = None if plan is None else plan.task.query
    if query is not None:
        labels, unit = query.labels, query.unit
    box = as_box(release, names)
    known = laws(members, secrets, names, query)
    if lengths is None:
        scope = default_scope(box, known, draws, seed)
    else:
        scope = named_scope(known, lengths, draws)
    return estimate_loss(box, scope, claim, sampling, (labels, unit))


def estimate_loss(
    box: BlackBox,
    scope: Scope,
    claim: dict[str, Any],
    sampling: Sampling,
    words: tuple[tuple[str, ...], str],
) -> Estimate:
    """The bound that the best contrast in a scope gives; `words` are the outputs' labels, unit."""
    draws, seed = sampling.draws, sampling.seed
    spread = NormalDist().inv_cdf((1 + sampling.confidence) / 2)
    with runner(box, sampling.workers, draws, sampling.progress) as run:
        seeds = np.random.SeedSequence([seed, 1])
        best, event = chosen(run, scope.fact_pairs, scope.budget, spread, seeds)
        pools = best.pools[::-1] if event.swapped else best.pools
        counts = _count_events(run, pools, event, scope.budget, seed)
    return Estimate(
        **claim,
        **_limits(*counts, sampling.confidence),
        draws=draws,
        seed=seed,
        model=best.contrast.model,
        law=best.contrast.law,
        subject=best.contrast.subject,
        facts=(pools[0].fact, pools[1].fact),
        event=event.describe(*words),
        **scope.looked._asdict(),
    )


def _count_events(
    run: Runner, pools: tuple[Pool, Pool], event: TellingEvent, budget: DrawBudget, seed: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """How often the event happens given either fact, and in how many new releases."""
    count = trials(budget, pools[0].entries)
    run.stage(budget.draws, [(count, pool.entries) for pool in pools])
    outputs = [
        run.draw(pool, count, np.random.SeedSequence([seed, 2, side]))
        for side, pool in enumerate(pools)
    ]
    hits = (event.hits(outputs[0]), event.hits(outputs[1]))
    return hits, (len(outputs[0]), len(outputs[1]))


def _limits(hits: tuple[int, int], trials: tuple[int, int], confidence: float) -> dict[str, Any]:
    """The lower limit and the estimate, as fields of an `Estimate`."""
    limit = log_ratio_at_least((hits[0], trials[0]), (hits[1], trials[1]), 1 - confidence)
    shares = [(hit + 0.5) / (count + 1) for hit, count in zip(hits, trials, strict=True)]
    return {
        "lower": max(limit, 0.0),
        "estimate": math.log(shares[0] / shares[1]),
        "confidence": confidence,
        "hits": hits,
        "trials": trials,
    }


def _claim(
    release: Any, secrets: Secrets, claimed: Number | None, notion: str | None
) -> dict[str, Any]:
    """The epsilon and notion given, else what a plan or an adapter says of itself."""
    plan = as_plan(release)
    if plan is not None:
        notion = notion or plan.guarantee.notion
        claimed = plan.guarantee.amount if claimed is None else claimed
    elif claimed is None and hasattr(release, "claimed"):
        notion, claimed = notion or str(release.notion), release.claimed()
    if claimed is None:
        return {"promised": None, "notion": None}
    return {"promised": float(positive(claimed, "claimed")), "notion": notion or secrets.notion}


def _states_of_data(
    release: Any, family: tuple[Model, ...], states: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the states of the data: `states` if given, else the plan's, else those of the models.

    Refuses a family whose models name no states.
    """
    if states is not None:
        return tuple(states)
    plan = as_plan(release)
    if plan is not None:
        return plan.task.query.states
    for model in family:
        if model.states is not None:
            return model.states
        domains = getattr(model, "domains", None)  # variables with values of their own
        if domains is not None:
            return tuple(dict.fromkeys(value for domain in domains for value in domain))
    raise InputError("no model of the family names its states; give states=")


@dataclass(frozen=True, slots=True)
class TwoDataSets:
    """A release of one of two data sets: every row of `paths` holds which."""

    release: PlanBox | FunctionBox
    data: tuple[Any, Any]

    @property
    def seeded(self) -> bool:
        """Whether its outputs follow from a seed."""
        return self.release.seeded

    def draw(self, paths: Ints, seed: int) -> Floats:
        """Return one output per row of `paths`, as floats of shape (paths, numbers).

        The first column of `paths` is the index of a data set. `seed` counts only for seeded boxes.
        """
        chosen = [self.data[i] for i in paths[:, 0].tolist()]
        if isinstance(self.release, FunctionBox):
            return self.release.outputs(chosen, seed)
        body = self.release.plan.body
        assert isinstance(body, Sampler)  # `as_box` has checked it
        rng: Rng = SeededRng(seed) if self.seeded else SystemRng()
        return np.array([body.draw(one, rng).values for one in chosen], dtype=np.float64)


def audit_neighbours(
    release: Any,
    first: Any,
    second: Any,
    *,
    claimed: Number | None = None,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Estimate:
    """A lower bound on log P(output | first) / P(output | second), or the other way round.

    `release` is a plan for single releases (in rounds too) or a function of one data set. For data
    sets that differ in one entry this is what entry-level DP limits, and `claimed` is by default
    the epsilon a plan's noise gives one entry. Draws, confidence and seed as in `audit_black_box`.
    """
    sampling = Sampling(draws, confidence, seed, workers, progress).checked()
    box = as_box(release, ())
    if not isinstance(box, PlanBox | FunctionBox):
        raise InputError("release is a black box of states; give a plan or a function of the data")
    data: tuple[Any, Any] = (first, second)
    words: tuple[tuple[str, ...], str] = ((), "")
    plan = as_plan(release)
    if plan is not None:
        data = (plan.task.read(first), plan.task.read(second))
        words = (plan.task.query.labels, plan.task.query.unit)
        eta = getattr(plan.body, "eta", None)  # what the body gives one entry, where it says so
        claimed = eta_above(eta) if claimed is None and eta is not None else claimed
    promised = None if claimed is None else float(positive(claimed, "claimed"))
    claim = {"promised": promised, "notion": None if claimed is None else "one changed entry"}
    names = enumerate(("first", "second"))
    pools = tuple(Pool(f"the {name} of two", partial(_always, i), 1) for i, name in names)
    contrast = FactPair(0, "two given data sets", "the data", pools, ((0, 1),))
    scope = Scope([contrast], DrawBudget(draws), Looked())
    return estimate_loss(TwoDataSets(box, data), scope, claim, sampling, words)


def _always(which: int, count: int, rng: np.random.Generator) -> Ints:
    """The same data set every time."""
    return np.full((count, 1), which, dtype=np.int64)
