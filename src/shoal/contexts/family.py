"""What common code knows of `shoal.contexts`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Acts, Family, LazyModules

if TYPE_CHECKING:
    import shoal.chains.attack
    import shoal.contexts.audit.events
    import shoal.contexts.audit.rise
    import shoal.contexts.checks.rows
    import shoal.contexts.checks.task
    import shoal.contexts.day
    import shoal.contexts.jobs
    import shoal.contexts.machine
    import shoal.contexts.online
    import shoal.contexts.secrets
    import shoal.contexts.spec
    import shoal.contexts.stream
    import shoal.contexts.views.attack
    import shoal.contexts.views.day
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.contexts",
    about="days of contexts",
    kinds={
        "day-chain": lambda: shoal.contexts.day.DayChain,
        "current-state": lambda: shoal.contexts.secrets.CurrentState,
        "sensitive-contexts": lambda: shoal.contexts.secrets.SensitiveContexts,
        "mask-state": lambda: shoal.contexts.machine.MaskState,
        "segment-mask": lambda: shoal.contexts.machine.SegmentMask,
        "vector-mask": lambda: shoal.contexts.machine.VectorMask,
        "history-mask": lambda: shoal.contexts.machine.HistoryMask,
        "live-simulatable": lambda: shoal.contexts.machine.LiveSimulatable,
        "simulatable-mask": lambda: shoal.contexts.machine.SimulatableMask,
        "mask-certificate": lambda: shoal.contexts.checks.task.MaskCertificate,
        "online-mask": lambda: shoal.contexts.online.OnlineMask,
        "online-state": lambda: shoal.contexts.online.OnlineState,
        "day-given": lambda: shoal.contexts.online.DayGiven,
        "online-certificate": lambda: shoal.contexts.online.OnlineCertificate,
        "context-stream": lambda: shoal.contexts.stream.ContextStream,
    },
    mechanisms={
        "mask-sensitive": lambda: shoal.contexts.checks.rows.SENSITIVE_ROW,
        "mask-simulatable": lambda: shoal.contexts.checks.rows.SIMULATABLE_ROW,
        "mask-probabilistic": lambda: shoal.contexts.checks.rows.PROBABILISTIC_ROW,
        "mask-hybrid": lambda: shoal.contexts.checks.rows.HYBRID_ROW,
        "mask-adaptive": lambda: shoal.contexts.checks.rows.ADAPTIVE_ROW,
        "mask-optimal": lambda: shoal.contexts.checks.rows.OPTIMAL_ROW,
        "mask-online": lambda: shoal.contexts.online.ROW,
    },
    plan_audits={
        "vector-mask": lambda: shoal.contexts.audit.rise.suppression_audit,
        "segment-mask": lambda: shoal.contexts.audit.rise.suppression_audit,
        "simulatable-mask": lambda: shoal.contexts.audit.rise.suppression_audit,
        "history-mask": lambda: shoal.contexts.audit.rise.suppression_audit,
        "online-mask": lambda: shoal.contexts.audit.events.event_audit,
    },
    adversaries={
        "day-chain": lambda: shoal.chains.attack.ChainAdversary,
    },
    model_sections={
        "day-chain": lambda: shoal.contexts.spec.DayModel,
    },
    secrets_sections={
        "contexts": lambda: shoal.contexts.spec.ContextSecrets,
    },
    query_sections={
        "current": lambda: shoal.contexts.spec.CurrentQuery,
    },
    stored_models={
        "day-chain": ("day-chain",),
    },
    templates={
        "contexts": "contexts of a day shown or suppressed live",
    },
    acts=Acts(
        audit_events=lambda: shoal.contexts.audit.events.audit_events,
        fit_contexts=lambda: shoal.contexts.views.day.fit_contexts,
        job=lambda: shoal.contexts.jobs.JOB,
        limit_time=lambda: shoal.contexts.spec.limited,
        live=lambda: shoal.contexts.jobs.LIVE,
        read_stream=lambda: shoal.contexts.views.day.ContextLines,
        show_attack=lambda: shoal.contexts.views.attack.view_of,
        show_leak=lambda: shoal.contexts.views.attack.leak_of_contexts,
        show_plan=lambda: shoal.contexts.views.day.PLAN,
    ),
)
