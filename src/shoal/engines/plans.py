"""Plans for a job: one for everybody or one per group, each distinct task calibrated once."""

from __future__ import annotations

from pathlib import Path

from shoal.core.codec import digest
from shoal.core.errors import InputError, StoredError
from shoal.core.plan import Plan
from shoal.data.files import atomic_write
from shoal.kinds import dumps
from shoal.mechanisms import LOSS_TOLERANCE, choose, recheck
from shoal.spec.document import DataSection
from shoal.spec.request import Request, parse_request
from shoal.spec.stored import load_stored, parse_stored, read_text


class PlanCache:
    """Calibrated plans by the fingerprint of what was asked: task, amount and mechanism.

    With a `folder` they are kept for later jobs too; a plan from there is evaluated again before
    it is used, because somebody may have changed the file.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, Plan] = {}
        self.calibrations = 0

    def plan(self, request: Request) -> Plan:
        """The plan of a request, calibrated only when nobody asked for the same before."""
        amount = request.epsilon()
        asked = digest([request.task.fingerprint, str(amount), request.mechanism])
        if asked not in self._known:
            self._known[asked] = self._stored(asked) or self._calibrated(request, asked)
        return self._known[asked]

    def _calibrated(self, request: Request, asked: str) -> Plan:
        plan = choose(request.task, request.epsilon(), request.mechanism, every=False).plan
        self.calibrations += 1
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self._folder / f"{asked}.json", dumps(plan) + "\n")
        return plan

    def _stored(self, asked: str) -> Plan | None:
        if self._folder is None or not (self._folder / f"{asked}.json").exists():
            return None
        path = self._folder / f"{asked}.json"
        return rechecked(load_stored(path, "cached plan"), path)


def job_plans(
    source: Path, cache: PlanCache | None = None
) -> tuple[dict[str, Plan], DataSection | None]:
    """Group to plan, and where the first spec says the data is.

    `source` is a spec or a stored plan, for everybody (the group ""), or a folder of them, each
    named after its group.
    """
    cache = cache or PlanCache()
    if not source.is_dir():
        plan, data = _load(source, cache)
        return {"": plan}, data
    files = sorted(path for path in source.iterdir() if path.suffix in (".toml", ".json"))
    if not files:
        raise InputError(
            f"{str(source)!r} holds no spec; put one GROUP.toml or GROUP.json there per group"
        )
    loaded = {path.stem: _load(path, cache) for path in files}
    if len(loaded) < len(files):
        raise InputError(f"{str(source)!r} holds two files for one group; keep one of them")
    data = next((section for _, section in loaded.values() if section is not None), None)
    return {group: plan for group, (plan, _) in loaded.items()}, data


def rechecked(stored: object, path: Path) -> Plan:
    """A stored plan whose promise still holds when evaluated again."""
    if not isinstance(stored, Plan):
        raise StoredError(
            f"{str(path)!r} holds a {type(stored).__name__}, not a plan; "
            "store one with `shoal plan SPEC --save FILE`"
        )
    measured = recheck(stored)
    if not measured <= float(stored.guarantee.amount) * (1 + LOSS_TOLERANCE):
        raise StoredError(
            f"plan {str(path)!r} promises {float(stored.guarantee.amount):g} but its noise gives "
            f"{measured:g}: the file was changed; make it again with `shoal plan`"
        )
    return stored


def _load(path: Path, cache: PlanCache) -> tuple[Plan, DataSection | None]:
    text = read_text(path, "spec or plan")
    if text.lstrip().startswith("{"):
        return rechecked(parse_stored(text, path, "plan"), path), None
    request = parse_request(text, folder=path.parent, name=str(path))
    return cache.plan(request), request.data
