"""The JSON Schema of a spec, made from the classes that check it. Run as a module to print it."""

from __future__ import annotations

import json
import sys
from typing import Any

from shoal.spec.document import spec_class

TITLE = "Shoal spec"


def spec_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12, of a spec as a parsed TOML document."""
    schema = spec_class().model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": TITLE,
    }


def schema_text() -> str:
    """The schema as it is published in docs/spec.schema.json."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
