"""Numbers as targets in a task file: no classes, and one row of the head per output."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TaskError
from tuner.targets.regression import are_named
from tuner.task.data.entry import Entry
from tuner.task.data.npz import PartitionName

if TYPE_CHECKING:
    from tuner.task.file.schema import TaskFile

Entries = Mapping[PartitionName, Entry]


def refuse_classes(file: "TaskFile", path: Path) -> None:
    """Refuse keys that speak of classes.

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
        raise TaskError(f'{path}: {key} is about classes, but loss.kind = "{file.loss.kind}" has none: leave it out')


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
    named = next((entry for entry in entries if are_named(entry.names)), entries[0])
    for entry in entries:
        if len(entry.names) != len(named.names) or (are_named(entry.names) and entry.names != named.names):
            raise TaskError(
                f"{path}: {entry.source} has the outputs {', '.join(entry.names)}, {named.source} has "
                f"{', '.join(named.names)}: all data of a regression must have the same targets in the same order"
            )
    return named.names
