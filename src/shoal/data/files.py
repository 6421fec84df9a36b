"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from shoal.core.errors import DataError


def atomic_write(
    path: str | os.PathLike[str],
    content: bytes | str,
    *,
    durable: bool = True,
    private: bool = False,
) -> Path:
    """The path written: `content` (text as UTF-8) is in place and on the disk, or nothing changed.

    Written to a hidden file in the same folder, flushed, then renamed over the target; a link is
    followed. On any failure the hidden file is removed and an existing target is as it was. What
    need not be `durable` is not flushed: a power cut may lose it. What is `private` nobody else on
    this computer may read, from the first byte.
    """
    target = Path(os.path.realpath(path))
    raw = content.encode() if isinstance(content, str) else content
    _check_target(target, path)
    scratch = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        _write_and_rename(raw, scratch, target, durable, private)
    except BaseException as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        if not isinstance(error, OSError):
            raise
        raise DataError(
            f"cannot write {str(path)!r}: {_reason(error)}; nothing was changed, "
            "choose another place or make room"
        ) from None
    return Path(path)


@contextlib.contextmanager
def atomic_fill(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A hidden file to be filled, which is then flushed and renamed to `path`; nothing on failure.

    For what is too large to be held at once; else as `atomic_write`.
    """
    target = Path(os.path.realpath(path))
    _check_target(target, path)
    scratch = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        yield scratch
        with scratch.open("rb") as filled:
            os.fsync(filled.fileno())
        os.replace(scratch, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise DataError(
            f"cannot write {str(path)!r}: {_reason(error)}; nothing was changed, "
            "choose another place or make room"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse, before long work or a charge, a path that `atomic_write` could not write."""
    target = Path(os.path.realpath(path))
    _check_target(target, path)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise DataError(
            f"cannot write {str(path)!r}: the folder {str(target.parent)!r} does not allow it; "
            "choose another place or change its permissions"
        )


def _check_target(target: Path, path: str | os.PathLike[str]) -> None:
    if not target.name or target.is_dir():
        raise DataError(f"cannot write {str(path)!r}: it is a folder; name a file inside it")
    if not target.parent.is_dir():
        raise DataError(
            f"cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; "
            "create it first or choose another place"
        )
    if target.exists() and not target.is_file():
        raise DataError(
            f"cannot write {str(path)!r}: it is a device, not a file; name an ordinary file"
        )


def _write_and_rename(
    raw: bytes, scratch: Path, target: Path, durable: bool, private: bool
) -> None:
    # a new file gets the usual permissions, an old one keeps its own
    mode = 0o600 if private else 0o666
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        if target.exists() and not private:
            os.chmod(scratch, target.stat().st_mode & 0o777)
        stream.write(raw)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    os.replace(scratch, target)
    if durable:
        _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system lets folders be flushed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
