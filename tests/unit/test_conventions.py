"""What a project of this kind has agrees with the rest of it: recipe, notebooks, workflow."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def plain(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", requirement.replace(" ", "").lower())


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "meta.yaml").read_text())
    run = {plain(need) for need in recipe["requirements"]["run"]} - {"python>=3-11"}
    assert run == {plain(need) for need in PROJECT["dependencies"]}
    assert recipe["package"]["version"] == PROJECT["version"]
    assert recipe["build"]["entry_points"] == [f"shoal = {PROJECT['scripts']['shoal']}"]


def test_six_notebooks_are_shown_as_they_were_run() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "activity", "contexts", "flu", "friends", "places", "power",
    ]  # fmt: skip
    index = (ROOT / "docs" / "index.md").read_text()
    assert all(f"notebooks/{path.stem}\n" in index for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_its_outputs_a_picture_and_no_machine(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert len(code) >= 5
    assert all(output["output_type"] != "error" for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    text = json.dumps([cell["source"] for cell in cells]) + json.dumps(
        [output.get("text", output.get("data", {}).get("text/plain", "")) for output in outputs]
    )
    assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|Users)/", text)


def test_the_workflow_runs_what_is_run_anywhere_and_the_newest_python() -> None:
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = flow["jobs"]["check"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        ".ci/run", "make notebooks", "make sbom",
    ]  # fmt: skip
    newest = max(job["strategy"]["matrix"]["python"], key=lambda v: int(v.split(".")[1]))
    assert f"Programming Language :: Python :: {newest}" in PROJECT["classifiers"]
    assert "urls" not in PROJECT  # the owner's to fill in, without placeholders


@pytest.mark.parametrize(
    "name",
    ["SECURITY.md", "CODE_OF_CONDUCT.md", ".github/pull_request_template.md",
     ".github/ISSUE_TEMPLATE/fault.md", ".github/ISSUE_TEMPLATE/wish.md"],
)  # fmt: skip
def test_links_of_the_conventions_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists()
    assert len(page.read_text()) > 200
