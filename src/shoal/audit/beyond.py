"""What is known when answers are too many to be counted: outputs beyond all of them, and bounds."""

from __future__ import annotations

from shoal.audit.bounds import least_upper
from shoal.audit.corners import sign_patterns, told_by_corners
from shoal.audit.result import Finding
from shoal.audit.setting import Setting
from shoal.audit.testimony import witness
from shoal.audit.walk import Walk
from shoal.noise.zero_sum import ZeroSumLaplace

TOO_MANY = (
    "outputs between the answers: the joint law of this many numbers is too large to write out, "
    "so the lower bound uses outputs beyond all answers only"
)


def beyond_finding(setting: Setting, walk: Walk) -> Finding:
    """lower ≤ loss ≤ upper under one chain, whatever the number of answers.

    The lower bound is the most telling output beyond all answers, the upper bound one that holds
    for every entry-level release.
    """
    upper, own = least_upper(setting)
    notes = (*own, TOO_MANY)
    weights = setting.weights
    signs = sign_patterns(weights.shape[1], zero_sum=isinstance(setting.noise, ZeroSumLaplace))
    found = told_by_corners(walk, weights, 1 / setting.scale, signs, upper)
    if found is None:
        return Finding(lower=0.0, upper=upper, notes=notes)
    seen, belief = found
    told = witness(setting, seen, belief)
    lower = belief.certain
    return Finding(lower=lower, upper=max(upper, lower), witness=told, notes=notes)
