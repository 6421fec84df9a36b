"""What common code knows of `shoal.mechanisms`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Acts, Family, LazyModules

if TYPE_CHECKING:
    import shoal.audit.exact
    import shoal.audit.steps
    import shoal.cli.stream
    import shoal.core.charge
    import shoal.core.plan
    import shoal.core.task
    import shoal.geometry.body
    import shoal.mechanisms.exact
    import shoal.mechanisms.lift
    import shoal.mechanisms.optimal_table
    import shoal.mechanisms.person
    import shoal.mechanisms.plans
    import shoal.mechanisms.queries
    import shoal.mechanisms.quilt
    import shoal.mechanisms.signed_tree
    import shoal.mechanisms.steps
    import shoal.noise.knorm
    import shoal.noise.laplace
    import shoal.spec.fields
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.mechanisms",
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
        "linear-query": lambda: shoal.mechanisms.queries.LinearQuery,
        "each-entry": lambda: shoal.core.task.EachEntry,
        "each-person": lambda: shoal.mechanisms.person.EachPerson,
        "laplace-certificate": lambda: shoal.mechanisms.plans.LaplaceCertificate,
        "group-certificate": lambda: shoal.mechanisms.plans.GroupCertificate,
        "active-quilt": lambda: shoal.mechanisms.quilt.ActiveQuilt,
        "quilt-certificate": lambda: shoal.mechanisms.quilt.QuiltCertificate,
        "mixing-certificate": lambda: shoal.mechanisms.quilt.MixingCertificate,
        "influence-certificate": lambda: shoal.mechanisms.quilt.InfluenceCertificate,
        "k-norm-certificate": lambda: shoal.mechanisms.plans.KNormCertificate,
        "exact-certificate": lambda: shoal.mechanisms.exact.ExactCertificate,
        "wasserstein-certificate": lambda: shoal.mechanisms.exact.WassersteinCertificate,
        "lifted-model": lambda: shoal.core.task.LiftedModel,
        "lift-certificate": lambda: shoal.mechanisms.lift.LiftCertificate,
        "measured": lambda: shoal.mechanisms.plans.Measured,
        "leakage": lambda: shoal.mechanisms.lift.Leakage,
        "external-query": lambda: shoal.mechanisms.queries.ExternalQuery,
        "in-steps": lambda: shoal.mechanisms.queries.InSteps,
        "running": lambda: shoal.mechanisms.queries.Running,
        "running-state": lambda: shoal.mechanisms.queries.RunningState,
        "running-stream": lambda: shoal.mechanisms.queries.RunningStream,
        "totals": lambda: shoal.mechanisms.signed_tree.Totals,
        "totals-equation": lambda: shoal.mechanisms.signed_tree.Equation,
        "totals-state": lambda: shoal.mechanisms.signed_tree.TotalsState,
        "totals-stream": lambda: shoal.mechanisms.signed_tree.TotalsStream,
        "running-totals": lambda: shoal.mechanisms.signed_tree.RunningTotals,
        "tabulated": lambda: shoal.mechanisms.optimal_table.Tabulated,
        "optimal-table-certificate": lambda: shoal.mechanisms.optimal_table.OptimalTableCertificate,
        "stepped": lambda: shoal.mechanisms.steps.Stepped,
        "steps-certificate": lambda: shoal.mechanisms.steps.StepsCertificate,
    },
    mechanisms={
        "laplace": lambda: shoal.mechanisms.plans.LAPLACE_ROW,
        "knorm": lambda: shoal.mechanisms.plans.KNORM_ROW,
        "exact": lambda: shoal.mechanisms.exact.ROW,
        "wasserstein": lambda: shoal.mechanisms.exact.WASSERSTEIN_ROW,
        "steps": lambda: shoal.mechanisms.exact.STEPS_ROW,
        "optimal-table": lambda: shoal.mechanisms.exact.TABLE_ROW,
        "lift": lambda: shoal.mechanisms.lift.ROW,
        "markov-quilt": lambda: shoal.mechanisms.quilt.ROW,
        "markov-quilt-bound": lambda: shoal.mechanisms.quilt.BOUND_ROW,
        "influence-matrix": lambda: shoal.mechanisms.quilt.INFLUENCE_ROW,
        "group": lambda: shoal.mechanisms.plans.GROUP_ROW,
    },
    plan_audits={
        "additive": lambda: shoal.audit.exact.additive_audit,
        "measured": lambda: shoal.audit.exact.measured_audit,
        "running": lambda: shoal.audit.exact.running_audit,
        "running-totals": lambda: shoal.audit.exact.learning_audit,
        "tabulated": lambda: shoal.audit.exact.tabulated_audit,
        "stepped": lambda: shoal.audit.steps.stepped_audit,
    },
    secrets_sections={
        "each-entry": lambda: shoal.spec.fields.EachEntrySecrets,
        "each-person": lambda: shoal.spec.fields.EachPersonSecrets,
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
