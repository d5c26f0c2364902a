"""Export a trial of a run as a bundle."""

import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from time import gmtime, strftime
from typing import Any, cast

from tuner.backends.base import Exported
from tuner.bundle.format import PLAN, WEIGHTS, new_folder, seal, write_input
from tuner.bundle.info import FORMAT, BundleInfo, Section
from tuner.bundle.scores import BYTES
from tuner.commands.bundles.held import note_bundle
from tuner.commands.bundles.page import add_page, page_files
from tuner.commands.limits import CommandLimits
from tuner.commands.opening import host_of_run, opened_run, samples_changed
from tuner.commands.refit import WAY_OUT, Refit, kept_features, shown_on
from tuner.commands.tune.progress import progress_shown
from tuner.distribution import WRITERS, installed_version, offered
from tuner.errors import BudgetError, BundleError, PluginError, RunError, TunerError, UsageError, first_line
from tuner.events import Events, log
from tuner.files import check_room, write_private
from tuner.metrics import percent, wilson
from tuner.plan.parts import RuntimePlan
from tuner.plan.text import describe
from tuner.plan.toml import to_toml
from tuner.plan.trial import TrialPlan, in_int8
from tuner.plugin.core import trained_by
from tuner.results.folder import ExportInfo, append_export, weights_of
from tuner.results.records.config import task_file
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.views.answer import of_share
from tuner.results.views.pick import pick_trial
from tuner.search.listener import JUDGING, WRITING, Listener, together
from tuner.search.processes.remote import RemoteSession
from tuner.task.copies import doubts
from tuner.units import parse_size

#: An export that fails with less room on the disk may have failed for that.
SPARE_BYTES = 1_000_000
#: Points of an accuracy.
MOST_POINTS = 100
#: How names of scores on the user's own samples begin, and on test samples; and the name of the partition of these.
LOCAL, TEST, TEST_SAMPLES = "local_", "test_", "local.test"


