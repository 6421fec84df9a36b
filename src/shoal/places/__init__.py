"""Streams of places: maps, policies, location sets, and the machine that releases step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes
from shoal.core.registry import Family

if TYPE_CHECKING:
    from shoal.places.attack import (
        LocationBeliefs as LocationBeliefs,
        attack_locations as attack_locations,
    )
    from shoal.places.audit import sequence_leakage as sequence_leakage
    from shoal.places.formats import (
        policy_in_words as policy_in_words,
        read_track as read_track,
        zone as zone,
        zones_of as zones_of,
    )
    from shoal.places.map import RoadMap as RoadMap
    from shoal.places.packed import LocationRelease as LocationRelease
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

FAMILY = Family(
    name="places",
    about="streams of places",
    kinds=(
        "shoal.places.map:SquareGrid",
        "shoal.places.map:HexGrid",
        "shoal.places.map:RoadMap",
        "shoal.places.walk:SparseChain",
        "shoal.places.queries:Measurement",
        "shoal.places.policy:PolicyGraph",
        "shoal.places.policy:LocationSet",
        "shoal.places.machine:LocationMachine",
        "shoal.places.packed:LocationState",
        "shoal.places.packed:LocationRelease",
        "shoal.places.rows:LocationCertificate",
        "shoal.places.stream:LocationStream",
        "shoal.places.queries:EventWatch",
        "shoal.places.events:Watched",
    ),
    rows={
        "location-knorm": "shoal.places.rows:KNORM_ROW",
        "location-laplace": "shoal.places.rows:LAPLACE_ROW",
        "location-staircase": "shoal.places.rows:STAIRCASE_ROW",
        "location-graph-exponential": "shoal.places.rows:GRAPH_ROW",
    },
    bodies={
        "location-machine": "shoal.places.audit:location_audit",
    },
    model_sections={
        "grid-walk": "shoal.places.spec:GridWalkModel",
    },
    secrets_sections={
        "policy-graph": "shoal.places.spec:PolicySecrets",
        "location-set": "shoal.places.spec:LocationSecrets",
    },
    query_sections={
        "measurement": "shoal.places.spec:MeasurementQuery",
    },
    stored_models={
        "sparse-chain": ("sparse-chain",),
    },
    templates={
        "location": "a location stream",
    },
    hooks={
        "job": "shoal.places.jobs:JOB",
        "live": "shoal.places.jobs:LIVE",
        "plan": "shoal.places.views.plan:PLAN",
        "release steps": "shoal.places.views.tracks:release_steps",
        "stream": "shoal.places.views.tracks:PlaceLines",
        "attack": "shoal.places.views.attack:view_of",
        "leak": "shoal.places.views.plan:leak_of_places",
        "fit --grid": "shoal.places.views.fit:fit_map",
        "audit events": "shoal.places.audit:event_audit",
    },
)

NAMES = {
    "places.attack": ("LocationBeliefs", "attack_locations"),
    "places.audit": ("sequence_leakage",),
    "places.formats": ("policy_in_words", "read_track", "zone", "zones_of"),
    "places.map": ("RoadMap",),
    "places.packed": ("LocationRelease",),
    "places.queries": ("Measurement",),
    "places.stream": ("output_log_likelihoods",),
    "places.tracks": ("TrackColumns", "release_tracks"),
    "places.walk": ("SparseChain", "baum_welch", "cut_at_gaps", "fit_person", "free_walk"),
}

__all__ = ["FAMILY", *homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
