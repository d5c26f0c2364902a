"""The messages between the parent and its children."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.plan.trial import TrialPlan
from tuner.task import Task


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: what the process that children are forked from prepares.

    Attributes:
        preload: Modules to import.
        task: The text that names the task, or the task itself.
        backends: Names of the backends to open it on.
        many_jobs: Whether to compute what every job needs before the first.
        plugins: Files of local plugins to load.
        refused: Names of plugins that the main process refused: they are not loaded.
        memory_bytes: Memory that what opens the task may add to its process, as far as it asks; None for no limit.
        adapt: Makes the task of the loaded one; as it is where it is not given.
    """

    preload: tuple[str, ...]
    task: str | Task
    backends: tuple[str, ...]
    many_jobs: bool
    plugins: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    memory_bytes: int | None = None
    adapt: Callable[[Task], Task] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A session's method to call in a child.

    Attributes:
        backend: Whose session.
        method: Its name; ``model`` is a property.
        arguments: By name.
        reports: Whether the method takes ``report``; a `Trial` among its arguments always does.
        frees: Whether freed memory goes back to the system in it, which takes time: for a job with a limit on memory.
        metered: Whether the child's memory counts from the start of the job.
        plan: Plan that the session is prepared for before the child is forked; None for nothing to prepare.
        file_bytes: Longest file that the job may write; None for no limit.
    """

    backend: str
    method: str
    arguments: dict[str, Any]
    reports: bool
    frees: bool = False
    metered: bool = False
    plan: TrialPlan | None = None
    file_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """What a job raised.

    Attributes:
        text: One line.
        trace: The traceback; empty where the user can put it right without it.
        unsupported: Whether the backend cannot carry the plan out.
        edit: Kind of the tail edit, data edit or loss term whose function is at fault; empty where none is.
        is_bug: Whether it was none of the errors that a user can act on.
        error: Name of its class in `tuner.errors`; empty where that makes no difference.
    """

    text: str
    trace: str
    unsupported: bool = False
    edit: str = ""
    is_bug: bool = False
    error: str = ""
