"""Where commands take plans and data from, and how releases are charged."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from shoal.cli import show
from shoal.core.charge import EVERYBODY, Ledger, PartOf, Rng, check_periods, members_of
from shoal.core.errors import BudgetError, DataError, InputError
from shoal.core.family import plan_act
from shoal.core.plan import Plan, Release

if TYPE_CHECKING:
    from shoal.cli.release import ReleaseOptions
    from shoal.data.read import Paths
    from shoal.data.table import Dataset
    from shoal.data.times import Pauses
    from shoal.spec.request import DataSection, Request

Records = dict[str, Any]  # name of a series to its checked records


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedTo:
    """The account that the releases of this command are charged to, if the options name a ledger.

    With a ledger there is always a key: when something fails after a charge, repeating the command
    with the key returns the stored releases and costs nothing more.
    """

    options: ReleaseOptions
    subject: str = ""
    key: str = ""
    members: tuple[str, ...] = ()
    periods: str = "parts"
    parts: Mapping[str, PartOf] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        options: ReleaseOptions,
        columns: NamedColumns,
        parts: Mapping[str, PartOf],
        together: tuple[str, ...] = (),
    ) -> ChargedTo:
        """Return the account that the options name; without a ledger nothing is charged.

        `together` are the series of an aggregate; each is charged unless others are named.
        """
        if options.ledger is None:
            return cls(options=options)
        periods = columns.periods or ("parts" if parts else None)
        return cls(
            options=options,
            subject=columns.subject or "",
            key=options.key or secrets.token_hex(8),
            members=members_of(_charged_members(options, columns), columns.subject or "", together),
            periods=check_periods(periods, "--period") if options.period or parts else "parts",
            parts=parts,
        )

    def check(self, names: list[str], *, together: bool) -> None:
        """Refuse, before any charge, a subject that does not fit the series."""
        if self.options.ledger is None:
            return
        self._check_names(names)
        if together and not self.subject:
            raise InputError(UNNAMED)
        if self.members and len(names) > 1:
            raise InputError(
                "--members are those of one release about many people; name --together too"
            )
        owners = {self.parts[name].subject if name in self.parts else name for name in names}
        if self.subject and len(owners) > 1:
            raise InputError(
                f"the subject is {self.subject!r}, but the data holds {len(owners)} series; "
                "drop it (--subject, or [data] subject), and each is charged under its own name"
            )

    def _check_names(self, names: list[str]) -> None:
        """Refuse names that a ledger cannot store, before the first charge."""
        from shoal.ledger.entries import can_hold

        said = {
            "--subject": self.subject,
            "--period": self.options.period,
            "--requester": self.options.requester,
        }
        own = self.members if self.members != EVERYBODY else ()
        people = [*own, *([] if self.subject else names)]
        said |= {"--key": self.key, **{f"series {name!r}": name for name in people}}
        for what, name in said.items():
            if not can_hold(name) or (what.startswith("series") and not name):
                raise DataError(
                    f"{what[:60]} is {name[:40]!r}, a name no ledger can hold: it is empty, '*', "
                    "too long, or has a NUL character or half a character in it; rename it, or "
                    "give --subject"
                )

    def draw(self, plan: Plan, records: Records, rng: Rng | None) -> dict[str, Release]:
        """One release per name, each charged first. The ledger is opened, or made, only now."""
        if self.options.ledger is None:
            names = show.with_progress(list(records), "releasing")
            return {name: plan.release(records[name], rng=rng) for name in names}
        from shoal.ledger.store import ledger_or_nothing

        with self._print_key_on_stop(), ledger_or_nothing(self.options.ledger) as ledger:
            return self._charge_each(ledger, plan, records)

    def write(self, path: Path, releases: dict[str, Release]) -> None:
        """Write all releases into one file."""
        from shoal.data.write import write_releases

        try:
            with self._print_key_on_stop():
                write_releases(path, releases)
        except DataError as error:
            kept = "" if self.options.ledger is None else self._key_sentence("the releases")
            raise DataError(f"{error}{kept}") from None

    def _charge_each(self, ledger: Ledger, plan: Plan, records: Records) -> dict[str, Release]:
        """Return one release per series, each charged to the ledger before its noise is drawn.

        A failure names its series, and the key that returns the releases made before it.
        """
        releases: dict[str, Release] = {}
        for name in show.with_progress(list(records), "releasing"):
            try:
                releases[name] = plan.release(
                    records[name],
                    ledger=ledger,
                    requester=self.options.requester,
                    key=self.key if len(records) == 1 else f"{self.key}/{name}",
                    members=self.members,
                    **self._whose(name),
                )
            except (BudgetError, InputError) as error:
                before = self._key_sentence(f"{len(releases)} series before it") if releases else ""
                error.args = (f"series {name!r}: {error}{before}",)
                raise
        return releases

    def _whose(self, name: str) -> dict[str, Any]:
        """Return the subject of a release, and its part or period, as arguments of a charge."""
        if name in self.parts:
            part = self.parts[name]
            return {"subject": self.subject or part.subject, **part.charge_fields(self.periods)}
        own = "part" if self.periods == "parts" and self.options.period else "period"
        return {"subject": self.subject or name, own: self.options.period}

    def _print_key_on_stop(self) -> AbstractContextManager[None]:
        """Return a context that prints the key if the command is stopped; a retry needs it."""
        if self.options.ledger is None:
            return nullcontext()
        return show.on_stop(
            "What was charged so far is kept in the ledger: repeat the command with "
            f"--key {self.key} and it costs nothing more."
        )

    def _key_sentence(self, what: str) -> str:
        return (
            f"; {what} were charged and are kept in the ledger: repeat the command with "
            f"--key {self.key} and they cost nothing more"
        )


UNNAMED = (
    "--ledger is given, and nothing says whose data it is; name the subject with --subject, or as "
    "subject in [data] of the spec, the same wherever this data is released"
)


def check_account(options: ReleaseOptions, columns: NamedColumns) -> None:
    """Refuse, before any work, a charge without a named subject.

    A file name is no subject: the same data may be in a file of another name.
    """
    if options.ledger is None:
        return
    if not columns.subject and (columns.together or columns.series is None):
        each = "" if columns.together else "; or a column with --series, for each series its own"
        raise InputError(UNNAMED + each)
    if options.period and columns.every is not None:
        raise InputError("--period and --every both name periods; drop one of them")


def _charged_members(
    options: ReleaseOptions, columns: NamedColumns
) -> tuple[str, ...] | str | None:
    """Return the members of `--members`: everybody, nobody, or the values of a column."""
    if options.members in (None, "everybody"):
        return options.members
    if options.members == "nobody":
        return ()
    from shoal.data.entries import values_in

    return values_in(options.data, options.members, columns.where, columns.sep)


COORDINATE_COLUMNS = ("state", "latitude", "longitude")


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """The columns of entries and subjects in a data file; None where spec and options name none."""

    state: str | None = None
    series: str | None = None
    time: str | None = None
    gap: str | None = None
    together: bool | None = None
    latitude: str | None = None
    longitude: str | None = None
    missing: str | None = None
    bins: str | None = None
    unit: str | None = None
    tz: str | None = None
    where: str | None = None
    sep: str | None = None
    every: str | None = None
    periods: str | None = None
    subject: str | None = None

    @classmethod
    def of(cls, data: DataSection | None) -> NamedColumns:
        """Return the columns that the [data] section of a spec names."""
        if data is None:
            return cls()
        named = {"latitude": "lat", "longitude": "lon", "unit": "time_unit"}
        said = {name: named.get(name, name) for name in cls.__slots__ if name != "together"}
        own = {name: getattr(data, key) for name, key in said.items()}
        return cls(together=data.release == "together", **own)

    @property
    def parts(self) -> bool:
        """Whether series are cut by the calendar into parts that may depend on each other."""
        return self.every is not None and self.periods != "independent"

    @property
    def raw(self) -> dict[str, str]:
        """The given options for raw rows, as arguments of `shoal.data.read`."""
        names = ("missing", "bins", "unit", "tz", "where", "sep", "every")
        return {name: said for name in names if (said := getattr(self, name)) is not None}

    @property
    def named(self) -> dict[str, Any]:
        """Columns and options for raw rows, as arguments of `shoal.read`."""
        columns = {"state": self.state, "series": self.series, "time": self.time}
        return {**columns, **self.raw}

    def over(self, other: NamedColumns) -> NamedColumns:
        """Return these columns, and those of `other` where these have none.

        Entries are states or coordinates: if these name a column of either, neither is taken from
        `other`. If each series is released, the single subject of `other` is not taken.
        """
        missing = [name for name in self.__slots__ if getattr(self, name) is None]
        if self.series is not None and not self.together:
            missing = [name for name in missing if name != "subject"]
        if any(getattr(self, name) is not None for name in COORDINATE_COLUMNS):
            missing = [name for name in missing if name not in COORDINATE_COLUMNS]
        return replace(self, **{name: getattr(other, name) for name in missing})

    def with_own(self, data: Paths) -> NamedColumns:
        """Return these columns, and those of files that name their own (GPX, Green Button, …).

        Where columns of a table are named, nothing is added to them.
        """
        from shoal.data.read import columns_of

        named = self.state is not None or self.latitude is not None
        own: dict[str, Any] = dict(columns_of(data, tables=not named))
        return self.over(replace(NamedColumns(), **own)) if own else self


def columns_in(options: object) -> NamedColumns:
    """Return the columns that the options of a command name."""
    names = (name for name in NamedColumns.__slots__ if hasattr(options, name))
    said = {name: getattr(options, name) for name in names}
    return NamedColumns(**{name: None if value == "" else value for name, value in said.items()})


def secrets_of(spec: Path) -> Any:
    """Return the secrets of another spec, about which a plan is audited or attacked."""
    from shoal.spec.request import read_request

    return read_request(spec).task.secrets


@dataclass(frozen=True, slots=True)
class Source:
    """A spec or stored plan that is read, but not calibrated or checked, and its data's columns.

    It lets a command refuse wrong options before the costly calibration.
    """

    path: Path
    document: Request | str
    columns: NamedColumns

    @classmethod
    def read(cls, path: Path, columns: NamedColumns | None = None) -> Source:
        """Read the spec or plan in `path`; `columns` take precedence over its own."""
        from shoal.spec.fields import read_text
        from shoal.spec.request import parse_request

        named, text = columns or NamedColumns(), read_text(path, "spec or plan")
        if text.lstrip().startswith("{"):
            return cls(path, text, named)
        request = parse_request(text, folder=path.parent, name=str(path))
        return cls(path, request, named.over(NamedColumns.of(request.data)))

    def plan(self) -> Plan:
        """Return the stored plan, or the spec's, whose epsilon covers all parts of a series."""
        from shoal.spec.fields import parse_stored

        if isinstance(self.document, str):
            from shoal.jobs.job import recheck_plan

            stored = parse_stored(self.document, self.path, "plan")
            with show.working("checking the plan"):
                return recheck_plan(stored, self.path)
        with show.working("calibrating"), self.document.limit_time():
            if self.columns.parts:
                return self.document.plan(parts=True)
            from shoal.cli.plan_cache import plan_of_spec

            return plan_of_spec(self.document)


