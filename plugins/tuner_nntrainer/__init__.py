"""NNTrainer's model files: a network, its data and its training in one ``.ini``, tuned and described as any task.

Sources: NNTrainer (Samsung Research, 2022) and the format of its model files.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.plugin import TaskReader, hookimpl

if TYPE_CHECKING:
    from tuner.task import Task
    from tuner.task.reader import DefaultsOf, Described


class ModelFileReader(TaskReader):
    """Reads model files; the libraries that it needs are imported where a file is read."""

    noun = "a model file .ini"

    def read(self, path: Path, *, look: bool = True, defaults_of: "DefaultsOf | None" = None) -> "Task":  # noqa: ARG002 - all data are read, and no model is a published one
        """Return the task of a model file, whose data are named in it."""
        from tuner_nntrainer.task import task_from_ini

        return task_from_ini(path)

    def describe(self, path: Path, picture: Path | None = None) -> "Described":
        """Return a model file's layers in numbers, and the memory of its training step as planned."""
        from tuner_nntrainer.describe import describe_ini

        return describe_ini(path, picture)


@hookimpl
def tuner_task_files() -> Mapping[str, TaskReader]:
    """Offer the reader of model files."""
    return {".ini": ModelFileReader()}
