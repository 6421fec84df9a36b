"""Records tied in pairs or groups, and what is learned from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.records.classifier import (
        LinearClassifier as LinearClassifier,
        linear_classifier as linear_classifier,
    )
    from shoal.records.coefficients import dependence_coefficients as dependence_coefficients
    from shoal.records.domain import RecordDomain as RecordDomain
    from shoal.records.estimators import (
        DeclaredEncoder as DeclaredEncoder,
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
    from shoal.records.pairwise import RecordGroups as RecordGroups
    from shoal.records.queries import (
        DegreeDistribution as DegreeDistribution,
        NumberHistogram as NumberHistogram,
        NumberMean as NumberMean,
        degree_accuracy as degree_accuracy,
        degree_distribution as degree_distribution,
        number_histogram as number_histogram,
        number_mean as number_mean,
    )
    from shoal.records.schema import RecordSchema as RecordSchema
    from shoal.records.sources import (
        FriendModel as FriendModel,
        affinity_ties as affinity_ties,
        fit_friends as fit_friends,
        pairs_of_counts as pairs_of_counts,
        pairs_of_network as pairs_of_network,
        pairs_of_table as pairs_of_table,
    )

__getattr__, __dir__, __all__ = lazy_exports(__name__)
