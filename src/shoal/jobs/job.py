"""The definition of a job: one plan or one per group, input files, columns and output folder."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from shoal.core.charge import check_periods, refuse_seed
from shoal.core.errors import DataError, InputError, StoredError
from shoal.core.family import plan_act
from shoal.core.plan import Plan, Sampler
from shoal.core.records import shown_names
from shoal.core.registry import dumps, loads
from shoal.data.rows import MISSING
from shoal.data.write import atomic_write
from shoal.jobs.inputs import InputFile, Layout, find_inputs, guessed_rows
from shoal.jobs.journal import fits
from shoal.mechanisms.table import LOSS_TOLERANCE, verify_promise
from shoal.spec.fields import parse_stored, read_text
from shoal.spec.request import DataSection, parse_request

if TYPE_CHECKING:
    from shoal.jobs.tidy import Locator


Parts = Callable[[DataSection | None], bool]


def job_plans(
    source: Path, parts: Parts = lambda data: False
) -> tuple[dict[str, Plan], DataSection | None]:
    """Return the plan of each group, and the [data] section of the first spec.

    `source` is a spec or stored plan for all subjects (the group ""), or a folder of them, each
    named after its group. `parts` tells of a [data] section whether releases are about parts of
    a series, so that epsilon covers all of them together. Equal tasks are calibrated once.
    """
    known: dict[object, Plan] = {}
    if not source.is_dir():
        plan, data = _load(source, known, parts)
        return {"": plan}, data
    files = sorted(path for path in source.iterdir() if path.suffix in (".toml", ".json"))
    if not files:
        raise InputError(
            f"{str(source)!r} holds no spec; put one GROUP.toml or GROUP.json there per group"
        )
    loaded = {path.stem: _load(path, known, parts) for path in files}
    if len(loaded) < len(files):
        raise InputError(f"{str(source)!r} holds two files for one group; keep one of them")
    data = next((section for _, section in loaded.values() if section is not None), None)
    return {group: plan for group, (plan, _) in loaded.items()}, data


def _load(path: Path, known: dict[object, Plan], parts: Parts) -> tuple[Plan, DataSection | None]:
    """Return the plan in the file `path`, and the [data] section if the file is a spec.

    A file that begins with "{" is a stored plan and is evaluated again. `known` maps tasks to plans
    calibrated before; a new plan is added to it. `parts` says whether epsilon covers all parts.
    """
    text = read_text(path, "spec or plan")
    if text.lstrip().startswith("{"):
        return recheck_plan(parse_stored(text, path, "plan"), path), None
    request = parse_request(text, folder=path.parent, name=str(path))
    own = "parts" if parts(request.data) else request.mechanism
    asked = (request.task, request.epsilon(), own)
    if asked not in known:
        known[asked] = request.plan(parts=own == "parts")
    return known[asked], request.data


def recheck_plan(stored: object, path: Path) -> Plan:
    """Return a stored plan after evaluating its promise again; refused when it does not hold."""
    if not isinstance(stored, Plan):
        raise StoredError(
            f"{str(path)!r} holds a {type(stored).__name__}, not a plan; "
            "store one with `shoal plan SPEC --save FILE`"
        )
    try:
        measured = verify_promise(stored)
    except (AttributeError, TypeError, LookupError, ArithmeticError, ValueError):
        raise StoredError(
            f"plan {str(path)!r} has parts of other kinds than its mechanism draws with: the file "
            "was changed; make it again with `shoal plan`"
        ) from None
    if not measured <= float(stored.guarantee.amount) * (1 + LOSS_TOLERANCE):
        raise StoredError(
            f"plan {str(path)!r} promises {float(stored.guarantee.amount):g} but its noise gives "
            f"{measured:g}: the file was changed; make it again with `shoal plan`"
        )
    return stored


NOTES = "_shoal"  # the private folder inside the output: journal, plans, refusals
SCHEMA = "shoal-job/1"
MEMORY = 160 * 2**20  # most bytes of a shard; larger ones do not fit in the processor's cache
ROW_BYTES = 160  # bytes per row of a shard while it is sorted, measured (docs/scale.md)
MOST_SHARDS = 512
MOST_STORED = 100_000  # most shards of a stored job; Spark uses twice as many shards as cores
MANY_STEPS = 50_000  # least number of stream steps for which several threads are faster
ALL = ""  # the group of all subjects when the plans are not per group


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything that decides what a job releases; stored before it begins.

    `plans` maps each group to its plan, or "" to the one for all. `name` is the first part of
    every ledger key: the same name returns stored values, another name makes new releases.
    """

    out: Path
    name: str
    plans: Mapping[str, Plan]
    layout: Layout
    inputs: tuple[InputFile, ...]
    shards: int
    ledger: str | None = None
    period: str = ""
    requester: str = ""
    skip_bad: bool = False
    seed: int | None = None
    engine: str = "local"

    @classmethod
    def of(
        cls,
        plans: Plan | Mapping[str, Plan],
        data: str | os.PathLike[str],
        *,
        out: str | os.PathLike[str],
        layout: Layout,
        name: str | None = None,
        memory: int = MEMORY,
        **rest: Any,
    ) -> Self:
        """Return a job over the files that `data` names; `memory` bounds the bytes of a shard."""
        folder = Path(out)
        files = find_inputs(data, folder)
        rows = sum(map(guessed_rows, files))
        by_group = {ALL: plans} if isinstance(plans, Plan) else dict(plans)
        shards = max(1, -(-rows * ROW_BYTES // memory))
        if rows >= MANY_STEPS and any(map(_is_stream, by_group.values())):
            shards = max(shards, 4 * (os.cpu_count() or 1))
        return cls(
            out=folder,
            name=name or secrets.token_hex(8),
            plans=by_group,
            layout=layout,
            inputs=files,
            shards=min(MOST_SHARDS, shards),
            **rest,
        )

    def __post_init__(self) -> None:
        """Refuse a job whose plans, layout, seed and ledger do not go together."""
        if not self.plans:
            raise InputError("the job has no plan; give one, or one per group")
        if (ALL in self.plans) != (self.layout.group is None):
            raise InputError(
                "plans per group need the column that names the group, and one plan for all needs "
                "none; give both or neither"
            )
        refuse_seed(self.seed is not None and self.ledger is not None)
        streams = {_is_stream(plan) for plan in self.plans.values()}
        if len(streams) > 1:
            raise InputError("some plans are for streams and some for single releases; split them")
        self._check_periods()
        self._check_members()
        self._check_rows()
        self.maps()

    def _check_periods(self) -> None:
        """Refuse periods of a series unless the caller says "parts" or "independent".

        Days of contexts need no such claim: their model is of one day.
        """
        layout = self.layout
        if layout.every is not None and self.stream:
            raise InputError(
                f"every is {layout.every!r}, and the plans answer row by row; it is for single "
                "releases: drop it"
            )
        if layout.period is None or _by_days(self.plans):
            return
        claim = check_periods(layout.periods, f"the column {layout.period!r}")
        if claim == "parts" and self.stream:
            raise InputError(
                'periods is "parts", but steps of a stream add over all of it; name no column of '
                'periods, or say "independent"'
            )

    def _check_members(self) -> None:
        """Refuse `members` for streams and for jobs without a ledger."""
        members = self.layout.members
        if members is not None and (self.stream or self.ledger is None):
            lack = "the plans answer row by row" if self.stream else "there is no ledger"
            raise InputError(
                f"members is {members!r}, for single releases that a ledger charges, and {lack}; "
                "drop it"
            )

    def _check_rows(self) -> None:
        """Refuse options for bins and missing states that do not suit the plans' states."""
        layout, states = self.layout, self.states
        if self.stream and layout.missing in ("gap", "state"):
            raise InputError(
                f"missing is {layout.missing!r}, which is for single releases; in a stream a row "
                "without a state is a step that shows nothing: leave it out, or say 'drop'"
            )
        wanted = () if layout.edges is None else layout.edges.labels
        if layout.missing == "state":
            wanted = (*wanted, MISSING)
        lacking = next((name for name in wanted if name not in states), None)
        if lacking is not None:
            raise InputError(
                f"the model has no state {lacking!r}, which the rows would be read as; its states "
                f"are {shown_names(states)}: fit it with the same bins and missing"
            )

    @property
    def notes(self) -> Path:
        """The private folder of the journal, the stored plans and the refusals."""
        return self.out / NOTES

    @property
    def stream(self) -> bool:
        """Whether the plans are for streams."""
        return any(_is_stream(plan) for plan in self.plans.values())

    @property
    def states(self) -> tuple[str, ...]:
        """The states of all plans, each once."""
        named = (state for plan in self.plans.values() for state in plan.task.query.states)
        return tuple(dict.fromkeys(named)) or ("",)  # "": the state of rows of numbers

    def maps(self) -> Locator | None:
        """Return the locator that turns coordinates into states; None when rows name states."""
        if self.layout.latitude is None:
            return None
        plan = next(iter(self.plans.values()))
        own = plan_act("job", plan)
        if own is None or own.maps is None:
            raise InputError(
                f"latitude and longitude are given, but the model of {plan.mechanism} has no map; "
                "name the column of the states instead"
            )
        found: Locator = own.maps(self.plans, self.states)
        return found

    def store(self) -> None:
        """Write the definition and the plans into the notes; refused when a job is stored there."""
        taken = _is_occupied(self.out)  # first, since a concurrent job adds files
        if (self.notes / "job.json").exists():
            raise DataError(
                f"{str(self.out)!r} holds a job already; go on with `shoal job resume "
                f"{self.out}`, or choose another folder"
            )
        if taken:
            raise DataError(f"{str(self.out)!r} is not an empty folder; choose another one")
        self._claim()
        (self.notes / "plans").mkdir()
        for plan in self.plans.values():
            atomic_write(self.notes / "plans" / f"{plan.fingerprint}.json", dumps(plan))
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False)
        atomic_write(self.notes / "job.json", text + "\n")

    def _claim(self) -> None:
        """Create the folder of notes; of two jobs that begin at once, one is refused.

        Only the user may read it: refusals and intermediate rows are as private as the data.
        """
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self.notes.mkdir(mode=0o700)
        except FileExistsError:
            raise DataError(
                f"another job has just begun in {str(self.out)!r}; let it finish, or choose "
                "another folder"
            ) from None
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise DataError(
                f"cannot make the folder {str(self.out)!r}: {reason}; choose another one"
            ) from None

    def as_dict(self) -> dict[str, Any]:
        """Return the job as plain JSON data, without the plans and the ledger's password."""
        return {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in STORED},
            "plans": {group: plan.fingerprint for group, plan in self.plans.items()},
            "layout": self.layout.as_dict(),
            "inputs": [list(file) for file in self.inputs],
            "ledger": None if self.ledger is None else _without_password(self.ledger),
        }


