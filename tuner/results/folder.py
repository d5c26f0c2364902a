"""A run's folder: ``run.json``, written whole; lines are appended of finished trials, and of bundles."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from filelock import FileLock, Timeout

from tuner.errors import PlanError, RunError, first_line
from tuner.files import private_folder, write_private
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import DataPlan
from tuner.plan.trial import TrialPlan
from tuner.reading import read_bytes
from tuner.results.kinds import Kind
from tuner.results.records.baseline import UNTOUCHED, Baseline
from tuner.results.records.classes import Classes
from tuner.results.records.config import RunConfig
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import Objective
from tuner.targets import Targets
from tuner.targets.base import ACCURACY
from tuner.task.contents import TaskContents
from tuner.untrusted import MOST_BYTES, inside, parse_json, read_json, reason_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = 1
FILE, TRIALS, EXPORTS, LOCK = "run.json", "trials.jsonl", "exports.jsonl", "lock"
#: What a run chose its model from, where there were several.
CANDIDATES = "candidates.json"
#: Optuna's journal.
JOURNAL = "journal.log"
MOST_TRIALS_BYTES = 2**29


def weights_of(folder: Path, trial: int) -> Path:
    """Return the file with the weights that a trial of a run trained; trials that nobody needs have none."""
    return folder / "trials" / str(trial) / "weights.safetensors"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a resumed run must have in common with the run in its folder.

    Attributes:
        task: The task's fingerprint.
        space: The search space's content, without its limits.
        deterministic: Whether costs come from FLOPs instead of clocks.
        folds: Folds that judge the plans of the top rung; 0 for none.
    """

    task: str
    space: str
    seed: int
    deterministic: bool
    folds: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used so far, earlier sessions included.

    Attributes:
        seconds: Wall time.
        storage_bytes: Size of the feature store.
        prefix_samples: Samples that went through the frozen prefix in filling passes.
        phases: Seconds by what they were spent on.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"allow_inf_nan": False}

    seconds: float = 0.0
    storage_bytes: int = 0
    prefix_samples: int = 0
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExportInfo:
    """A bundle that was exported, by its folder's name, and its scores on test samples; none where they were left out.

    With ``refit``, the trial was trained again, on its validation samples too.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"allow_inf_nan": False}
    bundle: str
    trial: int
    refit: bool
    scores: dict[str, float] = field(default_factory=dict)
    samples: int = 0


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The content of ``run.json``.

    Attributes:
        identity: What a resumed run is compared with.
        config: What was asked.
        task_name: Name of the task.
        space_name: Name of the search space.
        threads: Threads that features are computed with.
        model: The model's blocks.
        task: The task in numbers.
        objectives: The study's objectives.
        baselines: What the search is compared with: the given model first, then what was fitted; empty until scored.
        spent: Time and storage used.
        ended: Why the run ended.
        plugins: Distribution and version of each plugin that takes part, by name.
        strategies: Names of the strategies that may take part.
        mark: What shows that the run was made on this device; see `tuner.results.records.origin`.
        classes: Names of the classes.
        device: Kind of the device, see `tuner.results.scores.likeness.device_kind`.
        kinds: Kinds of devices that the study ran on, by name; empty where it is not shared.
        kind: The one whose costs the run shows: that of the device of its folder.
        worker: Name of this folder in a shared study.
        notes: What a person should know of the task's files.
        contents: What the task was when the run was made; its hash is `identity.task`.
    """

    identity: Identity
    config: RunConfig
    task_name: str
    space_name: str
    threads: int
    model: ModelInfo
    task: TaskInfo
    objectives: tuple[Objective, ...]
    baselines: tuple[Baseline, ...] = ()
    spent: Spent = Spent()
    ended: str = "interrupted; continue with --resume"
    plugins: dict[str, str] = field(default_factory=dict)
    mark: str = ""
    classes: Classes = field(default_factory=Classes)
    device: str = ""
    kinds: dict[str, Kind] = field(default_factory=dict)
    kind: str = ""
    worker: str = ""
    notes: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    contents: TaskContents = field(default_factory=TaskContents)

    @property
    def targets(self) -> Targets:
        """What a sample's label is."""
        return self.task.targets

    @property
    def template(self) -> TrialPlan:
        """The plan without decisions: the model and the task that all plans of the run share."""
        return TrialPlan(model=self.model, task=self.task)

    @property
    def untouched(self) -> Baseline:
        """The given model; without values until it is scored, which `baselines` tells."""
        return next((one for one in self.baselines if one.name == UNTOUCHED), Baseline(UNTOUCHED))

    def samples_of(self, baseline: Baseline) -> dict[str, int]:
        """Return the number of samples, by domain, that a baseline was scored on."""
        return replace(self.template, data=DataPlan(share=baseline.share, folds=baseline.folds)).scored


def write_run(folder: Path, info: RunInfo) -> None:
    """Write ``run.json`` whole or not at all, readable by the user only."""
    write_private(folder / FILE, json.dumps({"format": FORMAT, **asdict(info)}, indent=1))


def read_run(folder: Path) -> RunInfo:
    """Read ``run.json``.

    Raises:
        RunError: The folder is not a run's, or a newer version wrote it.
    """
    try:
        content = read_json(inside(folder, FILE))
    except FileNotFoundError:
        raise RunError(f"{folder} is not a run: it has no {FILE}; `tuner run TASK --out {folder}` makes one") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / FILE} cannot be read: {reason_of(error)}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise RunError(f"{folder} has run format {found!r:.40}, this version reads {FORMAT}: update tuner")
    return checked_info(content, str(folder / FILE))