def load_plan(path: Path, columns: NamedColumns | None = None) -> tuple[Plan, NamedColumns]:
    """Return the plan in `path`, stored or calibrated, and its columns; `columns` go first."""
    source = Source.read(path, columns)
    return source.plan(), source.columns


class ReleaseView(NamedTuple):
    """How a family reads data for a single release, where rows are not states of series.

    `read` returns each record under its name, or None where rows are states. `hint` returns what
    is likely wrong with refused data, `tell` prints more about the releases. `whole`: all records
    make one release.
    """

    read: Callable[[Plan, Paths, NamedColumns], Records | None] | None = None
    hint: Callable[[Plan, NamedColumns], str] | None = None
    tell: Callable[[Plan, Mapping[str, Release]], None] | None = None
    whole: bool = False


def view_of(plan: Plan) -> ReleaseView:
    """Return how the plan's family reads data and prints releases."""
    view = plan_act("show_release", plan)
    return ReleaseView() if view is None else view(plan)


def rows_hint(series: str) -> str:
    """Return a hint for data split into series of people, when people are the entries."""
    return (
        f" (the rows of one series are this model's records: name no column of people, now "
        f"{series!r}, and give a row for each in the model's order)"
    )


ALL_SERIES = "all"  # the name of the one release of all series together


