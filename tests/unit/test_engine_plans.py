"""Plans of a job: calibrated once for equal tasks, stored ones checked when they come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.errors import InputError, StoredError
from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.jobs.job import job_plans
from shoal.spec.request import Request
from tests.cli.conftest import SPEC


def specs(folder: Path) -> Path:
    """Three groups, two of which ask for the same."""
    folder.mkdir()
    (folder / "day.toml").write_text(SPEC)
    (folder / "night.toml").write_text(SPEC.replace("epsilon = 1.0", "epsilon = 2.0"))
    (folder / "late.toml").write_text(SPEC.replace('gap = "10min"', 'gap = "5min"'))
    return folder


def test_equal_tasks_are_calibrated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Plan] = []

    def counted(request: Request, **told: bool) -> Plan:
        made.append(plan_of(request, **told))
        return made[-1]

    plan_of = Request.plan
    monkeypatch.setattr(Request, "plan", counted)
    plans, data = job_plans(specs(tmp_path / "specs"))
    assert set(plans) == {"day", "night", "late"}
    assert len(made) == 2
    assert plans["day"] == plans["late"] != plans["night"]
    assert data is not None


def test_a_stored_plan_that_was_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    stored = dumps(job_plans(tmp_path / "spec.toml")[0][""])
    (tmp_path / "plan.json").write_text(stored.replace('"group"', '"laplace"'))
    with pytest.raises(StoredError):
        job_plans(tmp_path / "plan.json")


def test_a_stored_plan_serves_everybody(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    plans, _ = job_plans(tmp_path / "spec.toml")
    (tmp_path / "plan.json").write_text(dumps(plans[""]))
    stored, data = job_plans(tmp_path / "plan.json")
    assert stored == plans
    assert data is None


def test_folders_that_name_no_group_or_one_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no spec"):
        job_plans(tmp_path / "empty")
    folder = specs(tmp_path / "specs")
    plans, _ = job_plans(folder)
    (folder / "day.json").write_text(dumps(plans["day"]))
    with pytest.raises(InputError, match="two files for one group"):
        job_plans(folder)
