"""Records tied in pairs or groups, and what is learned from them."""

from __future__ import annotations

from shoal.core.registry import Family

FAMILY = Family(
    name="records",
    about="records tied to each other",
    kinds=(
        "shoal.records.domain:RecordGroups",
        "shoal.records.centroids:Centroids",
        "shoal.records.classifier:LinearClassifier",
        "shoal.records.degrees:DegreeDistribution",
        "shoal.records.numbers:NumberMean",
        "shoal.records.numbers:NumberHistogram",
        "shoal.records.numbers:Rounds",
        "shoal.records.domain:RecordDomain",
        "shoal.records.ties:Dependence",
        "shoal.records.sources:FriendModel",
        "shoal.records.field:PairwiseField",
        "shoal.records.field_row:FieldCertificate",
        "shoal.records.proved:MeanTiesCertificate",
        "shoal.records.proved:AdditiveTiesCertificate",
        "shoal.records.published:BaselineCertificate",
        "shoal.records.published:PublishedCertificate",
        "shoal.records.published:CorrelatedCertificate",
    ),
    rows={
        "dependent-field": "shoal.records.field_row:ROW",
        "dependent-means": "shoal.records.proved:MEANS_ROW",
        "dependent-additive": "shoal.records.proved:ADDITIVE_ROW",
        "dependent-baseline": "shoal.records.published:BASELINE_ROW",
        "dependent-published": "shoal.records.published:ROW",
        "dependent-published-18": "shoal.records.published:ROW_18",
        "correlated-sensitivity": "shoal.records.published:CORRELATED_ROW",
    },
    bodies={
        "rounds": "shoal.audit.bounded:learning_audit",
    },
    models={
        "dependence": "shoal.records.audit:dependence_finding",
        "pairwise-field": "shoal.records.audit:field_finding",
        "record-groups": "shoal.records.audit:groups_finding",
    },
)
