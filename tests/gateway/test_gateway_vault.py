"""Sealed states: bound to their place, padded, opened by old keys, never by strangers'."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.errors import InputError, StoredError
from shoal.gateway.vault import Vault, new_key, parse_keys, read_keys, write_key


def vault(*lines: str) -> Vault:
    return Vault(parse_keys(",".join(lines)))


def test_what_is_sealed_opens_in_its_place_only() -> None:
    keys = vault(new_key())
    name, sealed = keys.seal(b"secret", "one|s|7", 64)
    assert keys.open(name, sealed, "one|s|7") == b"secret"
    for place in ("two|s|7", "one|t|7", "one|s|8"):
        with pytest.raises(StoredError, match="changed, or moved"):
            keys.open(name, sealed, place)
    with pytest.raises(StoredError, match="changed, or moved"):
        keys.open(name, sealed[:-1] + bytes([sealed[-1] ^ 1]), "one|s|7")


def test_lengths_tell_nothing_and_nonces_are_fresh() -> None:
    keys = vault(new_key())
    sealed = [keys.seal(b"x" * n, "p", 64)[1] for n in (0, 1, 30, 60)]
    assert len({len(each) for each in sealed}) == 1
    assert len({keys.seal(b"x", "p", 64)[1] for _ in range(50)}) == 50


def test_old_states_open_after_rotation_and_new_ones_take_the_new_key() -> None:
    old, new = new_key(), new_key()
    name, sealed = vault(old).seal(b"s", "p", 64)
    rotated = vault(new, old)
    assert rotated.open(name, sealed, "p") == b"s"
    assert rotated.seal(b"s", "p", 64)[0] == new.partition(":")[0]
    with pytest.raises(StoredError, match="which is not given"):
        vault(new).open(name, sealed, "p")


def test_keys_are_read_from_a_file_that_nobody_else_may_read(tmp_path: Path) -> None:
    path = tmp_path / "states.key"
    assert read_keys("", path) == []
    write_key(path)
    write_key(path)
    assert len(read_keys("", path)) == 2
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    with pytest.raises(InputError, match="may be read by others"):
        read_keys("", path)


def test_bad_keys_are_refused() -> None:
    with pytest.raises(InputError, match="not NAME:BASE64"):
        parse_keys("name:short")
    with pytest.raises(InputError, match="no key for states"):
        Vault([])
