"""What came of a job: every input row accounted for, every refusal counted by its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.core.composition import AsEntryDP
from shoal.core.plan import Plan
from shoal.engines.inputs import BadFile


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The counts of a job. `rows` = `rows_released` + `rows_refused` + `rows_without_subject`.

    Rows of bad files come on top: they were not read, and a file that cannot be opened does not
    tell how many it holds. `refusals` maps a reason to the units refused and their rows; a unit
    is one subject in one period. `spend` has one entry per plan that was used. `rows_off_map` had
    coordinates that no state of the model covers, and were taken as its nearest state.
    """

    finished: bool
    files: int
    bad_files: tuple[BadFile, ...]
    rows: int
    rows_released: int
    rows_refused: int
    rows_without_subject: int
    subjects: int
    units: int
    releases: int
    refusals: dict[str, tuple[int, int]]
    spend: tuple[dict[str, Any], ...]
    shards: int
    shards_done: int
    rows_off_map: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "bad_files": [file._asdict() for file in self.bad_files],
            "refusals": {
                reason: {"units": units, "rows": rows}
                for reason, (units, rows) in self.refusals.items()
            },
            "spend": list(self.spend),
        }

    @property
    def adds_up(self) -> bool:
        """Whether every row that was read is accounted for."""
        return (
            self.rows == self.rows_released + self.rows_refused + self.rows_without_subject
            and self.units == self.releases + sum(units for units, _ in self.refusals.values())
        )


def shard_event(
    *,
    subjects: int,
    units: int,
    rows_released: int,
    releases: Mapping[str, int],
    refused: Iterable[tuple[str, int]],
) -> dict[str, Any]:
    """What the journal says about a shard; `refused` holds a reason and rows for each unit."""
    by_reason: dict[str, list[int]] = {}
    for reason, rows in refused:
        entry = by_reason.setdefault(reason, [0, 0])
        entry[0] += 1
        entry[1] += rows
    return {
        "subjects": subjects,
        "units": units,
        "rows_released": rows_released,
        "releases": dict(releases),
        "refused": by_reason,
    }


def report_of(
    events: Iterable[Mapping[str, Any]], plans: Iterable[Plan], *, shards: int, files: int
) -> JobReport:
    """The report of what the journal holds so far."""
    said = list(events)
    scan = next((event for event in reversed(said) if event["event"] == "scanned"), None)
    done = {event["shard"]: event for event in said if event["event"] == "shard"}
    refusals: dict[str, tuple[int, int]] = {}
    releases: Counter[str] = Counter()
    for event in done.values():
        releases.update(event["releases"])
        for reason, (units, rows) in event["refused"].items():
            before = refusals.get(reason, (0, 0))
            refusals[reason] = (before[0] + units, before[1] + rows)
    return JobReport(
        finished=any(event["event"] == "finished" for event in said),
        files=files,
        bad_files=tuple(BadFile(*file) for file in (scan or {}).get("bad", ())),
        rows=(scan or {}).get("rows", 0),
        rows_released=sum(event["rows_released"] for event in done.values()),
        rows_refused=sum(rows for _, rows in refusals.values()),
        rows_without_subject=(scan or {}).get("unowned", 0),
        subjects=sum(event["subjects"] for event in done.values()),
        units=sum(event["units"] for event in done.values()),
        releases=releases.total(),
        refusals=dict(sorted(refusals.items())),
        spend=tuple(_spend(plans, releases)),
        shards=shards,
        shards_done=len(done),
        rows_off_map=(scan or {}).get("off_map", 0),
    )


def _spend(plans: Iterable[Plan], releases: Counter[str]) -> Iterable[dict[str, Any]]:
    """What each plan costs one unit, and how many were charged it; exact rationals as text."""
    for plan in {plan.fingerprint: plan for plan in plans}.values():
        count = releases[plan.fingerprint]
        if not count:
            continue
        etas = [rule.eta for rule in plan.composition if isinstance(rule, AsEntryDP)]
        eta = min(etas, default=None)
        yield {
            "plan": plan.fingerprint,
            "mechanism": plan.mechanism,
            "notion": plan.guarantee.notion,
            "amount_each": str(plan.guarantee.amount),
            "eta_each": None if eta is None else str(eta),
            "releases": count,
            "eta_total": None if eta is None else str(Fraction(eta) * count),
        }
