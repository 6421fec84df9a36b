"""Streams of contexts: days, sensitive contexts, checks that show or suppress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes
from shoal.core.registry import Family

if TYPE_CHECKING:
    from shoal.contexts.given import (
        DayGiven as DayGiven,
    )
    from shoal.contexts.secrets import (
        CurrentState as CurrentState,
    )

FAMILY = Family(
    name="contexts",
    about="days of contexts",
    kinds=(
        "shoal.contexts.day:DayChain",
        "shoal.contexts.secrets:CurrentState",
        "shoal.contexts.secrets:SensitiveContexts",
        "shoal.contexts.machine:MaskState",
        "shoal.contexts.machine:SegmentMask",
        "shoal.contexts.machine:VectorMask",
        "shoal.contexts.machine:HistoryMask",
        "shoal.contexts.machine:LiveSimulatable",
        "shoal.contexts.machine:SimulatableMask",
        "shoal.contexts.checks.task:MaskCertificate",
        "shoal.contexts.online:OnlineMask",
        "shoal.contexts.online:OnlineState",
        "shoal.contexts.given:DayGiven",
        "shoal.contexts.checks.online:OnlineCertificate",
        "shoal.contexts.stream:ContextStream",
    ),
    rows={
        "mask-sensitive": "shoal.contexts.checks.rows:SENSITIVE_ROW",
        "mask-simulatable": "shoal.contexts.checks.rows:SIMULATABLE_ROW",
        "mask-probabilistic": "shoal.contexts.checks.rows:PROBABILISTIC_ROW",
        "mask-hybrid": "shoal.contexts.checks.rows:HYBRID_ROW",
        "mask-adaptive": "shoal.contexts.checks.rows:ADAPTIVE_ROW",
        "mask-optimal": "shoal.contexts.checks.rows:OPTIMAL_ROW",
        "mask-online": "shoal.contexts.checks.online:ROW",
    },
    bodies={
        "vector-mask": "shoal.contexts.audit.rise:suppression_audit",
        "segment-mask": "shoal.contexts.audit.rise:suppression_audit",
        "simulatable-mask": "shoal.contexts.audit.rise:suppression_audit",
        "history-mask": "shoal.contexts.audit.rise:suppression_audit",
        "online-mask": "shoal.contexts.audit.events:event_audit",
    },
    model_sections={
        "day-chain": "shoal.contexts.spec:DayModel",
    },
    secrets_sections={
        "contexts": "shoal.contexts.spec:ContextSecrets",
    },
    query_sections={
        "current": "shoal.contexts.spec:CurrentQuery",
    },
    stored_models={
        "day-chain": ("day-chain",),
    },
    adversaries={
        "day-chain": "shoal.chains.attack:ChainAdversary",
    },
    templates={
        "contexts": "contexts of a day shown or suppressed live",
    },
    hooks={
        "job": "shoal.contexts.jobs:JOB",
        "live": "shoal.contexts.jobs:LIVE",
        "plan": "shoal.contexts.views.calendar:PLAN",
        "stream": "shoal.contexts.views.stream:ContextLines",
        "attack": "shoal.contexts.views.attack:view_of",
        "leak": "shoal.contexts.views.leak:leak_of_contexts",
        "fit --slot": "shoal.contexts.views.fit:fit_contexts",
        "time_limit": "shoal.contexts.spec:limited",
        "audit events": "shoal.contexts.audit.events:asked_audit",
    },
)

NAMES = {
    "contexts.secrets": ("CurrentState",),
    "contexts.given": ("DayGiven",),
}

__all__ = ["FAMILY", *homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
