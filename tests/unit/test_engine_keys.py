"""The key of a live stream lies where its checkpoint lies; bad rows are answered and passed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.core.errors import InputError
from shoal.jobs.live import NO_DAY, NO_ORDER, NO_SUBJECT, UNUSABLE, Live, LiveReading, stream_key
from shoal.jobs.spark import KEY, checkpoint_key
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from tests.locations import running_task
from tests.unit.test_engine_live import SECRET, masked  # noqa: F401


class Store:
    """An object store as Hadoop's file system shows it, without Java: names to bytes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.modes: dict[str, str] = {}

    def session(self) -> Any:
        store = self

        class HadoopPath:
            def __init__(self, name: str) -> None:
                self.name = name

            def getFileSystem(self, conf: object) -> Store:  # noqa: N802 - Hadoop's own name
                if not self.name.startswith("mem://"):
                    from py4j.protocol import Py4JError

                    raise Py4JError("UnsupportedFileSystemException: No FileSystem for scheme")
                return store

            def getParent(self) -> HadoopPath:  # noqa: N802 - Hadoop's own name
                return HadoopPath(self.name.rpartition("/")[0])

        permission = SimpleNamespace(FsPermission=str)
        fs = SimpleNamespace(Path=HadoopPath, permission=permission)
        names: Any = SimpleNamespace(fs=fs)
        jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=names)))
        return SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))

    def exists(self, path: Any) -> bool:
        return path.name in self.objects

    def mkdirs(self, path: Any) -> None:
        """Object stores have no folders."""

    def create(self, path: Any) -> Any:
        self.objects[path.name] = b""

        def write(raw: bytearray) -> None:
            self.objects[path.name] += bytes(raw)

        return SimpleNamespace(write=write, close=lambda: None)

    def setPermission(self, path: Any, mode: str) -> None:  # noqa: N802 - Hadoop's own name
        assert not self.objects[path.name]  # nothing is in it yet
        self.modes[path.name] = mode

    def rename(self, made: Any, path: Any) -> bool:
        if path.name in self.objects:
            return False
        self.objects[path.name] = self.objects.pop(made.name)
        self.modes[path.name] = self.modes.pop(made.name)
        return True

    def delete(self, path: Any, deep: bool) -> None:
        del self.objects[path.name]

    def open(self, path: Any) -> Any:
        raw = self.objects[path.name]
        signed = [byte - 256 if byte > 127 else byte for byte in raw]  # as Java hands bytes over
        return SimpleNamespace(readAllBytes=lambda: signed, close=lambda: None)


@pytest.mark.engines
def test_a_key_in_an_object_store_is_made_once_and_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    store = Store()
    spark = store.session()
    key = checkpoint_key(spark, "mem://bucket/query/")
    assert len(key) == 32
    assert checkpoint_key(spark, "mem://bucket/query") == key
    assert list(store.objects) == [f"mem://bucket/query/{KEY}"]
    assert store.modes == {f"mem://bucket/query/{KEY}": "600"}
    assert list(tmp_path.iterdir()) == []  # no folder called "mem:"
    store.objects[f"mem://bucket/query/{KEY}"] = b"no key"
    with pytest.raises(InputError, match="does not hold a stream's key"):
        checkpoint_key(spark, "mem://bucket/query")
    with pytest.raises(InputError, match=r"which Spark cannot reach .*No FileSystem for"):
        checkpoint_key(spark, "s3a://bucket/query")


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_key_of_a_local_checkpoint_is_one_file(tmp_path: Path, scheme: str) -> None:
    key = checkpoint_key(None, f"{scheme}{tmp_path}/query")
    assert key == stream_key(tmp_path / "query" / KEY)
    assert [path.name for path in (tmp_path / "query").iterdir()] == [KEY]


def test_programs_that_begin_at_once_get_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: stream_key(tmp_path / "q" / KEY), range(16)))
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "q").iterdir()] == [KEY]
    assert (tmp_path / "q" / KEY).stat().st_mode & 0o777 == 0o600


def test_bad_rows_of_places_are_answered_and_the_stream_goes_on(tmp_path: Path) -> None:
    plan = calibrate_and_check(MECHANISMS["location-laplace"], running_task(), 1)  # type: ignore[arg-type]
    states = plan.task.query.states
    live = Live.of(plan, SECRET, ledger=str(tmp_path / "b.db"))
    good = [LiveReading("", 1, states[0]), LiveReading("", 3, states[1])]
    state, told = live.advance("ann", None, [good[0], LiveReading("", 2, "nowhere"), good[1]])
    assert [row.error for row in told] == [None, UNUSABLE, None]
    assert [bool(row.cells) for row in told] == [True, False, True]
    _, alone = live.advance("ann", None, good)
    assert [row.cells for row in alone] == [told[0].cells, told[2].cells]
    again, late = live.advance("ann", state, [LiveReading("", None, states[0])])
    assert (again, late[0].error) == (state, NO_ORDER)
    assert live.advance("", None, good)[1][0].error == NO_SUBJECT
    nobody, starred = live.advance("*", None, good)
    assert [row.error for row in starred] == [UNUSABLE, UNUSABLE]
    assert "nowhere" not in str(told) + nobody


def test_bad_rows_of_contexts_are_answered_and_the_day_goes_on(masked: Any) -> None:  # noqa: F811
    live = Live.of(masked, SECRET)
    rows = [
        LiveReading("2024-03-01", 0, "home"),
        LiveReading(None, 1, "clinic"),
        LiveReading("", 2, "clinic"),
    ]
    _, told = live.advance("ann", None, rows)
    assert sorted(row.error or "" for row in told) == ["", NO_DAY, NO_DAY]
    assert "clinic" not in str(told)
