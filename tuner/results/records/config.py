"""What is asked of a run, and what it came to: the one list of the options of `tuner run`."""

import os
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from cyclopts import Parameter

from tuner.reading import kind_of, path_from, text_from

#: Options by the names of their fields, where they are not the same words.
OPTIONS = {"earlier": "from", "plugins": "plugin", "models": "model"}
#: Fields of a request that each worker of a shared study has for itself: the options of `tuner worker`.
OWN_OPTIONS = ("time", "memory", "storage", "plugins", "out", "store", "resume", "artifacts", "fetch")
_OBJECTIVE = re.compile(r"[^,/]*/[^:]*?\.py:[^,]+|[^,]+")

Duration = Annotated[str, Parameter(metavar="DURATION")]
Size = Annotated[str, Parameter(metavar="SIZE")]
Place = Annotated[str | Path, Parameter(metavar="PATH")]
Plugins = Annotated[Sequence[str | Path | ModuleType], Parameter(metavar="PATH...")]


def task_file(task: str) -> tuple[str, str]:
    """Return the file that names a task, and the function in it, or the candidate for its model; empty without one."""
    for mark in (".toml#", ".py:"):
        path, _, part = task.partition(mark)
        if part:
            return f"{path}{mark[:-1]}", part
    return task, ""


def named_objectives(text: str) -> list[tuple[str, str]]:
    """Return the objectives that a text names: of each its name, and ``file.py:function`` of one's own, else nothing.

    A file's path may hold commas where it has a slash before the first of them.
    """
    found = [one.strip() for one in _OBJECTIVE.findall(text) or [text]]
    return [(name, one) if (name := task_file(one)[1]) else (one, "") for one in found]


def option_name(name: str) -> str:
    """Return the option of the command line, without its dashes, that sets a field of a request."""
    return OPTIONS.get(name, name).replace("_", "-")


@Parameter(name="*", name_transform=option_name)
@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What is asked of a run: the options of `tuner run`, and the keyword arguments of `tuner.run`.

    A limit that is not given is the search space's.

    Attributes:
        space: Search space: file, or board-10min, early-exits, every-strategy, int8, phone-overnight, smoke, wearable.
        objectives: What is weighed, such as local_accuracy,macro_f1; also file.py:function [default: the space's].
        sampler: tpe, gp, nsga2, cmaes, random, or hub:NAME of OptunaHub, if it is on this disk [default: the space's].
        time: Limit on the whole command, such as 90s, 10m or 1h30m.
        train_time: Limit on the training time of each trial, without the time to fill the feature store.
        memory: Limit on the memory that a trial adds to its process, such as 512MB.
        storage: Limit on stored features and the run folder together, such as 2GB.
        trials: Limit on the number of trials.
        forget_at_most: Limit on the loss of global accuracy against the untouched model, such as 3%.
        stop_when_flat: End after this time without a better front, such as 60s.
        keep_going: Use all of --time, even if no further gain is expected that the validation samples could show.
        backend: Use only this backend: torch, onnxruntime, or one of a plugin [default: any that is installed].
        seed: The study's seed: the same seed suggests the same plans.
        deterministic: Make the run repeatable: one thread, costs computed from FLOPs; it ends after --trials only.
        folds: Cross-validate on local.train with this many folds. Use it when there are few samples.
        plugins: A Python file or package with a plugin that is not installed; may be repeated.
        models: A network in place of the task's, such as mobilenet_v2@160; of several, the best one (docs/models.md).
        earlier: A run whose front is tried first, or none [default: the newest run of this task and model].
        prior: A file from `tuner prior build`, or shipped: try plans from it first, if they suit the task.
        out: The run's folder [default: runs/TASK].
        store: The feature store's folder [default: in the user's cache].
        resume: Continue the run in --out.
        study: Address of a study that several workers share, such as postgresql://host/db: begin it, or join it.
        artifacts: Folder, or s3://BUCKET/PREFIX, where workers of a study put the weights of the front for export.
        fetch: Fetch the model that the task names, if it is not on this device; else nothing is fetched.
    """

    space: str = "board-10min"
    objectives: Annotated[str | None, Parameter(metavar="NAMES")] = None
    sampler: str | None = None
    time: Duration | None = None
    train_time: Duration | None = None
    memory: Size | None = None
    storage: Size | None = None
    trials: int | None = None
    forget_at_most: Annotated[str | None, Parameter(metavar="POINTS")] = None
    stop_when_flat: Duration | None = None
    keep_going: bool = False
    backend: str | None = None
    seed: int = 0
    deterministic: bool = False
    folds: int | None = None
    plugins: Plugins = ()
    models: Annotated[Sequence[str], Parameter(metavar="MODEL...")] = ()
    earlier: Place | None = None
    prior: Place | None = None
    out: Annotated[Place | None, Parameter(alias="-o")] = None
    store: Place | None = None
    resume: bool = False
    study: Annotated[str | None, Parameter(metavar="ADDRESS")] = field(default=None, repr=False)  # it holds a password
    artifacts: Place | None = None
    fetch: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """The user's limits; None for no limit.

    Attributes:
        time_seconds: Wall time of the whole command.
        train_seconds: Objective ``train_seconds`` of any member of the front.
        memory_bytes: Memory of a trial's process, above its resting size.
        storage_bytes: Feature store and run folder together.
        trials: Number of trials.
        forgetting: Loss of global accuracy against the untouched model, as a fraction.
        flat_seconds: Time without a better front after which a run ends.
        keep_going: Whether a run goes on where nothing is left to gain that its validation samples could show.
    """

    time_seconds: float | None = None
    train_seconds: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    trials: int | None = None
    forgetting: float | None = None
    flat_seconds: float | None = None
    keep_going: bool = False


@dataclass(frozen=True)
class RunConfig(RunRequest):
    """Everything a run depends on except the content of the task: what was asked, and what it came to.

    Attributes:
        task: Name or file of the task; in angle brackets if it was given as an object.
        limits: The user's limits, else the search space's.
        folds: Folds that judge the plans of the top rung; 0 for none.
        plugins: Files of local plugins.
        models: Networks that one was chosen from.
        study: Address of the study that several workers share, without its password; empty for a run of its own.
        home: The run's folder when it was made: where the task and the plugins are, from there, if all was moved.
    """

    task: str
    _: KW_ONLY
    limits: Budget = field(default_factory=Budget)
    folds: int = 0
    plugins: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    study: str = ""
    home: str = ""

    @classmethod
    def of(cls, request: RunRequest, **known: Any) -> "RunConfig":
        """Return what a request came to, with values by the names of fields that it has not, or has in another form."""
        asked = {one.name: getattr(request, one.name) for one in fields(RunRequest)}
        texts = {name: text_from(value) if isinstance(value, str | Path) else value for name, value in asked.items()}
        return cls(**{**texts, **known})

    def found(self, recorded: str, folder: Path) -> str:
        """Return where a recorded file is now: where it was, else at the same place as seen from the run's folder.

        Args:
            recorded: Absolute path of the file, of a task also with ``:function`` or ``#model``; or another name, which
                stands.
            folder: The run's folder now.
        """
        name, part = task_file(recorded)
        file = Path(path_from(name))
        if not (self.home and file.is_absolute()) or kind_of(file) != "nothing":
            return recorded
        moved = Path(os.path.normpath(folder.resolve() / os.path.relpath(file, path_from(self.home))))
        if kind_of(moved) == "nothing":
            return recorded
        return text_from(f"{moved}{recorded[-len(part) - 1 :]}" if part else moved)
