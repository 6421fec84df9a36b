"""Plans of specs kept between commands: used where sound, and nothing in a file is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli import plan_cache
from shoal.core.plan import Plan
from shoal.mechanisms.table import MECHANISMS
from shoal.spec.request import Request, read_request
from shoal.testing import with_scale
from tests.cli.conftest import Run


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "plans"
    monkeypatch.setenv(plan_cache.VARIABLE, str(folder))
    return folder


def release(run: Run, out: str = "out.json") -> Any:
    done = run("release", "spec.toml", "days.csv", "-o", out, "--force")
    assert done.exit_code == 0, done.stderr
    return json.loads(Path(out).read_text())


def refuse_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("it was calibrated")

    row = MECHANISMS["group"]._replace(calibrate=never)
    monkeypatch.setitem(MECHANISMS, "group", row)


def test_a_release_uses_the_plan_that_was_made(
    run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("plan", "spec.toml").exit_code == 0
    (file,) = kept.glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    refuse_calibration(monkeypatch)
    assert release(run)
    file.unlink()
    with pytest.raises(AssertionError, match="it was calibrated"):
        plan_cache.plan_of_spec(read_request("spec.toml"))


def test_a_release_keeps_the_plan_it_made(
    run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(run)
    refuse_calibration(monkeypatch)
    assert release(run, "again.json")


def forge(request: Request, kept: Path, plan: Plan) -> None:
    """Put another plan where that of the request is looked for."""
    plan_cache.keep_plan(request, plan)
    assert len([*kept.glob("*.json")]) == 1


@pytest.mark.parametrize("fault", ["less noise", "more budget", "other task", "other row", "text"])
def test_a_plan_that_was_changed_is_made_again(run: Run, kept: Path, fault: str) -> None:
    request = read_request("spec.toml")
    true = request.plan()
    task = true.task
    assert true.additive is not None
    chain = shoal.MarkovChain.of([[0.5, 0.5], [0.5, 0.5]], states=task.query.states, length=30)
    faults = {
        "less noise": with_scale(true, true.additive.noise.scale / 2),
        "more budget": shoal.calibrate(
            task.query, task.secrets, task.family, epsilon=2, mechanism="group"
        ),
        "other task": shoal.calibrate(
            task.query, task.secrets, chain, epsilon=1, mechanism="group"
        ),
        "other row": shoal.calibrate(
            task.query, task.secrets, task.family, epsilon=1, mechanism="laplace"
        ),
        "text": true,
    }
    forge(request, kept, faults[fault])
    if fault == "text":
        (file,) = kept.glob("*.json")
        file.write_text(file.read_text().replace("group", "laplace"))
    assert plan_cache.load_plan(request) is None
    assert plan_cache.plan_of_spec(request) == true
    assert plan_cache.load_plan(request) == true


def test_entry_level_noise_does_not_pass_for_the_best_plan(run: Run, kept: Path) -> None:
    text = Path("spec.toml").read_text().replace('"group"', '"best"')
    Path("best.toml").write_text(text)
    request = read_request("best.toml")
    task = request.task
    weak = shoal.calibrate(task.query, task.secrets, task.family, epsilon=1, mechanism="laplace")
    forge(request, kept, weak)
    assert plan_cache.load_plan(request) is None


def test_what_a_check_cannot_settle_is_not_kept(run: Run, kept: Path) -> None:
    text = Path("spec.toml").read_text()
    Path("error.toml").write_text(text.replace("epsilon = 1.0", "error = 60"))
    Path("quick.toml").write_text(text.replace("epsilon = 1.0", 'epsilon = 1.0\ntime_limit = "9s"'))
    for name in ("error.toml", "quick.toml"):
        assert run("plan", name).exit_code == 0
    assert not kept.exists()


def test_a_folder_that_cannot_be_written_changes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(plan_cache.VARIABLE, str(tmp_path / "file" / "plans"))
    assert release(run)


def test_old_plans_are_deleted(run: Run, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "MAX_PLANS_KEPT", 3)
    text = Path("spec.toml").read_text()
    for epsilon in range(1, 7):
        Path("spec.toml").write_text(text.replace("epsilon = 1.0", f"epsilon = {epsilon}"))
        assert run("plan", "spec.toml").exit_code == 0
    assert len([*kept.glob("*.json")]) == 3
