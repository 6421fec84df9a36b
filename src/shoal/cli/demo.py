"""`shoal demo`: the tour, told as a story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.chains.fit import fit_chain
from shoal.chains.model import MarkovChain
from shoal.cli import options, show
from shoal.cli.plan import RowComparison, compare
from shoal.core.numbers import finite, significant
from shoal.core.plan import Plan, Release
from shoal.core.task import EachEntry, Task
from shoal.data.generate import activity_table
from shoal.data.synthetic.series import GAP
from shoal.data.table import from_table
from shoal.mechanisms.choice import choose
from shoal.mechanisms.queries import histogram

if TYPE_CHECKING:
    import polars as pl

    from shoal.audit.result import Audit
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
class DemoDay:
    """Synthetic people: a model fitted to the volunteers, and one person's day to release."""

    day: pl.DataFrame
    records: Sequences
    model: MarkovChain
    task: Task


def setting() -> DemoDay:
    """Return the synthetic people of the demo, the same ones at each call."""
    import polars as pl

    table = activity_table(PEOPLE, DAYS, SEED).with_columns(pl.col("state").replace(MERGED))
    subject = pl.col("series") == f"person-{PEOPLE}"
    first_day = pl.col("time").dt.date() == pl.col("time").min().dt.date()
    day = table.filter(subject).filter(first_day)
    columns: dict[str, Any] = {"state": "state", "series": "series", "time": "time", "gap": GAP}
    volunteers = from_table(table.filter(~subject), **columns)
    model = fit_chain(volunteers.sequences(STATES), smoothing=1, length=MINUTES)
    task = Task(query=histogram(STATES, unit="minutes"), secrets=EachEntry(), family=(model,))
    return DemoDay(day, from_table(day, **columns).sequences(STATES), model, task)


def ordinary(scene: DemoDay) -> Plan:
    """Return the ordinary release, with Laplace noise for one entry."""
    return choose(scene.task, EPSILON, "laplace").plan


def truth(scene: DemoDay) -> list[float]:
    """Return the true minutes in each state; only the demo may print them."""
    query = scene.task.query
    return [float(query.lattice * value) for value in query.evaluate(scene.records)]


def write_files(
    folder: Path, scene: DemoDay, comparison: RowComparison, release: Release
) -> dict[str, Path]:
    """Write spec, model, data, plan and release into `folder`, each file atomically."""
    from shoal.core.registry import dumps
    from shoal.data.write import atomic_write, write_releases, write_table

    name = str(scene.day["series"][0])
    return {
        "spec": atomic_write(folder / "spec.toml", SPEC.replace("{epsilon}", str(float(EPSILON)))),
        "model": atomic_write(folder / "model.json", dumps(scene.model) + "\n"),
        "data": write_table(folder / "day.csv", scene.day),
        "plan": atomic_write(folder / "plan.json", dumps(comparison.plan) + "\n"),
        "release": write_releases(folder / "release.json", {name: release}),
    }


app = options.new_app()

AUDITED = ("Claim", "Measured", "Verdict", "Not checked")  # lines of an audit that the tour shows

EXAMPLES = """\b
Examples:
  shoal demo
  shoal demo --out tour --json
"""


@app.command(epilog=EXAMPLES)
def demo(
    out: Annotated[Path, options.option("DIR", "The folder for the tour's files.")] = Path(
        "shoal-demo"
    ),
    as_json: options.AsJson = False,
) -> None:
    """Take the tour: leak, plan, release and audit in a minute.

    Works on made-up data. The folder then holds the spec, the model, the data, the plan, the
    release and a chart, ready for the other commands; a second run replaces these files.
    """
    from shoal.audit.exact import audit
    from shoal.cli.leak import measure_loss
    from shoal.data.write import check_writable

    def tell(title: str, story: Callable[..., None], *parts: Any) -> None:
        if not as_json:
            if title[0] != "1":
                show.console().print()
            show.console().rule(title, align="left")
            story(*parts)

    show.make_folder(out)
    check_writable(out / "spec.toml")
    with show.working("making up people"):
        scene = setting()
    tell("1. One person's day", scene_story, scene)
    with show.working("measuring the leak"):
        leak = measure_loss(scene.model, EPSILON)
        broken = audit(ordinary(scene))
    tell("2. What an ordinary private release leaks", leak_story, scene, leak, broken)
    with show.working("calibrating"):
        comparison = compare(scene.task, EPSILON, "best", every_row=True)
    tell("3. The plan that keeps the promise", plan_story, comparison)
    release = comparison.plan.release(scene.records)
    tell("4. The release", release_story, scene, release)
    with show.working("auditing"):
        audited = audit(comparison.plan)
    tell("5. The audit", audit_story, audited)
    files = write_files(out, scene, comparison, release)
    chart = _chart(out, scene, comparison, release, leak)
    if as_json:
        show.print_json(_demo_object(leak, comparison, release, audited, {**files, "chart": chart}))
    tell("What is left behind", _files_story, files, chart)