class Series(NamedTuple):
    """Name to what reads and checks its records, which names are parts of a series, and the
    series in a release of all of them together.
    """

    reads: Mapping[str, Callable[[], Any]]
    parts: Mapping[str, PartOf]
    together: tuple[str, ...] = ()


def series_in(plan: Plan, data: Paths, columns: NamedColumns) -> Series:
    """Return the records of a file, in the form that the plan's query needs."""
    from shoal.data.entries import note_small
    from shoal.mechanisms.person import check_persons

    view = view_of(plan)
    found = None if view.read is None else view.read(plan, data, columns)
    if found is not None:
        if columns.every is not None:
            raise InputError(
                f"every is {columns.every!r}, but the rows are not entries of series; drop it"
            )
        return Series({name: partial(found.__getitem__, name) for name in found}, {})
    states = plan.task.query.states
    dataset = read_data(data, columns, states)
    check_persons(plan.task, dataset.entries)
    if columns.together:
        if dataset.parts:
            raise InputError("--every makes a release of each part; drop --together")
        everyone = dataset.names if columns.series is not None else ()
        reads = {ALL_SERIES: lambda: plan.task.read(dataset.sequences(states))}
        return Series(reads, {}, tuple(everyone))
    names = note_small(dataset, lambda note: typer.echo(f"NOTE: {note}.", err=True))
    reads = {name: partial(_one_series, plan, dataset, name) for name in names}
    return Series(reads, dataset.parts)


