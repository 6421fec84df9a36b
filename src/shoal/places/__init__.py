"""Streams of places: maps, policies, location sets, and the machine that releases step by step."""

from __future__ import annotations

from shoal.core.registry import Family

FAMILY = Family(
    name="places",
    about="streams of places",
    kinds=(
        "shoal.places.map:SquareGrid",
        "shoal.places.map:HexGrid",
        "shoal.places.walk:SparseChain",
        "shoal.places.queries:Measurement",
        "shoal.places.policy:PolicyGraph",
        "shoal.places.location_set:LocationSet",
        "shoal.places.machine:LocationMachine",
        "shoal.places.machine:LocationState",
        "shoal.places.release:LocationRelease",
        "shoal.places.rows:LocationCertificate",
        "shoal.places.stream:LocationStream",
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
)
