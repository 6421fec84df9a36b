"""Stored plans and models read back from files, trusted only when nobody touched them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.core.errors import InputError, StoredError


def read_text(path: Path, what: str) -> str:
    """The text of a file; refused in a sentence when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors mark the beginning
    except FileNotFoundError:
        raise InputError(f"{what} {str(path)!r} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{what} {str(path)!r} is a folder; name a file inside it") from None
    except UnicodeDecodeError:
        raise InputError(f"{what} {str(path)!r} is not text in UTF-8; check the path") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"{what} {str(path)!r} cannot be read: {reason}") from None


def load_stored(path: Path, what: str) -> Any:
    """The value stored in `path`; refused when the file was edited, damaged or never was one."""
    text = read_text(path, what)
    return parse_stored(text, path, what)


def parse_stored(text: str, path: Path, what: str) -> Any:
    """The value of a stored document; `path` and `what` are for the refusal only."""
    from shoal.kinds import loads

    try:
        return loads(text)
    except StoredError as error:
        raise StoredError(f"{what} {str(path)!r}: {error}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        # whatever an edited field breaks on its way through the constructors
        raise StoredError(
            f"{what} {str(path)!r} was edited or damaged ({error}); "
            "make it again instead of changing it by hand"
        ) from None
