"""What common code knows of a family of data: one typed record, and where the records come from.

A family is a kind of data with its own laws, such as chains or places. It exports one `Family`,
called FAMILY, in `family.py` of its package. Common code finds a family only through `families`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

# A part of a family that is imported when it is first asked for: `lambda: rows.ROW`. A plan of one
# family loads no module of another.
Part = Callable[[], Any]

ENTRY_POINTS = "shoal.families"  # entry points of other distributions; each names a `Family`


class LazyModules:
    """A package whose modules are imported when their names are first used.

    `LazyModules("shoal").places.rows.ROW` imports `shoal.places.rows` and is its ROW.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        module = import_module(f"{self._package}.{name}")
        return LazyModules(module.__name__) if hasattr(module, "__path__") else module


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """What commands and jobs do for one family in a way of its own; None: the common way."""

    audit_events: Part | None = None  # (plan, …) -> audit of a promise about events
    fit_contexts: Part | None = None  # `shoal fit --slot`
    fit_map: Part | None = None  # `shoal fit --grid`
    locate: Part | None = None  # `shoal read MODEL --at`: (model, point) -> its cell
    job: Part | None = None  # a `jobs.drawing.StreamJob`: a file of many people's streams
    nearest: Part | None = None  # `shoal nearest`: (wish) -> a report on points of interest
    limit_time: Part | None = None  # (secrets, seconds) -> secrets that keep a time limit
    live: Part | None = None  # a `jobs.live.LiveKind`: streams by key on Spark
    protected: Part | None = None  # plan -> what it protects, in words, where less than the secrets
    read_stream: Part | None = None  # `shoal stream`: a class that reads lines
    release_steps: Part | None = None  # `shoal release` of a plan that releases step by step
    show_attack: Part | None = None  # `shoal attack`
    show_leak: Part | None = None  # `shoal leak`
    show_plan: Part | None = None  # `shoal plan`
    show_release: Part | None = None  # `shoal release` of a single answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What one family adds to the common tables.

    `package` is the package that defines the family's classes. The keys of the tables are names
    that stay: stored documents and specs hold them. The values import what they name when called.
    """

    package: str
    about: str  # what its data is, as a noun phrase
    any_task: bool = False  # its mechanisms take tasks of every family
    serves: tuple[str, ...] = ()  # other families, by name, whose tasks its mechanisms may take
    kinds: Mapping[str, Part] = field(default_factory=dict)  # stored kind -> class
    mechanisms: Mapping[str, Part] = field(default_factory=dict)  # name -> Mechanism
    plan_audits: Mapping[str, Part] = field(default_factory=dict)  # kind of a plan's body -> audit
    model_audits: Mapping[str, Part] = field(default_factory=dict)  # kind of a model -> finding
    adversaries: Mapping[str, Part] = field(default_factory=dict)  # kind of a model -> adversary
    model_sections: Mapping[str, Part] = field(default_factory=dict)  # kind in a spec -> section
    secrets_sections: Mapping[str, Part] = field(default_factory=dict)
    query_sections: Mapping[str, Part] = field(default_factory=dict)
    stored_models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # spec -> stored
    model_files: Mapping[str, Part] = field(default_factory=dict)  # suffix of a file -> reader
    templates: Mapping[str, str] = field(default_factory=dict)  # `shoal init --kind` -> its words
    acts: Acts = field(default_factory=Acts)

    @property
    def name(self) -> str:
        """The last part of the package's name, such as "places"."""
        return self.package.rpartition(".")[2]

    def holds(self, module: str) -> bool:
        """Return whether a module belongs to this family's package."""
        return module == self.package or module.startswith(f"{self.package}.")


_sources: list[Callable[[], tuple[Family, ...]]] = []


def add_families(source: Callable[[], tuple[Family, ...]]) -> None:
    """Let `families` also return what `source` returns; the order of the calls is kept."""
    _sources.append(source)
    families.cache_clear()
    _family_in.cache_clear()
    _out_of_scope.cache_clear()


@cache
def families() -> tuple[Family, ...]:
    """Return all families: the built-in ones first, then those of other distributions by name.

    Mechanisms of equal cost are taken in this order.
    """
    from importlib.metadata import entry_points

    own = [family for source in _sources for family in source()]
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return (*own, *(point.load() for point in points))


def family_of(value: object) -> Family | None:
    """Return the family whose package defines the class of `value`; None for common classes."""
    return _family_in(type(value).__module__)


@cache
def _family_in(module: str) -> Family | None:
    """Return the family to whose package a module belongs."""
    return next((family for family in families() if family.holds(module)), None)


def act_of(name: str, *values: object) -> Any:
    """Return the act called `name` of the first family of `values` that has one; None if none.

    `name` is a field of `Acts`. A value that belongs to no family is passed over.
    """
    for value in values:
        family = family_of(value)
        part = None if family is None else getattr(family.acts, name)
        if part is not None:
            return part()
    return None


def plan_act(name: str, plan: Any) -> Any:
    """Return the act of the family of a plan's body, else of its query, else of its model."""
    return act_of(name, plan.body, plan.task.query, plan.task.family[0])


def only_act(name: str) -> Any:
    """Return the act called `name` of the one family that has it."""
    (part,) = filter(None, (getattr(family.acts, name) for family in families()))
    return part()


def out_of_scope(mechanism: str, task: Any) -> str | None:
    """Return why a family's mechanism does not apply to `task`; None if it may apply.

    Decided by names alone: no module of the mechanism's family is imported.
    """
    parts = frozenset(type(part).__module__ for part in (task.secrets, task.query, *task.family))
    return _out_of_scope(mechanism, parts)


@cache
def _out_of_scope(mechanism: str, modules: frozenset[str]) -> str | None:
    """Return why a mechanism does not apply to tasks of classes in these modules."""
    home = next((family for family in families() if mechanism in family.mechanisms), None)
    if home is None or home.any_task:
        return None
    parts = {family.name for family in map(_family_in, modules) if family is not None}
    return f"it is for {home.about}" if parts.isdisjoint((home.name, *home.serves)) else None
