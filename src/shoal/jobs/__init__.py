"""Many users, many files: the same release, for everybody, on one machine or on Spark.

Read `job` for what a job is, `census` and `drawing` for what happens to one shard of subjects,
`local` and `spark` for who does it.
"""

from __future__ import annotations
