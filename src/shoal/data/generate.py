"""Made-up data for demonstrations and tests: the same for the same seed, about no real person.

`..._table` gives the rows a file would hold (series, time, state); the others give chains.
"""

from __future__ import annotations

from shoal.data.synthetic.series import (
    ACTIVITIES,
    CONTEXTS,
    activity_days,
    activity_table,
    household_power,
    phone_contexts,
    phone_table,
    power_table,
)
from shoal.data.synthetic.towns import (
    ContactNetwork,
    FriendsPlaces,
    MapWalk,
    contact_network,
    friends_places,
    map_walk,
)
from shoal.data.write import write_table

__all__ = [
    "ACTIVITIES",
    "CONTEXTS",
    "ContactNetwork",
    "FriendsPlaces",
    "MapWalk",
    "activity_days",
    "activity_table",
    "contact_network",
    "friends_places",
    "household_power",
    "map_walk",
    "phone_contexts",
    "phone_table",
    "power_table",
    "write_table",
]
