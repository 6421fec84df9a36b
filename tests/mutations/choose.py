"""Choose new mutants with a fixed seed: `python -m tests.mutations.choose > mutants.jsonl`.

Every line of the listed files that an operator changes is a candidate; the seed takes as many of
each group as asked for, at most one a function as long as there are functions left.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.mutations.mutants import Lost, Mutant, functions, locate

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "shoal"
SEED = 20240229

# group: how many, files below src/shoal, tests that should notice
GROUPS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "core-charge": (
        4,
        ("core/charge.py",),
        ("tests/unit/test_core_plan.py", "tests/unit/test_ledger_rules.py"),
    ),
    "core-codec": (5, ("core/codec.py",), ("tests/unit/test_core_codec.py",)),
    "core-numbers": (3, ("core/numbers.py",), ("tests/unit/test_core_numbers.py",)),
    "noise-primitives": (
        9,
        ("noise/primitives.py",),
        (
            "tests/unit/test_noise_primitives.py",
            "tests/unit/test_noise_bits.py",
            "tests/unit/test_noise_lattice.py",
        ),
    ),
    "noise-laplace": (
        7,
        ("noise/laplace.py",),
        ("tests/unit/test_noise_laplace.py", "tests/unit/test_noise_digits.py"),
    ),
    "additive-plans": (
        5,
        ("mechanisms/plans.py",),
        ("tests/oracle/test_margins.py", "tests/oracle/test_additive_mechanisms.py"),
    ),
    "additive-mixture": (
        6,
        ("mechanisms/mixture.py",),
        ("tests/oracle/test_margins.py", "tests/oracle/test_exact_loss.py"),
    ),
    "chains-quilt": (
        6,
        ("chains/quilt/*.py",),
        ("tests/oracle/test_quilt.py", "tests/oracle/test_margins.py"),
    ),
    "chains-exact": (
        7,
        ("chains/exact/whole.py", "chains/exact/blocks.py", "chains/exact/sums.py"),
        ("tests/oracle/test_whole_loss.py", "tests/oracle/test_exact_loss.py"),
    ),
    "chains-lift": (5, ("chains/lift/side.py",), ("tests/oracle/test_lift.py",)),
    "networks": (
        7,
        ("networks/lift.py", "networks/influence.py", "networks/quilts.py"),
        (
            "tests/networks/test_mechanisms.py",
            "tests/networks/test_lift.py",
            "tests/networks/test_walks.py",
            "tests/networks/test_influence_matrix.py",
        ),
    ),
    "records": (
        6,
        ("records/coefficients.py", "records/field.py"),
        ("tests/records/test_field.py", "tests/records/test_mechanisms.py"),
    ),
    "places": (
        7,
        ("places/machine.py", "places/step.py", "places/policy.py"),
        (
            "tests/unit/test_location_step.py",
            "tests/oracle/test_location_oracle.py",
            "tests/unit/test_location_filter.py",
        ),
    ),
    "contexts": (
        7,
        ("contexts/machine.py", "contexts/stream.py"),
        ("tests/contexts/test_stream.py", "tests/contexts/test_every_output.py"),
    ),
    "ledger-rules": (
        6,
        ("ledger/rules.py", "ledger/totals.py"),
        ("tests/unit/test_ledger_rules.py", "tests/oracle/test_ledger_promises.py"),
    ),
    "ledger-store": (
        6,
        ("ledger/accounts.py", "ledger/charging.py", "ledger/entries.py"),
        ("tests/unit/test_ledger_store.py", "tests/unit/test_ledger_unreadable.py"),
    ),
    "ledger-verify": (
        5,
        ("ledger/verify.py", "ledger/schema.py"),
        ("tests/unit/test_ledger_verify.py",),
    ),
    "gateway": (
        4,
        ("gateway/vault.py", "gateway/machines.py"),
        ("tests/gateway/test_gateway_vault.py", "tests/unit/test_stored_samples.py"),
    ),
}

# a pattern in a line, and what replaces its first match
OPERATORS: tuple[tuple[str, str], ...] = (
    (r" <= ", " < "),
    (r" < ", " <= "),
    (r" >= ", " > "),
    (r" > ", " >= "),
    (r" == ", " != "),
    (r" \+ 1\b", ""),
    (r" - 1\b", ""),
    (r"\bmax\(", "min("),
    (r"\bmin\(", "max("),
    (r"\.max\(", ".min("),
    (r"\.min\(", ".max("),
    (r"math\.inf\)", "-math.inf)"),
    (r"math\.ceil\(", "math.floor("),
    (r"math\.floor\(", "math.ceil("),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" and ", " or "),
    (r" or ", " and "),
    (r"^if (.*):$", r"if False and (\1):"),
    (r"\bif not ", "if "),
)
NO_PROMISE = re.compile(
    r'"""|describe|f"|isinstance|^#|^from|^import|^def |^assert|^raise|lru_cache|__len__'
    r'|time_over|^(return )?f?["\']'
)


def main() -> None:
    """Print the chosen mutants as JSON lines."""
    chosen = random.Random(SEED)
    for group, (count, patterns, tests) in GROUPS.items():
        files = [path for pattern in patterns for path in sorted(PACKAGE.glob(pattern))]
        found = [one for path in files for one in candidates(path, group, tests)]
        for number, mutant in enumerate(pick(found, count, chosen), 1):
            named = {**asdict(mutant), "name": f"{group}-{number}"}
            sys.stdout.write(json.dumps(named) + "\n")


def pick(found: list[Mutant], count: int, chosen: random.Random) -> list[Mutant]:
    """Return `count` mutants, of as many functions as there are."""
    chosen.shuffle(found)
    seen: dict[str, int] = {}
    order: list[tuple[int, int, Mutant]] = []
    for mutant in found:
        seen[mutant.inside] = seen.get(mutant.inside, 0) + 1
        order.append((seen[mutant.inside], len(order), mutant))
    return [mutant for _, _, mutant in sorted(order, key=lambda one: one[:2])[:count]]


def candidates(path: Path, group: str, tests: tuple[str, ...]) -> Iterator[Mutant]:
    """Yield every mutant of a file that is found again by its line."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for inside, node in functions(ast.parse(text)):
        first = node.body[1].lineno if ast.get_docstring(node) and node.body[1:] else node.lineno
        for index in range(first - 1, node.end_lineno or 0):
            line = lines[index].strip()
            if not line or NO_PROMISE.search(line):
                continue
            for fault in faults(line):
                mutant = Mutant(group, str(path.relative_to(PACKAGE)), inside, line, fault, tests)
                if found_again(mutant, text, index):
                    yield mutant


def faults(line: str) -> Iterator[str]:
    """Yield what each operator makes of a line."""
    for pattern, replacement in OPERATORS:
        changed = re.sub(pattern, replacement, line, count=1)
        if changed != line:
            yield changed


def found_again(mutant: Mutant, text: str, index: int) -> bool:
    """Return whether a mutant has one place, and its fault is Python."""
    try:
        locate(mutant, PACKAGE)
        lines = text.splitlines()
        lines[index] = lines[index].replace(mutant.line, mutant.fault)
        ast.parse("\n".join(lines))
    except (Lost, SyntaxError):
        return False
    return True


if __name__ == "__main__":
    main()
