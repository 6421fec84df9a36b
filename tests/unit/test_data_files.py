"""Files are there whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

import pytest

from shoal.core.errors import DataError
from shoal.data.write import atomic_write, check_writable


def no_room(*_: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_text_and_bytes_are_written_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert atomic_write(target, "héllo") == target
    assert target.read_bytes() == "héllo".encode()
    atomic_write(str(target), b"\x00\x01")
    assert target.read_bytes() == b"\x00\x01"
    assert os.listdir(tmp_path) == ["out.json"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    target = tmp_path / "out.json"
    target.write_text("before")
    monkeypatch.setattr(os, broken, no_room)
    with pytest.raises(DataError, match="no space left on device; nothing was changed"):
        atomic_write(target, "after")
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_failed_first_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(DataError):
        atomic_write(tmp_path / "out.json", "after")
    assert os.listdir(tmp_path) == []


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(tmp_path / "out.json", "after")
    assert os.listdir(tmp_path) == []


def test_the_content_is_flushed_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def fsynced(descriptor: int) -> None:
        calls.append("fsync")
        fsync(descriptor)

    def replaced(source: Any, target: Any) -> None:
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsynced)
    monkeypatch.setattr(os, "replace", replaced)
    atomic_write(tmp_path / "out.json", "x")
    assert calls == ["fsync", "replace", "fsync"]  # the last one is the folder


@pytest.mark.parametrize("check", [check_writable, lambda path: atomic_write(path, "x")])
def test_places_that_cannot_be_written(tmp_path: Path, check: Any) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    with pytest.raises(DataError, match=r"there is no folder .*; create it first"):
        check(tmp_path / "missing" / "out.json")
    with pytest.raises(DataError, match="there is no folder"):
        check(plain / "out.json")
    with pytest.raises(DataError, match="it is a folder; name a file inside it"):
        check(tmp_path)
    with pytest.raises(DataError, match="it is a device, not a file"):
        check(os.devnull)
    assert plain.read_text() == "x"


def test_a_folder_without_permission_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match="does not allow it"):
        check_writable(tmp_path / "out.json")


def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("before")
    real.chmod(0o640)
    link.symlink_to(real)
    atomic_write(link, "after")
    assert link.is_symlink()
    assert real.read_text() == "after"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_what_is_private_can_be_read_by_nobody_else_from_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, modes = tmp_path / "state.json", []
    state.write_text("before")
    state.chmod(0o644)

    def renamed(scratch: Path, target: Path) -> None:
        modes.append(stat.S_IMODE(scratch.stat().st_mode))
        scratch.rename(target)

    opened, real = [], os.open

    def noted(path: Any, flags: int, mode: int = 0o777) -> int:
        opened.append(mode)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "open", noted)
    atomic_write(state, "after", private=True, durable=False)
    assert (opened, modes) == ([0o600], [0o600])
    assert state.read_text() == "after"
