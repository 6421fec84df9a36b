"""How long `shoal --help` takes, as a multiple of `python -c pass` in the same run.

    python -m benchmarks.startup

Each command is started in turn, so that both see the same machine; the median is reported, and
what a heavy import would cost is measured beside it as a control.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
HELP = "from shoal.cli import main; main()"
COMMANDS: dict[str, list[str]] = {
    "python -c pass": ["-c", "pass"],
    "shoal --help": ["-c", HELP, "--help"],
    "shoal plan --help": ["-c", HELP, "plan", "--help"],
    "import shoal": ["-c", "import shoal"],
    "import typer": ["-c", "import typer"],
    "import numpy, pydantic": ["-c", "import numpy, pydantic"],
}


def seconds(arguments: list[str]) -> float:
    """Wall-clock time of one start."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def main() -> None:
    """A table: median seconds, and the multiple of an empty program."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    empty = statistics.median(times["python -c pass"])
    print(f"{'command':<24}{'median':>10}{'× empty':>10}")
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:<24}{1000 * median:>7.0f} ms{median / empty:>10.1f}")


if __name__ == "__main__":
    main()