def export(
    run: Run,
    out: str | Path,
    pick: str = "best",
    *,
    trainable: bool = False,
    replay: str | None = None,
    int8: bool = False,
    int8_loss: float | None = None,
    drop_unreached: bool = False,
    web: Path | bool = False,
    tflite: str | None = None,
    tflite_for: str | None = None,
    task: str | PathLike[str] | None = None,
    plugins: Iterable[Path | str] = (),
    time: str | None = None,
    memory: str | None = None,
    refit: bool = True,
    test: bool = True,
    listener: Listener | None = None,
    warn: Callable[[str], object] = warnings.warn,
) -> Path:
    """Write a trial of the Pareto front as a bundle: a folder with an ONNX model that runs without PyTorch.

    The trial is first trained once more on all local samples, those that judged it included; its accuracies on them are
    those from before. Test samples, and global validation samples, are scored by ONNX Runtime; of some of each kind,
    the logits must be those of PyTorch. The bundle appears at `out` whole or not at all.

    Args:
        run: A run, finished or interrupted, as `tuner.run` or ``tuner.Run.open`` returns it.
        out: Folder of the bundle, which must be empty or not exist yet.
        pick: Trial to export: ``best``, ``knee``, ``fastest``, ``smallest`` or ``safest``; a trial's number; or an
            expression over the values of the front such as ``global_accuracy >= 50 % and min(train_seconds)``.
        trainable: Whether the bundle can train again without PyTorch, by `tuner.runtime.Trainer`, or by
            `tuner.runtime.ExitsTrainer` where it has exits. It then holds features of samples.
        replay: With `trainable`, the most bytes of features of the user's own samples, which a round trains a tail on
            again, such as ``"500kB"``; ``"0"`` leaves them out; 2 MB where it is not given.
        int8: Whether the frozen blocks are quantised to int8; the tail stays in float32.
        int8_loss: Points of an accuracy that int8 may cost at most; 1 where it is not given.
        drop_unreached: Whether a bundle with exits ends with the first one at which all calibration samples left.
        web: Whether a page is added that predicts, and trains again, in a browser; or the folder ``dist`` of the npm
            package onnxruntime-web for it, where tuner was installed without that.
        tflite: Numbers of a TFLite file that is added, ``"float32"``, ``"int8"`` or ``"uint8"``; None for no file.
        tflite_for: Device whose operators the file is to have, ``"edgetpu"`` or ``"micro"``.
        task: The run's task, if its file has moved or the run was made on another device.
        plugins: Files of local plugins of the run, likewise.
        time: Limit on the whole call, such as ``"5m"``.
        memory: Limit on the memory that the export adds to its process, such as ``"512MB"``.
        refit: Whether the trial is trained again, on the validation samples too; else its own weights are exported.
        test: Whether test samples are scored; else the bundle says that its accuracy on them was not measured.
        listener: Receives progress, and how long the refit is expected to take; by default the log does, and stderr
            where somebody looks at it.
        warn: Called where plugins are not those of the run, where the trial was trained on a share of the samples, or
            where it cannot be refitted, so that its own weights are exported; a Python warning by default.

    Returns:
        The bundle's folder.

    Raises:
        RunError: `pick` names no trial with weights, the task's settings have changed since the run, or the run was not
            made on this device and names code that was not given again.
        UsageError: `pick` cannot be read, `int8_loss` is given for a bundle in float32, or `drop_unreached` for one
            without exits, or next to `trainable`; or `replay` for one that does not train a tail by steps.
        BundleError: `out` is in use, the written model differs from PyTorch's, int8 costs too much, or the tail's
            training step cannot be written.
        PlanError: `int8` is given, and the trial has no frozen blocks before a tail.
        BudgetError: A limit was broken.
        TunerError: The task can no longer be loaded.
    """
    record = pick_trial(run, pick)
    weights = weights_of(run.folder, record.trial)
    solver = offered("tuner.exporters").get(run.info.identity.space)  # of plans that are solved without PyTorch
    if record.plan is None or not (solver or weights.is_file()):
        raise RunError(_without_weights(run, record.trial))
    if share := of_share(run, record.trial):
        warn(f"{share}{'; the refit trains it on all' if refit else ''}")
    plan = _in_precision(record.plan, int8=int8, int8_loss=None if tflite and not int8 else int8_loss)
    plan = _dropping(plan, record.trial, trainable=trainable) if drop_unreached else plan
    kept = {} if replay is None else {"replay": own_bytes(replay, plan, record.trial, trainable=trainable)}
    page = page_files(None if isinstance(web, bool) else web) if web else None
    file = {} if tflite is None else _file_asked(solver, plan, record.trial, tflite, int8_loss, tflite_for)
    if solver is not None:
        given = {"task": task, "plugins": plugins, "time": time, "memory": memory, "page": page}
        return Path(solver.load()(run, record, plan, Path(out), trainable=trainable, refit=refit, test=test, **given))
    _require_steps(plan, record.trial, trainable=trainable)
    limits = CommandLimits.read(time, memory)
    host = host_of_run(run, task, plugins, limits, warn)
    origin = {
        "run": {"trial": record.trial, "seed": run.info.config.seed},
        "plugins": trained_by(host, plan, record.knobs),
        "scores": {"trial": record.values, "untouched": run.info.untouched.values},
        "parent": None,
    }
    told = nullcontext(listener) if listener is not None else closing(together([Events(log), *progress_shown()]))
    with (
        new_folder(Path(out)) as part,
        told as hears,
        opened_run(run, host, plan, task, limits, many_jobs=refit) as session,
        tempfile.TemporaryDirectory() as scratch,
        kept_features(run) as store,
    ):
        before, again = None, Refit(run, record)
        hears.phase(JUDGING if refit else WRITING)
        changed = samples_changed(run, session, warn)
        _require_samples(plan, changed, trainable=trainable)
        if refit and not changed:
            _require_operators(session, file, plan=plan, weights=weights, device=tflite_for)
            own = session.judge(plan, weights, store)
            try:
                weights = again.carry_out(session, Path(scratch) / WEIGHTS, limits, hears)
                before, plan = own, replace(again.plan, runtime=plan.runtime, heads=plan.heads)
            except BudgetError:
                raise
            except (TunerError, RuntimeError) as error:
                warn(f"trial {record.trial} was not refitted, so its own weights are exported: {first_line(error)}")
            hears.phase(WRITING)
        asked: dict[str, Any] = {**kept, "store": store, "test": test, "report": shown_on(hears)}
        info = write_bundle(session, plan, weights, part, origin, before=before, trainable=trainable, **asked)
        if trainable and info.train is None:
            raise BundleError(
                f"--trainable needs exits to train, but calibration removed those of trial {record.trial}: "
                "pick another trial"
            )
        if drop_unreached and not (info.exits and info.exits.ends_with_exit):
            warn(
                "--drop-unreached dropped nothing: some of the samples that set the thresholds pass all exits of trial "
                f"{record.trial}"
            )
        _require_own_score(record, info, 0 if changed else session.task.info.local_val)
        _add_other(session, part, info, page, {**file, "plan": plan, "test": test} if file else {})
    tested = {name: value for name, value in info.scores.from_pixels.items() if name.startswith(TEST)}
    noted = ExportInfo(
        Path(out).resolve().name,
        record.trial,
        info.scores.refit_samples > 0,
        tested,
        sum(one.samples for name, one in session.task.contents.partitions.items() if name == TEST_SAMPLES),
    )
    with suppress(OSError):  # the bundle has all of it: a run that cannot be written to does not end its export
        append_export(run.folder, noted)
    note_bundle(Path(out), task_file(str(task or run.info.config.task))[0])
    return Path(out)


