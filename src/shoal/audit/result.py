"""Results of an audit: an interval for the loss, a witness that can be recomputed, a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

from shoal.core.codec import Value
from shoal.core.numbers import significant
from shoal.core.registry import Shown

LONGEST_RUN = 4  # equal steps of a stream written one by one
LOSS_TOLERANCE = 1e-9  # relative: floating-point evaluations of a loss at its own calibration

ASSUMED = (
    "the data follows one of the family's laws; separate chains are independent",
    "the adversary knows the model, the query and the law of the noise, and sees this one release",
)
NOT_CHECKED = (
    "laws outside the family",
    "other releases about the same data",
    "the code that draws the noise (a black-box audit draws from it)",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Witness(Value):
    """The output that tells most: a law an adversary may hold, two facts, and the belief in them.

    `model` counts the members of the family from 0 and `law` says which of its laws is meant.
    `facts` are the two secrets, the one the output speaks for first; `before` and `after` are the
    adversary's belief in each, before and after seeing `output` (one number per label; an
    infinite one means any output beyond the values the query can take). `log_ratio` is what
    was learned: log of the odds after less log of the odds before. `curve` samples, for queries of
    one number, (output, log density given the first fact, the same given the second).
    """

    kind = "witness"

    model: int
    law: str
    subject: str
    facts: tuple[str, str]
    labels: tuple[str, ...]
    output: tuple[float, ...]
    unit: str
    before: tuple[float, float]
    after: tuple[float, float]
    log_ratio: float
    curve: tuple[tuple[float, float, float], ...] = ()

    def describe(self) -> str:
        """Output, beliefs and odds, in words."""
        first, second = self.facts
        return (
            f"under {self.law}, {self.output_words()} makes {self.subject} look like {first} "
            f"rather than {second}: the belief in {first} goes from {share(self.before[0])} to "
            f"{share(self.after[0])}, the belief in {second} from {share(self.before[1])} to "
            f"{share(self.after[1])}; the odds between them change by {factor(self.log_ratio)}"
        )

    def output_words(self) -> str:
        """The output as a person would say it."""
        several = len(self.labels) > 1
        parts = [
            (f"{label}: " if several else "") + _bound(value, self.unit)
            for label, value in zip(self.labels, self.output, strict=True)
        ]
        return f"an output ({', '.join(parts)})" if several else f"an output {parts[0]}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamWitness(Value):
    """The output of a stream that raises a belief most: what was shown at each step, or None.

    `facts` are a sensitive fact and its opposite; `before` and `after` the beliefs in them.
    """

    kind = "stream-witness"

    model: int
    law: str
    subject: str
    facts: tuple[str, str]
    output: tuple[str | None, ...]
    before: tuple[float, float]
    after: tuple[float, float]
    curve: ClassVar[tuple[()]] = ()  # outputs of a stream are no numbers
    unit: ClassVar[str] = "states"

    @property
    def log_ratio(self) -> float:
        """What was learned, as a change of log-odds; inf for certainty."""
        if min(*self.before, self.after[1]) <= 0:
            return math.inf
        return math.log(self.after[0] / self.after[1] / (self.before[0] / self.before[1]))

    def describe(self) -> str:
        """Output and beliefs, in words."""
        where = f" at {self.subject}" if self.subject else ""  # an event is about no single slot
        return (
            f"under {self.law}, {self.output_words()} raises the belief in {self.facts[0]}{where} "
            f"from {share(self.before[0])} to {share(self.after[0])}"
        )

    def output_words(self) -> str:
        """The output as a person would say it; a dash is a gap, and long runs are counted."""
        runs = [(step, len(list(same_steps))) for step, same_steps in groupby(self.output)]
        parts: list[str] = []
        for step, times in runs:
            name = "–" if step is None else step
            parts += [name] * times if times <= LONGEST_RUN else [f"{times} times {name}"]
        return f"the stream ({', '.join(parts)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one model's audit gives: lower ≤ true loss ≤ upper, and where the lower one is seen.

    `notes` say what was not looked at.
    """

    lower: float
    upper: float
    witness: Witness | None = None
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the interval is a point, up to rounding."""
        return same(self.lower, self.upper)


# Adversaries who know less than a model: those the promise covers, and those it does not.

CHAIN = "knows the chain"
PUBLISHED = "knows how frequent contexts are; the chain is published with the output"
FREQUENCIES = "knows how frequent contexts are and never learns how they follow each other"
LABELS_LC2 = "knows sets of contexts, each label of a state alike"
LABELS_LC1 = "knows sets of contexts, and learns any of the labels from anywhere"
BRIEFLY = {
    CHAIN: "the chain",
    PUBLISHED: "told the chain",
    FREQUENCIES: "frequencies",
    LABELS_LC2: "labels, LC2",
    LABELS_LC1: "labels, LC1",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LesserAdversary(Value):
    """One kind of adversary: what is known, which challenge that is, and the largest rise.

    `before` and `after` are the belief in `fact` where it rises most, at `output`; None where
    only a bound is known, which `rise` then is. `covered` says that the promise is made to this
    adversary too, and `why` on what ground, or why not.
    """

    kind = "lesser-adversary"

    knows: str
    challenge: str
    rise: float
    covered: bool
    why: str
    fact: str = ""
    before: float | None = None
    after: float | None = None
    output: tuple[str | None, ...] | None = None

    @property
    def exact(self) -> bool:
        """Whether `rise` is reached, and not only a bound."""
        return self.after is not None

    def describe(self) -> str:
        """One sentence."""
        seen = (
            f"belief in {self.fact} goes from {self.before:.3f} to {self.after:.3f}"
            if self.before is not None and self.after is not None
            else "no belief rises by more"
        )
        held = "covered" if self.covered else "not covered"
        return (
            f"an adversary who {self.knows} ({self.challenge}): rise {significant(self.rise, 4)}, "
            f"{seen}; {held}: {self.why}"
        )


ADVERSARY = (*LesserAdversary.__dataclass_fields__, "exact")  # what JSON tells of each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audit(Shown, Value):
    """The loss of a release under a family of models, measured, and the claim it is held to.

    lower ≤ true loss ≤ upper; the loss is the most the log-odds between two secrets can change,
    over every model, secret and output (for delta-privacy: the most a belief can rise).
    `promised` and `notion` are the claim (None: no claim was made), `claim` the interval of the
    quantity the claim limits: the same as (lower, upper) for Pufferfish claims, the entry-level or
    group-level epsilon for those. `entry_level` is the epsilon the noise gives when all other
    entries are fixed (inf: there is no noise). `adversaries` are those who know less than the
    model, for streams of contexts.
    """

    kind = "audit"

    mechanism: str
    asked: str
    protected: str
    notion: str | None
    promised: float | None
    claim: tuple[float, float]
    lower: float
    upper: float
    entry_level: float
    witness: Witness | StreamWitness | None
    assumptions: tuple[str, ...]
    not_checked: tuple[str, ...]
    adversaries: tuple[LesserAdversary, ...] = ()

    @property
    def loss(self) -> float:
        """The measured loss: the true one when `exact`, else a number it does not exceed."""
        return self.upper

    @property
    def exact(self) -> bool:
        """Whether the interval is a point, up to rounding."""
        return same(self.lower, self.upper)

    @property
    def holds(self) -> bool:
        """Whether the claim is certified; True when there is no claim."""
        return self.promised is None or self.claim[1] <= self.promised * (1 + LOSS_TOLERANCE)

    @property
    def violated(self) -> bool:
        """Whether the claim is certainly broken: the witness shows it."""
        return self.promised is not None and self.claim[0] > self.promised * (1 + LOSS_TOLERANCE)

    @property
    def verdict(self) -> str:
        """One of "kept", "VIOLATED", "not decided", "no claim"."""
        if self.promised is None:
            return "no claim"
        return "kept" if self.holds else "VIOLATED" if self.violated else "not decided"

    def describe(self) -> str:
        """The whole audit in words, one line per question."""
        parts = [
            ("Asked", self.asked),
            ("Protected", self.protected),
            ("Claim", self._claim_words()),
            ("Measured", self._loss_words()),
            ("Verdict", self._verdict_words()),
            ("Worst case", f"{self.witness.describe()}." if self.witness else ""),
            ("Adversaries", _sentence(tuple(one.describe() for one in self.adversaries))),
            ("Assumed", _sentence(self.assumptions)),
            ("Not checked", _sentence(self.not_checked)),
        ]
        return "\n".join(f"{title}: {text}" for title, text in parts if text)

    def as_json(self) -> dict[str, Any]:
        """Return all fields of the audit as plain JSON data; null means infinity."""
        seen = self.witness
        worst = None
        if seen is not None:
            worst = plain(seen, "model", "law", "subject", "facts", "output")
            worst |= {"output_in_words": seen.output_words()}
            worst |= plain(seen, "before", "after", "log_ratio")
        return {
            "kind": "exact" if self.exact else "interval",
            **plain(self, "mechanism", "notion", "promised", "verdict", "holds", "violated"),
            **plain(self, "loss", "lower", "upper", "claim", "entry_level"),
            "worst_case": worst,
            "adversaries": [plain(one, *ADVERSARY) for one in self.adversaries],
            **plain(self, "assumptions", "not_checked"),
            "in_words": self.describe(),
        }

    def _claim_words(self) -> str:
        if self.promised is None:
            return "none was made."
        amount = "delta" if self.notion == "delta-privacy" else "epsilon"
        return f"{self.mechanism} promises {self.notion}, {amount} = {significant(self.promised)}."

    def _loss_words(self) -> str:
        """Return one sentence on the loss interval, for the printed report."""
        if self.notion == "delta-privacy":
            return (
                f"some output raises the belief in a sensitive fact by {significant(self.lower, 7)}"
                + (", and none by more." if self.exact else f", none by more than {self.upper:g}.")
            )
        if self.exact:
            return (
                f"the loss is {significant(self.upper, 7)}, exactly: some output changes the odds "
                f"between two secrets by {factor(self.upper)}, and none by more."
            )
        if math.isinf(self.upper):
            return (
                f"the loss is at least {significant(self.lower, 7)}: some output changes the odds "
                f"between two secrets by {factor(self.lower)}; no upper bound is known."
            )
        return (
            f"the loss is between {significant(self.lower, 7)} and {significant(self.upper, 7)}: "
            f"some output changes the odds between two secrets by {factor(self.lower)}, and none "
            f"by more than {factor(self.upper)}."
        )

    def _verdict_words(self) -> str:
        """Return one sentence on whether the claim holds, for the printed report."""
        if self.promised is None:
            return "no claim to hold it to."
        words = {
            "kept": "the claim is kept",
            "VIOLATED": "THE CLAIM IS VIOLATED",
            "not decided": "not decided: the interval holds the promise",
        }[self.verdict]
        if self.notion in ("entry-dp", "group"):
            words += f" (it limits {self.notion}, which is {significant(self.claim[1], 7)})"
        more = self.lower / self.promised
        if self.notion == "entry-dp" and self.lower > self.promised * (1 + LOSS_TOLERANCE):
            words += (
                f", but it is about one entry when all others are fixed: because entries depend on "
                f"each other, a single entry loses at least {significant(more)} times as much"
            )
        return words + "."


def same(lower: float, upper: float) -> bool:
    """Whether two ends of an interval differ by no more than rounding."""
    return upper - lower <= LOSS_TOLERANCE * max(1.0, lower)


def factor(log_ratio: float) -> str:
    """e^log_ratio as "a factor of …"."""
    if math.isinf(log_ratio):
        return "an unlimited factor"
    if log_ratio > math.log(1e9):
        return f"a factor of 10^{math.floor(log_ratio / math.log(10)):,}"
    return f"a factor of {significant(math.exp(log_ratio))}"


def share(probability: float) -> str:
    """A probability as a percentage that never rounds to certainty."""
    if 0.0005 <= probability <= 0.9995:
        return f"{100 * probability:.3g} %"
    if probability < 0.5:
        return "0 %" if probability == 0 else "less than 0.05 %"
    return "100 %" if probability == 1 else "more than 99.95 %"


def _bound(value: float, unit: str) -> str:
    if math.isinf(value):
        return f"{'above' if value > 0 else 'below'} everything possible"
    return f"of {significant(value, 6)} {unit}"


def _sentence(parts: tuple[str, ...]) -> str:
    return "; ".join(parts) + "." if parts else ""


def plain(value: Any, *names: str) -> dict[str, Any]:
    """These attributes as JSON data: tuples as lists, null for what is not finite."""

    def as_plain(part: Any) -> Any:
        if isinstance(part, tuple):
            return [as_plain(one) for one in part]
        return None if isinstance(part, float) and not math.isfinite(part) else part

    return {name: as_plain(getattr(value, name)) for name in names}
