"""Apply a bundle's plan to a task: train it again, from the bundle's weights or from the original ones."""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tuner.backends.base import Trial
from tuner.bundle.format import PLAN, WEIGHTS, Bundle, new_folder
from tuner.commands.export import write_bundle
from tuner.errors import BundleError, TaskError, TunerError
from tuner.plan.toml import from_toml
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.plugin.versions import differences, trained_by
from tuner.search.journal import seeded
from tuner.search.listener import Listener
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import open_remote
from tuner.store.store import open_store
from tuner.task import Domain, InputSpec, Samples, Task, load_task
from tuner.task.data.readable import left_out
from tuner.task.info import task_info
from tuner.task.relabel import relabelled

SOURCES = ("bundle", "original")


def apply_bundle(
    folder: Path, task: str, out: Path, source: str, listener: Listener, plugins: Iterable[Path] = ()
) -> Path:
    """Train a bundle's plan on a task's data, and write a bundle that names the given one as its parent.

    Args:
        folder: The bundle's folder.
        task: Task, as for `tuner.run`.
        out: Folder of the new bundle, which must be empty or not exist yet.
        source: ``bundle`` starts from the bundle's weights, ``original`` from the task's.
        listener: Receives progress.
        plugins: Files of local plugins.

    Returns:
        The new bundle's folder.

    Raises:
        TunerError: The plan does not fit the task, or training failed.
    """
    if source not in SOURCES:
        raise BundleError(f"--from must be {' or '.join(SOURCES)}, got {source!r}")
    bundle = Bundle.open(folder)
    host = build_host(local=plugins)
    host.check_local()
    if changed := differences(host, bundle.info.plugins):
        listener.say(f"warning: the bundle was trained with other plugins: {changed}")
    target = match_inputs(load_task(task, host.tasks), bundle)
    if warning := left_out(target.skipped):
        listener.say(warning)
    if source == "bundle":
        target = start_from(bundle, target)
    plan = from_toml((folder / PLAN).read_text(encoding="utf-8"))
    backend = plan.runtime.backend
    try:
        with (
            new_folder(out) as part,
            open_remote(host, target, [backend]) as sessions,
            tempfile.TemporaryDirectory() as scratch,
        ):
            session, store, weights = sessions[backend], open_store(), Path(scratch) / WEIGHTS
            plan = plan.carried_to(session.model, task_info(target))
            if source == "bundle":
                plan = _without_finished_edits(plan, bundle)
            untouched = session.untouched(store, plan.runtime.threads)
            trial = Trial(plan, seeded(0, plan.key()), store, weights)
            result = session.try_train(trial, JobLimits(), lambda progress: _show(progress, listener))
            try:
                outcome = result.unwrap("training")
            except (TunerError, RuntimeError) as error:
                raise BundleError(f"the plan could not be carried out: {error}") from None
            origin = {
                "plugins": {**bundle.info.plugins, **trained_by(host, plan, ())},
                "scores": {"trial": outcome.values, "untouched": untouched},
                "parent": bundle.identity,
            }
            trainable = bundle.info.train is not None
            write_bundle(target, target, plan, weights, part, origin, trainable=trainable, host=host)
    finally:
        listener.close()
    return out


def match_inputs(task: Task, bundle: Bundle) -> Task:
    """Return the task with its inputs prepared as the bundle's model expects them.

    Signals keep the bundle's mean and deviation: new recordings have others, and the weights were trained with these.

    Raises:
        TaskError: The tasks differ in anything else of [input], or in the loss.
    """
    if task.input.kind == "signals":
        task = replace(task, input=replace(task.input, mean=bundle.input.mean, std=bundle.input.std))
    if task.input != bundle.input or task.loss != bundle.loss:
        theirs, ours = _describe_input(task.input, task.loss), _describe_input(bundle.input, bundle.loss)
        raise TaskError(
            f"{task.name} gives {theirs}, but the bundle takes {ours}: give the task the bundle's [input] and loss"
        )
    return task


def start_from(bundle: Bundle, task: Task) -> Task:
    """Return the task with the bundle's weights as the given model: its labels first, then the task's new ones."""
    labels = (*bundle.labels, *(label for label in task.labels if label not in bundle.labels))
    rows = tuple(labels.index(label) for label in task.labels)
    model = replace(
        task.model, weights=str((bundle.folder / WEIGHTS).resolve()), pretrain=None, head=tuple(bundle.labels)
    )

    def moved(samples: Samples) -> Samples:
        return relabelled(samples, rows, len(labels))

    def moved_domain(domain: Domain) -> Domain:
        test = None if domain.test is None else moved(domain.test)
        return Domain(moved(domain.train), moved(domain.val), test)

    return replace(
        task,
        model=model,
        labels=labels,
        head_rows=tuple(range(len(bundle.labels))),
        local=moved_domain(task.local),
        global_=None if task.global_ is None else moved_domain(task.global_),
        local_labels=tuple(sorted(rows[row] for row in task.local_labels)),
    )


def _without_finished_edits(plan: TrialPlan, bundle: Bundle) -> TrialPlan:
    """Return the plan without the edits that the bundle's weights already hold; the original weights do not."""
    return replace(plan, shape=tuple(edit for edit in plan.shape if edit.kind not in bundle.info.evolved))


def _show(progress: Mapping[str, Any], listener: Listener) -> None:
    if "filled" in progress:
        listener.step("features", progress["filled"], progress["of"])
    elif "step" in progress:
        listener.step("training", progress["step"], progress["steps"])


def _describe_input(spec: InputSpec, loss: str) -> str:
    """Return what a model takes, with every setting that is given."""
    values = ((field.name, getattr(spec, field.name)) for field in fields(spec)[1:])
    settings = (f"{name} {list(value) if isinstance(value, tuple) else value}" for name, value in values if value)
    return ", ".join((f"{loss} {spec.kind}", *settings))
