"""What reads the task that a file describes; plugins add readers of other files."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tuner.task.spec import InputDefaults, ModelSpec
from tuner.task.task import Task

#: How the inputs of a published model are prepared; None where nobody says.
DefaultsOf = Callable[[ModelSpec], InputDefaults | None]


def nobody_says(_: ModelSpec) -> None:
    """Know of no published model."""


class Described(NamedTuple):
    """What ``tuner describe`` shows of a file.

    Attributes:
        values: For ``--json``.
        text: For people.
    """

    values: Mapping[str, Any]
    text: str


class TaskReader(ABC):
    """Reads tasks from files whose names have one ending.

    Attributes:
        noun: What such a file is, for messages.
    """

    noun: ClassVar[str]

    @abstractmethod
    def read(self, path: Path, *, look: bool = True, defaults_of: DefaultsOf = nobody_says) -> Task:
        """Return the task that a file, given by its absolute path, describes.

        Args:
            path: The file.
            look: Whether to look at every file of samples that is listed there.
            defaults_of: Gives what the file leaves out about images of a published model.

        Raises:
            TaskError: The file cannot be read, or its data cannot be used.
            ModelError: It describes a model that cannot be used.
        """

    def describe(self, path: Path, picture: Path | None = None) -> Described | None:  # noqa: ARG002 - for others
        """Return what a file says of its own model; None where the model's blocks are shown, as of any task.

        Args:
            path: The file.
            picture: SVG file to write, with the memory over a training step.

        Raises:
            ModelError: The file cannot be read, or the picture cannot be written.
        """
        return None
