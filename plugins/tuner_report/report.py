"""A report of a run as one HTML file."""

import base64
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.backends.base import Session
from tuner.commands.limits import CommandLimits
from tuner.commands.opening import host_of_run, opened_run, samples_changed
from tuner.errors import RunError, TunerError, UnsupportedError, disk_error
from tuner.files import write_private
from tuner.plan.trial import TrialPlan
from tuner.results.folder import weights_of
from tuner.results.records.baseline import is_right
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner_report.charts.points import scored
from tuner_report.misread import Misread
from tuner_report.page import page
from tuner_report.sections import Findings, Photo

#: How every JPEG begins.
JPEG = b"\xff\xd8\xff"
#: Why there are no photos.
NOT_WANTED, NO_WEIGHTS = "--no-photos was given", "the best trial has no weights here"


def report(
    run: Run,
    out: str | Path = "report.html",
    *,
    photos: bool = True,
    task: str | None = None,
    plugins: Iterable[Path | str] = (),
    time: str | None = None,
    memory: str | None = None,
    warn: Callable[[str], object] = warnings.warn,
) -> Path:
    """Write a report of a run: one HTML file with its pictures, which loads nothing and needs no script.

    The task is opened again, if it can be, to plan the memory of the winner's training step and to show what it still
    has wrong. The file is readable by the user alone.

    Args:
        run: A run, finished or interrupted.
        out: The file, which is replaced if it exists.
        photos: Whether to put a few of the user's validation photos into the file, small: those that the winner has
            wrong.
        task: The run's task, as for `tuner.export`.
        plugins: Files of local plugins of the run, likewise.
        time: Limit on opening the task, such as ``"5m"``.
        memory: Limit on the memory that this adds to its process, such as ``"512MB"``.
        warn: Called where plugins are not those of the run; a Python warning by default.

    Returns:
        The file.

    Raises:
        RunError: `out` cannot be written.
        ModuleNotFoundError: A library of the extra ``report`` is not installed.
    """
    winner = run.record(run.front[0] if run.best is None else run.best) if run.front else None
    findings = importance(run)
    if winner is not None and winner.plan is not None:
        limits = CommandLimits.read(time, memory)
        try:
            findings = _looked_at(run, winner, findings, task, plugins, limits, warn, wants_photos=photos)
        except TunerError as error:
            findings = replace(findings, no_step=str(error), no_photos=str(error) if photos else NOT_WANTED)
    path = Path(out)
    try:
        write_private(path, page(run, findings, winner))
    except OSError as error:
        raise disk_error(error, path) or RunError(f"{path} cannot be written ({error}): give another -o") from None
    return path


def importance(run: Run) -> Findings:
    """Return how much each knob matters for the accuracies, by the trials that were scored on the same samples."""
    from tuner_report.importance import knob_importance, trials_of_largest_rung

    trials = trials_of_largest_rung(run.records)
    accuracies = [one for one in run.objectives if one.name in {"local_accuracy", "global_accuracy"}]
    shares = {objective.name: knob_importance(trials, objective) for objective in accuracies}
    return Findings(shares, len(trials))


def _looked_at(
    run: Run,
    winner: TrialRecord,
    findings: Findings,
    task: str | None,
    plugins: Iterable[Path | str],
    limits: CommandLimits,
    warn: Callable[[str], object],
    *,
    wants_photos: bool,
) -> Findings:
    """Open the run's task; return the winner's training step, and the photos that it has wrong."""
    plan = winner.plan
    if plan is None:
        return findings
    weights = weights_of(run.folder, winner.trial)
    has_weights = weights.is_file()
    host = host_of_run(run, task, plugins, limits, warn)
    with opened_run(run, host, plan, task, limits) as session:
        samples_changed(run, session, warn)
        step = session.plan_step(plan)
        misread = _misread(session, plan, weights) if wants_photos and has_weights else ()
        labels = session.task.labels
    reasons = f"{plan.runtime.backend} plans none, or the layers change while they train or cannot be traced"
    none = "the samples are no pictures, or leave at exits, or all are right" if has_weights else NO_WEIGHTS
    return replace(
        findings,
        step=step,
        no_step="" if step else reasons,
        photos=tuple(_photo(run, winner, labels, one) for one in misread),
        no_photos=none if wants_photos else NOT_WANTED,
    )


def _misread(session: Session, plan: TrialPlan, weights: Path) -> tuple[Misread, ...]:
    try:
        return tuple(Misread(**one) for one in session.ask("misread samples", plan=plan, weights=weights))
    except UnsupportedError:
        return ()


def _photo(run: Run, winner: TrialRecord, labels: Sequence[str], one: Misread) -> Photo:
    """Return a photo with its classes by name, and how many of the trials have it wrong."""
    alike = len(winner.right) == 1 and not is_right(winner.right[0], one.place)  # else it is of other samples
    others = [run.record(trial) for trial in scored(run)] if alike else []
    right = [is_right(other.right[0], one.place) for other in others if len(other.right) == 1]
    return Photo(
        _label(labels, one.truth),
        _label(labels, one.taken_for),
        one.probability,
        _jpeg(one.jpeg),
        "/".join(Path(one.file).parts[-2:]),
        right.count(False),
        len(right),
    )


def _label(labels: Sequence[str], row: int) -> str:
    return labels[row] if 0 <= row < len(labels) else f"class {row}"


def _jpeg(content: str) -> bytes:
    """Return a picture's bytes: what comes from the process of a task is checked before it is in a page.

    Raises:
        RunError: It is no JPEG.
    """
    try:
        jpeg = base64.b64decode(content, validate=True)
    except ValueError:
        jpeg = b""
    if not jpeg.startswith(JPEG):
        raise RunError("a misread photo is no JPEG: give --no-photos")
    return jpeg
