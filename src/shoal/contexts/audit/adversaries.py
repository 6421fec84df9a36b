"""Adversaries who know less than the chain of a day, and what a stream lets each come to believe.

A promise to somebody who knows the chain need not hold for somebody who knows less: the output
may teach the chain. The paper names two challenges. LC1: whatever between the adversary's own
knowledge and the chain is known, from any source, the belief after the output less the belief
before it stays below δ. LC2: the same where only outputs are learned from. Two ways out are proved
in it: the chain is published with the output (Theorem 6), or the states that may be sensitive are
treated as sensitive (Theorem 7). Götz, Nath & Gehrke 2012, Section 6.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shoal.audit.result import (
    CHAIN,
    FREQUENCIES,
    LABELS_LC1,
    LABELS_LC2,
    PUBLISHED,
    LesserAdversary,
)
from shoal.contexts.audit.sweep import Highest
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Floats

Output = tuple[str | None, ...]
Tables = Mapping[Output, Floats]  # output -> P(X_t = j, output), (slots, states)


def enumerated(
    day: DayChain, secrets: SensitiveContexts, tables: Tables, alone: Tables, memoryless: bool
) -> tuple[LesserAdversary, ...]:
    """Every adversary's largest rise over the outputs written out.

    `tables` are those of the day chain, `alone` those of a day of independent slots with the same
    frequencies: what somebody takes for true who knows nothing else.
    """
    own = _largest(day, secrets, tables, CHAIN, "nothing to learn", True, "this is the promise")
    found = [own]
    if not secrets.labels:
        found += [
            _published(own),
            _largest(
                day,
                secrets,
                alone,
                FREQUENCIES,
                "nothing learned",
                memoryless,
                AVERAGED if memoryless else NOT_PROMISED,
            ),
        ]
        return tuple(found)
    for knows, challenge, any_labels in ((LABELS_LC2, "LC2", False), (LABELS_LC1, "LC1", True)):
        found.append(_labelled(day, secrets, tables, knows, challenge, any_labels))
    return tuple(found)


def measured(
    day: DayChain,
    secrets: SensitiveContexts,
    chain: Highest,
    labels: tuple[Highest, ...],
    alone: Highest | None,
    memoryless: bool,
) -> tuple[LesserAdversary, ...]:
    """The same for days too long to write out, each by the output that raises a belief most.

    `chain` is for one who knows the chain, `labels` for LC2 and LC1, or empty where there are too
    many sets to tell apart; `alone` for one who takes slots for independent.
    """
    own = _seen(day, chain, CHAIN, "nothing to learn", True, "this is the promise")
    if alone is not None:
        why = AVERAGED if memoryless else NOT_PROMISED
        weak = _seen(day, alone, FREQUENCIES, "nothing learned", memoryless, why)
        return own, _published(own), weak
    if not labels:
        return bounded(secrets, chain.upper)
    both = zip(((LABELS_LC2, "LC2"), (LABELS_LC1, "LC1")), labels, strict=True)
    return own, *(_seen(day, one, *names, True, THEOREM_7) for names, one in both)


def _seen(
    day: DayChain, found: Highest, knows: str, challenge: str, covered: bool, why: str
) -> LesserAdversary:
    """One adversary, with the beliefs at the worst output; the bound alone if there is none."""
    shown = bool(found.output) and found.upper - found.lower <= 1e-9
    if not shown:
        return LesserAdversary(
            knows=knows, challenge=challenge, rise=found.upper, covered=covered, why=why
        )
    return LesserAdversary(
        knows=knows,
        challenge=challenge,
        rise=found.upper,
        covered=covered,
        why=why,
        fact=f"{found.fact} at slot {day.clock(found.slot)}",
        before=found.before,
        after=found.after,
        output=found.output,
    )


def bounded(secrets: SensitiveContexts, rise: float) -> tuple[LesserAdversary, ...]:
    """What follows from the rise under the chain alone."""
    own = LesserAdversary(
        knows=CHAIN,
        challenge="nothing to learn",
        rise=rise,
        covered=True,
        why="this is the promise",
    )
    if not secrets.labels:
        return own, _published(own)
    return own, *(
        LesserAdversary(knows=knows, challenge=challenge, rise=rise, covered=True, why=THEOREM_7)
        for knows, challenge in ((LABELS_LC2, "LC2"), (LABELS_LC1, "LC1"))
    )


AVERAGED = "the belief about a slot is then an average of beliefs that keep the bound"
NOT_PROMISED = "nothing is promised to one who takes slots for independent; publish the chain"
THEOREM_6 = (
    "the belief before is that of one who knows the chain, and so is the belief after it is "
    "published (Theorem 6)"
)
THEOREM_7 = "states that may be sensitive are held to their share of delta (Theorem 7)"


def _published(own: LesserAdversary) -> LesserAdversary:
    """Theorem 6: the same numbers as for one who knew the chain all along."""
    return LesserAdversary(
        knows=PUBLISHED,
        challenge="LC1 and LC2",
        rise=own.rise,
        covered=True,
        why=THEOREM_6,
        fact=own.fact,
        before=own.before,
        after=own.after,
        output=own.output,
    )


def _largest(
    day: DayChain,
    secrets: SensitiveContexts,
    tables: Tables,
    knows: str,
    challenge: str,
    covered: bool,
    why: str,
) -> LesserAdversary:
    """The rise of the belief in being in a state, times its share: what plans are held to."""
    prior, share = day.marginals(), secrets.shares(day)
    best = LesserAdversary(knows=knows, challenge=challenge, rise=0.0, covered=covered, why=why)
    for output, table in tables.items():
        after = table / table[0].sum()
        rises = np.where((share > 0) & (prior > 0), share * (after - prior), -np.inf)
        slot, j = (int(i) for i in np.unravel_index(int(np.argmax(rises)), rises.shape))
        if rises[slot, j] > best.rise:
            best = LesserAdversary(
                knows=knows,
                challenge=challenge,
                rise=float(rises[slot, j]),
                covered=covered,
                why=why,
                fact=f"{day.states[j]!r} at slot {day.clock(slot)}",
                before=float(prior[slot, j]),
                after=float(after[slot, j]),
                output=output,
            )
    return best


def _labelled(
    day: DayChain,
    secrets: SensitiveContexts,
    tables: Tables,
    knows: str,
    challenge: str,
    any_labels: bool,
) -> LesserAdversary:
    """The rise of the belief in a context: Σ_a q(a)·(P(X = a | output) - P(X = a)).

    q(a) is the chance that state a is the context: one over its number of labels for LC2; for LC1
    the worst, 1 where the belief in a rises and 0 where it falls.
    """
    prior = day.marginals()
    best = LesserAdversary(knows=knows, challenge=challenge, rise=0.0, covered=True, why=THEOREM_7)
    for names, slots in secrets.facts(day.slots):
        fair = np.array(
            [
                len(set(own) & set(names)) / len(own)
                for own in (secrets.stands_for(state) for state in day.states)
            ]
        )
        for output, table in tables.items():
            after = table / table[0].sum()
            for slot in slots:
                change = after[slot] - prior[slot]
                weight = np.where((fair > 0) & (change > 0), 1.0, 0.0) if any_labels else fair
                rise = float(weight @ change)
                if rise > best.rise:
                    best = LesserAdversary(
                        knows=knows,
                        challenge=challenge,
                        rise=rise,
                        covered=True,
                        why=THEOREM_7,
                        fact=f"{' or '.join(map(repr, names))} at slot {day.clock(slot)}",
                        before=float(weight @ prior[slot]),
                        after=float(weight @ after[slot]),
                        output=output,
                    )
    return best
