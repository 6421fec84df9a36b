"""Shoal releases correlated data with provable privacy.

What most people need is named here; what belongs to one kind of data is under `shoal.chains`,
`shoal.networks`, `shoal.records`, `shoal.places`, `shoal.contexts`, `shoal.share`. Everything is
imported when first used, so that `import shoal` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports
from shoal.core.family import Family, add_families

if TYPE_CHECKING:
    from shoal import (
        chains as chains,
        contexts as contexts,
        ledger as ledger,
        mechanisms as mechanisms,
        networks as networks,
        places as places,
        records as records,
        share as share,
    )
    from shoal.attacks.beliefs import attack as attack
    from shoal.audit import audit as audit
    from shoal.audit.statistical import audit_black_box as audit_black_box
    from shoal.chains.families import AnyInitialLaw as AnyInitialLaw
    from shoal.chains.fit import fit_chain as fit_chain
    from shoal.chains.fit_check import check_fit as check_fit
    from shoal.chains.model import MarkovChain as MarkovChain
    from shoal.chains.transitions import transitions as transitions
    from shoal.contexts.checks.rows import mask as mask
    from shoal.contexts.day import (
        DayChain as DayChain,
        fit_day as fit_day,
    )
    from shoal.contexts.secrets import (
        SensitiveContexts as SensitiveContexts,
        joint_contexts as joint_contexts,
    )
    from shoal.contexts.stream import ContextStream as ContextStream
    from shoal.core.charge import Guarantee as Guarantee
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
    from shoal.core.progress import time_limit as time_limit
    from shoal.core.records import sequences as sequences
    from shoal.core.registry import (
        dumps as dumps,
        loads as loads,
    )
    from shoal.core.task import (
        EachEntry as EachEntry,
        Task as Task,
    )
    from shoal.data.read import read as read
    from shoal.events.event import (
        at_least as at_least,
        sequence as sequence,
        stay as stay,
        visit as visit,
    )
    from shoal.events.pairs import (
        Event as Event,
        SecretPairs as SecretPairs,
    )
    from shoal.events.secrets import Events as Events
    from shoal.jobs.local import release_files as release_files
    from shoal.jobs.spark import live_stream as live_stream
    from shoal.ledger.budget import budget as budget
    from shoal.ledger.store import (
        Session as Session,
        open_ledger as open_ledger,
    )
    from shoal.mechanisms.budgets import epsilon_for as epsilon_for
    from shoal.mechanisms.choice import calibrate as calibrate
    from shoal.mechanisms.lift import (
        attach as attach,
        leakage as leakage,
        lift as lift,
    )
    from shoal.mechanisms.person import EachPerson as EachPerson
    from shoal.mechanisms.queries import (
        count as count,
        histogram as histogram,
        mean as mean,
        weighted_sum as weighted_sum,
    )
    from shoal.mechanisms.table import MECHANISMS as MECHANISMS, verify_promise as verify_promise
    from shoal.mechanisms.variables import variable_sum as variable_sum
    from shoal.networks.bayesnet import BayesNet as BayesNet
    from shoal.networks.closeness import closeness as closeness
    from shoal.networks.contagion import Contagion as Contagion
    from shoal.networks.table import JointTable as JointTable
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
    from shoal.places.stream import LocationStream as LocationStream
    from shoal.places.walk import fit_grid as fit_grid
    from shoal.records.pairwise import Dependence as Dependence

__version__ = "0.2.0"

# names of version 0.1 that stand in a package now, and some that are called otherwise
_BY_PACKAGE = {
    "audit": "Audit audit_neighbours audit_noise",
    "chains": (
        "IntervalChains MixingSummary OrderChain fit_groups fit_order fit_private max_divergence"
    ),
    "contexts": "CurrentState",
    "jobs": "JobReport",
    "ledger": "parallel_records",
    "mechanisms": "Leakage LinearQuery accuracy choose clipped consistent non_negative simplex",
    "networks": "VariableSum exponential_law",
    "places": (
        "LocationBeliefs LocationRelease Measurement SparseChain TrackColumns attack_locations "
        "baum_welch cut_at_gaps release_tracks sequence_leakage"
    ),
    "records": (
        "Centroids DegreeDistribution FriendModel LinearClassifier NumberHistogram NumberMean "
        "PairwiseField PrivateKMeans PrivateLinearSVC PrivateLogisticRegression RecordDomain "
        "RecordGroups affinity_ties centroids degree_accuracy degree_distribution "
        "dependence_coefficients field_of_pairs fit_friends friend_field linear_classifier "
        "number_histogram number_mean pairs_of_counts pairs_of_network pairs_of_table"
    ),
}
MOVED = {
    **{old: f"{home}.{old}" for home, names in _BY_PACKAGE.items() for old in names.split()},
    "additive": "mechanisms",
    "emissions": "places.output_log_likelihoods",
    "jointly": "joint_contexts",
    "personal": "places.fit_person",
    "recheck": "verify_promise",
}


def _built_in() -> tuple[Family, ...]:
    from shoal.families import BUILT_IN

    return BUILT_IN


add_families(_built_in)

__getattr__, __dir__, __all__ = lazy_exports(__name__, moved=MOVED)
__all__ += ["__version__"]
