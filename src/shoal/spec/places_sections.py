"""The sections of a spec for people and their places: groups of records, where people cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from shoal.attacks.neighbours_people import PLACES, City
from shoal.core.task import Model
from shoal.models.dependence import Dependence
from shoal.models.dependence_field import PairwiseField
from shoal.models.groups import RecordGroups
from shoal.queries.centroids import Centroids
from shoal.spec.fields import Number, Whole
from shoal.spec.section import Section


class GroupsModel(Section):
    """Records in independent groups, such as households; nothing else is known."""

    kind: Literal["groups"]
    largest: Whole = Field(description="most records that may depend on each other")


class PlacesQuery(Section):
    """K-means over people's most visited places: the centroids, every round of them."""

    kind: Literal["places"]
    south: Number = Field(description="latitude of the city's southern edge")
    west: Number = Field(description="longitude of its western edge")
    north: Number = Field(description="latitude of its northern edge")
    east: Number = Field(description="longitude of its eastern edge")
    places: Whole = Field(PLACES, description="how many places of a person count")
    clusters: Whole = Field(8, description="how many centroids are released")
    rounds: Whole = Field(5, description="how many rounds of K-means, each with noise")


def groups_of(section: GroupsModel) -> RecordGroups:
    """The model a section describes."""
    return RecordGroups(section.largest)


def places_query_of(section: PlacesQuery) -> Centroids:
    """The query a section describes."""
    city = City(
        south=float(section.south),
        west=float(section.west),
        north=float(section.north),
        east=float(section.east),
    )
    return city.query(section.places, clusters=section.clusters, rounds=section.rounds)


def without_states(model: Model) -> Model:
    """`model` of tied records whose values are not named: people's places are numbers."""
    if isinstance(model, Dependence | PairwiseField):
        return replace(model, domain=replace(model.domain, states=None))
    return model
