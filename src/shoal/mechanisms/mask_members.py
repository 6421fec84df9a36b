"""The day chains of a task, their contexts in an order that does not depend on their writing.

Searches for suppression probabilities go through the contexts one after the other, so that the
plan they find depends on the order. They are given this one: sensitive contexts first, then by
how likely each is over the day (to nine digits), and by name where that does not decide. So the
order in which somebody lists contexts never changes a plan, and renaming them changes it only
where two contexts are equally likely at every slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.core.task import Task
from shoal.models.day import DayChain
from shoal.secrets.contexts import SensitiveContexts

DIGITS = 9


def members(task: Task) -> tuple[DayChain, ...]:
    """The day chains of the family, all in canonical order."""
    days = _days(task)
    secrets = task.secrets
    assert isinstance(secrets, SensitiveContexts)
    return tuple(in_order(day, canonical(days, secrets)) for day in days)


def members_in(task: Task, states: Sequence[str]) -> tuple[DayChain, ...]:
    """The day chains of the family, contexts in the order of `states`."""
    return tuple(in_order(day, states) for day in _days(task))


def canonical(days: Sequence[DayChain], secrets: SensitiveContexts) -> tuple[str, ...]:
    """The contexts in canonical order."""
    by_name = sorted(days[0].states)
    named = [in_order(day, by_name) for day in days]
    share = secrets.shares(named[0]).sum(axis=0)
    prior = np.concatenate([day.marginals() for day in named]).round(DIGITS)

    def key(place: int) -> tuple[float, tuple[float, ...], str]:
        return -float(share[place]), tuple((-prior[:, place]).tolist()), by_name[place]

    return tuple(by_name[place] for place in sorted(range(len(by_name)), key=key))


def in_order(day: DayChain, states: Sequence[str]) -> DayChain:
    """The same day with its contexts in another order."""
    if tuple(states) == day.states:
        return day
    index = {name: place for place, name in enumerate(day.states)}
    turn = [index[name] for name in states]
    return replace(
        day,
        states=tuple(states),
        initial=day.initial[turn],
        transition=day.transition[:, turn][:, :, turn],
    )


def _days(task: Task) -> tuple[DayChain, ...]:
    days = tuple(model for model in task.family if isinstance(model, DayChain))
    if len(days) != len(task.family) or not isinstance(task.secrets, SensitiveContexts):
        raise TypeError("called on a task that the checks of contexts refuse")
    return days
