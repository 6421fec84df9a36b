"""A ledger opened to be charged, which is not left behind empty when nothing was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.ledger.store import SqlLedger, open_ledger


@contextmanager
def ledger_or_nothing(where: str) -> Iterator[SqlLedger]:
    """The ledger, made when absent; a file that was made here and holds nothing goes again.

    Only when the work inside fails: a command that was refused leaves no trace.
    """
    new = "://" not in where and not Path(where).exists()
    empty = False
    try:
        with open_ledger(where) as ledger:
            try:
                yield ledger
            except BaseException:
                empty = new and not (ledger.accounts() or ledger.limits())
                raise
    finally:
        if empty:
            _remove(Path(where))


def _remove(path: Path) -> None:
    for name in (path, *(path.with_name(path.name + tail) for tail in ("-wal", "-shm"))):
        with suppress(OSError):
            name.unlink()
