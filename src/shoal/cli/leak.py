"""`shoal leak`: what an ordinary private release really guarantees against correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from shoal.cli import options, show
from shoal.core.numbers import finite, positive, significant

if TYPE_CHECKING:
    from shoal.core.task import Model, Secrets, Task
    from shoal.spec.request import Request

Bars = tuple[list[str], list[float], float]  # of a chart: names, losses, what was promised

app = options.new_app()

EXAMPLES = """\b
Examples:
  shoal leak shoal.toml
  shoal leak shoal.toml --eta 0.1 --json
"""


@app.command(epilog=EXAMPLES)
def leak(
    spec: options.SpecPath,
    eta: Annotated[
        str | None,
        options.option(
            "NUMBER",
            "Entry-level epsilon of the ordinary release; by default the spec's epsilon.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    plot: options.PlotPath = None,
    time_limit: options.TimeLimit = None,
    force: options.Force = False,
) -> None:
    """Say what an ordinary private release really leaks.

    An eta-DP release protects one entry when the others are fixed. Somebody who knows how entries
    depend on each other learns more; this says how much, for every model of the spec. For places:
    what a stream of ordinary noise tells about a position over time. For contexts: what hiding
    only the sensitive ones gives away.
    """
    from shoal.core.family import act_of
    from shoal.spec.request import read_request

    show.check_chart(plot, force=force)
    request = read_request(spec)
    stream = act_of("show_leak", request.task.secrets, request.task.query)
    with show.limit_time(time_limit) as watch:
        if stream is None:
            found, bars = _of_entries(request, eta, as_json=as_json)
        else:
            found_leak: StreamLeak = stream(request, eta)
            found, bars = found_leak.found, found_leak.bars
            if not as_json:
                _print_stream(found_leak)
    if as_json:
        show.print_json(found)
    if plot is not None:
        from shoal.cli.charts import leak_chart

        names, losses, level = bars
        drawn = leak_chart(names, losses, level, **_axis(request.task))
        show.write_chart(plot, drawn, as_json=as_json)
    show.say_cut(watch, "the bounds are those that were known by then")


def _of_entries(request: Request, eta: str | None, *, as_json: bool) -> tuple[dict[str, Any], Bars]:
    """Print what a release that is eta-DP per entry leaks; return its JSON object and bars."""
    with show.working("measuring"):
        level = request.epsilon() if eta is None else positive(eta, "--eta")
        rows = [measure_loss(model, level, request.task.secrets) for model in request.task.family]
    if not as_json:
        print_leak(request.task, level, rows)
    names = [_title(i, rows) for i in range(len(rows))]
    return _leak_object(request.task, level, rows), (
        names,
        [row["loss"] for row in rows],
        float(level),
    )


class StreamLeak(NamedTuple):
    """What an ordinary stream leaks, ready to be shown: as one object, as words and a table, as
    bars of a chart."""

    found: dict[str, Any]
    words: tuple[str, ...]
    titles: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    bars: Bars


def _print_stream(leak: StreamLeak) -> None:
    """Print what an ordinary stream leaks: paragraphs, then a table."""
    screen = show.console()
    for paragraph in leak.words:
        screen.print(paragraph)
        screen.print()
    numbers = [place for place, title in enumerate(leak.titles) if title]
    screen.print(show.table(leak.titles, leak.rows, numbers=numbers))


def _axis(task: Task) -> dict[str, str]:
    """Return the axis label of the chart where the unit is not one entry of a data set."""
    step = "epsilon: the most the log-odds between two states at a step can change"
    rise = "the most a belief in a sensitive context can rise"
    words = {"policy": step, "location-set": step, "delta-privacy": rise}
    label = words.get(task.secrets.notion)
    return {} if label is None else {"label": label, "title": "What an ordinary stream leaks"}


def measure_loss(model: Model, eta: Fraction, secrets: Secrets | None = None) -> dict[str, Any]:
    """Return the loss of an eta-DP release under one model, and the bound of group privacy."""
    from shoal.mechanisms.lift import leakage

    found = leakage((model,), eta, secrets=secrets)
    tied = model.tied if secrets is None else secrets.tied_under(model)
    return {
        "model": model.describe(),
        "loss": float(found.value),
        "sentence": found.describe(secrets),
        "group_bound": math.inf if tied is None else float(tied * eta),
        "tied": tied,
    }


def print_leak(task: Task, eta: Fraction, rows: list[dict[str, Any]]) -> None:
    """Print promised and real loss in words, then as bars; bars of group bounds may be cut."""
    screen = show.console()
    level = float(eta)
    screen.print(_promise(task, level))
    screen.print()
    for row in rows:
        screen.print(f"Under {row['model']}, {row['sentence']}.")
    screen.print()
    most = max([level, *(float(row["loss"]) for row in rows if math.isfinite(row["loss"]))])
    longest = min(max([most, *(float(row["group_bound"]) for row in rows)]), 2 * most)
    plain = screen.options.ascii_only
    cells = [
        (
            name,
            "∞" if math.isinf(value) else significant(value),
            show.bar(value, longest, ascii_only=plain),
            note,
        )
        for name, value, note in _bar_lines(level, rows)
    ]
    screen.print(show.table(("", "epsilon", "", "holds"), cells, numbers=(1,)))


def _promise(task: Task, level: float) -> str:
    """Return in words what an ordinary release promises, and which adversary learns more."""
    from shoal.events.secrets import Events

    beginning = (
        f"An ordinary release with entry-level epsilon = {level:g} promises that nobody's odds "
    )
    if isinstance(task.secrets, Events):
        return (
            f"{beginning}about one entry change by more than {show.odds(level)} when all others "
            f"are known. It says nothing about {task.secrets.describe()}; what it tells of that is "
            "bounded by how entries depend on each other:"
        )
    return (
        f"{beginning}about {task.secrets.subject} change by more than {show.odds(level)}, as long "
        "as entries do not depend on each other. Somebody who knows how they do learns more:"
    )


def _bar_lines(level: float, rows: list[dict[str, Any]]) -> list[tuple[str, float, str]]:
    """Return name, epsilon and meaning of every bar."""
    lines = [("promised", level, "if entries were independent")]
    for i, row in enumerate(rows):
        known, tied = row["loss"] < row["group_bound"], row["tied"]
        words = "against somebody who knows the model" if known else "no better bound is known"
        lines.append((_title(i, rows), row["loss"], words))
        whole = "at any length" if tied is None else f"of {tied:,} entries"
        comma = "," if tied is None else ""
        lines.append(("", row["group_bound"], f"whatever the law{comma} {whole}"))
    return lines


def _title(index: int, rows: list[dict[str, Any]]) -> str:
    return "proved" if len(rows) == 1 else f"model[{index}]"


def _leak_object(task: Task, eta: Fraction, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON object of the leak of every model; infinite losses become null."""
    worst = max(row["loss"] for row in rows)
    return {
        "eta": float(eta),
        "promised": {"epsilon": float(eta), "over": task.secrets.subject},
        "epsilon": finite(worst),
        "models": [
            {
                "model": row["model"],
                "epsilon": finite(row["loss"]),
                "group_bound": finite(row["group_bound"]),
                "odds": show.odds(row["loss"]),
                "in_words": row["sentence"],
            }
            for row in rows
        ],
    }
