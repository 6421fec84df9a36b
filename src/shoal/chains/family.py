"""What common code knows of `shoal.chains`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Family, LazyModules

if TYPE_CHECKING:
    import shoal.chains.attack
    import shoal.chains.audit.sums
    import shoal.chains.closeness
    import shoal.chains.families
    import shoal.chains.fit
    import shoal.chains.model
    import shoal.chains.spec
    import shoal.chains.transitions
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.chains",
    about="series that follow a Markov chain",
    kinds={
        "markov-chain": lambda: shoal.chains.model.MarkovChain,
        "any-initial-law": lambda: shoal.chains.families.AnyInitialLaw,
        "mixing-summary": lambda: shoal.chains.families.MixingSummary,
        "interval-chains": lambda: shoal.chains.families.IntervalChains,
        "order-chain": lambda: shoal.chains.families.OrderChain,
        "closeness": lambda: shoal.chains.closeness.Closeness,
        "private-fit": lambda: shoal.chains.fit.PrivateFit,
        "transitions": lambda: shoal.chains.transitions.Transitions,
    },
    model_audits={
        "markov-chain": lambda: shoal.chains.audit.sums.chain_finding,
        "any-initial-law": lambda: shoal.chains.audit.sums.chain_finding,
        "order-chain": lambda: shoal.chains.audit.sums.chain_finding,
        "mixing-summary": lambda: shoal.chains.audit.sums.family_finding,
        "interval-chains": lambda: shoal.chains.audit.sums.family_finding,
    },
    adversaries={
        "markov-chain": lambda: shoal.chains.attack.ChainAdversary,
        "any-initial-law": lambda: shoal.chains.attack.ChainAdversary,
        "order-chain": lambda: shoal.chains.attack.ChainAdversary,
    },
    model_sections={
        "markov-chain": lambda: shoal.chains.spec.ChainModel,
        "order-chain": lambda: shoal.chains.spec.OrderModel,
        "mixing": lambda: shoal.chains.spec.MixingModel,
        "interval": lambda: shoal.chains.spec.IntervalModel,
    },
    query_sections={
        "transitions": lambda: shoal.chains.spec.TransitionsQuery,
    },
    stored_models={
        "markov-chain": ("markov-chain", "any-initial-law"),
        "order-chain": ("order-chain",),
        "mixing": ("mixing-summary",),
        "interval": ("interval-chains",),
    },
    templates={
        "series": "a time series",
    },
)
