"""Jobs: release the data of many subjects in many files, on one machine or on Spark.

Read `job` for what a job is, `census` and `drawing` for what happens to one shard of subjects,
`local` and `spark` for the engines that run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.jobs.report import JobReport as JobReport

__getattr__, __dir__, __all__ = lazy_exports(__name__)
