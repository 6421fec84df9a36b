"""Shoal releases correlated data with provable privacy.

Everything public is named here and imported when first used, so that `import shoal` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.attacks.bayes import attack as attack
    from shoal.attacks.location import (
        LocationBeliefs as LocationBeliefs,
        attack_locations as attack_locations,
    )
    from shoal.audit import audit as audit
    from shoal.audit.exact import audit_noise as audit_noise
    from shoal.audit.location_temporal import sequence_leakage as sequence_leakage
    from shoal.audit.neighbours import audit_neighbours as audit_neighbours
    from shoal.audit.result import Audit as Audit
    from shoal.audit.statistical import audit_black_box as audit_black_box
    from shoal.core.errors import (
        BudgetError as BudgetError,
        CannotCompose as CannotCompose,
        DataError as DataError,
        InputError as InputError,
        LedgerError as LedgerError,
        OverBudget as OverBudget,
        PromiseBroken as PromiseBroken,
        Refused as Refused,
        ShoalError as ShoalError,
        SpecError as SpecError,
        StoredError as StoredError,
    )
    from shoal.core.guarantee import Guarantee as Guarantee
    from shoal.core.plan import Plan as Plan, Stream as Stream
    from shoal.core.records import sequences as sequences
    from shoal.core.release import Release as Release
    from shoal.core.task import Task as Task
    from shoal.data.read import read as read
    from shoal.engines.files import release_files as release_files
    from shoal.engines.report import JobReport as JobReport
    from shoal.engines.spark_streams import live_stream as live_stream
    from shoal.kinds import dumps as dumps, loads as loads
    from shoal.ledger.dependent import parallel_records as parallel_records
    from shoal.ledger.session import Session as Session
    from shoal.ledger.store import open_ledger as open_ledger
    from shoal.loss.closeness import closeness as closeness, max_divergence as max_divergence
    from shoal.loss.dependence import dependence_coefficients as dependence_coefficients
    from shoal.mechanisms import MECHANISMS as MECHANISMS, choose as choose, recheck as recheck
    from shoal.mechanisms.accuracy import accuracy as accuracy
    from shoal.mechanisms.calibration import calibrate as calibrate, epsilon_for as epsilon_for
    from shoal.mechanisms.estimators import (
        PrivateKMeans as PrivateKMeans,
        PrivateLinearSVC as PrivateLinearSVC,
        PrivateLogisticRegression as PrivateLogisticRegression,
    )
    from shoal.mechanisms.external import attach as attach, lift as lift
    from shoal.mechanisms.leakage import Leakage as Leakage, leakage as leakage
    from shoal.mechanisms.location_release import LocationRelease as LocationRelease
    from shoal.mechanisms.mask_choice import mask as mask
    from shoal.models.baum_welch import baum_welch as baum_welch
    from shoal.models.bayesnet import BayesNet as BayesNet
    from shoal.models.chain import MarkovChain as MarkovChain
    from shoal.models.contagion import Contagion as Contagion, exponential_law as exponential_law
    from shoal.models.day import DayChain as DayChain
    from shoal.models.day_fit import fit_day as fit_day
    from shoal.models.dependence import Dependence as Dependence
    from shoal.models.dependence_domain import RecordDomain as RecordDomain
    from shoal.models.dependence_field import (
        PairwiseField as PairwiseField,
        field_of_pairs as field_of_pairs,
        friend_field as friend_field,
    )
    from shoal.models.dependence_sources import (
        pairs_of_counts as pairs_of_counts,
        pairs_of_network as pairs_of_network,
        pairs_of_table as pairs_of_table,
    )
    from shoal.models.family import AnyInitialLaw as AnyInitialLaw, MixingSummary as MixingSummary
    from shoal.models.fit import (
        fit_chain as fit_chain,
        fit_groups as fit_groups,
        fit_order as fit_order,
        fit_private as fit_private,
    )
    from shoal.models.fit_check import check_fit as check_fit
    from shoal.models.friends import (
        FriendModel as FriendModel,
        affinity_ties as affinity_ties,
        fit_friends as fit_friends,
    )
    from shoal.models.grid import HexGrid as HexGrid, SquareGrid as SquareGrid
    from shoal.models.grid_chain import SparseChain as SparseChain
    from shoal.models.grid_fit import (
        cut_at_gaps as cut_at_gaps,
        fit_grid as fit_grid,
        personal as personal,
    )
    from shoal.models.groups import RecordGroups as RecordGroups
    from shoal.models.interval import IntervalChains as IntervalChains
    from shoal.models.order import OrderChain as OrderChain
    from shoal.models.table import JointTable as JointTable
    from shoal.noise.bits import SeededRng as SeededRng, SystemRng as SystemRng
    from shoal.queries.after import (
        consistent as consistent,
        non_negative as non_negative,
        simplex as simplex,
    )
    from shoal.queries.centroids import Centroids as Centroids, centroids as centroids
    from shoal.queries.classifier import (
        LinearClassifier as LinearClassifier,
        linear_classifier as linear_classifier,
    )
    from shoal.queries.current import CurrentState as CurrentState
    from shoal.queries.graph import (
        DegreeDistribution as DegreeDistribution,
        degree_accuracy as degree_accuracy,
        degree_distribution as degree_distribution,
    )
    from shoal.queries.learning_records import (
        NumberHistogram as NumberHistogram,
        NumberMean as NumberMean,
        number_histogram as number_histogram,
        number_mean as number_mean,
    )
    from shoal.queries.linear import (
        LinearQuery as LinearQuery,
        count as count,
        histogram as histogram,
        mean as mean,
        weighted_sum as weighted_sum,
    )
    from shoal.queries.measurement import (
        Measurement as Measurement,
        coordinates as coordinates,
        measurement as measurement,
    )
    from shoal.queries.variables import VariableSum as VariableSum, variable_sum as variable_sum
    from shoal.secrets.contexts import SensitiveContexts as SensitiveContexts, jointly as jointly
    from shoal.secrets.entries import EachEntry as EachEntry
    from shoal.secrets.location import LocationSet as LocationSet, location_set as location_set
    from shoal.secrets.pairs import Event as Event, SecretPairs as SecretPairs
    from shoal.secrets.policy import PolicyGraph as PolicyGraph
    from shoal.streams.batch_location import (
        TrackColumns as TrackColumns,
        release_tracks as release_tracks,
    )
    from shoal.streams.location import LocationStream as LocationStream, emissions as emissions
    from shoal.streams.mask import ContextStream as ContextStream

__version__ = "0.2.0"

_HOME = {
    "AnyInitialLaw": "models.family",
    "Audit": "audit.result",
    "BayesNet": "models.bayesnet",
    "BudgetError": "core.errors",
    "CannotCompose": "core.errors",
    "Centroids": "queries.centroids",
    "Contagion": "models.contagion",
    "ContextStream": "streams.mask",
    "CurrentState": "queries.current",
    "DataError": "core.errors",
    "DayChain": "models.day",
    "DegreeDistribution": "queries.graph",
    "Dependence": "models.dependence",
    "EachEntry": "secrets.entries",
    "Event": "secrets.pairs",
    "FriendModel": "models.friends",
    "Guarantee": "core.guarantee",
    "HexGrid": "models.grid",
    "InputError": "core.errors",
    "IntervalChains": "models.interval",
    "JobReport": "engines.report",
    "JointTable": "models.table",
    "Leakage": "mechanisms.leakage",
    "LedgerError": "core.errors",
    "LinearClassifier": "queries.classifier",
    "LinearQuery": "queries.linear",
    "LocationBeliefs": "attacks.location",
    "LocationRelease": "mechanisms.location_release",
    "LocationSet": "secrets.location",
    "LocationStream": "streams.location",
    "MECHANISMS": "mechanisms",
    "MarkovChain": "models.chain",
    "Measurement": "queries.measurement",
    "MixingSummary": "models.family",
    "NumberHistogram": "queries.learning_records",
    "NumberMean": "queries.learning_records",
    "OrderChain": "models.order",
    "OverBudget": "core.errors",
    "PairwiseField": "models.dependence_field",
    "Plan": "core.plan",
    "PolicyGraph": "secrets.policy",
    "PrivateKMeans": "mechanisms.estimators",
    "PrivateLinearSVC": "mechanisms.estimators",
    "PrivateLogisticRegression": "mechanisms.estimators",
    "PromiseBroken": "core.errors",
    "RecordDomain": "models.dependence_domain",
    "RecordGroups": "models.groups",
    "Refused": "core.errors",
    "Release": "core.release",
    "SecretPairs": "secrets.pairs",
    "SeededRng": "noise.bits",
    "SensitiveContexts": "secrets.contexts",
    "Session": "ledger.session",
    "ShoalError": "core.errors",
    "SparseChain": "models.grid_chain",
    "SpecError": "core.errors",
    "SquareGrid": "models.grid",
    "StoredError": "core.errors",
    "Stream": "core.plan",
    "SystemRng": "noise.bits",
    "Task": "core.task",
    "TrackColumns": "streams.batch_location",
    "VariableSum": "queries.variables",
    "accuracy": "mechanisms.accuracy",
    "affinity_ties": "models.friends",
    "attach": "mechanisms.external",
    "attack": "attacks.bayes",
    "attack_locations": "attacks.location",
    "audit": "audit",
    "audit_black_box": "audit.statistical",
    "audit_neighbours": "audit.neighbours",
    "audit_noise": "audit.exact",
    "baum_welch": "models.baum_welch",
    "calibrate": "mechanisms.calibration",
    "centroids": "queries.centroids",
    "check_fit": "models.fit_check",
    "choose": "mechanisms",
    "closeness": "loss.closeness",
    "consistent": "queries.after",
    "coordinates": "queries.measurement",
    "count": "queries.linear",
    "cut_at_gaps": "models.grid_fit",
    "degree_accuracy": "queries.graph",
    "degree_distribution": "queries.graph",
    "dependence_coefficients": "loss.dependence",
    "dumps": "kinds",
    "emissions": "streams.location",
    "epsilon_for": "mechanisms.calibration",
    "exponential_law": "models.contagion",
    "field_of_pairs": "models.dependence_field",
    "fit_chain": "models.fit",
    "fit_day": "models.day_fit",
    "fit_friends": "models.friends",
    "fit_grid": "models.grid_fit",
    "fit_groups": "models.fit",
    "fit_order": "models.fit",
    "fit_private": "models.fit",
    "friend_field": "models.dependence_field",
    "histogram": "queries.linear",
    "jointly": "secrets.contexts",
    "leakage": "mechanisms.leakage",
    "lift": "mechanisms.external",
    "linear_classifier": "queries.classifier",
    "live_stream": "engines.spark_streams",
    "loads": "kinds",
    "location_set": "secrets.location",
    "mask": "mechanisms.mask_choice",
    "max_divergence": "loss.closeness",
    "mean": "queries.linear",
    "measurement": "queries.measurement",
    "non_negative": "queries.after",
    "number_histogram": "queries.learning_records",
    "number_mean": "queries.learning_records",
    "open_ledger": "ledger.store",
    "pairs_of_counts": "models.dependence_sources",
    "pairs_of_network": "models.dependence_sources",
    "pairs_of_table": "models.dependence_sources",
    "parallel_records": "ledger.dependent",
    "personal": "models.grid_fit",
    "read": "data.read",
    "recheck": "mechanisms",
    "release_files": "engines.files",
    "release_tracks": "streams.batch_location",
    "sequence_leakage": "audit.location_temporal",
    "sequences": "core.records",
    "simplex": "queries.after",
    "variable_sum": "queries.variables",
    "weighted_sum": "queries.linear",
}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605 - a list, built from the table


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(import_module(f"shoal.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
