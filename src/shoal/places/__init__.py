"""Streams of places: maps, policies, location sets, and the machine that releases step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.places.attack import (
        LocationBeliefs as LocationBeliefs,
        attack_locations as attack_locations,
    )
    from shoal.places.audit import sequence_leakage as sequence_leakage
    from shoal.places.formats import (
        read_track as read_track,
        zone as zone,
        zones_of as zones_of,
    )
    from shoal.places.map import RoadMap as RoadMap
    from shoal.places.packed import LocationRelease as LocationRelease
    from shoal.places.points import (
        policy_of_points as policy_of_points,
        read_points as read_points,
    )
    from shoal.places.queries import Measurement as Measurement
    from shoal.places.stream import output_log_likelihoods as output_log_likelihoods
    from shoal.places.tracks import TrackColumns as TrackColumns, release_tracks as release_tracks
    from shoal.places.walk import (
        SparseChain as SparseChain,
        baum_welch as baum_welch,
        cut_at_gaps as cut_at_gaps,
        fit_person as fit_person,
        free_walk as free_walk,
    )
    from shoal.places.words import policy_in_words as policy_in_words

__getattr__, __dir__, __all__ = lazy_exports(__name__)
