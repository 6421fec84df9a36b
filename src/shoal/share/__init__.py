"""Publishing rides and hiding where one lives, over all rides together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.share.attack import (
        PlaceBeliefs as PlaceBeliefs,
        bayes as bayes,
        bayes_with_habits as bayes_with_habits,
        circle_through as circle_through,
    )
    from shoal.share.history import History as History, Leg as Leg, ShownLeg as ShownLeg
    from shoal.share.jobs.report import ShareReport as ShareReport
    from shoal.share.jobs.sharing import ShareWish as ShareWish, share_rides as share_rides
    from shoal.share.place import PermanentPlace as PermanentPlace
    from shoal.share.plan import (
        PermanentPlaces as PermanentPlaces,
        Tracks as Tracks,
        plan_share as plan_share,
    )
    from shoal.share.roads import Roads as Roads
    from shoal.share.stream import ShareStream as ShareStream

__getattr__, __dir__, __all__ = lazy_exports(__name__)
