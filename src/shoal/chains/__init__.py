"""Series that follow a Markov chain: models, fits, exact losses, lifts, quilts, audits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes

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

__all__ = [*homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
