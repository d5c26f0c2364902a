"""Carry a bundle's plan out on a task, from the bundle's weights or from the original ones."""

import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tuner.bundle import write_bundle
from tuner.errors import BundleError, TaskError
from tuner.folders import open_store
from tuner.host import Host
from tuner.plan import ModelInfo, TrialPlan
from tuner.results.records import Outcome
from tuner.runtime.bundle import PLAN, WEIGHTS, Bundle, placed
from tuner.search.events import Listener
from tuner.search.jobs import Failure, Job
from tuner.search.journal import seeded
from tuner.search.supervisor import Limits, Supervisor
from tuner.task import Domain, InputSpec, Samples, Task, load_task
from tuner.task.relabel import relabelled
from tuner.tune import task_info

SOURCES = ("bundle", "original")


def apply_bundle(folder: Path, task: str, out: Path, source: str, listener: Listener) -> Path:
    """Train as the bundle's plan says on the task's data, and write a bundle that names its parent.

    Args:
        folder: The bundle's.
        task: As for `tuner.run`.
        out: The new bundle's folder.
        source: ``bundle`` starts from its weights, ``original`` from the task's.
        listener: Hears of progress.

    Raises:
        TunerError: The plan does not fit the task, or training failed.
    """
    if source not in SOURCES:
        raise BundleError(f"--from is one of {', '.join(SOURCES)}, but it is {source!r}")
    bundle = Bundle.open(folder)
    loaded = accepted(load_task(task, Host().tasks), bundle)
    start = loaded if source == "original" else continued(loaded, bundle)
    plan = TrialPlan.from_toml((folder / PLAN).read_text(encoding="utf-8"))
    backend = Host().backend(plan.runtime.backend)
    try:
        with (
            placed(out) as part,
            Supervisor(backend.preload, start) as supervisor,
            tempfile.TemporaryDirectory() as scratch,
        ):
            model: ModelInfo = supervisor.call(backend.name, "describe", {})
            carried = plan.carried_to(model, task_info(start))
            if source != "original":  # what grew starts from its final widths; the original grows from the rule again
                grown = bundle.info.get("final_widths", {})
                carried = replace(carried, shape=tuple(edit for edit in carried.shape if edit.kind not in grown))
            store = open_store()
            arguments = {"model": model, "store": store, "threads": carried.runtime.threads}
            before = supervisor.call(backend.name, "untouched", arguments)
            weights = Path(scratch) / WEIGHTS
            job = Job(
                backend.name,
                "train",
                {"plan": carried, "seed": seeded(0, carried.key()), "store": store, "weights": weights},
                reports=True,
            )
            ended = supervisor.run(job, Limits(), lambda progress: _heard(progress, listener))
            if not isinstance(ended.value, Outcome):
                reason = ended.value.text if isinstance(ended.value, Failure) else ended.verdict
                raise BundleError(f"the plan could not be carried out: {reason}")
            extra = {"scores": {"trial": ended.value.values, "untouched": before}, "parent": bundle.identity}
            write_bundle(start, start, carried, weights, part, extra, trainable="train" in bundle.info)
    finally:
        listener.close()
    return out


def accepted(task: Task, bundle: Bundle) -> Task:
    """Return the task with its inputs as the bundle's model knows them.

    Signals keep the bundle's mean and deviation: new recordings have others, and the weights were trained with these.

    Raises:
        TaskError: Anything else of [input], or [loss], differs.
    """
    if task.input.kind == "signals":
        task = replace(task, input=replace(task.input, mean=bundle.input.mean, std=bundle.input.std))
    if task.input != bundle.input or task.loss != bundle.loss:
        theirs, ours = (_said(one.input, one.loss) for one in (task, bundle))
        raise TaskError(f"{task.name} gives {theirs}, but the bundle takes {ours}: give both the same [input] and loss")
    return task


def continued(task: Task, bundle: Bundle) -> Task:
    """Return the task with the bundle's weights as the given model: its labels first, then the task's new ones."""
    labels = (*bundle.labels, *(label for label in task.labels if label not in bundle.labels))
    rows = tuple(labels.index(label) for label in task.labels)
    model = replace(
        task.model, weights=str((bundle.folder / WEIGHTS).resolve()), pretrain=None, head=tuple(bundle.labels)
    )

    def moved(samples: Samples | None) -> Any:
        return None if samples is None else relabelled(samples, rows, len(labels))

    def domain(one: Domain) -> Domain:
        return Domain(moved(one.train), moved(one.val), moved(one.test))

    return replace(
        task,
        model=model,
        labels=labels,
        head_rows=tuple(range(len(bundle.labels))),
        local=domain(task.local),
        global_=domain(task.global_) if task.global_ is not None else None,
        local_labels=tuple(sorted(rows[row] for row in task.local_labels)),
    )


def _heard(progress: Any, listener: Listener) -> None:
    if "filled" in progress:
        listener.step("features", progress["filled"], progress["of"])
    elif "step" in progress:
        listener.step("training", progress["step"], progress["steps"])


def _said(spec: InputSpec, loss: str) -> str:
    """Return what a model takes, for a message: every setting that is given."""
    given = ((field.name, getattr(spec, field.name)) for field in fields(spec)[1:])
    settings = (f"{name} {list(value) if isinstance(value, tuple) else value}" for name, value in given if value)
    return ", ".join((f"{loss} {spec.kind}", *settings))
