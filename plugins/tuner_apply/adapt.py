"""A task for a bundle's model: its inputs as the model takes them, its weights as where training starts."""

from dataclasses import fields, replace
from pathlib import Path

from tuner.bundle.format import WEIGHTS, Bundle
from tuner.errors import TaskError
from tuner.targets.strata import moved
from tuner.task.data.samples import Samples, with_labels
from tuner.task.inputs import input_kind
from tuner.task.scale import standardised
from tuner.task.spec import InputSpec, ModelSpec
from tuner.task.task import Task


def adapted(task: Task, folder: Path, *, starts_from_bundle: bool) -> Task:
    """Return a task for the plan of a bundle, and if so wanted with the bundle's weights as the given model.

    Raises:
        TunerError: The bundle cannot be read, or the task does not fit it.
    """
    bundle = Bundle.open(folder)
    matched = match_inputs(task, bundle)
    return start_from(bundle, matched) if starts_from_bundle else matched


def match_inputs(task: Task, bundle: Bundle) -> Task:
    """Return the task with its inputs prepared as the bundle's model expects them.

    A mean and deviation that are measured are the bundle's, as the weights were trained with these.

    Raises:
        TaskError: The tasks differ in anything else of [input], or in the loss.
    """
    if bundle.input.size and bundle.plan().size:  # it was chosen: the task's own is another
        task = task.at(bundle.input.size)
    if input_kind(task.input.kind).is_standardised:
        task = replace(task, input=replace(task.input, mean=bundle.input.mean, std=bundle.input.std))
    if not (task.input.columns and bundle.input.columns):  # one of them does not say
        task = replace(task, input=replace(task.input, columns=bundle.input.columns))
    if task.input != bundle.input or task.loss != bundle.info.loss:
        theirs, ours = _describe_input(task.input, task.loss), _describe_input(bundle.input, bundle.info.loss)
        raise TaskError(
            f"{task.name} gives {theirs}, but the bundle takes {ours}: give the task the bundle's [input] and loss"
        )
    return task


def start_from(bundle: Bundle, task: Task) -> Task:
    """Return the task with the bundle's weights as the given model: its labels first, then the task's new ones.

    Raises:
        TaskError: The targets are numbers, with other outputs than the bundle's.
    """
    labels = bundle.targets.joined(bundle.labels, task.labels)
    if labels is None:
        raise TaskError(
            f"{task.name} has the outputs {', '.join(task.labels)}, but the bundle has {', '.join(bundle.labels)}: "
            "give the same, in the same order"
        )
    rows = tuple(labels.index(label) for label in task.labels)
    known = replace(task, model=_model_of(bundle, task), head_rows=tuple(range(len(bundle.labels))))
    if labels == task.labels:
        return standardised(known, bundle.info.scale)  # numbers in the unit that the weights answer in

    def relabelled(samples: Samples) -> Samples:
        return with_labels(samples, moved(samples.labels, {old: (new,) for old, new in enumerate(rows)}, len(labels)))

    return replace(
        known,
        labels=labels,
        local=task.local.mapped(relabelled),
        global_=None if task.global_ is None else task.global_.mapped(relabelled),
        local_labels=tuple(sorted(rows[row] for row in task.local_labels)),
    )


def _model_of(bundle: Bundle, task: Task) -> ModelSpec:
    if bundle.info.int8 is not None:
        raise TaskError(
            f"{bundle.folder} holds its frozen blocks in int8 only, from which nothing can be trained: give "
            "--from original, or export without --int8"
        )
    exits = bundle.info.exits
    if exits is not None and exits.ends_with_exit:
        raise TaskError(
            f"{bundle.folder} ends with an exit and holds no blocks behind it: give --from original, or export without "
            "--drop-unreached"
        )
    weights = str(bundle.file(WEIGHTS).resolve())
    return replace(task.model, weights=weights, pretrain=None, head=tuple(bundle.labels))


def _describe_input(spec: InputSpec, loss: str) -> str:
    """Return what a model takes, with every setting that is given."""
    values = ((field.name, getattr(spec, field.name)) for field in fields(spec)[1:])
    settings = (f"{name} {list(value) if isinstance(value, tuple) else value}" for name, value in values if value)
    return ", ".join((f"{loss} {spec.kind}", *settings))
