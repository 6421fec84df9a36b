"""What `shoal` and its packages offer is exactly what they say, in all places that say it."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import shoal
from shoal.core import homes

PUBLIC = ("mechanisms", "chains", "contexts", "networks", "places", "records", "share")
FACES = [shoal, *(import_module(f"shoal.{name}") for name in PUBLIC)]
REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
EACH_NAME = pytest.mark.parametrize(
    ("package", "name"), [(face, name) for face in FACES for name in homes(face.__name__)]
)
PACKAGES = [name for name, home in homes("shoal").items() if home == "shoal"]


def source(package: ModuleType) -> str:
    return Path(str(package.__file__)).read_text()


def typed_names(package: ModuleType) -> dict[str, str]:
    """Public name to module, as the block that type checkers read says it."""
    block = next(node for node in ast.parse(source(package)).body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, f"{alias.name} is not exported (write `x as x`)"
            found[alias.name] = str(node.module)
    return found


@pytest.mark.parametrize("package", FACES)
def test_the_names_are_those_that_type_checkers_read(package: ModuleType) -> None:
    assert typed_names(package) == homes(package.__name__)
    assert [*homes(package.__name__)] == dir(package)


def test_all_lists_every_name_and_dir_shows_them() -> None:
    assert shoal.__all__ == [*homes("shoal"), "__version__"]
    assert sorted(PACKAGES) == sorted([*PUBLIC, "ledger"])
    assert {*dir(shoal), "__version__"} == set(shoal.__all__)


@EACH_NAME
def test_every_name_is_what_its_home_defines(package: ModuleType, name: str) -> None:
    home = import_module(homes(package.__name__)[name])
    assert getattr(package, name) is getattr(home, name)


@EACH_NAME
def test_every_name_has_a_docstring(package: ModuleType, name: str) -> None:
    assert name == "MECHANISMS" or (getattr(package, name).__doc__ or "").strip()


def test_no_name_stands_in_two_places() -> None:
    names = [name for face in FACES for name in homes(face.__name__)]
    assert len(names) == len(set(names))
    assert not set(names) & set(shoal.MOVED) - {
        new.rpartition(".")[2] for new in shoal.MOVED.values()
    }


def test_about_seventy_names_are_at_the_top() -> None:
    assert len(homes("shoal")) - len(PACKAGES) <= 80


@pytest.mark.parametrize("old", sorted(shoal.MOVED))
def test_an_old_name_warns_and_is_the_new_one(old: str) -> None:
    new = shoal.MOVED[old]
    with pytest.warns(DeprecationWarning, match=f"shoal.{old} is now shoal.{new}") as told:
        found = getattr(shoal, old)
    assert told[0].filename == __file__
    package, _, name = new.rpartition(".")
    assert found is getattr(import_module(f"shoal.{package}".rstrip(".")), name)


@pytest.mark.parametrize("name", sorted(homes("shoal.mechanisms")))
def test_a_name_imported_from_additive_warns_and_is_the_one_of_mechanisms(name: str) -> None:
    former = import_module("shoal.additive")
    with pytest.warns(DeprecationWarning, match=f"is now shoal.mechanisms.{name}"):
        assert getattr(former, name) is getattr(shoal.mechanisms, name)
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = former.plans


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="module 'shoal' has no attribute 'markov'"):
        _ = shoal.markov


def test_the_reference_lists_every_public_name_once() -> None:
    directive = re.compile(
        r"^\.\. auto(?:class|function|data|exception):: shoal\.([\w.]+)$", re.MULTILINE
    )
    here = {*homes("shoal")} - {*PACKAGES}
    rest = {
        f"{face.__name__.removeprefix('shoal.')}.{n}"
        for face in FACES[1:]
        for n in homes(face.__name__)
    }
    elsewhere = {"audit.Audit", "audit.audit_noise", "audit.audit_neighbours"}
    elsewhere |= {"ledger.parallel_records", "jobs.JobReport", "testing.check_mechanism"}
    elsewhere |= {"testing.check_refusal", "testing.check_family"}
    assert sorted(directive.findall(REFERENCE.read_text())) == sorted(here | rest | elsewhere)


def test_the_version_is_the_one_of_the_project_file() -> None:
    project = (REFERENCE.parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{shoal.__version__}"\n' in project
