"""A Spark session to work in, and sentences for what stands in its way."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.engines.job import Job


def session_of(session: Any = None, **settings: str) -> Any:
    """The session given, the active one, or a new one with `settings`.

    Workers run the Python of this program: PYSPARK_PYTHON is set unless somebody set it.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError(
            "the Spark engine needs pyspark; install it with: pip install 'shoal[spark]'"
        ) from None
    if session is not None:
        return session
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    builder = SparkSession.builder.appName("shoal")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_java() -> None:
    """Refuse, in a sentence, to start Spark where there is no Java."""
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    if not found:
        where = f"JAVA_HOME is {home!r}, which has none" if home else "none is on the path"
        raise InputError(
            f"Spark needs a Java runtime, version 17 or later, and {where}; install one (Debian: "
            "apt-get install openjdk-17-jre-headless), or use --engine local"
        )


def check_reach(spark: Any, job: Job) -> None:
    """Refuse a ledger that workers on other machines cannot reach."""
    local = str(spark.sparkContext.master).startswith("local")
    if job.ledger is not None and "://" not in job.ledger and not local:
        raise InputError(
            f"the ledger is the file {job.ledger!r}, which workers on other machines cannot reach; "
            "use a PostgreSQL ledger"
        )