def checked_info(content: Any, place: str) -> RunInfo:
    """Return the content of ``run.json``, or of a shared study, if it can be believed; `place` says where it is from.

    Raises:
        RunError: A value is missing, of another type, or does not fit the others.
    """
    from pydantic import ValidationError

    try:
        info = _adapter().validate_python(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise RunError(f"{place} cannot be read: {where}: {error.errors()[0]['msg']}") from None
    blocks, rates = info.model.num_blocks, [kind.rates for kind in info.kinds.values()]
    if any(len(one.forward_seconds) != blocks or len(one.train_seconds) != blocks for one in rates):
        raise RunError(f"{place} cannot be read: kinds: rates must be of {blocks} blocks each: run it again")
    if not all((objective.name + objective.unit).isprintable() for objective in info.objectives):
        raise RunError(f"{place} cannot be read: objectives: a name or unit is no text: run it again")
    rows = len(info.classes.labels)
    if not all(0 <= row < rows for row in info.classes.local) or not 0 <= info.classes.known <= rows:
        raise RunError(f"{place} cannot be read: classes: a row is none of the {rows} labels: run it again")
    return info


@cache
def _adapter() -> "TypeAdapter[RunInfo]":
    from pydantic import TypeAdapter

    return TypeAdapter(RunInfo)


def append_record(folder: Path, record: TrialRecord) -> None:
    """Append a finished trial, readable by the user only, and wait until the disk has it."""
    _append(folder / TRIALS, record.to_dict())


def append_export(folder: Path, export: ExportInfo) -> None:
    """Append a bundle that was exported, likewise; an `OSError` where that is not possible."""
    if (path := inside(folder, EXPORTS)).exists():
        _trim(path)
    _append(path, asdict(export))


def _append(path: Path, content: Mapping[str, Any]) -> None:
    line = json.dumps(content, separators=(",", ":")) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def read_records(folder: Path, template: TrialPlan) -> tuple[TrialRecord, ...]:
    """Return a run's finished trials in order; a torn last line is left out.

    Raises:
        RunError: A line is whole and no record, or the file is none that can be read.
    """
    path, trial = folder / TRIALS, None
    try:
        contents = _lines_of(read_bytes(inside(folder, TRIALS), MOST_TRIALS_BYTES)) if path.exists() else ()
        records = {int(content["trial"]): content for content in contents}
        read = list[TrialRecord]()
        for trial in sorted(records):
            read.append(TrialRecord.from_dict(records[trial], template))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {reason_of(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, PlanError) as error:
        of_trial = "" if trial is None else f" of trial {trial}"
        raise RunError(f"{path}: the record{of_trial} cannot be read ({first_line(error)}): run it again") from None
    return tuple(read)


def read_exports(folder: Path) -> tuple[ExportInfo, ...]:
    """Return the bundles that were exported, the latest of each name, in order; lines that are damaged are left out."""
    from pydantic import TypeAdapter, ValidationError

    adapter, found = TypeAdapter(ExportInfo), dict[str, ExportInfo]()
    with suppress(OSError):
        for content in _lines_of(read_bytes(inside(folder, EXPORTS), MOST_BYTES)):
            with suppress(ValidationError):
                one = adapter.validate_python(content)
                is_score = 0 <= one.scores.get(f"test{ACCURACY}", 0) <= 1
                if is_score and one.bundle.isprintable() and min(one.trial, one.samples) >= 0 and one.samples < 2**40:
                    found.pop(one.bundle, None)
                    found[one.bundle] = one
    return tuple(found.values())


def open_records(folder: Path, template: TrialPlan) -> list[TrialRecord]:
    """Return a run's finished trials, its file made ready for the next: no torn line at its end."""
    records = read_records(folder, template)
    if (folder / TRIALS).exists():
        _trim(folder / TRIALS)
    return list(records)


def _trim(path: Path) -> None:
    """Cut a torn last line off; a whole one that only lacks its end is given it."""
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end == len(content):
        return
    with path.open("r+b") as file:
        if any(True for _ in _lines_of(content[end:])):
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        else:
            file.truncate(end)


def _lines_of(content: bytes) -> Iterator[Mapping[str, Any]]:
    for line in content.split(b"\n"):
        try:
            record = parse_json(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


@contextmanager
def lock_folder(folder: Path, *, resume: bool) -> Iterator[bool]:
    """Lock a run's folder, made if it does not exist: for one process at a time; yield whether a run is in it.

    Raises:
        RunError: It cannot be made, holds something else or is in use; or it holds a run and `resume` is false.
    """
    try:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    except OSError as error:
        raise RunError(f"{folder} cannot be read ({error.strerror or error}): give another --out") from None
    if resume and not folder.exists():
        raise RunError(f"{folder} does not exist, so there is no run to continue: leave --resume out to begin one")
    if FILE not in names and not all(map(_is_before_any_trial, names)):
        raise RunError(f"{folder} is not empty and is not a run: give another --out")
    lock = FileLock(private_folder(folder, RunError, names) / LOCK, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(f"{folder} is in use by another `tuner run`: wait for it, or give another --out") from None
    except OSError as error:
        raise RunError(f"{folder} cannot be written ({error.strerror or error}): give another --out") from None
    try:
        begun = (folder / FILE).exists()
        if begun and not resume:
            raise RunError(f"{folder} holds a run already: add --resume to continue it, or give another --out")
        yield begun
    finally:
        lock.release()


def _is_before_any_trial(name: str) -> bool:
    """Return whether a command that ends before its first trial leaves such a file."""
    return name in {LOCK, CANDIDATES} or (name.startswith(f"{FILE}.") and name.endswith(".part"))
