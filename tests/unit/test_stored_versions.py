"""Documents stored by version 0.1 still load, as what they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.core.codec import Value
from shoal.core.registry import KINDS, dumps, loads

DOCUMENTS = (Path(__file__).parents[1] / "data" / "stored-0.1.jsonl").read_text().splitlines()


def name(text: str) -> str:
    return str(json.loads(text)["value"]["kind"])


@pytest.mark.parametrize("text", DOCUMENTS, ids=name)
def test_a_document_of_version_0_1_comes_back_with_its_fingerprint(text: str) -> None:
    value = loads(text)
    assert isinstance(value, Value)
    assert type(value) is KINDS[name(text)]
    assert value.fingerprint == json.loads(text)["fingerprint"]
    assert json.loads(dumps(value)) == json.loads(text)


def test_most_kinds_are_among_the_documents() -> None:
    assert len({name(text) for text in DOCUMENTS}) >= 80
