"""`shoal`: the table of commands, which are imported when called, and the handling of errors."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from shoal import __version__
from shoal.cli.options import option
from shoal.cli.show import CTRL_C, STOPPED, shorten, tell_when_compiling
from shoal.core.errors import BudgetError, InputError, PromiseBroken, Refused

BAD_INPUT, OVER_BUDGET, BROKEN, UNREAD = 2, 3, 1, 141


class Command(NamedTuple):
    """The location of a command (a module with a typer `app`, or module:name) and its summary.

    `examples` end its help where the module shows none of its own.
    """

    module: str
    summary: str
    examples: str = ""

    def app(self) -> Any:
        """Import and return the typer app."""
        module, _, name = self.module.partition(":")
        return getattr(import_module(module), name or "app")


LEDGER_EXAMPLES = """\b
Examples:
  shoal release shoal.toml days.csv -o release.json --ledger budget.db
  shoal ledger show budget.db
  shoal ledger limit budget.db --epsilon 4
"""

COMMANDS: dict[str, Command] = {
    "demo": Command("shoal.cli.demo", "Take the tour: leak, plan, release and audit in a minute."),
    "init": Command("shoal.cli.init", "Write a commented spec that runs as it is."),
    "leak": Command("shoal.cli.leak", "Say what an ordinary private release really leaks."),
    "plan": Command("shoal.cli.plan", "Find the least noise that is enough, and explain it."),
    "release": Command("shoal.cli.release", "Release data under a spec or a stored plan."),
    "transitions": Command(
        "shoal.cli.transitions", "Make a table, a graph or a picture of released steps."
    ),
    "synthesize": Command(
        "shoal.cli.transitions:synthesize_app",
        "Make up series that follow a private table of steps.",
    ),
    "audit": Command("shoal.cli.audit", "Measure what a release really leaks."),
    "attack": Command("shoal.cli.attack", "Show what an adversary learns from what is released."),
    "stream": Command("shoal.cli.stream", "Show, hide or blur each reading as it comes."),
    "read": Command("shoal.cli.read", "Say what is in a file, and how to go on with it."),
    "nearest": Command(
        "shoal.cli.nearest", "Say which points of interest are near a released track."
    ),
    "share": Command(
        "shoal.cli.share", "Publish rides, never where you live, over all rides together."
    ),
    "fit": Command("shoal.cli.fit", "Fit a Markov chain to data and store it as a model."),
    "budget": Command(
        "shoal.cli.budget", "Say what each of many releases may spend, and how good it is."
    ),
    "check": Command(
        "shoal.cli.fit:check_app", "Say whether a model describes data it was not fitted on."
    ),
    "ledger": Command("shoal.cli.ledger", "Keep account of what was spent.", LEDGER_EXAMPLES),
    "job": Command("shoal.cli.job", "Look at a job of many subjects, or go on with it."),
    "studio": Command("shoal.cli.studio", "See what leaks and choose, in a browser."),
    "serve": Command("shoal.gateway.serve", "Run the live service: readings in, outputs out."),
    "keys": Command(
        "shoal.gateway.serve:keys_app", "Make, list and take back keys of the service."
    ),
    "reproduce": Command(
        "shoal.cli.reproduce",
        "Make the papers' tables and figures again, with the paper's number beside ours.",
    ),
    "spec-schema": Command("shoal.cli.init:schema_app", "Print the JSON Schema of a spec."),
}

# names of earlier versions, for one version more: not in the help
OLD_NAMES = {"locations": "release"}

EXAMPLES = """\b
Examples:
  shoal demo
  shoal init && shoal plan shoal.toml
  shoal leak shoal.toml --eta 1
  shoal release shoal.toml days.csv -o release.json

\b
Exit codes: 0 done, 2 bad input (one sentence says what to change), 3 refused by the
ledger, 1 anything unexpected. `shoal COMMAND --help` shows a command's options.
"""


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and imports one only when it is called."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """Import and return the command of this name, or None; old names still work."""
        row = COMMANDS.get(OLD_NAMES.get(cmd_name, cmd_name))
        if row is None:
            return None
        command = typer.main.get_command(row.app())
        command.name = cmd_name
        if row.examples and not getattr(command, "epilog", None):
            command.epilog = row.examples
        return command

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Return the command that is named first; refuses unknown names with the nearest ones."""
        if args and args[0] not in {*COMMANDS, *OLD_NAMES} and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = ", ".join(f"'{name}'" for name in get_close_matches(args[0], COMMANDS))
            hint = f"did you mean {near}?" if near else f"the commands are {', '.join(COMMANDS)}"
            ctx.fail(f"No such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the table of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; a full disk is reported in one sentence, for help and version too."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            typer.echo(f"Error: {NO_SPACE}", err=True)
            _drop_output()
            sys.exit(BAD_INPUT)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run a command; end with one sentence and an exit code on errors of the user's input."""
        try:
            return super().invoke(ctx)
        except (InputError, Refused) as error:
            _stop(error, STOPPED if CTRL_C in str(error) else BAD_INPUT)
        except (BudgetError, PromiseBroken) as error:
            _stop(error, OVER_BUDGET if isinstance(error, BudgetError) else BROKEN)
        except typer.BadParameter as error:
            sentence = _of_option(error)
            if sentence is None:
                raise
            _stop(sentence, BAD_INPUT)
        except MemoryError:
            _stop(NO_MEMORY, BAD_INPUT)
        except (ArithmeticError, RecursionError):
            _stop(NO_NUMBER, BAD_INPUT)
        except BrokenPipeError:  # such as `| head`: 1 would say that an audit found a violation
            _drop_output()
            raise typer.Exit(UNREAD) from None
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(STOPPED) from None


NO_SPACE = "cannot write what was found: no space left; free some, then repeat"
NO_NUMBER = (
    "a number in the input is too large, too small or too deep in lists to compute with; bring "
    "weights, budgets and lengths nearer to 1"
)
NO_MEMORY = (
    "this takes more memory than there is; give the model a shorter length or fewer states, or "
    "less data at a time"
)


def _drop_output() -> None:
    """Discard output that is not yet printed, so that flushing it at exit cannot fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


RULES = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


def _of_option(error: typer.BadParameter) -> str | None:
    """Return the option, its value and what it must be; None where the error says it already."""
    details = getattr(error.__cause__, "errors", None)
    if error.param is None or details is None:
        return None
    found = details()[0]
    name, value = error.param.opts[0], found["input"]
    rule = RULES.get(found["type"])
    if rule is not None:
        return f"{name} is {value!r}; it must be {rule.format(**found.get('ctx', {}))}"
    _, _, choices = str(error.message).removeprefix("Value error, ").partition("is not one of ")
    return f"{name} is {value!r}; it must be one of {choices.rstrip('.')}" if choices else None


def _stop(error: Exception | str, code: int) -> None:
    typer.echo(f"Error: {shorten(str(error))}", err=True)
    raise typer.Exit(code)


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    epilog=EXAMPLES,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shoal {__version__}")
        raise typer.Exit


@app.callback()
def shoal(
    version: Annotated[
        bool,
        option(None, "Print the version.", "--version", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Release correlated data with provable privacy.

    How much does my release really leak? What is the least noise that is provably enough?
    Release it. How much have I spent?
    """


def main() -> None:
    """Run the command line; characters that the terminal lacks are printed as question marks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    tell_when_compiling()
    app(prog_name="shoal")
