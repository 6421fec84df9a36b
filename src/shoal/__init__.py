"""Shoal releases correlated data with provable privacy.

Everything public is named here and imported when first used, so that `import shoal` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.additive.choice import (
        MECHANISMS as MECHANISMS,
        calibrate as calibrate,
        choose as choose,
        epsilon_for as epsilon_for,
        recheck as recheck,
    )
    from shoal.additive.external import attach as attach, lift as lift
    from shoal.additive.leakage import Leakage as Leakage, leakage as leakage
    from shoal.additive.plans import accuracy as accuracy
    from shoal.additive.queries import (
        LinearQuery as LinearQuery,
        consistent as consistent,
        count as count,
        histogram as histogram,
        mean as mean,
        non_negative as non_negative,
        simplex as simplex,
        weighted_sum as weighted_sum,
    )
    from shoal.attacks.bayes import attack as attack
    from shoal.audit import audit as audit
    from shoal.audit.exact import audit_noise as audit_noise
    from shoal.audit.neighbours import audit_neighbours as audit_neighbours
    from shoal.audit.result import Audit as Audit
    from shoal.audit.statistical import audit_black_box as audit_black_box
    from shoal.chains.closeness import closeness as closeness, max_divergence as max_divergence
    from shoal.chains.families import (
        AnyInitialLaw as AnyInitialLaw,
        IntervalChains as IntervalChains,
        MixingSummary as MixingSummary,
        OrderChain as OrderChain,
    )
    from shoal.chains.fit import (
        fit_chain as fit_chain,
        fit_groups as fit_groups,
        fit_order as fit_order,
        fit_private as fit_private,
    )
    from shoal.chains.fit_check import check_fit as check_fit
    from shoal.chains.hidden import baum_welch as baum_welch
    from shoal.chains.model import MarkovChain as MarkovChain
    from shoal.contexts.checks.choice import mask as mask
    from shoal.contexts.day import DayChain as DayChain, fit_day as fit_day
    from shoal.contexts.secrets import (
        CurrentState as CurrentState,
        SensitiveContexts as SensitiveContexts,
        jointly as jointly,
    )
    from shoal.contexts.stream import ContextStream as ContextStream
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
    from shoal.core.plan import Plan as Plan, Release as Release, Stream as Stream
    from shoal.core.records import sequences as sequences
    from shoal.core.registry import dumps as dumps, loads as loads
    from shoal.core.task import EachEntry as EachEntry, Task as Task
    from shoal.data.read import read as read
    from shoal.jobs.files import release_files as release_files
    from shoal.jobs.report import JobReport as JobReport
    from shoal.jobs.spark_streams import live_stream as live_stream
    from shoal.ledger.rules import parallel_records as parallel_records
    from shoal.ledger.session import Session as Session
    from shoal.ledger.store import open_ledger as open_ledger
    from shoal.networks.bayesnet import BayesNet as BayesNet
    from shoal.networks.contagion import Contagion as Contagion, exponential_law as exponential_law
    from shoal.networks.pairs import Event as Event, SecretPairs as SecretPairs
    from shoal.networks.queries import VariableSum as VariableSum, variable_sum as variable_sum
    from shoal.networks.table import JointTable as JointTable
    from shoal.noise.primitives import SeededRng as SeededRng, SystemRng as SystemRng
    from shoal.places.attack import (
        LocationBeliefs as LocationBeliefs,
        attack_locations as attack_locations,
    )
    from shoal.places.audit import sequence_leakage as sequence_leakage
    from shoal.places.location_set import LocationSet as LocationSet, location_set as location_set
    from shoal.places.map import HexGrid as HexGrid, SquareGrid as SquareGrid
    from shoal.places.policy import PolicyGraph as PolicyGraph
    from shoal.places.queries import (
        Measurement as Measurement,
        coordinates as coordinates,
        measurement as measurement,
    )
    from shoal.places.release import LocationRelease as LocationRelease
    from shoal.places.stream import LocationStream as LocationStream, emissions as emissions
    from shoal.places.tracks import TrackColumns as TrackColumns, release_tracks as release_tracks
    from shoal.places.walk import (
        SparseChain as SparseChain,
        cut_at_gaps as cut_at_gaps,
        fit_grid as fit_grid,
        personal as personal,
    )
    from shoal.records.centroids import Centroids as Centroids, centroids as centroids
    from shoal.records.classifier import (
        LinearClassifier as LinearClassifier,
        linear_classifier as linear_classifier,
    )
    from shoal.records.coefficients import dependence_coefficients as dependence_coefficients
    from shoal.records.degrees import (
        DegreeDistribution as DegreeDistribution,
        degree_accuracy as degree_accuracy,
        degree_distribution as degree_distribution,
    )
    from shoal.records.domain import RecordDomain as RecordDomain, RecordGroups as RecordGroups
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
    from shoal.records.numbers import (
        NumberHistogram as NumberHistogram,
        NumberMean as NumberMean,
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
    from shoal.records.ties import Dependence as Dependence

__version__ = "0.2.0"

_HOME = {
    "AnyInitialLaw": "chains.families",
    "Audit": "audit.result",
    "BayesNet": "networks.bayesnet",
    "BudgetError": "core.errors",
    "CannotCompose": "core.errors",
    "Centroids": "records.centroids",
    "Contagion": "networks.contagion",
    "ContextStream": "contexts.stream",
    "CurrentState": "contexts.secrets",
    "DataError": "core.errors",
    "DayChain": "contexts.day",
    "DegreeDistribution": "records.degrees",
    "Dependence": "records.ties",
    "EachEntry": "core.task",
    "Event": "networks.pairs",
    "FriendModel": "records.sources",
    "Guarantee": "core.guarantee",
    "HexGrid": "places.map",
    "InputError": "core.errors",
    "IntervalChains": "chains.families",
    "JobReport": "jobs.report",
    "JointTable": "networks.table",
    "Leakage": "additive.leakage",
    "LedgerError": "core.errors",
    "LinearClassifier": "records.classifier",
    "LinearQuery": "additive.queries",
    "LocationBeliefs": "places.attack",
    "LocationRelease": "places.release",
    "LocationSet": "places.location_set",
    "LocationStream": "places.stream",
    "MECHANISMS": "additive.choice",
    "MarkovChain": "chains.model",
    "Measurement": "places.queries",
    "MixingSummary": "chains.families",
    "NumberHistogram": "records.numbers",
    "NumberMean": "records.numbers",
    "OrderChain": "chains.families",
    "OverBudget": "core.errors",
    "PairwiseField": "records.field",
    "Plan": "core.plan",
    "PolicyGraph": "places.policy",
    "PrivateKMeans": "records.estimators",
    "PrivateLinearSVC": "records.estimators",
    "PrivateLogisticRegression": "records.estimators",
    "PromiseBroken": "core.errors",
    "RecordDomain": "records.domain",
    "RecordGroups": "records.domain",
    "Refused": "core.errors",
    "Release": "core.plan",
    "SecretPairs": "networks.pairs",
    "SeededRng": "noise.primitives",
    "SensitiveContexts": "contexts.secrets",
    "Session": "ledger.session",
    "ShoalError": "core.errors",
    "SparseChain": "places.walk",
    "SpecError": "core.errors",
    "SquareGrid": "places.map",
    "StoredError": "core.errors",
    "Stream": "core.plan",
    "SystemRng": "noise.primitives",
    "Task": "core.task",
    "TrackColumns": "places.tracks",
    "VariableSum": "networks.queries",
    "accuracy": "additive.plans",
    "affinity_ties": "records.sources",
    "attach": "additive.external",
    "attack": "attacks.bayes",
    "attack_locations": "places.attack",
    "audit": "audit",
    "audit_black_box": "audit.statistical",
    "audit_neighbours": "audit.neighbours",
    "audit_noise": "audit.exact",
    "baum_welch": "chains.hidden",
    "calibrate": "additive.choice",
    "centroids": "records.centroids",
    "check_fit": "chains.fit_check",
    "choose": "additive.choice",
    "closeness": "chains.closeness",
    "consistent": "additive.queries",
    "coordinates": "places.queries",
    "count": "additive.queries",
    "cut_at_gaps": "places.walk",
    "degree_accuracy": "records.degrees",
    "degree_distribution": "records.degrees",
    "dependence_coefficients": "records.coefficients",
    "dumps": "core.registry",
    "emissions": "places.stream",
    "epsilon_for": "additive.choice",
    "exponential_law": "networks.contagion",
    "field_of_pairs": "records.field",
    "fit_chain": "chains.fit",
    "fit_day": "contexts.day",
    "fit_friends": "records.sources",
    "fit_grid": "places.walk",
    "fit_groups": "chains.fit",
    "fit_order": "chains.fit",
    "fit_private": "chains.fit",
    "friend_field": "records.field",
    "histogram": "additive.queries",
    "jointly": "contexts.secrets",
    "leakage": "additive.leakage",
    "lift": "additive.external",
    "linear_classifier": "records.classifier",
    "live_stream": "jobs.spark_streams",
    "loads": "core.registry",
    "location_set": "places.location_set",
    "mask": "contexts.checks.choice",
    "max_divergence": "chains.closeness",
    "mean": "additive.queries",
    "measurement": "places.queries",
    "non_negative": "additive.queries",
    "number_histogram": "records.numbers",
    "number_mean": "records.numbers",
    "open_ledger": "ledger.store",
    "pairs_of_counts": "records.sources",
    "pairs_of_network": "records.sources",
    "pairs_of_table": "records.sources",
    "parallel_records": "ledger.rules",
    "personal": "places.walk",
    "read": "data.read",
    "recheck": "additive.choice",
    "release_files": "jobs.files",
    "release_tracks": "places.tracks",
    "sequence_leakage": "places.audit",
    "sequences": "core.records",
    "simplex": "additive.queries",
    "variable_sum": "networks.queries",
    "weighted_sum": "additive.queries",
}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605 - a list, built from the table


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(import_module(f"shoal.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
