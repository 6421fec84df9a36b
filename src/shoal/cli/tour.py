"""The computations of `shoal demo`, one value per step; `demo` tells them as a story."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli.comparison import Comparison, compare
from shoal.core.plan import Plan
from shoal.core.release import Release
from shoal.core.task import Task
from shoal.data.generate import activity_table
from shoal.data.synthetic.activity import GAP
from shoal.data.table import from_table
from shoal.mechanisms import choose
from shoal.models.chain import MarkovChain
from shoal.models.fit import fit_chain
from shoal.queries.linear import histogram
from shoal.secrets.entries import EachEntry

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.records import Sequences

PEOPLE, DAYS, SEED = 21, 7, 1  # twenty volunteers show their week; the last person's day is secret
MINUTES = 1440
STATES = ("still", "stand", "move")
MERGED = {"lie": "still", "sit": "still", "walk": "move", "run": "move", "ride": "move"}
EPSILON = Fraction(1)

SPEC = """\
# The spec of `shoal demo`: how many minutes of a day one person was still, stood or moved.
# Try it:  shoal leak spec.toml    shoal plan spec.toml
#          shoal release spec.toml day.csv -o again.json

[data]
state = "state"
series = "series"
time = "time"
gap = "10min"

[[model]]
file = "model.json"              # written by `shoal fit` from the volunteers' weeks

[secrets]
kind = "each-entry"

[query]
kind = "histogram"
unit = "minutes"

[privacy]
epsilon = {epsilon}
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """Made-up people: a model from the volunteers, and one person's day to release."""

    day: pl.DataFrame
    records: Sequences
    model: MarkovChain
    task: Task


def setting() -> Setting:
    """The same people every time; nobody in particular."""
    import polars as pl

    table = activity_table(PEOPLE, DAYS, SEED).with_columns(pl.col("state").replace(MERGED))
    subject = pl.col("series") == f"person-{PEOPLE}"
    first_day = pl.col("time").dt.date() == pl.col("time").min().dt.date()
    day = table.filter(subject).filter(first_day)
    columns: dict[str, Any] = {"state": "state", "series": "series", "time": "time", "gap": GAP}
    volunteers = from_table(table.filter(~subject), **columns)
    model = fit_chain(volunteers.sequences(STATES), smoothing=1, length=MINUTES)
    task = Task(query=histogram(STATES, unit="minutes"), secrets=EachEntry(), family=(model,))
    return Setting(day, from_table(day, **columns).sequences(STATES), model, task)


def ordinary(scene: Setting) -> Plan:
    """The release people make today: Laplace noise for one entry."""
    return choose(scene.task, EPSILON, "laplace").plan


def compared(scene: Setting) -> Comparison:
    """Every mechanism on the day's task."""
    return compare(scene.task, EPSILON, "best")


def truth(scene: Setting) -> list[float]:
    """The true minutes, which only the demo may print."""
    query = scene.task.query
    return [float(query.lattice * value) for value in query.evaluate(scene.records)]


def write_files(
    folder: Path, scene: Setting, comparison: Comparison, release: Release
) -> dict[str, Path]:
    """Spec, model, data, plan and release in `folder`, each whole or not at all."""
    from shoal.data.files import atomic_write
    from shoal.data.write import write_releases, write_table
    from shoal.kinds import dumps

    name = str(scene.day["series"][0])
    return {
        "spec": atomic_write(folder / "spec.toml", SPEC.replace("{epsilon}", str(float(EPSILON)))),
        "model": atomic_write(folder / "model.json", dumps(scene.model) + "\n"),
        "data": write_table(folder / "day.csv", scene.day),
        "plan": atomic_write(folder / "plan.json", dumps(comparison.plan) + "\n"),
        "release": write_releases(folder / "release.json", {name: release}),
    }
