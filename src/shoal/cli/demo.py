"""`shoal demo`: leak, plan, release and audit of one made-up person's day."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.options import AsJson, new_app

if TYPE_CHECKING:
    from shoal.audit.result import Audit
    from shoal.cli.comparison import Comparison
    from shoal.cli.tour import Setting
    from shoal.core.release import Release

app = new_app()

AUDITED = ("Claim", "Measured", "Verdict", "Not checked")  # lines of an audit that the tour shows

EXAMPLES = """\b
Examples:
  shoal demo
  shoal demo --out /tmp/tour --json
"""


@app.command(epilog=EXAMPLES)
def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for the tour's files.")
    ] = Path("shoal-demo"),
    as_json: AsJson = False,
) -> None:
    """Take the tour: leak, plan, release and audit in a minute.

    Works on made-up data. The folder then holds the spec, the model, the data, the plan, the
    release and a chart, ready for the other commands; a second run replaces these files.
    """
    _prepare(out)
    with show.working("making up people"):
        from shoal.cli import tour

        scene = tour.setting()
    _tell(as_json, scene_story, scene)
    with show.working("measuring the leak"):
        from shoal.audit.exact import audit
        from shoal.cli.leak import measured

        leak = measured(scene.model, tour.EPSILON)
        broken = audit(tour.ordinary(scene))
    _tell(as_json, leak_story, scene, leak, broken)
    with show.working("calibrating"):
        comparison = tour.compared(scene)
    _tell(as_json, plan_story, comparison)
    release = comparison.plan.release(scene.records)
    _tell(as_json, release_story, scene, release)
    with show.working("auditing"):
        audited = audit(comparison.plan)
    _tell(as_json, audit_story, audited)
    files = tour.write_files(out, scene, comparison, release)
    chart = _chart(out, scene, comparison, release, leak)
    if as_json:
        show.print_json(_object(leak, comparison, release, audited, {**files, "chart": chart}))
    else:
        _files_story(files, chart)


def scene_story(scene: Setting) -> None:
    """Who is in it, and what is wanted."""
    from shoal.cli import tour

    out = show.console()
    out.rule("1. One person's day", align="left")
    out.print(
        f"Twenty (made-up) volunteers showed a week of their lives, minute by minute: still, "
        f"standing or moving. Everybody can learn from it how one minute follows another. One "
        f"more person wore the sensor for a day, {scene.records.total:,} minutes, and wants to "
        f"publish how many minutes went to each, and to give no single minute away. Budget: "
        f"epsilon = {float(tour.EPSILON):g}, so that nobody's odds about a minute change by more "
        f"than {show.odds(float(tour.EPSILON))}."
    )


def leak_story(scene: Setting, leak: dict[str, Any], broken: Audit) -> None:
    """What ordinary differential privacy does here, with an output that shows it."""
    from shoal.cli import tour
    from shoal.cli.leak import print_leak

    out = show.console()
    out.print()
    out.rule("2. What an ordinary private release leaks", align="left")
    print_leak(scene.task, tour.EPSILON, [leak])
    if broken.witness is not None:
        out.print()
        out.print(f"For example: {broken.witness.describe()}.")


def plan_story(comparison: Comparison) -> None:
    """The plan that keeps the promise against somebody who knows the model."""
    from shoal.cli.plan import print_noise

    out = show.console()
    out.print()
    out.rule("3. The plan that keeps the promise", align="left")
    print_noise(comparison)
    out.print()
    out.print(f"Chosen: {comparison.plan.mechanism}, by {comparison.plan.certificate.theorem}.")


def release_story(scene: Setting, release: Release) -> None:
    """The noisy histogram beside the true one."""
    from shoal.cli import tour
    from shoal.core.numbers import significant
    from shoal.queries.after import consistent

    out = show.console()
    out.print()
    out.rule("4. The release", align="left")
    true = tour.truth(scene)
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
    """The promise, measured."""
    out = show.console()
    out.print()
    out.rule("5. The audit", align="left")
    lines = audited.describe().splitlines()
    out.print(show.paragraphs("\n".join(line for line in lines if line.startswith(AUDITED))))


def _prepare(folder: Path) -> None:
    from shoal.core.errors import DataError
    from shoal.data.files import check_writable

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise DataError(
            f"--out is {str(folder)!r}, which cannot be made a folder: {reason}; name another"
        ) from None
    check_writable(folder / "spec.toml")


def _tell(quiet: bool, story: Any, *parts: Any) -> None:
    if not quiet:
        story(*parts)


def _chart(
    folder: Path, scene: Setting, comparison: Comparison, release: Release, leak: dict[str, Any]
) -> Path | None:
    from shoal.cli import charts, tour
    from shoal.data.files import atomic_write

    if not charts.available():
        return None
    picture = charts.tour_chart(
        comparison, leak["loss"], release, tour.truth(scene), eta=float(tour.EPSILON)
    )
    return atomic_write(folder / "demo.png", picture)


def _files_story(files: dict[str, Path], chart: Path | None) -> None:
    out = show.console()
    out.print()
    out.rule("What is left behind", align="left")
    if chart is None:
        typer.echo("The chart was left out: it needs `pip install 'shoal[plot]'`")
    else:
        typer.echo(f"The chart is in {chart}")
    for what, path in files.items():
        typer.echo(f"The {what} is in {path}")
    typer.echo(f"Go on with:\n  shoal plan {files['spec']}\n  shoal audit {files['plan']}")
    typer.echo(f"  shoal attack {files['spec']} {files['data']}")


def _object(
    leak: dict[str, Any],
    comparison: Comparison,
    release: Release,
    audited: Audit,
    files: dict[str, Path | None],
) -> dict[str, Any]:
    from shoal.cli.comparison import as_json
    from shoal.data.write import release_object

    return {
        "leak": {"epsilon": show.finite(leak["loss"]), "in_words": leak["sentence"]},
        "plan": as_json(comparison),
        "release": release_object(release),
        "audit": {
            "loss": show.finite(audited.loss),
            "promised": audited.promised,
            "holds": audited.holds,
            "in_words": audited.describe(),
        },
        "files": {name: None if path is None else str(path) for name, path in files.items()},
    }