def load_job(out: str | os.PathLike[str], *, ledger: str | None = None) -> Job:
    """Return the job stored in a folder.

    `ledger` must be given again when its address contains a password, which is not stored."""
    try:
        text = (Path(out) / NOTES / "job.json").read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{str(out)!r} holds no job; check the folder") from None
    except (ValueError, OSError):
        text = ""
    try:
        found = json.loads(text)
        if fits(found, {"schema": str}) and found["schema"] != SCHEMA:
            raise StoredError(
                f"the job in {str(out)!r} was made by another version of this program"
            )
        return _stored_job(Path(out), found, ledger)
    except StoredError:
        raise
    except (ValueError, TypeError, ArithmeticError, OSError, RecursionError):
        raise StoredError(
            f"the job in {str(out)!r} was changed or damaged; start it again in another folder, "
            "under the same --key if it has a ledger"
        ) from None


STORED = {  # the JSON shape of a stored job
    "name": str,
    "plans": {str: str},
    "layout": dict,
    "inputs": [[str, int, int]],
    "shards": int,
    "ledger": (str, type(None)),
    "period": str,
    "requester": str,
    "skip_bad": bool,
    "seed": (int, type(None)),
    "engine": str,
}


def _stored_job(out: Path, found: dict[str, Any], ledger: str | None) -> Job:
    """Build the job from stored data; raises various errors when `store` did not write it."""
    if not fits(found, STORED) or not 0 < found["shards"] <= MOST_STORED:
        raise TypeError("not the shape of a job")
    fields: dict[str, Any] = {name: found.get(name) for name in STORED}
    fields["plans"] = {group: _stored_plan(out, name) for group, name in found["plans"].items()}
    fields["layout"] = Layout.of(found["layout"])
    fields["inputs"] = tuple(InputFile(*file) for file in found["inputs"])
    return Job(out=out, **{**fields, "ledger": ledger or fields["ledger"]})


