"""An audit as plain JSON data; the page with its pictures is made in `studio/report.py`."""

from __future__ import annotations

import math
from typing import Any

from shoal.audit.result import Audit, LesserAdversary, StreamWitness, Witness
from shoal.audit.statistical import NOT_CHECKED, Estimate


def as_json(audit: Audit | Estimate) -> dict[str, Any]:
    """Everything an audit says, as plain JSON data; null stands for infinity."""
    if isinstance(audit, Estimate):
        return {
            "kind": "black-box",
            "notion": audit.notion,
            "promised": audit.promised,
            "verdict": audit.verdict,
            "violated": audit.violated,
            "lower": _finite(audit.lower),
            "estimate": _finite(audit.estimate),
            "confidence": audit.confidence,
            "draws": audit.draws,
            "seed": audit.seed,
            "lengths": list(audit.lengths),
            "refused_lengths": list(audit.refused),
            "worst_case": {
                "model": audit.model,
                "law": audit.law,
                "subject": audit.subject,
                "facts": list(audit.facts),
                "event": audit.event,
                "hits": list(audit.hits),
                "trials": list(audit.trials),
            },
            "not_checked": list(NOT_CHECKED),
            "in_words": audit.describe(),
        }
    return {
        "kind": "exact" if audit.exact else "interval",
        "mechanism": audit.mechanism,
        "notion": audit.notion,
        "promised": audit.promised,
        "verdict": audit.verdict,
        "holds": audit.holds,
        "violated": audit.violated,
        "loss": _finite(audit.loss),
        "lower": _finite(audit.lower),
        "upper": _finite(audit.upper),
        "claim": [_finite(end) for end in audit.claim],
        "entry_level": _finite(audit.entry_level),
        "worst_case": None if audit.witness is None else _witness_json(audit.witness),
        "adversaries": [_adversary_json(one) for one in audit.adversaries],
        "assumptions": list(audit.assumptions),
        "not_checked": list(audit.not_checked),
        "in_words": audit.describe(),
    }


def _adversary_json(one: LesserAdversary) -> dict[str, Any]:
    return {
        "knows": one.knows,
        "challenge": one.challenge,
        "rise": one.rise,
        "exact": one.exact,
        "covered": one.covered,
        "why": one.why,
        "fact": one.fact,
        "before": one.before,
        "after": one.after,
        "output": None if one.output is None else list(one.output),
    }


def _witness_json(witness: Witness | StreamWitness) -> dict[str, Any]:
    return {
        "model": witness.model,
        "law": witness.law,
        "subject": witness.subject,
        "facts": list(witness.facts),
        "output": [v if isinstance(v, str | None) else _finite(v) for v in witness.output],
        "output_in_words": witness.output_words(),
        "before": list(witness.before),
        "after": list(witness.after),
        "log_ratio": _finite(witness.log_ratio),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
