"""A run of heads in closed form, with the base package alone: what was tried as a run's folder, and its export."""

import shlex
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tuner.bundle.format import new_folder
from tuner.bundle.info import RunTrial
from tuner.commands.bundles.held import note_bundle
from tuner.commands.bundles.page import add_page
from tuner.commands.interruption import interrupted_as
from tuner.commands.limits import CommandLimits
from tuner.commands.run import Run
from tuner.distribution import NAME, installed_version
from tuner.errors import BudgetError, RunError, TaskError, TrainingError, UsageError
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import usable_processors
from tuner.machine.process_memory import return_freed
from tuner.plan.info import TaskInfo
from tuner.plan.trial import TrialPlan
from tuner.reading import kind_of, text_from
from tuner.results.folder import (
    ExportInfo,
    Identity,
    RunInfo,
    Spent,
    append_export,
    append_record,
    lock_folder,
    write_run,
)
from tuner.results.records.baseline import UNTOUCHED, Baseline
from tuner.results.records.classes import Classes
from tuner.results.records.config import Budget, RunConfig
from tuner.results.records.origin import mark_of
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.likeness import device_kind
from tuner.results.scores.objectives import BUNDLE_BYTES, OBJECTIVES, Objective
from tuner.results.scores.pareto import best
from tuner.search.listener import Listener
from tuner.search.setting import CLOSING_SECONDS
from tuner.task.info import outline, task_info
from tuner.task.task import Task
from tuner_instant.bundles import write
from tuner_instant.classifier import Classifier
from tuner_instant.cuts import Cut
from tuner_instant.features import FILE, Gathered
from tuner_instant.forget import note_run
from tuner_instant.heads import Head, Heads
from tuner_instant.samples import bytes_of, chosen_rows, gather, shape_of, task_of

#: Name of what is searched. In the place of a space's content, it is how an export knows such a run.
SPACE = "instant"
LATENCY = Objective("mean_latency_seconds", "minimise", "s")
#: Bits of the weights of the networks that a run compares: of equal heads, the first that is tried is picked.
WIDTHS = (8, 32)
GATHERING, SOLVING = "running the model", "solving for heads"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a run.

    Attributes:
        data: Folder of the user's photos, or a task file; see `task_of`.
        model: ONNX file of the classifier.
        known: Folder of photos of classes that it knows.
        classes: File with their rows in its head.
        out: Folder of the run.
        storage_bytes: Most bytes of the run's folder; None for no limit.
    """

    data: Path
    model: Path | None = None
    known: Path | None = None
    classes: Path | None = None
    out: Path | None = None
    storage_bytes: int | None = None

    def task(self) -> tuple[Task, Classifier]:
        """Return the task and the model."""
        task, classifier = task_of(self.data, self.model, self.known, self.classes)
        if not task.own_classes:
            raise TaskError(f"{self.data}: a head is solved for classes, and these samples have none: use tuner run")
        return task, classifier


def run(asked: Asked, listener: Listener, limits: Budget, end: float | None = None) -> Run:
    """Solve for heads at every cut of an ONNX classifier, and write them as a run.

    The folder is a run's from the moment that the network has seen all samples: what is tried until an end by Ctrl-C
    can be exported.

    Args:
        asked: What is asked.
        listener: Receives progress.
        limits: What the user gave, as the run notes it.
        end: Clock (`tuner.machine.awake.CLOCK`) before which it ends, if there is time for one head: no further one is
            begun that may take as long as the longest so far; None for no limit.

    Raises:
        TunerError: The data, the model or the folder cannot be used, or a limit leaves no room.
        Interrupted: The user ended it after the network had seen all samples.
    """
    began = CLOCK.now()
    return_freed()
    listener.phase("opening the task")
    task, classifier = asked.task()
    folder = asked.out or Path("runs") / task.name
    with lock_folder(folder, resume=False):
        listener.begins(folder)
        listener.phase(GATHERING)
        gathered, left_out = gather(task, classifier, listener.step, WIDTHS, asked.storage_bytes)
        heads = Heads(gathered, classifier, task.targets)
        return_freed()  # by the network and the threads that decoded
        phases = {"features": CLOCK.now() - began}
        info = _info(task, heads, folder, asked, limits)
        write_run(folder, info)  # first: a folder with samples and without run.json is no run
        note_run(folder)
        gathered.save(folder)
        info = replace(info, spent=_spent(began, folder, phases, len(gathered.labels)), notes=(*info.notes, *left_out))
        write_run(folder, info)
        listener.baseline(info.untouched, info.objectives, info.samples_of(info.untouched))
        listener.phase(SOLVING)
        ended, longest = "all heads were solved for", 0.0
        with interrupted_as(f"interrupted; the heads that were solved are kept in {folder}", exporting(folder)):
            for number, head in enumerate(heads.tried()):
                record = _record(heads, head, info, number)
                append_record(folder, record)
                listener.trial(record)
                longest = max(longest, head.seconds)
                if end is not None and number + 1 < heads.plans and CLOCK.now() + longest + CLOSING_SECONDS > end:
                    ended = "the time is up"
                    break
        write_run(folder, replace(info, ended=ended, spent=_spent(began, folder, phases, len(gathered.labels))))
    return Run.open(folder)


def exporting(folder: Path) -> str:
    """Return a line that says how what is in a run's folder is exported."""
    return f"to export it: tuner export {shlex.quote(str(folder))} OUT"


