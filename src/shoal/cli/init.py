"""`shoal init`: a commented spec that runs as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli import show
from shoal.cli.options import AsJson, Force, new_app
from shoal.cli.outputs import check_output

app = new_app()

EXAMPLES = """\b
Examples:
  shoal init
  shoal init office.toml
  shoal plan shoal.toml
"""

TEMPLATE = """\
# A Shoal spec: what is asked, what must stay hidden, and what an adversary may know.
# It runs as it is:  shoal plan {name}    shoal leak {name}
# Every key is explained in docs/spec.md; unknown keys are refused.

[data]                       # where the entries are; only `shoal release` reads this section
state = "activity"           # column with the state of each entry
series = "person"            # column that tells people apart; drop it for a single series
time = "minute"              # column by which a series is ordered; drop it for file order
# gap = "10min"              # a longer pause starts a new chain, independent of the others
release = "each"             # "each": one release per series; "together": one for all

[[model]]                    # what an adversary may know; repeat the section for a family
kind = "markov-chain"        # or "order-chain", "mixing", "interval", "table"
states = ["sit", "stand", "walk"]
transition = [               # row x: the law of the next entry after state x; rows sum to 1
  [0.8, 0.1, 0.1],
  [0.3, 0.5, 0.2],
  [0.2, 0.3, 0.5],
]
initial = "stationary"       # or "any" (every law of the first entry), or a list
length = 1440                # most entries of one chain: here a day of minutes
# file = "model.json"        # instead of all lines above: a model written by `shoal fit`

[secrets]
kind = "each-entry"          # hide what each single minute was; or "pairs" of events of a table

[query]
kind = "histogram"           # or "count" (states), "sum" and "mean" (weights)
relative = true              # shares of the day; the public length is the model's
# length = 1440              # or given here

[privacy]                    # exactly one amount: epsilon, or error (with confidence)
epsilon = 1.0
# error = 0.05               # the epsilon that keeps each value within 0.05 …
# confidence = 0.95          # … with this probability
mechanism = "best"           # the least noise that is proved; or a row `shoal plan` lists
"""


@app.command(epilog=EXAMPLES)
def init(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="The file to write.")] = Path(
        "shoal.toml"
    ),
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Write a commented spec that runs as it is.

    The spec describes a day of minutes in three activities; change it to your own data.
    """
    from shoal.data.files import atomic_write

    check_output(path, force=force)
    atomic_write(path, TEMPLATE.replace("{name}", path.name))
    if as_json:
        show.print_json({"path": str(path)})
        return
    typer.echo(f"The spec is in {path}. Try:\n  shoal leak {path}\n  shoal plan {path}")
