"""Series that follow a Markov chain: models, fits, exact losses, lifts, quilts, audits."""

from __future__ import annotations

from shoal.core.registry import Family

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
)
