"""The closed table of everything that can be stored, and its two doors: `dumps` and `loads`."""

from __future__ import annotations

from typing import Any

from shoal.core import additive, codec, composition, guarantee, plan, release, task
from shoal.core.codec import Fingerprinted, kind_of
from shoal.geometry.body import Body
from shoal.loss import closeness, network_closeness
from shoal.mechanisms import (
    correlated_sensitivity,
    dependent_additive,
    dependent_baseline,
    dependent_field,
    dependent_means,
    dependent_published,
    exact,
    group,
    influence_matrix,
    knorm,
    laplace,
    leakage,
    lift,
    location_machine,
    location_release,
    location_task,
    markov_quilt,
    markov_quilt_bound,
    markov_quilt_network,
    mask_machine,
    mask_machine_history,
    mask_machine_simulatable,
    mask_task,
    measured,
    wasserstein,
)
from shoal.models import chain, day, family, grid, grid_chain, groups, interval, order, table
from shoal.models.bayesnet import BayesNet
from shoal.models.contagion import Contagion
from shoal.models.dependence import Dependence
from shoal.models.dependence_domain import RecordDomain
from shoal.models.dependence_field import PairwiseField
from shoal.models.fit import PrivateFit
from shoal.models.friends import FriendModel
from shoal.noise.knorm import LatticeKNorm
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.staircase import Staircase
from shoal.noise.zero_sum import ZeroSumLaplace
from shoal.queries.centroids import Centroids
from shoal.queries.classifier import LinearClassifier
from shoal.queries.current import CurrentState
from shoal.queries.external import ExternalQuery
from shoal.queries.graph import DegreeDistribution
from shoal.queries.learning import Rounds
from shoal.queries.learning_records import NumberHistogram, NumberMean
from shoal.queries.linear import LinearQuery
from shoal.queries.measurement import Measurement
from shoal.queries.variables import VariableSum
from shoal.secrets import contexts, entries, location, pairs, policy
from shoal.streams.location import LocationStream
from shoal.streams.mask import ContextStream

CLASSES: tuple[type, ...] = (
    task.Task,
    plan.Plan,
    plan.Stream,
    release.Release,
    release.Answer,
    release.Error,
    guarantee.Guarantee,
    composition.AsEntryDP,
    composition.SameQuilts,
    composition.AsGroupDP,
    composition.PerStep,
    composition.Alone,
    additive.Additive,
    LatticeLaplace,
    ZeroSumLaplace,
    Body,
    LatticeKNorm,
    Staircase,
    chain.MarkovChain,
    family.AnyInitialLaw,
    family.MixingSummary,
    interval.IntervalChains,
    order.OrderChain,
    table.JointTable,
    BayesNet,
    Contagion,
    VariableSum,
    LinearQuery,
    entries.EachEntry,
    pairs.Event,
    pairs.SecretPairs,
    laplace.LaplaceCertificate,
    group.GroupCertificate,
    markov_quilt.ActiveQuilt,
    markov_quilt.QuiltCertificate,
    markov_quilt_network.NetworkQuilt,
    markov_quilt_network.NetworkQuiltCertificate,
    markov_quilt_bound.MixingCertificate,
    influence_matrix.InfluenceCertificate,
    knorm.KNormCertificate,
    exact.ExactCertificate,
    wasserstein.WassersteinCertificate,
    lift.LiftedModel,
    lift.LiftCertificate,
    measured.Measured,
    leakage.Leakage,
    closeness.Closeness,
    network_closeness.SecretCloseness,
    ExternalQuery,
    PrivateFit,
    day.DayChain,
    groups.RecordGroups,
    Centroids,
    LinearClassifier,
    DegreeDistribution,
    NumberMean,
    NumberHistogram,
    Rounds,
    CurrentState,
    contexts.SensitiveContexts,
    mask_machine.MaskState,
    mask_machine.SegmentMask,
    mask_machine.VectorMask,
    mask_machine_history.HistoryMask,
    mask_machine_simulatable.LiveSimulatable,
    mask_machine_simulatable.SimulatableMask,
    mask_task.MaskCertificate,
    grid.SquareGrid,
    grid.HexGrid,
    grid_chain.SparseChain,
    Measurement,
    policy.PolicyGraph,
    location.LocationSet,
    location_machine.LocationMachine,
    location_machine.LocationState,
    location_release.LocationRelease,
    location_task.LocationCertificate,
    LocationStream,
    RecordDomain,
    Dependence,
    FriendModel,
    PairwiseField,
    dependent_field.FieldCertificate,
    dependent_means.MeanTiesCertificate,
    dependent_additive.AdditiveTiesCertificate,
    dependent_baseline.BaselineCertificate,
    dependent_published.PublishedCertificate,
    correlated_sensitivity.CorrelatedCertificate,
    ContextStream,
)
KINDS: dict[str, type] = {kind_of(cls): cls for cls in CLASSES}


def dumps(value: Fingerprinted, *, indent: int | None = 2) -> str:
    """A plan, model, release or any other stored kind as a JSON document."""
    return codec.dumps(value, indent=indent)


def loads(text: str) -> Any:
    """The value of a document made by `dumps`; refused when edited, damaged or unknown."""
    return codec.loads(text, KINDS)
