"""`shoal release` for Bayesian networks: a table with a column per variable, a row per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.cli import show
from shoal.cli.sources import NamedColumns, ReleaseView, rows_hint
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.plan import Plan
    from shoal.data.read import Paths
    from shoal.networks.bayesnet import BayesNet


def variable_records(plan: Plan, data: Paths, columns: NamedColumns) -> dict[str, Any] | None:
    """Return name to checked record, for every row of a file with a column per variable.

    Rows are named by the column `series`, or numbered from 1. Each is a record by itself: the law
    of the network is about one. None where a column of states is named, or there is no network.
    """
    from shoal.networks.bayesnet import BayesNet

    net = plan.task.family[0]
    if columns.state is not None or not isinstance(net, BayesNet):
        return None
    if columns.together:
        raise InputError(
            "--together is given, but a network is about one record: drop it, and every row gets "
            "a release of its own"
        )
    with show.working("reading"):
        table = _read_rows(net, data, columns.series)
    records: dict[str, Any] = {}
    for number, row in enumerate(table.iter_rows(named=True), 1):
        name = str(number) if columns.series is None else str(row[columns.series])
        if name in records:
            raise DataError(
                f"series {name!r} has two rows; a network takes one row per record: keep one, or "
                "name a column that tells them apart"
            )
        records[name] = _check_row(plan, net, row, name)
    return records


def _read_rows(net: BayesNet, data: Paths, series: str | None) -> pl.DataFrame:
    """Return the columns of the network's variables, and of the names, in all files that match."""
    import polars as pl

    from shoal.data.read import load, matching

    parts = []
    for file in matching(data):
        try:
            columns = [
                load(file, state=name, series=None, time=None, role="variable")[name]
                for name in net.variables
            ]
        except DataError as error:
            raise DataError(
                f"{error}; a file with one row per variable, in the model's order, needs --state"
            ) from None
        if series is not None:
            columns.append(load(file, state=series, series=None, time=None, role="series")[series])
        parts.append(pl.DataFrame(columns).cast(pl.String))
    table = pl.concat(parts)
    if table.height == 0:
        raise DataError(f"{data!r} holds no rows; at least 1 is needed")
    return table


def _check_row(plan: Plan, net: BayesNet, row: dict[str, str | None], name: str) -> Any:
    """Return one row as a record; refused when a value is not the variable's own."""
    for variable, domain in zip(net.variables, net.domains, strict=True):
        if row[variable] not in domain:
            raise DataError(
                f"row {name!r}: column {variable!r} holds {row[variable]!r}; it must be one of the "
                f"variable's values ({', '.join(domain)})"
            )
    return plan.task.read([row[variable] for variable in net.variables])


def _series_hint(plan: Plan, columns: NamedColumns) -> str:
    """Return what is likely wrong when rows of people are treated separately, but people are the
    entries.
    """
    from shoal.networks.contagion import Contagion

    if columns.series is None or not isinstance(plan.task.family[0], Contagion):
        return ""
    return rows_hint(columns.series)


def release_view(plan: Plan) -> ReleaseView:
    """Return how the variables of a network are read."""
    return ReleaseView(read=variable_records, hint=_series_hint)
