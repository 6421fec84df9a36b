"""What common code knows of `shoal.additive`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Acts, Family, LazyModules

if TYPE_CHECKING:
    import shoal.additive.exact
    import shoal.additive.lift
    import shoal.additive.optimal_table
    import shoal.additive.plans
    import shoal.additive.queries
    import shoal.additive.quilt
    import shoal.additive.steps
    import shoal.audit.exact
    import shoal.audit.steps
    import shoal.cli.stream
    import shoal.core.charge
    import shoal.core.plan
    import shoal.core.task
    import shoal.geometry.body
    import shoal.noise.knorm
    import shoal.noise.laplace
    import shoal.spec.fields
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.additive",
    about="data of any kind",
    any_task=True,
    kinds={
        "task": lambda: shoal.core.task.Task,
        "plan": lambda: shoal.core.plan.Plan,
        "stream": lambda: shoal.core.plan.Stream,
        "release": lambda: shoal.core.plan.Release,
        "answer": lambda: shoal.core.plan.Answer,
        "error": lambda: shoal.core.plan.Error,
        "guarantee": lambda: shoal.core.charge.Guarantee,
        "as-entry-dp": lambda: shoal.core.charge.AsEntryDP,
        "same-quilts": lambda: shoal.core.charge.SameQuilts,
        "as-group-dp": lambda: shoal.core.charge.AsGroupDP,
        "per-step": lambda: shoal.core.charge.PerStep,
        "one-stream": lambda: shoal.core.charge.OneStream,
        "alone": lambda: shoal.core.charge.Alone,
        "additive": lambda: shoal.core.plan.Additive,
        "lattice-laplace": lambda: shoal.noise.laplace.LatticeLaplace,
        "zero-sum-laplace": lambda: shoal.noise.laplace.ZeroSumLaplace,
        "body": lambda: shoal.geometry.body.Body,
        "lattice-k-norm": lambda: shoal.noise.knorm.LatticeKNorm,
        "staircase": lambda: shoal.noise.knorm.Staircase,
        "linear-query": lambda: shoal.additive.queries.LinearQuery,
        "each-entry": lambda: shoal.core.task.EachEntry,
        "laplace-certificate": lambda: shoal.additive.plans.LaplaceCertificate,
        "group-certificate": lambda: shoal.additive.plans.GroupCertificate,
        "active-quilt": lambda: shoal.additive.quilt.ActiveQuilt,
        "quilt-certificate": lambda: shoal.additive.quilt.QuiltCertificate,
        "mixing-certificate": lambda: shoal.additive.quilt.MixingCertificate,
        "influence-certificate": lambda: shoal.additive.quilt.InfluenceCertificate,
        "k-norm-certificate": lambda: shoal.additive.plans.KNormCertificate,
        "exact-certificate": lambda: shoal.additive.exact.ExactCertificate,
        "wasserstein-certificate": lambda: shoal.additive.exact.WassersteinCertificate,
        "lifted-model": lambda: shoal.core.task.LiftedModel,
        "lift-certificate": lambda: shoal.additive.lift.LiftCertificate,
        "measured": lambda: shoal.additive.plans.Measured,
        "leakage": lambda: shoal.additive.lift.Leakage,
        "external-query": lambda: shoal.additive.queries.ExternalQuery,
        "in-steps": lambda: shoal.additive.queries.InSteps,
        "running": lambda: shoal.additive.queries.Running,
        "running-state": lambda: shoal.additive.queries.RunningState,
        "running-stream": lambda: shoal.additive.queries.RunningStream,
        "tabulated": lambda: shoal.additive.optimal_table.Tabulated,
        "optimal-table-certificate": lambda: shoal.additive.optimal_table.OptimalTableCertificate,
        "stepped": lambda: shoal.additive.steps.Stepped,
        "steps-certificate": lambda: shoal.additive.steps.StepsCertificate,
    },
    mechanisms={
        "laplace": lambda: shoal.additive.plans.LAPLACE_ROW,
        "knorm": lambda: shoal.additive.plans.KNORM_ROW,
        "exact": lambda: shoal.additive.exact.ROW,
        "wasserstein": lambda: shoal.additive.exact.WASSERSTEIN_ROW,
        "steps": lambda: shoal.additive.exact.STEPS_ROW,
        "optimal-table": lambda: shoal.additive.exact.TABLE_ROW,
        "lift": lambda: shoal.additive.lift.ROW,
        "markov-quilt": lambda: shoal.additive.quilt.ROW,
        "markov-quilt-bound": lambda: shoal.additive.quilt.BOUND_ROW,
        "influence-matrix": lambda: shoal.additive.quilt.INFLUENCE_ROW,
        "group": lambda: shoal.additive.plans.GROUP_ROW,
    },
    plan_audits={
        "additive": lambda: shoal.audit.exact.additive_audit,
        "measured": lambda: shoal.audit.exact.measured_audit,
        "running": lambda: shoal.audit.exact.running_audit,
        "tabulated": lambda: shoal.audit.exact.tabulated_audit,
        "stepped": lambda: shoal.audit.steps.stepped_audit,
    },
    secrets_sections={
        "each-entry": lambda: shoal.spec.fields.EachEntrySecrets,
    },
    query_sections={
        "count": lambda: shoal.spec.fields.CountQuery,
        "sum": lambda: shoal.spec.fields.SumQuery,
        "mean": lambda: shoal.spec.fields.MeanQuery,
        "histogram": lambda: shoal.spec.fields.HistogramQuery,
    },
    acts=Acts(
        read_stream=lambda: shoal.cli.stream.CountLines,
    ),
)
