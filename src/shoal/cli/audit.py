"""`shoal audit`: what a plan, a noise scale or somebody's function really leaks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli import show
from shoal.cli.show import (
    AsJson,
    Force,
    SecretsOf,
    TimeLimit,
    check_output,
    limited,
    new_app,
    running,
)

if TYPE_CHECKING:
    from shoal.audit.result import Audit
    from shoal.audit.statistical import Estimate
    from shoal.core.plan import Plan
    from shoal.spec.request import Request

app = new_app()

VIOLATED = 1

ONE_PROCESS = (
    "the function is called in one process: it takes no rng, and copies of it might draw the same "
    "noise again; give it a parameter rng to use several"
)

EXAMPLES = """\b
Examples:
  shoal audit shoal.toml --html audit.html
  shoal audit shoal.toml --scale 2
  shoal audit shoal.toml --black-box mymodule:release --draws 50000
  shoal audit shoal.toml --secrets clinic.toml

\b
Exit code 1 says that a claim is violated: some output tells more than was promised.
"""


@app.command(epilog=EXAMPLES)
def audit(
    source: Annotated[
        Path, typer.Argument(metavar="SPEC", help="A spec, or a plan from `shoal plan --save`.")
    ],
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="Audit Laplace noise of this scale instead of the spec's plan."
        ),
    ] = None,
    black_box: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Audit a function from a list of states to a number or several, by sampling.",
        ),
    ] = None,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Audit the plan by sampling, as a black box.")
    ] = False,
    draws: Annotated[int, typer.Option(help="How many releases to sample.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="Of the sampled bound.")] = 0.99,
    seed: Annotated[int, typer.Option(help="Of the sampled data, for reproducible audits.")] = 0,
    length: Annotated[
        list[int] | None,
        typer.Option(
            help="Length of the sampled data; may be repeated. By default 1, 2, 3, 5, 8, 12, and "
            "then twice as long each time up to the model's length, with fewer draws of long data."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that call the black box.")] = 1,
    secrets: SecretsOf = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the audit as one HTML page.")
    ] = None,
    as_json: AsJson = False,
    time_limit: TimeLimit = None,
    force: Force = False,
) -> None:
    """Measure what a release really leaks.

    Computes the largest change of the odds between two secrets over every model of the spec, every
    entry and every output: exactly where that is possible, else between two bounds. A function
    given with --black-box is sampled instead, which can prove a violation but not its absence: data
    of one entry up to the model's whole length is drawn, and lengths the function fails for are
    left out and named.
    """
    _one_kind(scale, black_box, sampled=sampled)
    if html is not None:
        check_output(html, force=force)
    with limited(time_limit) as watch:
        if black_box is None and not sampled:
            found: Audit | Estimate = _computed(source, scale, secrets, curve=html is not None)
        else:
            asked = Sampled(draws, confidence, seed, length, workers, secrets)
            found = _sampled(source, black_box, asked)
    _report(found, html, title=f"Audit of {source.name}", as_json=as_json)
    if found.violated:
        raise typer.Exit(VIOLATED)
    show.say_cut(watch, "the bounds are those that were known by then")


def _one_kind(scale: str | None, black_box: str | None, *, sampled: bool) -> None:
    """Refuse options of which one would be ignored."""
    from shoal.core.errors import InputError

    given = {"--scale": scale is not None, "--black-box": black_box is not None}
    given["--sampled"] = sampled
    names = [name for name, there in given.items() if there]
    if len(names) > 1:
        raise InputError(f"{' and '.join(names)} say what to audit in different ways; give one")


def _computed(source: Path, scale: str | None, secrets: Path | None, *, curve: bool) -> Audit:
    from shoal.audit.exact import audit as measure, audit_noise
    from shoal.cli.sources import secrets_of

    asked = None if secrets is None else secrets_of(secrets)
    with show.working("auditing"):
        if scale is None:
            return measure(_plan(source), curve=curve, secrets=asked)
        request = _request(source)
        return audit_noise(
            request.task.query,
            request.task.secrets if asked is None else asked,
            request.task.family,
            scale=scale,
            claimed=request.epsilon() if asked is None else None,
            curve=curve,
        )


class Sampled(NamedTuple):
    """How a black box is sampled, and which spec names the secrets it is asked about."""

    draws: int
    confidence: float
    seed: int
    lengths: list[int] | None
    workers: int
    secrets: Path | None


def _sampled(source: Path, black_box: str | None, asked: Sampled) -> Estimate:
    from shoal.audit.black_box import as_box, parallel
    from shoal.audit.statistical import audit_black_box
    from shoal.cli.sources import secrets_of

    options: dict[str, Any] = {}
    if black_box is None:
        release: Any = _plan(source)
        task = release.task
    else:
        release = load_function(black_box)
        request = _request(source)
        task = request.task
        options = {
            "states": task.query.states,
            "labels": task.query.labels,
            "unit": task.query.unit,
        }
        if asked.secrets is None and not hasattr(release, "claimed"):
            options["claimed"] = request.epsilon()
        if asked.workers > 1 and not parallel(as_box(release, task.query.states)):
            typer.echo(f"Note: {ONE_PROCESS}", err=True)
    with _bar("releasing", asked.draws) as progress:
        return audit_black_box(
            release,
            task.secrets if asked.secrets is None else secrets_of(asked.secrets),
            task.family,
            draws=asked.draws,
            confidence=asked.confidence,
            seed=asked.seed,
            lengths=asked.lengths,
            workers=asked.workers,
            progress=progress,
            **options,
        )


def load_function(name: str) -> Any:
    """The object behind `module:function`, found in the working folder too."""
    from importlib import import_module

    from shoal.core.errors import InputError

    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f"--black-box is {name!r}; it must be module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        loaded = import_module(module)
    except (Exception, SystemExit) as error:  # a crash must not look like exit code 1
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"--black-box names module {module!r}, which fails to load with {why}"
        ) from error
    try:
        found = attrgetter(attribute)(loaded)
    except AttributeError:
        raise InputError(
            f"--black-box names {attribute!r}, which is not in module {module!r}"
        ) from None
    if not callable(found):
        raise InputError(f"--black-box names {name!r}, which cannot be called")
    return found


def _plan(source: Path) -> Plan:
    """A stored plan as it is, even one whose own re-check fails, or the plan of a spec."""
    from shoal.core.errors import StoredError
    from shoal.core.plan import Plan
    from shoal.spec.fields import parse_stored, read_text

    text = read_text(source, "spec or plan")
    if not text.lstrip().startswith("{"):
        from shoal.additive.choice import choose

        request = _request(source)
        with request.limited():
            return choose(request.task, request.epsilon(), request.mechanism, prune=True).plan
    stored: Any = parse_stored(text, source, "plan")
    if not isinstance(stored, Plan):
        raise StoredError(f"{str(source)!r} holds a {type(stored).__name__}, not a plan")
    return stored


def _request(source: Path) -> Request:
    from shoal.core.errors import InputError
    from shoal.spec.request import read_request

    if source.suffix == ".json":
        raise InputError(f"{str(source)!r} is a plan; --scale and --black-box need a spec")
    return read_request(source)


def _report(found: Audit | Estimate, html: Path | None, *, title: str, as_json: bool) -> None:
    if as_json:
        show.print_json(found.as_json())
    else:
        show.console().print(show.paragraphs(found.describe()))
    if html is not None:
        from shoal.data.write import atomic_write
        from shoal.studio.props import as_html

        atomic_write(html, as_html(found, title=title))
        if not as_json:
            typer.echo(f"\nThe page is in {html}")


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, fed with how much is done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = show.console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
    with bar as progress, running():
        task = progress.add_task(title, total=total)
        yield lambda done, _: progress.update(task, completed=done)
