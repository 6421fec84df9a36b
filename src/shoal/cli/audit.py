"""`shoal audit`: what a plan, a noise scale or a user's function really leaks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options, show
from shoal.cli.options import flag, option
from shoal.core.errors import InputError, StoredError

if TYPE_CHECKING:
    from shoal.audit.result import Audit
    from shoal.audit.statistical import Estimate
    from shoal.core.plan import Plan
    from shoal.spec.request import Request

app = options.new_app()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options of `shoal audit`: what is audited, how a black box is sampled, the output."""

    source: options.PlanSource
    scale: Annotated[
        str | None,
        option("NUMBER", "Audit Laplace noise of this scale instead of the spec's plan."),
    ] = None
    black_box: Annotated[
        str | None,
        option(
            "MODULE:FUNCTION",
            "Audit a function from a list of states to a number or several, by sampling.",
        ),
    ] = None
    sampled: Annotated[bool, flag("--sampled", "Audit the plan by sampling, as a black box.")] = (
        False
    )
    draws: Annotated[int, option(None, "How many releases to sample.")] = 100_000
    confidence: Annotated[float, option(None, "Of the sampled bound.")] = 0.99
    seed: Annotated[int, option(None, "Of the sampled data, for reproducible audits.")] = 0
    length: Annotated[
        list[int] | None,
        option(
            None,
            "Length of the sampled data; may be repeated. By default 1, 2, 3, 5, 8, 12, and "
            "then twice as long each time up to the model's length, with fewer draws of long data.",
        ),
    ] = None
    workers: Annotated[int, option(None, "Processes that call the black box.")] = 1
    secrets: options.SecretsOf = None
    html: Annotated[Path | None, option("FILE", "Also write the audit as one HTML page.")] = None
    as_json: options.AsJson = False
    time_limit: options.TimeLimit = None
    force: options.Force = False

    def asked(self) -> Any:
        """Return the secrets of the spec named by --secrets, else None."""
        from shoal.cli.sources import secrets_of

        return None if self.secrets is None else secrets_of(self.secrets)


@app.command(epilog=EXAMPLES)
@options.takes(AuditOptions)
def audit(options: AuditOptions) -> None:
    """Measure what a release really leaks.

    Computes the largest change of the odds between two secrets over every model of the spec, every
    entry and every output: exactly where that is possible, else between two bounds. A function
    given with --black-box is sampled instead, which can prove a violation but not its absence: data
    of one entry up to the model's whole length is drawn, and lengths the function fails for are
    left out and named.
    """
    ways = {
        "--scale": options.scale,
        "--black-box": options.black_box,
        "--sampled": options.sampled or None,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} say what to audit in different ways; give one")
    if options.html is not None:
        show.check_output(options.html, force=options.force)
    with show.limit_time(options.time_limit) as watch:
        sampling = options.black_box is not None or options.sampled
        found: Audit | Estimate = (_audit_by_sampling if sampling else _audit_exactly)(options)
    _print_audit(
        found, options.html, title=f"Audit of {options.source.name}", as_json=options.as_json
    )
    if found.violated:
        raise typer.Exit(VIOLATED)
    show.say_cut(watch, "the bounds are those that were known by then")


def _audit_exactly(options: AuditOptions) -> Audit:
    """Audit a plan, or the noise scale of the options, by computing its exact loss."""
    from shoal.audit.exact import audit as measure, audit_noise

    asked, curve = options.asked(), options.html is not None
    with show.working("auditing"):
        if options.scale is None:
            return measure(_plan(options.source), curve=curve, secrets=asked)
        request = _request(options.source)
        return audit_noise(
            request.task.query,
            request.task.secrets if asked is None else asked,
            request.task.family,
            scale=options.scale,
            claimed=request.epsilon() if asked is None else None,
            curve=curve,
        )


def _audit_by_sampling(options: AuditOptions) -> Estimate:
    """Audit a plan or a user's function by sampling, and return the estimate with its bounds.

    Only a violation can be proved this way. Notes when the function cannot run in parallel.
    """
    from shoal.audit.black_box import as_box, parallel
    from shoal.audit.statistical import audit_black_box

    more: dict[str, Any] = {}
    if options.black_box is None:
        release: Any = _plan(options.source)
        task = release.task
    else:
        release, request = load_function(options.black_box), _request(options.source)
        task, query = request.task, request.task.query
        more = {"states": query.states, "labels": query.labels, "unit": query.unit}
        if options.secrets is None and not hasattr(release, "claimed"):
            more["claimed"] = request.epsilon()
        if options.workers > 1 and not parallel(as_box(release, query.states)):
            typer.echo(f"Note: {ONE_PROCESS}", err=True)
    with show.working("releasing") as progress:
        return audit_black_box(
            release,
            task.secrets if options.secrets is None else options.asked(),
            task.family,
            draws=options.draws,
            confidence=options.confidence,
            seed=options.seed,
            lengths=options.length,
            workers=options.workers,
            progress=progress,
            **more,
        )


def load_function(name: str) -> Any:
    """Import and return the object `module:function`, also from the working folder."""
    from importlib import import_module

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
    """Return a stored plan without re-checking it, or the plan of a spec."""
    from shoal.core.plan import Plan
    from shoal.spec.fields import parse_stored, read_text

    text = read_text(source, "spec or plan")
    if not text.lstrip().startswith("{"):
        from shoal.mechanisms.choice import choose

        request = _request(source)
        with request.limit_time():
            return choose(request.task, request.epsilon(), request.mechanism, prune=True).plan
    stored: Any = parse_stored(text, source, "plan")
    if not isinstance(stored, Plan):
        raise StoredError(f"{str(source)!r} holds a {type(stored).__name__}, not a plan")
    return stored


def _request(source: Path) -> Request:
    from shoal.spec.request import read_request

    if source.suffix == ".json":
        raise InputError(f"{str(source)!r} is a plan; --scale and --black-box need a spec")
    return read_request(source)


def _print_audit(found: Audit | Estimate, html: Path | None, *, title: str, as_json: bool) -> None:
    """Print the audit as text or JSON, and write the HTML page if a path is given."""
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
