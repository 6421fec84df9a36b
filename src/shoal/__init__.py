"""Shoal releases correlated data with provable privacy.

What most people need is named here; what belongs to one kind of data is under `shoal.chains`,
`shoal.networks`, `shoal.records`, `shoal.places`, `shoal.contexts`. Everything is imported when
first used, so that `import shoal` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes

if TYPE_CHECKING:
    from shoal import (
        additive as additive,
        chains as chains,
        contexts as contexts,
        ledger as ledger,
        networks as networks,
        places as places,
        records as records,
    )
    from shoal.additive.choice import (
        MECHANISMS as MECHANISMS,
        calibrate as calibrate,
        epsilon_for as epsilon_for,
        verify_promise as verify_promise,
    )
    from shoal.additive.lift import (
        attach as attach,
        leakage as leakage,
        lift as lift,
    )
    from shoal.additive.queries import (
        count as count,
        histogram as histogram,
        mean as mean,
        weighted_sum as weighted_sum,
    )
    from shoal.attacks.beliefs import (
        attack as attack,
    )
    from shoal.audit import (
        audit as audit,
    )
    from shoal.audit.statistical import (
        audit_black_box as audit_black_box,
    )
    from shoal.chains.families import (
        AnyInitialLaw as AnyInitialLaw,
    )
    from shoal.chains.fit import (
        fit_chain as fit_chain,
    )
    from shoal.chains.fit_check import (
        check_fit as check_fit,
    )
    from shoal.chains.model import (
        MarkovChain as MarkovChain,
    )
    from shoal.contexts.checks.choice import (
        mask as mask,
    )
    from shoal.contexts.day import (
        DayChain as DayChain,
        fit_day as fit_day,
    )
    from shoal.contexts.secrets import (
        SensitiveContexts as SensitiveContexts,
        joint_contexts as joint_contexts,
    )
    from shoal.contexts.stream import (
        ContextStream as ContextStream,
    )
    from shoal.core.charge import (
        Guarantee as Guarantee,
    )
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
    from shoal.core.plan import (
        Plan as Plan,
        Release as Release,
        Stream as Stream,
    )
    from shoal.core.progress import (
        time_limit as time_limit,
    )
    from shoal.core.records import (
        sequences as sequences,
    )
    from shoal.core.registry import (
        dumps as dumps,
        loads as loads,
    )
    from shoal.core.task import (
        EachEntry as EachEntry,
        Task as Task,
    )
    from shoal.data.read import (
        read as read,
    )
    from shoal.events.event import (
        at_least as at_least,
        sequence as sequence,
        stay as stay,
        visit as visit,
    )
    from shoal.events.secrets import (
        Events as Events,
    )
    from shoal.jobs.local import (
        release_files as release_files,
    )
    from shoal.jobs.spark import (
        live_stream as live_stream,
    )
    from shoal.ledger.budget import (
        budget as budget,
    )
    from shoal.ledger.store import (
        Session as Session,
        open_ledger as open_ledger,
    )
    from shoal.networks.bayesnet import (
        BayesNet as BayesNet,
    )
    from shoal.networks.closeness import (
        closeness as closeness,
    )
    from shoal.networks.contagion import (
        Contagion as Contagion,
    )
    from shoal.networks.pairs import (
        Event as Event,
        SecretPairs as SecretPairs,
    )
    from shoal.networks.queries import (
        variable_sum as variable_sum,
    )
    from shoal.networks.table import (
        JointTable as JointTable,
    )
    from shoal.noise.primitives import (
        SeededRng as SeededRng,
        SystemRng as SystemRng,
    )
    from shoal.places.map import (
        HexGrid as HexGrid,
        SquareGrid as SquareGrid,
    )
    from shoal.places.policy import (
        LocationSet as LocationSet,
        PolicyGraph as PolicyGraph,
        location_set as location_set,
    )
    from shoal.places.queries import (
        coordinates as coordinates,
        measurement as measurement,
    )
    from shoal.places.stream import (
        LocationStream as LocationStream,
    )
    from shoal.places.walk import (
        fit_grid as fit_grid,
    )
    from shoal.records.ties import (
        Dependence as Dependence,
    )

__version__ = "0.2.0"

PACKAGES = (
    "additive",
    "chains",
    "contexts",
    "ledger",
    "networks",
    "places",
    "records",
)

NAMES = {
    "additive.choice": (
        "MECHANISMS",
        "calibrate",
        "epsilon_for",
        "verify_promise",
    ),
    "additive.lift": (
        "attach",
        "leakage",
        "lift",
    ),
    "additive.queries": (
        "count",
        "histogram",
        "mean",
        "weighted_sum",
    ),
    "attacks.beliefs": ("attack",),
    "audit": ("audit",),
    "audit.statistical": ("audit_black_box",),
    "networks.closeness": ("closeness",),
    "chains.families": ("AnyInitialLaw",),
    "chains.fit": ("fit_chain",),
    "chains.fit_check": ("check_fit",),
    "chains.model": ("MarkovChain",),
    "contexts.checks.choice": ("mask",),
    "contexts.day": (
        "DayChain",
        "fit_day",
    ),
    "contexts.secrets": (
        "SensitiveContexts",
        "joint_contexts",
    ),
    "contexts.stream": ("ContextStream",),
    "core.errors": (
        "BudgetError",
        "CannotCompose",
        "DataError",
        "InputError",
        "LedgerError",
        "OverBudget",
        "PromiseBroken",
        "Refused",
        "ShoalError",
        "SpecError",
        "StoredError",
    ),
    "core.charge": ("Guarantee",),
    "core.plan": (
        "Plan",
        "Release",
        "Stream",
    ),
    "core.progress": ("time_limit",),
    "core.records": ("sequences",),
    "core.registry": (
        "dumps",
        "loads",
    ),
    "core.task": (
        "EachEntry",
        "Task",
    ),
    "data.read": ("read",),
    "events.event": (
        "at_least",
        "sequence",
        "stay",
        "visit",
    ),
    "events.secrets": ("Events",),
    "jobs.local": ("release_files",),
    "jobs.spark": ("live_stream",),
    "ledger.budget": ("budget",),
    "ledger.store": ("Session", "open_ledger"),
    "networks.bayesnet": ("BayesNet",),
    "networks.contagion": ("Contagion",),
    "networks.pairs": (
        "Event",
        "SecretPairs",
    ),
    "networks.queries": ("variable_sum",),
    "networks.table": ("JointTable",),
    "noise.primitives": (
        "SeededRng",
        "SystemRng",
    ),
    "places.map": (
        "HexGrid",
        "SquareGrid",
    ),
    "places.policy": (
        "PolicyGraph",
        "LocationSet",
        "location_set",
    ),
    "places.queries": (
        "coordinates",
        "measurement",
    ),
    "places.stream": ("LocationStream",),
    "places.walk": ("fit_grid",),
    "records.ties": ("Dependence",),
}

MOVED = {
    "Audit": "audit.Audit",
    "Centroids": "records.Centroids",
    "CurrentState": "contexts.CurrentState",
    "DegreeDistribution": "records.DegreeDistribution",
    "FriendModel": "records.FriendModel",
    "IntervalChains": "chains.IntervalChains",
    "JobReport": "jobs.JobReport",
    "Leakage": "additive.Leakage",
    "LinearClassifier": "records.LinearClassifier",
    "LinearQuery": "additive.LinearQuery",
    "LocationBeliefs": "places.LocationBeliefs",
    "LocationRelease": "places.LocationRelease",
    "Measurement": "places.Measurement",
    "MixingSummary": "chains.MixingSummary",
    "NumberHistogram": "records.NumberHistogram",
    "NumberMean": "records.NumberMean",
    "OrderChain": "chains.OrderChain",
    "PairwiseField": "records.PairwiseField",
    "PrivateKMeans": "records.PrivateKMeans",
    "PrivateLinearSVC": "records.PrivateLinearSVC",
    "PrivateLogisticRegression": "records.PrivateLogisticRegression",
    "RecordDomain": "records.RecordDomain",
    "RecordGroups": "records.RecordGroups",
    "SparseChain": "places.SparseChain",
    "TrackColumns": "places.TrackColumns",
    "VariableSum": "networks.VariableSum",
    "accuracy": "additive.accuracy",
    "affinity_ties": "records.affinity_ties",
    "attack_locations": "places.attack_locations",
    "audit_neighbours": "audit.audit_neighbours",
    "audit_noise": "audit.audit_noise",
    "baum_welch": "places.baum_welch",
    "centroids": "records.centroids",
    "choose": "additive.choose",
    "consistent": "additive.consistent",
    "cut_at_gaps": "places.cut_at_gaps",
    "degree_accuracy": "records.degree_accuracy",
    "degree_distribution": "records.degree_distribution",
    "dependence_coefficients": "records.dependence_coefficients",
    "emissions": "places.output_log_likelihoods",
    "exponential_law": "networks.exponential_law",
    "field_of_pairs": "records.field_of_pairs",
    "fit_friends": "records.fit_friends",
    "fit_groups": "chains.fit_groups",
    "fit_order": "chains.fit_order",
    "fit_private": "chains.fit_private",
    "friend_field": "records.friend_field",
    "jointly": "joint_contexts",
    "linear_classifier": "records.linear_classifier",
    "max_divergence": "chains.max_divergence",
    "non_negative": "additive.non_negative",
    "number_histogram": "records.number_histogram",
    "number_mean": "records.number_mean",
    "pairs_of_counts": "records.pairs_of_counts",
    "pairs_of_network": "records.pairs_of_network",
    "pairs_of_table": "records.pairs_of_table",
    "parallel_records": "ledger.parallel_records",
    "personal": "places.fit_person",
    "recheck": "verify_promise",
    "release_tracks": "places.release_tracks",
    "sequence_leakage": "places.sequence_leakage",
    "simplex": "additive.simplex",
}

__all__ = sorted([*homes(NAMES), *PACKAGES, "__version__"])  # noqa: PLE0605 - made of the tables

__getattr__, __dir__ = face(__name__, NAMES, moved=MOVED, packages=PACKAGES)