def _require_own_score(record: TrialRecord, info: BundleInfo, samples: int) -> None:
    """Refuse weights that answer the samples that judged the trial clearly worse than they did then."""
    then, now = record.values.get(f"{LOCAL}accuracy"), info.scores.from_pixels.get(f"{LOCAL}accuracy")
    # of a lower rung others judged; of folds, several models
    others = record.plan is None or record.plan.data.folds or record.plan.data.share < 1
    if not samples or others or info.int8 is not None or then is None or now is None:
        return
    if wilson(now, samples)[1] < wilson(then, samples)[0]:
        raise BundleError(
            f"the weights of trial {record.trial} have {percent(now, samples)} on the samples that judged it, and had "
            f"{percent(then, samples)} in the trial: they are not what it trained; run it again"
        )


def _file_asked(solver: object, *asked: object) -> dict[str, Any]:
    """Return what is asked of a TFLite file, once it is known that it can be written."""
    if solver is not None:
        raise UsageError("--tflite is for runs of networks, and this one solved for heads alone: leave it out")
    if (point := offered("tuner.formats").get("tflite")) is None:
        raise UsageError("no plugin that is on writes TFLite files: switch on tflite")
    return cast("dict[str, Any]", point.load()(*asked))


def _require_operators(session: RemoteSession, file: Mapping[str, Any], **about: Any) -> None:
    """Refuse, before a refit, a TFLite file that cannot be written, if one is asked for."""
    if file:
        session.ask("TFLite operators", **about)


def _add_other(
    session: RemoteSession, part: Path, info: BundleInfo, page: Mapping[str, Path] | None, file: Mapping[str, Any]
) -> None:
    """Add what is next to a bundle's own files: a TFLite file, and a page."""
    if file:
        session.ask("TFLite file", folder=part, **file)
    if page is not None:
        add_page(page, part, info)


