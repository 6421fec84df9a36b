"""Networks in the Bayesian Interchange Format (.bif), read with every digit they hold."""

from __future__ import annotations

import gzip
import re
import zlib
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.records import label
from shoal.networks.bayesnet import BayesNet

_TOKEN = re.compile(r'"([^"]*)"|([(){}\[\];,|])|([^\s(){}\[\];,|"]+)')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MARKS = frozenset("(){}[];,|")
MAX_FILE_BYTES = 2**26  # bytes, unpacked: a small file may hold any number of them
MAX_PRINTED_ERROR = Decimal("0.001")  # rows this close to 1 were rounded when they were printed


def read_bif(path: Path) -> BayesNet:
    """Return the network in a file, plain or compressed (.gz)."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise InputError(f"network {str(path)!r} does not exist; check the path") from None
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InputError(
            f"network {str(path)!r} cannot be read ({type(error).__name__}); "
            "it must be a .bif file in UTF-8, or one compressed as .gz"
        ) from None
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(
            f"network {str(path)!r} has more than {MAX_FILE_BYTES:,} bytes when it is unpacked; "
            "the largest networks that are published have some 10 million"
        )
    try:
        return parse_bif(text)
    except InputError as error:
        raise InputError(f"network {str(path)!r}: {error}") from None


def parse_bif(text: str) -> BayesNet:
    """Return the network a BIF text describes.

    Numbers become the nearest doubles of what is written. A row that misses 1 by at most 1e-3, as
    numbers rounded when they were printed do, is divided by its sum; one further off is refused.
    """
    reader = _Reader(text)
    domains: dict[str, tuple[str, ...]] = {}
    laws: dict[str, tuple[tuple[str, ...], Floats]] = {}
    while (word := reader.peek()) is not None:
        if word == "variable":
            name, values = reader.variable()
            domains[name] = values
        elif word == "probability":
            name, parents, table = reader.probability(domains)
            laws[name] = parents, table
        else:
            reader.skip_block()
    missing = [name for name in domains if name not in laws]
    if missing or not domains:
        raise InputError(
            f"variable {missing[0]!r} has no probability" if missing else "no variable"
        )
    return BayesNet(
        variables=tuple(domains),
        domains=tuple(domains.values()),
        parents=tuple(laws[name][0] for name in domains),
        tables=tuple(laws[name][1] for name in domains),
    )


class _Reader:
    """The words of a BIF text, one after the other."""

    def __init__(self, text: str) -> None:
        found = _TOKEN.findall(_COMMENT.sub(" ", text))
        self._words = [mark or word or quoted for quoted, mark, word in found]
        self._place = 0

    def peek(self) -> str | None:
        return self._words[self._place] if self._place < len(self._words) else None

    def next(self) -> str:
        word = self.peek()
        if word is None:
            raise InputError("it ends in the middle of a block; a '}' or ';' is missing")
        self._place += 1
        return word

    def expect(self, *wanted: str) -> str:
        word = self.next()
        if word not in wanted:
            raise InputError(f"it has {word!r} where {' or '.join(map(repr, wanted))} must be")
        return word

    def skip_block(self) -> None:
        """Skip a block or statement that says nothing about the law (network, property)."""
        depth = 0
        while True:
            word = self.next()
            depth += (word == "{") - (word == "}")
            if depth <= 0 and word in ("}", ";"):
                return

    def names(self, end: str) -> list[str]:
        """Return names separated by commas, up to the mark `end`."""
        found: list[str] = []
        while (word := self.next()) != end:
            if word != ",":
                if word in _MARKS:
                    raise InputError(f"it has {word!r} where a name or a number must be")
                found.append(word)
        return found

    def variable(self) -> tuple[str, tuple[str, ...]]:
        """Read `variable NAME { type discrete [ n ] { a, b }; }` and return name and values."""
        self.next()
        name = self.next()
        self.expect("{")
        values: list[str] = []
        while (word := self.next()) != "}":
            if word != "type":
                self._place -= 1
                self.skip_block()
                continue
            self.expect("discrete")
            self.expect("[")
            count = self.next()
            self.expect("]")
            self.expect("{")
            values = self.names("}")
            self.expect(";")
            if count != str(len(values)):
                raise InputError(f"variable {name!r} says {count} values and names {len(values)}")
        if not values:
            raise InputError(f"variable {name!r} names no values; add a discrete type")
        return name, tuple(values)

    def probability(
        self, domains: dict[str, tuple[str, ...]]
    ) -> tuple[str, tuple[str, ...], Floats]:
        """Read `probability ( NAME | PARENTS ) { … }` and return name, parents and table."""
        self.next()
        self.expect("(")
        name = self.next()
        parents = tuple(self.names(")")) if self.expect("|", ")") == "|" else ()
        for variable in (name, *parents):
            if variable not in domains:
                raise InputError(f"probability names {variable!r}, which is no variable above it")
        size = len(domains[name])
        table = np.full((*(len(domains[p]) for p in parents), size), np.nan)
        self.expect("{")
        while (word := self.next()) != "}":
            if word == "table":
                table = _parse_whole_table(self.names(";"), table.shape, name)
            elif word == "default":
                row = _parse_row(self.names(";"), size, name)
                table[np.isnan(table).all(axis=-1)] = row
            elif word == "(":
                values = self.names(")")
                table[_row_index(values, parents, domains, name)] = _parse_row(
                    self.names(";"), size, name
                )
            else:
                self._place -= 1
                self.skip_block()
        if np.isnan(table).any():
            raise InputError(f"probability of {name!r} leaves out some values of its parents")
        return name, parents, table


def _row_index(
    values: list[str],
    parents: tuple[str, ...],
    domains: dict[str, tuple[str, ...]],
    name: str,
) -> tuple[int, ...]:
    """Return where a row belongs: the numbers of the parents' values."""
    if len(values) != len(parents):
        raise InputError(
            f"probability of {name!r} has a row for {values}; it has {len(parents)} parents"
        )
    for parent, value in zip(parents, values, strict=True):
        if value not in domains[parent]:
            raise InputError(f"probability of {name!r} names {value!r}, no value of {parent!r}")
    return tuple(domains[p].index(value) for p, value in zip(parents, values, strict=True))


