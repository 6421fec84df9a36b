"""The published JSON Schema says what the program checks."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shoal.cli.init import FIRST, TEMPLATE_KINDS, template
from shoal.spec.request import schema_text, spec_schema

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def refusals(document: dict[str, Any]) -> list[str]:
    """What the schema has against a spec, a sentence each."""
    validator = jsonschema.Draft202012Validator(spec_schema())
    return [error.message for error in validator.iter_errors(document)]


def test_the_published_schema_is_current() -> None:
    published = (ROOT / "docs" / "spec.schema.json").read_text(encoding="utf-8")
    assert published == schema_text(), "run: python -m shoal.spec.request > docs/spec.schema.json"


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(spec_schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    assert refusals(tomllib.loads(path.read_text())) == []


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("kind", list(TEMPLATE_KINDS))
def test_the_templates_are_valid(kind: str) -> None:
    assert refusals(tomllib.loads(template(kind))) == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("privacy", "epsilon", 0),
        ("privacy", "epsilon", "1"),
        ("privacy", "error", 2),
        ("privacy", "budget", 2),
        ("query", "kind", "median"),
        ("query", "relative", "yes"),
        ("secrets", "kind", "policy-graph"),
        ("data", "release", "all"),
    ],
)
def test_what_the_program_refuses_the_schema_refuses(section: str, key: str, value: Any) -> None:
    document = copy.deepcopy(tomllib.loads(template(FIRST)))
    document[section][key] = value
    assert refusals(document)


def test_every_key_is_described() -> None:
    for name, section in json.loads(schema_text())["$defs"].items():
        undescribed = [
            key
            for key, field in section["properties"].items()
            if "description" not in field and key != "kind"
        ]
        assert not undescribed, (name, undescribed)
