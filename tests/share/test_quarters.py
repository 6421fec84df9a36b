"""Quarters: one public partition of a block, the same zone for every home in it."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.share.place import LEAST_CANDIDATES, square_at
from shoal.share.quarters import BLOCK_DEGREES, quarter_at
from shoal.share.roads import Roads
from studies.share_towns import make_town


@pytest.fixture(scope="module")
def roads() -> Roads:
    return make_town(3, crossings=900, side=16_000.0).roads(mu=100.0)


def test_quarters_divide_a_block(roads: Roads) -> None:
    middle = roads.points.mean(axis=0)
    south, west, height, width = square_at(float(middle[0]), float(middle[1]), BLOCK_DEGREES)
    lat, lon = roads.points.T
    inside = (lat >= south) & (lat < south + height) & (lon >= west) & (lon < west + width)
    block = np.flatnonzero(inside).tolist()
    zones = {}
    for home in block:
        place = quarter_at(roads, *map(float, roads.points[home]))
        assert home in place.zone
        zones[tuple(place.zone.tolist())] = place.about
    # each home has its part of one partition, so that the zone tells nothing else of the home
    assert sorted(crossing for zone in zones for crossing in zone) == block
    assert len(zones) == len(set(zones.values())) == len(block) // LEAST_CANDIDATES
    assert min(map(len, zones)) >= LEAST_CANDIDATES
    # a taste more changes no zone: the first one draws them
    more = np.vstack([roads.weights, roads.weights**1.1])
    other = Roads.of(roads.points, np.column_stack([roads.tails, roads.heads]), more)
    home = block[0]
    again = quarter_at(other, *map(float, roads.points[home]))
    assert again.zone.tolist() in [list(zone) for zone in zones]


def test_what_is_refused(roads: Roads) -> None:
    with pytest.raises(InputError, match="at least 12"):
        quarter_at(roads, 10.0, 10.0)
    with pytest.raises(InputError, match="reaches 3 km beyond"):
        quarter_at(make_town(5, crossings=400, side=3000.0).roads(), 52.5, 13.4)
    turns = np.full(1, 0.5).tolist()
    ends = np.column_stack([roads.tails, roads.heads])
    costly = Roads.of(roads.points, ends, roads.weights, turns=turns)
    with pytest.raises(InputError, match="turns are free"):
        quarter_at(costly, *map(float, roads.points.mean(axis=0)))
