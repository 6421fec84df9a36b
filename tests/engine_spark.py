"""One Spark session for all tests of a process; without Java they are skipped and say so."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from shoal.core.errors import InputError
from shoal.jobs.spark import PATIENT, check_java

# all in one worker: a session takes about ten seconds to start
GROUP = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="session", name="spark")
def spark_session() -> Any:
    """A session with two cores, in which a failed task is tried again up to three times."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    try:
        check_java()
    except InputError as error:
        pytest.skip(str(error))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        **PATIENT,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }
    builder = SparkSession.builder.master("local[2, 4]").appName("shoal tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
