"""The families that come with Shoal, in the order in which ties between mechanisms are decided."""

from __future__ import annotations

from shoal.chains.family import FAMILY as CHAINS
from shoal.contexts.family import FAMILY as CONTEXTS
from shoal.events.family import FAMILY as EVENTS
from shoal.mechanisms.family import FAMILY as MECHANISMS
from shoal.networks.family import FAMILY as NETWORKS
from shoal.places.family import FAMILY as PLACES
from shoal.records.family import FAMILY as RECORDS
from shoal.share.family import FAMILY as SHARE

BUILT_IN = (MECHANISMS, EVENTS, CHAINS, NETWORKS, RECORDS, PLACES, CONTEXTS, SHARE)