def _dropping(plan: TrialPlan, trial: int, *, trainable: bool) -> TrialPlan:
    """Return a plan whose bundle ends where all samples have left."""
    if trainable:
        raise UsageError("--drop-unreached leaves no final head to learn from: give it or --trainable, not both")
    if not plan.heads.exits:
        raise UsageError(f"--drop-unreached is for trials with exits, and trial {trial} has none")
    if plan.heads.gated:
        raise UsageError(
            f"--drop-unreached would drop the head that answers what the model knew, which the gates of trial {trial} "
            "send there: leave it out, or pick a trial whose exits have no gates"
        )
    return replace(plan, heads=replace(plan.heads, drops=True))


def own_bytes(replay: str, plan: TrialPlan, trial: int, *, trainable: bool) -> int:
    """Return how many bytes of the user's samples a bundle keeps to train on again."""
    if not trainable:
        raise UsageError("--replay is how much of the user's samples --trainable keeps: give --trainable too")
    if plan.heads.exits or plan.traits.solves:
        kept = "exits keep none of the user's samples" if plan.heads.exits else "its head is solved from all of them"
        raise UsageError(
            f"--replay is for tails that train by steps, and trial {trial} has none ({kept}): leave it out, or pick "
            "another trial"
        )
    number = replay.strip().rstrip("kKmMgGiIbB ")
    return 0 if number and not number.strip("0") else parse_size(replay, "--replay")


def _require_steps(plan: TrialPlan, trial: int, *, trainable: bool) -> None:
    """Refuse, before a refit, a bundle that a device is to train again and could not."""
    if not trainable:
        return
    changing = next((edit.kind for edit in plan.shape if not edit.traits.trains_again), None)
    if changing is not None:
        raise BundleError(
            f"--trainable can only write the model's own tail, but that of trial {trial} has the tail edit {changing}: "
            "pick another trial, or export without --trainable"
        )
    if not plan.traits.solves and "onnx" not in offered(WRITERS):
        raise PluginError(
            f"--trainable writes a training step of trial {trial}, and the plugin onnx-steps, which does that, is off: "
            "take it out of TUNER_PLUGINS, or export without --trainable"
        )


def _require_samples(plan: TrialPlan, changed: Iterable[str], *, trainable: bool) -> None:
    """Refuse an export that reads the samples that a trial was trained on, where these have changed."""
    if not any(name.endswith(".train") for name in changed):
        return
    way = "give the samples as they were, or run again from this front (--from)"
    if trainable:
        raise RunError(f"--trainable keeps samples that the trial was trained on, and these have changed: {way}")
    if plan.heads.exits:
        raise RunError(f"the exits' thresholds are set on samples that were withheld, and these have changed: {way}")


def _in_precision(plan: TrialPlan, *, int8: bool, int8_loss: float | None) -> TrialPlan:
    """Return a plan as its bundle is to be; `int8_loss` is in points."""
    plan = in_int8(plan, RuntimePlan().int8_loss) if int8 else plan
    if int8_loss is None:
        return plan
    if plan.runtime.precision != "int8":
        raise UsageError("--int8-loss is the largest loss that --int8 may cost: give --int8 too")
    if not 0 <= int8_loss <= MOST_POINTS:
        raise UsageError(f"--int8-loss must be 0 to {MOST_POINTS} points, got {int8_loss:g}")
    return in_int8(plan, int8_loss / MOST_POINTS)


def _without_weights(run: Run, trial: int) -> str:
    """Return why a trial cannot be exported, and what can."""
    here = ", ".join(str(one) for one in run.front if weights_of(run.folder, one).is_file()) or "none"
    if run.info.worker and trial in run.front:
        return (
            f"the weights of trial {trial} are in the folder of another worker: export the study, tuner export "
            f"{run.info.config.study} OUT --artifacts WHERE, or pick a trial of this folder ({here})"
        )
    return f"trial {trial} has no weights: only trials of the front keep them ({here}); pick one"


