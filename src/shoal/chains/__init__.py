"""Series that follow a Markov chain: models, fits, exact losses, lifts, quilts, audits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.chains.closeness import max_divergence as max_divergence
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
    from shoal.chains.held_out import check_held_out as check_held_out
    from shoal.chains.synthetic import draw_series as draw_series, fidelity as fidelity
    from shoal.chains.transitions import TransitionTable as TransitionTable

__getattr__, __dir__, __all__ = lazy_exports(__name__)