def _parse_row(written: list[str], size: int, name: str) -> Floats:
    if len(written) != size:
        raise InputError(f"a row of {name!r} has {len(written)} numbers; it needs {size}")
    return _rescale_printed([_parse_probability(text, name) for text in written], name)


def _parse_whole_table(written: list[str], shape: tuple[int, ...], name: str) -> Floats:
    """Return a table in one list: the variable's own value varies slowest, its last parent
    fastest.
    """
    if len(written) != int(np.prod(shape)):
        raise InputError(
            f"the table of {name!r} has {len(written)} numbers; it needs {int(np.prod(shape))}"
        )
    exact = np.array([_parse_probability(text, name) for text in written], dtype=object)
    by_value = np.moveaxis(exact.reshape(shape[-1], *shape[:-1]), 0, -1).reshape(-1, shape[-1])
    return np.array([_rescale_printed(list(row), name) for row in by_value]).reshape(shape)


def _rescale_printed(row: list[Decimal], name: str) -> Floats:
    """Return the row as doubles; divided by its sum when only the rounding of its digits is off."""
    total = sum(row, Decimal(0))
    if abs(total - 1) > MAX_PRINTED_ERROR:
        raise InputError(f"a row of {name!r} sums to {total}; it must sum to 1")
    exact = total == 1
    return np.array([float(number if exact else number / total) for number in row])


def _parse_probability(text: str, name: str) -> Decimal:
    """Return a decimal between 0 and 1; refused when the text is none."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    if not (number.is_finite() and 0 <= number <= 1):
        raise InputError(f"probability of {name!r} holds {text!r}; it must be between 0 and 1")
    return number


# Networks made by other software, recognised by their methods.


class ForeignTable(NamedTuple):
    """A variable of another library's network: its table has an axis per parent, its own last."""

    name: str
    values: tuple[str, ...]
    parents: tuple[str, ...]
    table: Floats


def network_from_object(network: Any) -> BayesNet:
    """Return the network of a pgmpy object (it has get_cpds) or a pyAgrum one (it has cpt).

    Rows that miss 1 by at most 1e-3, as tables printed with a few digits do, are divided by their
    sum; rows further off are refused.
    """
    if hasattr(network, "get_cpds") and hasattr(network, "nodes"):
        laws = [_from_pgmpy(network, node) for node in network.nodes()]
    elif hasattr(network, "cpt") and hasattr(network, "names") and hasattr(network, "variable"):
        laws = [_from_pyagrum(network, str(name)) for name in network.names()]
    else:
        raise InputError(
            f"network is a {type(network).__name__}; it must have pgmpy's get_cpds and nodes, or "
            "pyAgrum's cpt, names and variable (or store it as .bif and use BayesNet.from_bif)"
        )
    return BayesNet(
        variables=tuple(law.name for law in laws),
        domains=tuple(law.values for law in laws),
        parents=tuple(law.parents for law in laws),
        tables=tuple(_rescale_rows(law.table) for law in laws),
    )


def _from_pgmpy(network: Any, node: Any) -> ForeignTable:
    """Return a pgmpy TabularCPD as a table: its axes are the variable, then its parents."""
    law = network.get_cpds(node)
    if law is None:
        raise InputError(f"the network has no table for {node!r}; add its CPD first")
    values = tuple(label(value) for value in law.state_names[node])
    table = np.moveaxis(np.asarray(law.values, dtype=np.float64), 0, -1)
    return ForeignTable(str(node), values, tuple(map(str, law.variables[1:])), table)


def _from_pyagrum(network: Any, name: str) -> ForeignTable:
    """Return a pyAgrum CPT as a table: its axes are its list of names, reversed."""
    law = network.cpt(name)
    axes = [str(axis) for axis in reversed(list(law.names))]
    values = tuple(label(value) for value in network.variable(name).labels())
    table = np.moveaxis(np.asarray(law.toarray(), dtype=np.float64), axes.index(name), -1)
    return ForeignTable(name, values, tuple(axis for axis in axes if axis != name), table)


def _rescale_rows(table: Floats) -> Floats:
    totals = table.sum(axis=-1, keepdims=True)
    return np.where(np.abs(totals - 1.0) <= float(MAX_PRINTED_ERROR), table / totals, table)
