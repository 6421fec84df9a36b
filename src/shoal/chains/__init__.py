"""Series that follow a Markov chain: models, fits, exact losses, lifts, quilts, audits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes
from shoal.core.registry import Family

if TYPE_CHECKING:
    from shoal.chains.closeness import (
        max_divergence as max_divergence,
    )
    from shoal.chains.families import (
        IntervalChains as IntervalChains,
        MixingSummary as MixingSummary,
        OrderChain as OrderChain,
    )
    from shoal.chains.fit import (
        fit_groups as fit_groups,
        fit_order as fit_order,
        fit_private as fit_private,
    )
    from shoal.chains.held_out import (
        check_held_out as check_held_out,
    )

FAMILY = Family(
    name="chains",
    about="series that follow a Markov chain",
    kinds=(
        "shoal.chains.model:MarkovChain",
        "shoal.chains.families:AnyInitialLaw",
        "shoal.chains.families:MixingSummary",
        "shoal.chains.families:IntervalChains",
        "shoal.chains.families:OrderChain",
        "shoal.chains.closeness:Closeness",
        "shoal.chains.fit:PrivateFit",
    ),
    models={
        "markov-chain": "shoal.chains.audit.sums:chain_finding",
        "any-initial-law": "shoal.chains.audit.sums:chain_finding",
        "order-chain": "shoal.chains.audit.sums:chain_finding",
        "mixing-summary": "shoal.chains.audit.sums:family_finding",
        "interval-chains": "shoal.chains.audit.sums:family_finding",
    },
    model_sections={
        "markov-chain": "shoal.chains.spec:ChainModel",
        "order-chain": "shoal.chains.spec:OrderModel",
        "mixing": "shoal.chains.spec:MixingModel",
        "interval": "shoal.chains.spec:IntervalModel",
    },
    stored_models={
        "markov-chain": (
            "markov-chain",
            "any-initial-law",
        ),
        "order-chain": ("order-chain",),
        "mixing": ("mixing-summary",),
        "interval": ("interval-chains",),
    },
    adversaries={
        "markov-chain": "shoal.chains.attack:ChainAdversary",
        "any-initial-law": "shoal.chains.attack:ChainAdversary",
        "order-chain": "shoal.chains.attack:ChainAdversary",
    },
    templates={
        "series": "a time series",
    },
)

NAMES = {
    "chains.closeness": ("max_divergence",),
    "chains.families": (
        "IntervalChains",
        "MixingSummary",
        "OrderChain",
    ),
    "chains.fit": (
        "fit_groups",
        "fit_order",
        "fit_private",
    ),
    "chains.held_out": ("check_held_out",),
}

__all__ = ["FAMILY", *homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