def scene_story(scene: DemoDay) -> None:
    """Print who the people are and what is to be released."""
    show.console().print(
        f"Twenty (made-up) volunteers showed a week of their lives, minute by minute: still, "
        f"standing or moving. Everybody can learn from it how one minute follows another. One "
        f"more person wore the sensor for a day, {scene.records.total:,} minutes, and wants to "
        f"publish how many minutes went to each, and to give no single minute away. Budget: "
        f"epsilon = {float(EPSILON):g}, so that nobody's odds about a minute change by more "
        f"than {show.odds(float(EPSILON))}."
    )


def leak_story(scene: DemoDay, leak: dict[str, Any], broken: Audit) -> None:
    """Print what ordinary differential privacy leaks here, with an output that shows it."""
    from shoal.cli.leak import print_leak

    out = show.console()
    print_leak(scene.task, EPSILON, [leak])
    if broken.witness is not None:
        out.print()
        out.print(f"For example: {broken.witness.describe()}.")


def plan_story(comparison: RowComparison) -> None:
    """Print the plan that keeps epsilon against an adversary who knows the model."""
    from shoal.cli.plan import print_noise

    out = show.console()
    print_noise(comparison)
    out.print()
    out.print(f"Chosen: {comparison.plan.mechanism}, by {comparison.plan.certificate.theorem}.")


def release_story(scene: DemoDay, release: Release) -> None:
    """Print the noisy histogram beside the true one."""
    from shoal.mechanisms.queries import consistent

    out = show.console()
    true = truth(scene)
    tidy = consistent(release, scene.records.total)
    largest = max([*true, *tidy.values])
    plain = out.options.ascii_only
    rows = [
        (
            name,
            significant(actual),
            show.bar(actual, largest, ascii_only=plain, width=show.HALF),
            significant(noisy),
            significant(kept),
            show.bar(kept, largest, ascii_only=plain, width=show.HALF),
        )
        for name, actual, noisy, kept in zip(
            release.answer.labels, true, release.values, tidy.values, strict=True
        )
    ]
    titles = ("minutes", "true", "", "released", "tidied", "")
    out.print(show.table(titles, rows, numbers=(1, 3, 4)))
    assert release.error is not None  # additive noise always states its error
    out.print(f"Each released value is {release.error.describe()}.")
    out.print(
        "Tidied: whole, not negative and adding up to the public total, which costs no privacy."
    )


def audit_story(audited: Audit) -> None:
    """Print the audited loss of the plan."""
    lines = [line for line in audited.describe().splitlines() if line.startswith(AUDITED)]
    show.console().print(show.paragraphs("\n".join(lines)))


def _chart(
    folder: Path, scene: DemoDay, comparison: RowComparison, release: Release, leak: dict[str, Any]
) -> Path | None:
    """Write the chart of the demo into the folder; None when matplotlib is missing."""
    from shoal.cli import charts
    from shoal.data.write import atomic_write

    if not charts.available():
        return None
    picture = charts.tour_chart(comparison, leak["loss"], release, truth(scene), eta=float(EPSILON))
    return atomic_write(folder / "demo.png", picture)


def _files_story(files: dict[str, Path], chart: Path | None) -> None:
    """Print where the files of the demo are, and the commands that use them."""
    if chart is None:
        typer.echo("The chart was left out: it needs `pip install 'shoal[plot]'`")
    else:
        typer.echo(f"The chart is in {chart}")
    for what, path in files.items():
        typer.echo(f"The {what} is in {path}")
    typer.echo(f"Go on with:\n  shoal plan {files['spec']}\n  shoal audit {files['plan']}")
    typer.echo(f"  shoal attack {files['spec']} {files['data']}")
    typer.echo(f"Or look at it in a browser:\n  make studio, or: shoal studio {files['data']}")


def _demo_object(
    leak: dict[str, Any],
    comparison: RowComparison,
    release: Release,
    audited: Audit,
    files: dict[str, Path | None],
) -> dict[str, Any]:
    """Return the JSON object of the demo: leak, plan, release, audit and the paths of its files."""
    from shoal.cli.plan import comparison_json
    from shoal.data.write import release_object

    return {
        "leak": {"epsilon": finite(leak["loss"]), "in_words": leak["sentence"]},
        "plan": comparison_json(comparison),
        "release": release_object(release),
        "audit": {
            "loss": finite(audited.loss),
            "promised": audited.promised,
            "holds": audited.holds,
            "in_words": audited.describe(),
        },
        "files": {name: None if path is None else str(path) for name, path in files.items()},
    }
