"""What common code knows of `shoal.places`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Acts, Family, LazyModules

if TYPE_CHECKING:
    import shoal.places.audit
    import shoal.places.events
    import shoal.places.jobs
    import shoal.places.machine
    import shoal.places.map
    import shoal.places.packed
    import shoal.places.policy
    import shoal.places.queries
    import shoal.places.rows
    import shoal.places.spec
    import shoal.places.stream
    import shoal.places.views.attack
    import shoal.places.views.fit
    import shoal.places.views.nearest
    import shoal.places.views.plan
    import shoal.places.views.tracks
    import shoal.places.walk
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.places",
    about="streams of places",
    kinds={
        "square-grid": lambda: shoal.places.map.SquareGrid,
        "hex-grid": lambda: shoal.places.map.HexGrid,
        "road-map": lambda: shoal.places.map.RoadMap,
        "sparse-chain": lambda: shoal.places.walk.SparseChain,
        "measurement": lambda: shoal.places.queries.Measurement,
        "policy-graph": lambda: shoal.places.policy.PolicyGraph,
        "location-set": lambda: shoal.places.policy.LocationSet,
        "location-machine": lambda: shoal.places.machine.LocationMachine,
        "location-state": lambda: shoal.places.packed.LocationState,
        "location-release": lambda: shoal.places.packed.LocationRelease,
        "location-certificate": lambda: shoal.places.rows.LocationCertificate,
        "location-stream": lambda: shoal.places.stream.LocationStream,
        "event-watch": lambda: shoal.places.queries.EventWatch,
        "watched": lambda: shoal.places.events.Watched,
    },
    mechanisms={
        "location-knorm": lambda: shoal.places.rows.KNORM_ROW,
        "location-laplace": lambda: shoal.places.rows.LAPLACE_ROW,
        "location-staircase": lambda: shoal.places.rows.STAIRCASE_ROW,
        "location-graph-exponential": lambda: shoal.places.rows.GRAPH_ROW,
    },
    plan_audits={
        "location-machine": lambda: shoal.places.audit.location_audit,
    },
    model_sections={
        "grid-walk": lambda: shoal.places.spec.GridWalkModel,
    },
    secrets_sections={
        "policy-graph": lambda: shoal.places.spec.PolicySecrets,
        "location-set": lambda: shoal.places.spec.LocationSecrets,
    },
    query_sections={
        "measurement": lambda: shoal.places.spec.MeasurementQuery,
    },
    stored_models={
        "sparse-chain": ("sparse-chain",),
    },
    templates={
        "location": "a location stream",
    },
    acts=Acts(
        audit_events=lambda: shoal.places.audit.event_audit,
        fit_map=lambda: shoal.places.views.fit.fit_map,
        job=lambda: shoal.places.jobs.JOB,
        locate=lambda: shoal.places.views.fit.cell_at,
        live=lambda: shoal.places.jobs.LIVE,
        nearest=lambda: shoal.places.views.nearest.report_nearest,
        read_stream=lambda: shoal.places.views.tracks.PlaceLines,
        release_steps=lambda: shoal.places.views.tracks.release_steps,
        show_attack=lambda: shoal.places.views.attack.view_of,
        show_leak=lambda: shoal.places.views.plan.leak_of_places,
        show_plan=lambda: shoal.places.views.plan.PLAN,
    ),
)
