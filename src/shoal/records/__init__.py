"""Records tied in pairs or groups, and what is learned from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes
from shoal.core.registry import Family

if TYPE_CHECKING:
    from shoal.records.classifier import (
        LinearClassifier as LinearClassifier,
        linear_classifier as linear_classifier,
    )
    from shoal.records.coefficients import (
        dependence_coefficients as dependence_coefficients,
    )
    from shoal.records.estimators import (
        PrivateKMeans as PrivateKMeans,
        PrivateLinearSVC as PrivateLinearSVC,
        PrivateLogisticRegression as PrivateLogisticRegression,
    )
    from shoal.records.field import (
        PairwiseField as PairwiseField,
        field_of_pairs as field_of_pairs,
        friend_field as friend_field,
    )
    from shoal.records.kmeans import (
        Centroids as Centroids,
        centroids as centroids,
    )
    from shoal.records.queries import (
        DegreeDistribution as DegreeDistribution,
        NumberHistogram as NumberHistogram,
        NumberMean as NumberMean,
        degree_accuracy as degree_accuracy,
        degree_distribution as degree_distribution,
        number_histogram as number_histogram,
        number_mean as number_mean,
    )
    from shoal.records.sources import (
        FriendModel as FriendModel,
        affinity_ties as affinity_ties,
        fit_friends as fit_friends,
        pairs_of_counts as pairs_of_counts,
        pairs_of_network as pairs_of_network,
        pairs_of_table as pairs_of_table,
    )
    from shoal.records.ties import (
        RecordDomain as RecordDomain,
        RecordGroups as RecordGroups,
    )

FAMILY = Family(
    name="records",
    about="records tied to each other",
    kinds=(
        "shoal.records.ties:RecordGroups",
        "shoal.records.kmeans:Centroids",
        "shoal.records.classifier:LinearClassifier",
        "shoal.records.queries:DegreeDistribution",
        "shoal.records.queries:NumberMean",
        "shoal.records.queries:NumberHistogram",
        "shoal.additive.plans:Rounds",
        "shoal.records.ties:RecordDomain",
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
    serves=("networks",),
    bodies={
        "rounds": "shoal.audit.exact:learning_audit",
    },
    models={
        "dependence": "shoal.records.audit:dependence_finding",
        "pairwise-field": "shoal.records.audit:field_finding",
        "record-groups": "shoal.records.audit:groups_finding",
    },
    model_sections={
        "dependence": "shoal.records.spec:DependenceModel",
        "groups": "shoal.records.spec:GroupsModel",
    },
    query_sections={
        "places": "shoal.records.spec:PlacesQuery",
    },
    stored_models={
        "dependence": (
            "dependence",
            "pairwise-field",
        ),
    },
    templates={
        "friends": "records tied in pairs",
    },
    hooks={
        "release": "shoal.records.views:release_view",
        "attack": "shoal.records.views:view_of",
    },
)

NAMES = {
    "records.classifier": (
        "LinearClassifier",
        "linear_classifier",
    ),
    "records.coefficients": ("dependence_coefficients",),
    "records.ties": (
        "RecordDomain",
        "RecordGroups",
    ),
    "records.estimators": (
        "PrivateKMeans",
        "PrivateLinearSVC",
        "PrivateLogisticRegression",
    ),
    "records.field": (
        "PairwiseField",
        "field_of_pairs",
        "friend_field",
    ),
    "records.kmeans": (
        "Centroids",
        "centroids",
    ),
    "records.queries": (
        "DegreeDistribution",
        "degree_accuracy",
        "degree_distribution",
        "NumberHistogram",
        "NumberMean",
        "number_histogram",
        "number_mean",
    ),
    "records.sources": (
        "FriendModel",
        "affinity_ties",
        "fit_friends",
        "pairs_of_counts",
        "pairs_of_network",
        "pairs_of_table",
    ),
}

__all__ = ["FAMILY", *homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
