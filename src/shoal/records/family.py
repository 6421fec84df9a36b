"""What common code knows of `shoal.records`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Acts, Family, LazyModules

if TYPE_CHECKING:
    import shoal.audit.exact
    import shoal.mechanisms.plans
    import shoal.records.audit
    import shoal.records.classifier
    import shoal.records.domain
    import shoal.records.field
    import shoal.records.field_mechanism
    import shoal.records.kmeans
    import shoal.records.pairwise
    import shoal.records.pairwise_mechanisms
    import shoal.records.published
    import shoal.records.queries
    import shoal.records.schema
    import shoal.records.sources
    import shoal.records.spec
    import shoal.records.spec_queries
    import shoal.records.views
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.records",
    about="records tied to each other",
    serves=("networks",),
    kinds={
        "record-groups": lambda: shoal.records.pairwise.RecordGroups,
        "centroids": lambda: shoal.records.kmeans.Centroids,
        "linear-classifier": lambda: shoal.records.classifier.LinearClassifier,
        "degree-distribution": lambda: shoal.records.queries.DegreeDistribution,
        "number-mean": lambda: shoal.records.queries.NumberMean,
        "number-histogram": lambda: shoal.records.queries.NumberHistogram,
        "record-schema": lambda: shoal.records.schema.RecordSchema,
        "rounds": lambda: shoal.mechanisms.plans.Rounds,
        "record-domain": lambda: shoal.records.domain.RecordDomain,
        "dependence": lambda: shoal.records.pairwise.Dependence,
        "friend-model": lambda: shoal.records.sources.FriendModel,
        "pairwise-field": lambda: shoal.records.field.PairwiseField,
        "field-certificate": lambda: shoal.records.field_mechanism.FieldCertificate,
        "mean-ties-certificate": lambda: shoal.records.pairwise_mechanisms.MeanTiesCertificate,
        "additive-ties-certificate": lambda: (
            shoal.records.pairwise_mechanisms.AdditiveTiesCertificate
        ),
        "baseline-certificate": lambda: shoal.records.published.BaselineCertificate,
        "published-certificate": lambda: shoal.records.published.PublishedCertificate,
        "correlated-certificate": lambda: shoal.records.published.CorrelatedCertificate,
    },
    mechanisms={
        "dependent-field": lambda: shoal.records.field_mechanism.FIELD_MECHANISM,
        "dependent-means": lambda: shoal.records.pairwise_mechanisms.MEANS_MECHANISM,
        "dependent-additive": lambda: shoal.records.pairwise_mechanisms.ADDITIVE_MECHANISM,
        "dependent-baseline": lambda: shoal.records.published.BASELINE_MECHANISM,
        "dependent-published": lambda: shoal.records.published.PUBLISHED_MECHANISM,
        "dependent-published-18": lambda: shoal.records.published.PUBLISHED_MECHANISM_18,
        "correlated-sensitivity": lambda: shoal.records.published.CORRELATED_MECHANISM,
    },
    plan_audits={
        "rounds": lambda: shoal.audit.exact.learning_audit,
    },
    model_audits={
        "dependence": lambda: shoal.records.audit.dependence_finding,
        "pairwise-field": lambda: shoal.records.audit.field_finding,
        "record-groups": lambda: shoal.records.audit.groups_finding,
    },
    model_sections={
        "dependence": lambda: shoal.records.spec.DependenceModel,
        "groups": lambda: shoal.records.spec.GroupsModel,
    },
    query_sections={
        "places": lambda: shoal.records.spec.PlacesQuery,
        "clusters": lambda: shoal.records.spec_queries.ClustersQuery,
        "classifier": lambda: shoal.records.spec_queries.ClassifierQuery,
        "degrees": lambda: shoal.records.spec_queries.DegreesQuery,
    },
    stored_models={
        "dependence": ("dependence", "pairwise-field"),
    },
    templates={
        "friends": "records tied in pairs",
        "classifier": "a table with two classes",
        "clusters": "a table of numbers",
        "degrees": "a social graph",
    },
    acts=Acts(
        protected=lambda: shoal.records.pairwise_mechanisms.describe_protected,
        show_attack=lambda: shoal.records.views.view_of,
        show_release=lambda: shoal.records.views.release_view,
    ),
)
