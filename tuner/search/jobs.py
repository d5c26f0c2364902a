"""What crosses between the parent and its children."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """A backend's method to call in a child.

    Attributes:
        backend: Its name.
        method: Of the backend.
        arguments: Beside the task.
        reports: Whether the method takes `report`.
        frees: Whether freed memory goes back to the system in it, which takes time: for a job with a limit on memory.
    """

    backend: str
    method: str
    arguments: dict[str, Any]
    reports: bool
    frees: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """What a job raised.

    Attributes:
        text: One line.
        trace: The traceback; empty where the user can put it right.
        unsupported: Whether it was the plan that the backend cannot carry out.
    """

    text: str
    trace: str
    unsupported: bool = False
