"""What a user does with a family from another distribution; run as a program of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import shoal
from shoal.testing import check_family


def main() -> None:
    """Spec, plan, store, release, charge, audit, refusals: the last line holds what was found."""
    from typer.testing import CliRunner

    from shoal.cli import app
    from shoal.spec.request import spec_schema

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == code, (arguments, done.output, done.exception)
        return done.stdout + done.stderr

    run("init", "--kind", "coins", "coins.toml")
    plan = json.loads(run("plan", "coins.toml", "--json", "--save", "plan.json"))
    Path("throws.csv").write_text("side\nheads\ntails\nheads\n")
    charged = ("--ledger", "budget.db", "--subject", "me", "--key", "one")
    released = run(
        "release", "plan.json", "throws.csv", "-o", "r.json", "--state", "side", *charged
    )
    audited = json.loads(run("audit", "plan.json", "--json"))
    spent = json.loads(run("ledger", "show", "budget.db", "--json"))["accounts"]
    loaded = shoal.loads(Path("plan.json").read_text())
    check_family("coins", {"coin-noise": [loaded.task]})
    spec = Path("coins.toml").read_text()
    Path("bad.toml").write_text(spec.replace("0.25", "1.0"))
    Path("chain.toml").write_text(spec.replace('"coins"', '"coin"'))
    found = {
        "mechanism": plan["mechanism"],
        "scale": plan["scale"],
        "fits": loaded.task.family[0].describe(),
        "released": "coin-noise" in released,
        "loss": audited["upper"] if "upper" in audited else audited["loss"],
        "eta": spent[0]["eta"],
        "refused": run("plan", "bad.toml", code=2),
        "unknown": run("plan", "chain.toml", code=2),
        "schema": "CoinsModel" in spec_schema()["$defs"],
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
