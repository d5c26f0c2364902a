"""A regression in a task file: no classes, one row of the head per output, and standardised targets."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tuner.errors import TaskError
from tuner.task.data.entry import Entry
from tuner.task.data.npz import PartitionName
from tuner.task.data.targets import are_given

if TYPE_CHECKING:
    from tuner.task.file.schema import TaskFile

Entries = Mapping[PartitionName, Entry]


def refuse_classes(file: "TaskFile", path: Path) -> None:
    """Refuse keys that speak of classes in a task of a regression.

    Args:
        file: The task file.
        path: Its path, for messages.

    Raises:
        TaskError: There is one.
    """
    given = {
        "[labels]": file.labels is not None,
        "global.classes": file.global_ is not None and file.global_.classes is not None,
    }
    key = next((key for key, is_given in given.items() if is_given), None)
    if key is not None:
        raise TaskError(f'{path}: {key} is about classes, but loss.kind = "regression" has none: leave it out')


def without_targets(entries: Entries, outputs: int) -> Entries:
    """Return entries whose targets are zeros, which stand for nothing."""
    return {
        partition: replace(entry, targets=np.zeros((len(entry.targets), outputs), np.float32))
        for partition, entry in entries.items()
    }


def output_names(local: Entries, global_: Entries | None, path: Path) -> tuple[str, ...]:
    """Return the names of the outputs: those that an entry gives, else ``"output 0"`` and so on.

    Args:
        local: Local data; none where it has no targets.
        global_: Global data, if there is any.
        path: The task file, for messages.

    Raises:
        TaskError: Entries have other outputs than each other.
    """
    entries = [*(global_ or {}).values(), *local.values()]
    named = next((entry for entry in entries if are_given(entry.names)), entries[0])
    for entry in entries:
        if len(entry.names) != len(named.names) or (are_given(entry.names) and entry.names != named.names):
            raise TaskError(
                f"{path}: {entry.source} has the outputs {', '.join(entry.names)}, {named.source} has "
                f"{', '.join(named.names)}: all data of a regression must have the same targets in the same order"
            )
    return named.names
