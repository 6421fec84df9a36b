"""Continuous laws on convex bodies, in floats: what exact noise on the lattice is compared with."""

from __future__ import annotations

import math

import numpy as np

from shoal.core.charge import Rng
from shoal.core.codec import Floats
from shoal.geometry.body import Body
from shoal.geometry.span import Span, determinant


def volume(body: Body) -> float:
    """The d'-dimensional volume in the span: length, area, …; 1 for the point."""
    return float(body.moments.volume) * cell_volume(body.span)


def cell_volume(span: Span) -> float:
    """The volume of one lattice cell of the span, √det(basis basisᵀ)."""
    return math.sqrt(determinant(span.gram())) if not span.full else 1.0


def log_density(body: Body, epsilon: float, norms: Floats) -> Floats:
    """log of epsilon^d' exp(-epsilon r) / (d'! volume) at norms r: the continuous law."""
    d = body.dimension
    constant = d * math.log(epsilon) - math.lgamma(d + 1) - math.log(volume(body))
    return constant - epsilon * norms


def uniform_points(body: Body, count: int, rng: Rng) -> Floats:
    """`count` points uniform in the body, (count, d), in lattice units.

    A simplex with a corner at 0 is chosen by its volume and a point in it by sorted uniforms.
    With three dimensions or more of the hull that Qhull found.
    """
    d = body.dimension
    if d == 0:
        return np.zeros((count, body.ambient))
    pieces = _simplices(body)
    volumes = np.abs(np.linalg.det(pieces))
    uniforms = (rng.words(count * (d + 1)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    rows = uniforms.reshape(count, d + 1)
    chosen = np.searchsorted(np.cumsum(volumes) / volumes.sum(), rows[:, 0], side="right")
    # the gaps between d sorted uniforms, with 0 in front, weigh the corners; the rest is 0's
    ordered = np.sort(rows[:, 1:], axis=1)
    weights = np.diff(ordered, axis=1, prepend=0.0)
    inner = np.einsum("nk,nkj->nj", weights, pieces[np.minimum(chosen, len(pieces) - 1)])
    return np.asarray(inner @ body.span.basis.astype(np.float64))


def knorm_points(body: Body, epsilon: float, count: int, rng: Rng) -> Floats:
    """Continuous K-norm noise: a uniform point of the body times Gamma(d' + 1, 1/epsilon).

    The construction of Hardt & Talwar 2010 that the exact lattice sampler is compared with; the
    Gamma variable is minus the logarithm of a product of d' + 1 uniforms.
    """
    d = body.dimension
    points = uniform_points(body, count, rng)
    words = rng.words(count * (d + 1)).reshape(count, d + 1)
    uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(points * (-np.log(uniforms).sum(axis=1) / epsilon)[:, None])


def _simplices(body: Body) -> Floats:
    """The corners, other than 0, of simplices that tile the body, in span coordinates."""
    corners = body.flat.astype(np.float64)
    if body.facets is not None:
        return np.asarray(corners[body.facets.simplices])
    if body.dimension == 1:
        return corners[:, None, :]
    return np.stack([corners, np.roll(corners, -1, axis=0)], axis=1)
