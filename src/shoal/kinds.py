"""The closed table of everything that can be stored, and its two doors: `dumps` and `loads`."""

from __future__ import annotations

from typing import Any

from shoal.additive import (
    exact,
    laplace,
    laplace as group,
    laplace as knorm,
    leakage,
    lift,
    plans,
    quilt as influence_matrix,
    quilt as markov_quilt,
    quilt as markov_quilt_bound,
    wasserstein,
)
from shoal.additive.queries import ExternalQuery, LinearQuery
from shoal.chains import (
    closeness,
    families as family,
    families as interval,
    families as order,
    model,
)
from shoal.chains.fit import PrivateFit
from shoal.contexts import (
    day,
    machine as mask_machine,
    machine as mask_machine_history,
    machine as mask_machine_simulatable,
    secrets,
)
from shoal.contexts.checks import task as mask_task
from shoal.contexts.secrets import CurrentState
from shoal.contexts.stream import ContextStream
from shoal.core import (
    codec,
    guarantee,
    guarantee as composition,
    plan,
    plan as additive,
    plan as release,
    task,
    task as entries,
)
from shoal.core.codec import Fingerprinted, kind_of
from shoal.geometry.body import Body
from shoal.networks import closeness as network_closeness, pairs, quilts, table
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.queries import VariableSum
from shoal.noise.knorm import LatticeKNorm
from shoal.noise.laplace import LatticeLaplace, ZeroSumLaplace
from shoal.noise.staircase import Staircase
from shoal.places import (
    location_set,
    machine as location_machine,
    map as grid,
    policy,
    release as location_release,
    rows,
    walk,
)
from shoal.places.queries import Measurement
from shoal.places.stream import LocationStream
from shoal.records import (
    domain,
    field_row,
    proved as dependent_additive,
    proved as dependent_means,
    published as correlated_sensitivity,
    published as dependent_baseline,
    published as dependent_published,
)
from shoal.records.centroids import Centroids
from shoal.records.classifier import LinearClassifier
from shoal.records.degrees import DegreeDistribution
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField
from shoal.records.numbers import NumberHistogram, NumberMean, Rounds
from shoal.records.sources import FriendModel
from shoal.records.ties import Dependence

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
    model.MarkovChain,
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
    quilts.NetworkQuilt,
    quilts.NetworkQuiltCertificate,
    markov_quilt_bound.MixingCertificate,
    influence_matrix.InfluenceCertificate,
    knorm.KNormCertificate,
    exact.ExactCertificate,
    wasserstein.WassersteinCertificate,
    lift.LiftedModel,
    lift.LiftCertificate,
    plans.Measured,
    leakage.Leakage,
    closeness.Closeness,
    network_closeness.SecretCloseness,
    ExternalQuery,
    PrivateFit,
    day.DayChain,
    domain.RecordGroups,
    Centroids,
    LinearClassifier,
    DegreeDistribution,
    NumberMean,
    NumberHistogram,
    Rounds,
    CurrentState,
    secrets.SensitiveContexts,
    mask_machine.MaskState,
    mask_machine.SegmentMask,
    mask_machine.VectorMask,
    mask_machine_history.HistoryMask,
    mask_machine_simulatable.LiveSimulatable,
    mask_machine_simulatable.SimulatableMask,
    mask_task.MaskCertificate,
    grid.SquareGrid,
    grid.HexGrid,
    walk.SparseChain,
    Measurement,
    policy.PolicyGraph,
    location_set.LocationSet,
    location_machine.LocationMachine,
    location_machine.LocationState,
    location_release.LocationRelease,
    rows.LocationCertificate,
    LocationStream,
    RecordDomain,
    Dependence,
    FriendModel,
    PairwiseField,
    field_row.FieldCertificate,
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