def _one_series(plan: Plan, dataset: Dataset, name: str) -> Any:
    try:
        return plan.task.read(dataset.sequences(plan.task.query.states, series=name))
    except DataError as error:
        where, text = f"series {name!r}", str(error)
        raise DataError(text if where in text else f"{where}: {text}") from None


def read_data(path: Paths, columns: NamedColumns, states: Sequence[str] | None = None) -> Dataset:
    """Return the data set in `path`; refused when no column of states is named.

    `states` of a model that are named after bins give the bins of raw numbers.
    """
    from shoal.data.entries import dataset_of

    if columns.state is None:
        raise InputError(
            "no column of states is named; give [data] state in the spec, or --state COLUMN"
        )
    if columns.gap is not None and columns.time is None:
        raise InputError("gap is given without a time column; name it with --time, or drop gap")
    with show.working("reading"):
        return dataset_of(path, states, gap=columns.gap, **columns.named)


def note_pauses(path: Paths, columns: NamedColumns) -> None:
    """Print a note about pauses at which no chain is cut, and which count as one step."""
    if columns.time is None or columns.gap is not None or columns.state is None:
        return
    with show.working("reading"):
        found = _pauses(path, columns)
    if found is not None:
        typer.echo(
            f"NOTE: {found.describe()}; each counts as one step. Give --gap to begin a new chain "
            "after a longer one.",
            err=True,
        )


def _pauses(path: Paths, columns: NamedColumns) -> Pauses | None:
    """Return the pauses in the files at `path`: steps much longer than the usual one."""
    import polars as pl

    from shoal.data.read import load_columns, matching, names_of
    from shoal.data.table import Columns, owners_and_times
    from shoal.data.times import pauses_in

    raw = {name: said for name, said in columns.raw.items() if name not in ("sep", "bins")}
    named = Columns(state=str(columns.state), series=columns.series, time=columns.time, **raw)
    files = matching(path)
    parts = [
        owners_and_times(
            load_columns(file, named, sep=columns.sep or ","), repr(str(file)), named, name=name
        )
        for file, name in zip(files, names_of(files), strict=True)
    ]
    whole = pl.concat(parts)
    return pauses_in(whole["series"], whole["time"].cast(pl.Float64) / 1e6)
