"""Prints what is installed beside Shoal as a CycloneDX 1.5 document: a bill of materials."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import distribution, distributions


def main() -> None:
    own = distribution("shoal")
    parts = {found.metadata["Name"].lower(): found for found in distributions()}
    parts.pop("shoal", None)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component("shoal", own.version, "Apache-2.0", "application")},
        "components": [
            component(name, found.version, licence_of(found))
            for name, found in sorted(parts.items())
        ],
    }
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def component(name: str, version: str, licence: str, kind: str = "library") -> dict[str, object]:
    """One line of the bill; the package URL follows PEP 503's spelling of names."""
    spelt = re.sub(r"[-_.]+", "-", name).lower()
    told = [{"license": {"name": licence}}] if licence else []
    return {
        "type": kind,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{spelt}@{version}",
        "licenses": told,
    }


def licence_of(found: object) -> str:
    """What a distribution says its licence is, in one line; empty when it says nothing."""
    metadata = getattr(found, "metadata")  # noqa: B009 - a Message, whatever its type is called
    said = metadata.get("License-Expression") or metadata.get("License") or ""
    return str(said).strip().splitlines()[0][:80] if said else ""


if __name__ == "__main__":
    main()