def needs_training(run: Run) -> str:
    """Return a line on the plans that this run could not try."""
    plans = len(run.info.model.depths) * (2 if run.info.task.global_val else 1)
    return f"{plans} plans that train were not tried: pip install '{NAME}[tune]', and run again"


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would try.

    Attributes:
        task: Name of the task.
        model: The ONNX file.
        samples: Number of samples that would be read, by partition.
        cuts: Where the network may end; the last are the features that its own head reads.
        plans: Number of heads that would be solved for.
        storage_bytes: Size of the features.
    """

    task: str
    model: str
    samples: dict[str, int]
    cuts: tuple[Cut, ...]
    plans: int
    storage_bytes: int


def preview(asked: Asked) -> Preview:
    """Return what a run would try; no sample is run."""
    task, classifier = asked.task()
    cuts = classifier.cuts(shape_of(task))
    samples = {name: len(rows) for name, rows in chosen_rows(task).items()}
    plans = len(WIDTHS) * len(cuts) * (2 if "global.train" in samples else 1)
    size = bytes_of(sum(samples.values()), cuts, WIDTHS)
    return Preview(task.name, str(classifier.path), samples, cuts, plans, size)


def export(
    run: Run,
    record: TrialRecord,
    plan: TrialPlan,
    out: Path,
    *,
    trainable: bool,
    refit: bool,
    test: bool,
    page: dict[str, Path] | None,
    task: str | PathLike[str] | None = None,
    plugins: Iterable[Path | str] = (),
    time: str | None = None,
    memory: str | None = None,
) -> Path:
    """Write a trial of such a run as a bundle; see `tuner.export`.

    Raises:
        RunError: The model is not there any more, or the run's files do not fit together.
        UsageError: Int8 costs more of an accuracy than it may; or an option is given that is for plans that train.
        BudgetError: It took longer than it may; there is no bundle then.
    """
    given = {"--task": task, "--plugin": tuple(plugins), "--memory": memory}
    if unused := " and ".join(name for name, value in given.items() if value):
        raise UsageError(f"{unused} cannot be used with {run.place}, a run made without PyTorch: leave {unused} out")
    limits = CommandLimits.read(time, None)
    if plan.runtime.precision == "int8" and record.plan is not None and record.plan.runtime.precision != "int8":
        record = _in_int8(run, record, plan.runtime.int8_loss)
    try:
        head = Head.of(record.knobs, record.values)
        gathered = Gathered.load(run.folder)
    except (KeyError, TypeError, TrainingError) as error:
        raise RunError(f"trial {record.trial} of {run.place} has no head ({error}): run it again") from None
    heads = Heads(gathered, Classifier.open(gathered.model))
    with new_folder(out) as part:
        origin = RunTrial(record.trial, run.info.config.seed)
        plan = replace(plan, runtime=replace(plan.runtime, memory_bytes=0))
        asked: dict[str, Any] = {"trainable": trainable, "refit": refit, "test": test}
        info = write(heads, head, plan, part, run=origin, plugins=run.info.plugins, **asked)
        if page is not None:
            add_page(page, part, info)
        if limits.end is not None and CLOCK.now() > limits.end:
            raise BudgetError("the export took longer than --time allows: give more time")
    scores = {name: value for name, value in info.scores.from_pixels.items() if name.startswith("test_")}
    append_export(run.folder, ExportInfo(out.resolve().name, record.trial, refit, scores, heads.count("local.test")))
    note_bundle(out, run.info.config.task)
    return out


def _in_int8(run: Run, record: TrialRecord, most: float) -> TrialRecord:
    """Return the trial of the same kind of head in int8, which may lose so much of an accuracy, as a share."""
    other = next((one for one in run.records if one.knobs == {**record.knobs, "instant.bits": 8}), None)
    if other is None:
        raise RunError(f"{run.place} has no trial in int8 next to trial {record.trial}: leave --int8 out")
    for name in ("local_accuracy", "global_accuracy"):
        lost = record.values.get(name, 0.0) - other.values.get(name, 0.0)
        if lost > most + 1e-12:
            raise UsageError(
                f"--int8 would cost {100 * lost:.1f} points of {name}, more than --int8-loss allows ({100 * most:g}): "
                "leave --int8 out, or allow more"
            )
    return other


@dataclass(frozen=True, slots=True)
class Instant:
    """A bundle that was made, and what was tried for it.

    Attributes:
        bundle: Its folder.
        sentence: What was solved, with which samples.
        labels: Its labels; the first `known` are those that the model knew.
        samples: Number of samples that were read, by partition.
        left_out: Names of those that cannot be read.
        heads: Heads that were tried; `picked` is the place of the one that was written.
        input: How samples become the model's input.
        notes: Lines on the data.
        seconds: Time from the beginning to the bundle.
    """

    bundle: str
    sentence: str
    labels: tuple[str, ...]
    known: int
    samples: dict[str, int]
    left_out: tuple[str, ...]
    heads: tuple[Head, ...]
    picked: int
    input: dict[str, Any]
    notes: tuple[str, ...]
    seconds: float


def instant(
    data: Path,
    out: Path,
    model: Path | None = None,
    known: Path | None = None,
    classes: Path | None = None,
    *,
    trainable: bool = False,
    step: Callable[[str, float, float], object] = lambda _what, _done, _of: None,
) -> Instant:
    """Solve for heads of a whole ONNX classifier, and write the best as a bundle.

    Args:
        data: Folder of the user's photos, or a task file; see `task_of`.
        out: Folder of the bundle, which must be empty or not exist yet.
        model: ONNX file of the classifier.
        known: Folder of photos of classes that it knows.
        classes: File with their rows in its head.
        trainable: Whether the bundle can learn from further samples, and forget some.
        step: Called with how many samples were run.

    Raises:
        TunerError: The data or the model cannot be used, or the folder is in use.
    """
    began = CLOCK.now()
    return_freed()
    if kind_of(out) not in {"nothing", "folder"} or (kind_of(out) == "folder" and any(out.iterdir())):
        raise TaskError(f"--out {out} is not empty: give another folder")
    task, classifier = Asked(data, model, known, classes).task()
    gathered, left_out = gather(task, classifier, step, whole=True)
    heads = Heads(gathered, classifier, task.targets)
    return_freed()  # by the network and the threads that decoded
    tried = tuple(heads.tried())
    samples = {part: heads.count(part) for part in gathered.parts}
    scored = {domain: samples.get(f"{domain}.val", 0) for domain in ("local", "global")}
    picked = best({at: one.values for at, one in enumerate(tried)}, heads.untouched(), scored) or 0
    with new_folder(out) as part:  # last, as a limit may end the process before
        plan = heads.plan(tried[picked], _task_info(task, heads))
        info = write(heads, tried[picked], plan, part, trainable=trainable)
    note_bundle(out)
    seen = info.sentence, info.labels, len(task.head_rows), samples, left_out, tried, picked
    notes = (*task.findings, *task.notes, *task.cautions)
    return Instant(str(out), *seen, info.input.to_dict(), notes, CLOCK.now() - began)


def _task_info(task: Task, heads: Heads) -> TaskInfo:
    """Return a task in numbers, of the samples that were read."""
    local, known = (heads.count("local.train"), heads.count("local.val")), heads.count("global.val")
    return replace(task_info(task), local_train=local[0], local_val=local[1], global_val=known)


def _info(task: Task, heads: Heads, folder: Path, asked: Asked, limits: Budget) -> RunInfo:
    """Return the content of ``run.json`` before a head is solved for."""
    info, own = _task_info(task, heads), outline(task)
    objectives = [one for one in OBJECTIVES[:2] if heads.has("global.val") or not one.needs_global]
    config = RunConfig(
        task=text_from(asked.data.absolute()),
        space=SPACE,
        out=text_from(folder),
        limits=limits,
        home=text_from(folder.resolve()),
    )
    note = "" if heads.gathered.rows else "the model has no output for your classes"
    return RunInfo(
        identity=Identity(info.fingerprint, SPACE, 0, deterministic=False),
        config=config,
        task_name=task.name,
        space_name=SPACE,
        threads=usable_processors(),
        model=heads.model(info),
        task=info,
        objectives=(*objectives, LATENCY, BUNDLE_BYTES),
        baselines=(Baseline(UNTOUCHED, heads.untouched(), note=note),),
        ended="interrupted; what was solved for can be exported",
        plugins={SPACE: f"{NAME} {installed_version()}"},
        mark=mark_of(config),
        classes=Classes.of(own),
        device=device_kind(),
        notes=own.notes,
        strategies=(SPACE,),
        contents=own.contents,
    )


def _record(heads: Heads, head: Head, info: RunInfo, number: int) -> TrialRecord:
    plan = heads.plan(head, info.task)
    values = {name: float(value) for name, value in head.values.items() if np.isfinite(value)}
    began = time.time() - head.seconds
    return TrialRecord(
        number, "done", plan, head.knobs, values, spent_seconds=head.seconds, strategies=(SPACE,), started=began
    )


def _spent(began: float, folder: Path, phases: dict[str, float], samples: int) -> Spent:
    seconds = CLOCK.now() - began
    told = {**phases, "solving": seconds - sum(phases.values())}
    return Spent(seconds, (folder / FILE).stat().st_size, samples, told)