def write_bundle(
    session: RemoteSession,
    plan: TrialPlan,
    weights: Path,
    part: Path,
    origin: Mapping[str, Any],
    before: Exported | None = None,
    **asked: Any,
) -> BundleInfo:
    """Export into a folder of `new_folder`, check what was written, and return the content of ``bundle.json``.

    Its sections on where the bundle comes from are `origin`: ``run``, ``plugins``, ``scores`` and ``parent``. Where the
    weights have learned the local validation samples, `before` is the export of those that had not: it judges. What is
    `asked` beside is as of `Session.export`.

    Raises:
        BundleError: Something else than `before` was written than its scores are of.
    """
    task = session.task
    try:
        exported = session.export(plan, weights, part, **asked)
    except RuntimeError:
        if not weights.is_file():
            raise RunError(f"{weights} was removed by its run, which continues: export again") from None
        check_room(part, SPARE_BYTES + weights.stat().st_size)
        raise
    write_private(part / PLAN, to_toml(plan))
    write_input(part, task.input)
    scores = dict(origin.get("scores", {}))
    if before is not None:
        exported, scores["refit_samples"] = _judged_by(before, exported), task.info.local_val
    if not asked.get("test", True) and TEST_SAMPLES in task.contents.partitions:
        scores["test_left_out"] = True
    scores["doubts"] = doubts(task.notes)
    sections = dict(exported.sections)
    if (section := sections.get(Section.INT8)) is not None:
        sections[Section.INT8.value] = _whole(section, part)
    content = {
        "format": FORMAT,
        "name": task.info.name,
        "made": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime()),
        "tuner": installed_version(),
        "labels": task.labels,
        "input": (task.input.at(plan.size) if plan.size else task.input).to_dict(),
        "input_shape": plan.model.blocks[0].in_shape if plan.size else task.input_shape,
        "loss": task.loss,
        **({Section.LABEL_MAP.value: dict(task.label_map)} if task.label_map else {}),
        **({} if task.scale is None else {Section.TARGETS.value: asdict(task.scale)}),
        "sentence": describe(plan),
        **sections,
        **origin,
        "scores": {**scores, "from_pixels": dict(exported.checks)},
    }
    return seal(part, content)


def _judged_by(before: Exported, after: Exported) -> Exported:
    """Return an export with the local scores, and all that was set on local validation samples, of an earlier one."""
    local = {name: value for name, value in before.checks.items() if name.startswith(LOCAL)}
    others = {name: value for name, value in after.checks.items() if not name.startswith(LOCAL)}
    sections = {**after.sections}
    if (thresholds := before.sections.get(Section.LABEL_THRESHOLDS)) is not None:
        sections[Section.LABEL_THRESHOLDS.value] = thresholds
    if (unknown := before.sections.get(Section.UNKNOWN)) is not None and (new := sections.get(Section.UNKNOWN)):
        sections[Section.UNKNOWN.value] = {**unknown, "reads": new["reads"]}
    if (own := before.sections.get(Section.INT8)) is not None:
        section = sections[Section.INT8.value]
        if own["float_layers"] != section["float_layers"]:
            raise BundleError(
                f"in int8, the refitted trial keeps {section['float_layers']} layers in float32, but was measured with "
                f"{own['float_layers']}: {WAY_OUT}"
            )
        tables = ("float32", "int8", "most_loss")
        judged = {name: {key: value for key, value in own[name].items() if key.startswith(LOCAL)} for name in tables}
        sections[Section.INT8.value] = {**section, **{name: {**section[name], **judged[name]} for name in tables}}
    return Exported({**local, **others}, sections)


def _whole(section: Mapping[str, Any], part: Path) -> dict[str, Any]:
    """Return the section about int8 with the size of all files instead of those that int8 makes smaller."""
    precisions = ("float32", "int8")
    others = sum(path.stat().st_size for path in part.rglob("*") if path.is_file()) - section["int8"][BYTES]
    return {**section, **{name: {**section[name], BYTES: section[name][BYTES] + others} for name in precisions}}
