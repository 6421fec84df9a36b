"""What an attack on a stream of places found, in sentences with units, and as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli import show
from shoal.core.numbers import significant

if TYPE_CHECKING:
    from shoal.attacks.location import By, Knowing
    from shoal.attacks.location_odds import OddsOverTime
    from shoal.cli.attack_locations import Attacked
    from shoal.core.plan import Plan
    from shoal.core.task import Model


def print_track(plan: Plan, held: Model, found: Attacked) -> None:
    """What somebody knew before, along the way and afterwards, and what was promised."""
    lines = [
        ("In short", _short_line(found)),
        ("Released", _released_line(plan, found)),
        ("Adversary", f"knows {held.describe()}, the policy and the noise."),
        ("Before", _believed_line(found, "nothing", "seeing nothing")),
        ("On the way", _believed_line(found, "past", "seeing the points up to each step")),
        ("Afterwards", _believed_line(found, "all", "seeing all points, later ones too")),
        ("Likeliest path", _path_line(found)),
        ("Most learned", _learned_line(found)),
        ("Promised", _promise_line(plan, found)),
    ]
    if found.others is not None:
        lines.append(("Plan's model", _other_line(found)))
    lines += [("Note", note) for note in found.notes]
    out = show.console()
    out.print(show.paragraphs("\n".join(f"{title}: {text}" for title, text in lines)))


def track_object(plan: Plan, held: Model, found: Attacked) -> dict[str, Any]:
    """The attack as one JSON object; distances in `unit`, infinite odds and unknowns null."""
    beliefs = found.beliefs
    kinds: tuple[By, ...] = ("own", "past", "all")
    odds = {by: beliefs.odds(by) for by in kinds}
    return {
        "series": found.name,
        "mechanism": plan.mechanism,
        "adversary": held.describe(),
        "steps": len(found.truth),
        "released": sum(point is not None for point in found.released),
        "unit": beliefs.unit,
        "error": {
            **{by: one.mean for by, one in found.errors.items()},
            "path": float(np.nanmean(_path_errors(found))),
            "released": _released_error(found),
        },
        "believed_error": {by: float(one.expected.mean()) for by, one in found.errors.items()},
        "correctness": {by: one.privacy().correctness for by, one in found.errors.items()},
        "entropy_bits": {by: one.privacy().certainty for by, one in found.errors.items()},
        "right_guesses": {
            **{by: one.privacy().accuracy for by, one in found.errors.items()},
            "path": float(np.nanmean(_path_right(found))),
        },
        "log_odds": {by: _largest(one) for by, one in odds.items()},
        "promised": float(plan.guarantee.amount),
        "about_now": show.finite(float(beliefs.about_now.max())),
        "about_all": show.finite(float(beliefs.about_all[-1])),
        "most_learned": _most_learned(found),
        "plan_model_error": None
        if found.others is None
        else {by: one.mean for by, one in found.others.items()},
        "track": [_step(found, t) for t in range(len(found.truth))],
        "notes": list(found.notes),
    }


def _released_line(plan: Plan, found: Attacked) -> str:
    points = sum(point is not None for point in found.released)
    skipped = len(found.released) - points
    off = _released_error(found)
    return (
        f"{len(found.released)} steps of {found.name} by {plan.mechanism}: {points} points"
        + (f" ({skipped} without one)" if skipped else "")
        + (f", off by {_far(found, off)} on average." if off is not None else ".")
    )


def _short_line(found: Attacked) -> str:
    before, after = found.errors["nothing"].mean, found.errors["all"].mean
    return (
        f"an adversary who knows the movement model and sees the stream places {found.name} within "
        f"{_far(found, after)} instead of {_far(found, before)} (means over "
        f"{sum(place is not None for place in found.truth)} positions)."
    )


def _believed_line(found: Attacked, by: Knowing, seeing: str) -> str:
    error = found.errors[by]
    measured = error.privacy()
    return (
        f"{seeing}, the best guess is off by {_far(found, error.mean)} on average (expected: "
        f"{_far(found, float(error.expected.mean()))}); the likeliest place is right at "
        f"{measured.accuracy:.1%} of the steps; {measured.certainty:.2f} bits of uncertainty."
    )


def _path_line(found: Attacked) -> str:
    return (
        f"right at {float(np.nanmean(_path_right(found))):.1%} of the steps, off by "
        f"{_far(found, float(np.nanmean(_path_errors(found))))}."
    )


def _learned_line(found: Attacked) -> str:
    most = _most_learned(found)
    if most is None:
        return "nothing: the model calls every true place impossible."
    shares = (
        f"at step {most['step']}, really at {most['truth']!r}: the belief in it went from "
        f"{_share(most['truth_before'])} to {_share(most['truth_after'])}"
    )
    if most["other"] == most["truth"]:
        return f"{shares}; no place joined to it was possible."
    return (
        f"{shares}, in {most['other']!r}, joined to it, from {_share(most['other_before'])} to "
        f"{_share(most['other_after'])}: odds changed by "
        f"{show.odds(np.inf if most['log_odds'] is None else most['log_odds'])}."
    )


def _promise_line(plan: Plan, found: Attacked) -> str:
    beliefs = found.beliefs
    own, every = beliefs.odds("own"), beliefs.odds("all", truth=found.truth)
    worst = int(own.joined.argmax())
    together = float(np.nanmax(every.joined, initial=0.0))
    anywhere = float(np.nanmax(every.any_two, initial=0.0))
    return (
        f"that one output changes the odds between joined places by at most "
        f"{show.odds(float(plan.guarantee.amount))}, given those before; here one did by "
        f"{show.odds(float(own.joined[worst]))} (step {worst + 1}). Nothing like it is promised "
        "for all outputs together: they changed the odds of the true place against a joined one "
        f"by up to {show.odds(together)}, against any place by up to {show.odds(anywhere)}."
    )


def _other_line(found: Attacked) -> str:
    assert found.others is not None
    return (
        "somebody who holds it instead would be off by "
        f"{_far(found, found.others['nothing'].mean)} before, "
        f"{_far(found, found.others['past'].mean)} on the way and "
        f"{_far(found, found.others['all'].mean)} afterwards."
    )


def _most_learned(found: Attacked) -> dict[str, Any] | None:
    """The step at which the odds for the true place rose most, and the joined one that lost most.

    None when the adversary's model calls the true place impossible at every step.
    """
    beliefs = found.beliefs
    odds = beliefs.odds("all", truth=found.truth)
    if np.isnan(odds.joined).all():
        return None
    before, after = found.errors["nothing"].belief, found.errors["all"].belief
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.log(after / (1 - after)) - np.log(before / (1 - before))
    # where the place was known before and after, both are infinite and nothing rose
    step = int(np.argmax(np.where(np.isnan(rise) | np.isnan(odds.joined), -np.inf, rise)))
    truth, other = (int(place) for place in odds.pairs[step])
    return {
        "step": step + 1,
        "truth": beliefs.states[truth],
        "other": beliefs.states[other],
        "log_odds": show.finite(float(odds.joined[step])),
        "truth_before": float(before[step]),
        "truth_after": float(after[step]),
        "other_before": float(np.exp(beliefs.log_before[step, other])),
        "other_after": float(np.exp(beliefs.log_smoothed[step, other])),
    }


def _step(found: Attacked, t: int) -> dict[str, Any]:
    """One step: where somebody was, what was released, what is believed."""
    beliefs, place, point = found.beliefs, found.truth[t], found.released[t]
    return {
        "step": t + 1,
        "truth": None if place is None else beliefs.states[place],
        "released": None if point is None else list(point),
        "guess": {by: one.guesses[t].tolist() for by, one in found.errors.items()},
        "distance": {by: show.finite(float(one.distance[t])) for by, one in found.errors.items()},
        "belief_in_truth": {
            by: show.finite(float(one.belief[t])) for by, one in found.errors.items()
        },
        "entropy_bits": {by: float(one.bits[t]) for by, one in found.errors.items()},
        "path": beliefs.trajectory[t],
    }


def _largest(odds: OddsOverTime) -> dict[str, float | None]:
    return {
        "joined": show.finite(float(odds.joined.max())),
        "any_two": show.finite(float(odds.any_two.max())),
    }


def _released_error(found: Attacked) -> float | None:
    """How far the released points are from the truth on average; None when there is none."""
    values = found.beliefs.values
    away = [
        float(np.sqrt(((np.array(point) - values[place]) ** 2).sum()))
        for point, place in zip(found.released, found.truth, strict=True)
        if point is not None and place is not None
    ]
    return float(np.mean(away)) if away else None


def _path_errors(found: Attacked) -> Any:
    from shoal.attacks.location_errors import path_distance

    return path_distance(found.beliefs.path.tolist(), found.beliefs.values, found.truth)


def _path_right(found: Attacked) -> list[float]:
    pairs = zip(found.beliefs.path.tolist(), found.truth, strict=True)
    return [float("nan") if there is None else float(here == there) for here, there in pairs]


def _share(belief: float) -> str:
    return f"{belief:.1%}" if belief >= 0.001 else f"{belief * 100:.2g}%"


def _far(found: Attacked, distance: float) -> str:
    """A distance in words, short ones on a map in metres."""
    if found.beliefs.unit == "km" and distance < 1:
        return f"{distance * 1000:.0f} m"
    return f"{significant(distance)} {found.beliefs.unit}"
