"""What common code knows of `shoal.share`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Family, LazyModules

if TYPE_CHECKING:
    import shoal.core.charge
    import shoal.share.history
    import shoal.share.place
    import shoal.share.plan
    import shoal.share.roads
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.share",
    about="tracks of rides between hidden places and goals",
    kinds={
        "roads": lambda: shoal.share.roads.Roads,
        "permanent-place": lambda: shoal.share.place.PermanentPlace,
        "permanent-places": lambda: shoal.share.plan.PermanentPlaces,
        "tracks": lambda: shoal.share.plan.Tracks,
        "share-rule": lambda: shoal.share.history.ShareRule,
        "share-machine": lambda: shoal.share.plan.ShareMachine,
        "share-history": lambda: shoal.share.history.History,
        "shown-leg": lambda: shoal.share.history.ShownLeg,
        "share-certificate": lambda: shoal.share.plan.ShareCertificate,
        "per-pair": lambda: shoal.core.charge.PerPair,
    },
    mechanisms={
        "share": lambda: shoal.share.plan.MECHANISM,
    },
)