def _stored_plan(out: Path, name: str) -> Plan:
    """Load the plan with this fingerprint from the notes."""
    path = out / NOTES / "plans" / f"{name}.json"
    plan = loads(path.read_text(encoding="utf-8"))
    if not isinstance(plan, Plan) or plan.fingerprint != name:
        raise StoredError(f"{str(path)!r} holds another plan than the job was begun with")
    return plan


def _is_occupied(folder: Path) -> bool:
    """Return whether the path is not a folder, or a folder with files other than a job's notes.

    A concurrent job may create its notes meanwhile; `_claim` decides between the two.
    """
    if not folder.is_dir():
        return folder.exists()
    return any(entry.name != NOTES for entry in folder.iterdir())


def calendar(
    plans: Plan | Mapping[str, Plan], time: str | None, period: str | None
) -> dict[str, Any]:
    """Return the layout's calendar options for plans about days or weeks."""
    listed = [plans] if isinstance(plans, Plan) else list(plans.values())
    if time is None or period is not None:
        return {}
    own = {job.calendar(plan) for plan in listed if (job := plan_act("job", plan)) is not None}
    if len(own - {None}) > 1:
        raise InputError("some plans are about a day and some about a week; run a job for each")
    return {"daily": "day" in own, "weekly": "week" in own}


def _by_days(plans: Mapping[str, Plan]) -> bool:
    """Return whether the plans are about days or weeks that are charged as a whole."""
    own = [plan_act("job", plan) for plan in plans.values()]
    return any(job is not None and job.by_days for job in own)


def _is_stream(plan: Plan) -> bool:
    return not isinstance(plan.body, Sampler)


def _without_password(url: str) -> str:
    if "://" not in url:
        return os.path.abspath(url)
    from shoal.ledger.database import shown

    return shown(url)
