"""A task that a ``task.toml`` describes."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.distribution import CANDIDATES, SWITCH, offered
from tuner.errors import TaskError
from tuner.reading import read_toml, text_from
from tuner.targets import Targets, targets_of
from tuner.task.data.entry import Entry
from tuner.task.data.npz import PartitionName
from tuner.task.data.readable import FileCheck
from tuner.task.file.domains import domain_of, read_entries, refuse_shared_recordings
from tuner.task.file.labels import (
    GlobalClass,
    global_classes,
    matched_by_number,
    output_head,
    read_classes,
    row_cautions,
    union_head,
)
from tuner.task.file.reconcile import closed_global, mapped_local, read_rules
from tuner.task.file.sections import augment_operations, input_spec, loss_settings, model_spec, path_of
from tuner.task.file.variables import expand
from tuner.task.inputs import input_kind
from tuner.task.reader import DefaultsOf, TaskReader, nobody_says
from tuner.task.scale import standardised
from tuner.task.spec import InputSpec, LabelMap
from tuner.task.task import Domain, Task

if TYPE_CHECKING:
    from tuner.task.file.schema import TaskFile

Entries = Mapping[PartitionName, Entry]


class TomlReader(TaskReader):
    """Reads task files."""

    noun = "a .toml file"

    def read(self, path: Path, *, look: bool = True, defaults_of: DefaultsOf = nobody_says) -> Task:
        """Return the task of a task file."""
        return task_from_toml(path, look=look, defaults_of=defaults_of)


def task_from_toml(
    path: Path, *, look: bool = True, mapped: bool = True, defaults_of: DefaultsOf = nobody_says, model: str = ""
) -> Task:
    """Read a task file and the data it lists; see `task_from_values`."""
    values = read_toml(path, TaskError, "give a task file")
    return task_from_values(values, path, look=look, mapped=mapped, defaults_of=defaults_of, model=model)


def task_from_values(
    values: dict[str, Any],
    path: Path,
    *,
    look: bool = True,
    mapped: bool = True,
    defaults_of: DefaultsOf = nobody_says,
    model: str = "",
) -> Task:
    """Read the data that a task lists.

    Args:
        values: The content of a task file, parsed.
        path: Absolute path that the file has, or is to have.
        look: Whether to look at every image and recording, and report or leave out those that cannot be read.
        mapped: Whether ``[labels]`` holds; else all local labels are new (`reconcile.LOCAL`).
        defaults_of: Gives what ``[input]`` leaves out, for images of a published model.
        model: Candidate that takes the place of ``[model]``; else the first of the file, if it has no other model.

    Raises:
        TaskError: The file, or what it names, cannot be used; one line with the reason.
    """
    from tuner.task.file import schema

    file = schema.parse(expand(values, path), path)
    if model or (file.model.candidates and file.model.factory is None and file.model.weights is None):
        file = schema.parse(with_candidate(expand(values, path), model or file.model.candidates[0], path), path)
    labelled = file.local.labels == "given"
    if not labelled and file.global_ is None:
        raise TaskError(
            f'{path}: local.labels = "none" requires [global], as it says what the model predicts: add [global]'
        )
    network = model_spec(file.model, path)
    spec, input_cautions = input_spec(file, path, network, defaults_of)
    folder, kind = path.parent, targets_of(file.loss.kind, loss_settings(file.loss, path))
    _refuse_classes(file, path, kind)
    settings = f"{spec.kind} {spec.resize} {spec.size}"
    check = FileCheck(skip=file.input.skip_unreadable or not look, settings=settings, looks=look)
    local_entries: Entries = read_entries(file.local, folder, spec, kind, check, file.input.recording)
    global_entries: Entries | None = (
        read_entries(file.global_, folder, spec, kind, check, file.input.recording) if file.global_ else None
    )
    skipped = check.close(path)
    if global_entries is not None:
        refuse_shared_recordings(local_entries, global_entries)
    alike: LabelMap = ()
    cautions = list(input_cautions)
    if kind.has_classes:
        unmapped = None if global_entries is None else global_entries["train"]
        local_entries, global_entries, classes, alike = _reconciled(
            file, path, local_entries, global_entries, mapped=mapped
        )
        train = local_entries["train"]
        head = union_head(classes, [train.names[place] for place in train.occurring()] if labelled else [])
        local_rows, global_rows = head.local_rows if labelled else {"": 0}, head.global_rows
        if unmapped is not None and file.global_ is not None and network.pretrain is None:
            cautions += row_cautions(unmapped, classes, is_listed=file.global_.classes is not None)
        if labelled and file.labels is None:
            cautions += matched_by_number(head, train)
    else:
        own = local_entries if labelled else {}
        head = output_head([*(global_entries or {}).values(), *own.values()], path)
        local_entries = own or _blank(local_entries, kind, len(head.labels))
        local_rows, global_rows = None, None
    outputs = len(head.labels)
    kind.check_names(head.labels, path)
    local = domain_of("local", local_entries, local_rows, outputs)
    global_ = domain_of("global", global_entries, global_rows, outputs) if global_entries else None
    entries = chain(local_entries.values(), (global_entries or {}).values())
    task = Task(
        name=text_from(path.resolve().parent.name) if file.name is None else file.name,
        model=network,
        input=_standardised(spec, local, global_, path),
        loss=kind.name,
        local=local,
        global_=global_,
        labels=head.labels,
        head_rows=head.head_rows,
        local_labels=tuple(sorted(set(head.local_rows.values()))),
        augment=augment_operations(file.augment.ops, spec.kind, path),
        labelled=labelled,
        skipped=skipped,
        findings=tuple(check.findings),
        notes=tuple(note for entry in entries for note in entry.notes),
        loss_settings=kind.settings,
        label_map=alike,
        cautions=tuple(cautions),
    )
    return standardised(task)


def with_candidate(values: Mapping[str, Any], text: str, path: Path) -> dict[str, Any]:
    """Return the content of a task file with a candidate, such as ``NAME@SIZE``, as its model."""
    if (point := offered(CANDIDATES).get("values")) is None:
        raise TaskError(f"{path}: candidates are read by a plugin, and none is on: change {SWITCH}, or give one model")
    found: dict[str, Any] = point.load()(values, text, path)
    return found


def _blank(entries: Entries, kind: Targets, outputs: int) -> Entries:
    """Return entries whose targets stand for nothing."""
    return {name: replace(entry, targets=kind.blank(len(entry.targets), outputs)) for name, entry in entries.items()}


def _refuse_classes(file: "TaskFile", path: Path, kind: Targets) -> None:
    """Refuse keys that speak of classes where there are none."""
    has_listing = file.global_ is not None and file.global_.classes is not None
    key = "[labels]" if file.labels is not None else "global.classes" if has_listing else ""
    if key:
        numbers = f'{path}: {key} is about classes, but loss.kind = "{file.loss.kind}" has none: leave it out'
        kind.need_classes(TaskError(numbers))


def _reconciled(
    file: "TaskFile", path: Path, local_entries: Entries, global_entries: Entries | None, *, mapped: bool
) -> tuple[Entries, Entries | None, list[GlobalClass], LabelMap]:
    """Return the data by the labels of ``[labels]``, if there is such a section; the global classes; `label_map`."""
    from tuner.task.file.schema import LabelsSection

    section, rules = file.labels or (None if mapped else LabelsSection()), None
    if section is not None:
        if global_entries is None:
            raise TaskError(f"{path}: [labels] maps local labels to those of [global]: add it, or leave [labels] out")
        rules = read_rules(section, path, targets_of(file.loss.kind))
        rules = rules if mapped else replace(rules, map={}, new=frozenset(), is_strict=False)
    if file.labels is not None and file.local.labels == "none":
        raise TaskError(
            f'{path}: [labels] maps local labels, of which there are none with local.labels = "none": remove one'
        )
    classes: list[GlobalClass] = []
    if file.global_ is not None and global_entries is not None:
        listing = path_of(file.global_.classes, path.parent) if file.global_.classes else None
        listed = read_classes(listing, global_entries["train"].names) if listing else None
        if rules is not None:
            global_entries = closed_global(global_entries, listed, rules)
            listed = [replace(item, name=item.label) for item in listed] if listed else None
        classes = global_classes(global_entries["train"], listed, listing)
    alike: LabelMap = ()
    if rules is not None and file.local.labels == "given":
        local_entries, alike = mapped_local(local_entries, classes, rules)
    return local_entries, global_entries, classes, alike


def _standardised(spec: InputSpec, local: Domain, global_: Domain | None, path: Path) -> InputSpec:
    """Return the input with mean and deviation of what the model trained on: the global training samples, if any."""
    domains = {"local": local} if global_ is None else {"global": global_, "local": local}
    named = {f"{title}.{name}": samples for title, domain in domains.items() for name, samples in domain.partitions()}
    try:
        return input_kind(spec.kind).standardised(spec, named)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from None
