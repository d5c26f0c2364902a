"""What names a candidate, and the content of a task file that has it as its model."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tuner.distribution import offered
from tuner.errors import TaskError, UsageError
from tuner.ort.session import open_session
from tuner.reading import expanded, kind_of, path_from, read_toml
from tuner.task.file.sections import path_of
from tuner.task.file.variables import expand
from tuner.task.spec import LIBRARIES, MODEL_FILES, lacks_tag
from tuner_choose.places import LIBRARY, cached_networks, require_network, weights_here

#: Share of what is left of a run's time in which its model is chosen.
SHARE = 0.2
#: Keys of ``[input]`` that say how a published model's images are prepared.
PREPARATION = ("size", "resize", "mean", "std")
_TEXT = re.compile(r"(?P<name>[^=]+?)(=(?P<weights>.+?))?(@(?P<size>[1-9]\d*))?")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A network that may become a task's model: ``NAME``, ``NAME@SIZE``, ``NAME=WEIGHTS`` or ``NAME=WEIGHTS@SIZE``.

    Attributes:
        name: As ``model.factory``, or a model file; a name alone is one of torchvision's.
        weights: File of the weights, or a name that torchvision fetches; empty where the network brings its own, or
            they are looked for on this machine.
        size: Side of its pictures, in pixels; 0 for that of the task.
    """

    name: str
    weights: str = ""
    size: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a text; a `TaskError` where it is none."""
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise TaskError(
                f"a candidate must be NAME, NAME@SIZE or NAME=WEIGHTS@SIZE, got {text!r}: such as "
                "torchvision.models:mobilenet_v2@160 or net.onnx"
            )
        name = found["name"]
        is_own = ":" in name or name.lower().rpartition(".")[2] in offered(MODEL_FILES)
        return cls(name if is_own else f"{LIBRARY}:{name}", found["weights"] or "", int(found["size"] or 0))

    def __str__(self) -> str:
        weights, size = f"={self.weights}" if self.weights else "", f"@{self.size}" if self.size else ""
        return f"{self.name.removeprefix(f'{LIBRARY}:')}{weights}{size}"

    @property
    def is_file(self) -> bool:
        """Whether the name is that of a model file."""
        return ":" not in self.name

    def differs_in_size(self, text: str) -> bool:
        """Return whether another candidate is the same network with pictures of another size."""
        other = Candidate.of(text)
        return (self.name, self.weights) == (other.name, other.weights) and 0 < self.size != other.size > 0

    def seen_from(self, file: Path) -> "Candidate":
        """Return the candidate, whose paths are from the current folder, as a task file names it."""

        def place(path: str) -> str:
            there = Path(path).absolute()
            return str(there.relative_to(file.parent) if there.is_relative_to(file.parent) else there)

        source, colon, rest = self.name.rpartition(":")
        name = self.name
        if self.is_file:
            name = place(name)
        elif source.endswith(".py"):
            name = f"{place(source)}{colon}{rest}"
        elif source == "hf" and kind_of(Path(rest)) == "folder":
            name = f"hf:{Path(rest).absolute()}"
        return Candidate(name, place(self.weights) if kind_of(self.weights) == "file" else self.weights, self.size)

    def model(self, given: Mapping[str, Any], file: Path) -> dict[str, Any]:
        """Return the section ``[model]``; what a task file says of the same network holds for it too.

        Raises:
            TaskError: The weights of a network of torchvision, or of timm, are not on this machine.
        """
        is_same = self.name in (given.get("factory"), given.get("weights"))
        own = {key: value for key, value in given.items() if is_same and key != "candidates"}
        if self.is_file:
            return {**own, "weights": self.name}
        found = {**own, "factory": self.name} | ({"weights": self.weights} if self.weights else {})
        library, _, name = self.name.partition(":")
        is_untrained = lacks_tag(self.name)
        if "weights" in found or not (library == LIBRARY or is_untrained):
            return found
        if is_untrained:
            require_network(name)
        here = weights_here(self.name, file)
        if here is None and is_untrained and (tagged := cached_networks(name)):
            return {**found, "factory": tagged[0]}
        if here is None:
            fetched = (
                f"{self.name}.TAG (a tag of timm's) with --fetch" if is_untrained else f"{self.name}=IMAGENET1K_V1"
            )
            raise TaskError(
                f"no weights of {name} are on this machine: put a file {name}-*.pth next to {file.name}, or give "
                f"{self.name}=FILE; or let {library.partition('.')[0]} download them once: {self.name}{fetched}"
            )
        found["weights"] = str(here)
        return found

    def input(self, given: Mapping[str, Any], file: Path) -> dict[str, Any]:
        """Return the section ``[input]`` of images: published networks prepare them in their own way."""
        is_published = self.name.partition(":")[0] in LIBRARIES
        found = {key: value for key, value in given.items() if not is_published or key not in PREPARATION}
        size = self.size or (self.side(file))
        if size:
            side, resize = found.get("size"), found.get("resize")
            found |= {"size": size, "resize": size}
            if isinstance(side, int) and isinstance(resize, int) and side > 0:  # the share that is cropped away stays
                found["resize"] = round(resize * size / side)
        return found

    def side(self, file: Path) -> int:
        """Return the side of the pictures that a model file takes; 0 where the network takes any."""
        if not self.is_file:
            return 0
        path = path_of(self.name, file.parent)
        if kind_of(path) != "file":
            raise TaskError(f"{path}: no such file: give the path of a model file, relative to {file.name}")
        shape = open_session(path, 1, error=TaskError).get_inputs()[0].shape
        return shape[2] if len(shape) == len("nchw") and isinstance(shape[2], int) else 0


def values_of(values: Mapping[str, Any], text: str, file: Path) -> dict[str, Any]:
    """Return the content of a task file with a candidate as its model.

    Args:
        values: The content of the task file, parsed.
        text: The candidate.
        file: Absolute path of the task file, which paths are relative to.

    Raises:
        TaskError: It is no candidate, or what it names is not there.
    """
    candidate = Candidate.of(text)
    model, local, given = (_table(values, key) for key in ("model", "local", "input"))
    found = {**values, "model": candidate.model(model, file)}
    if local.get("kind") == "images":
        return found | {"input": candidate.input(given, file)}
    if candidate.size:
        raise TaskError(f"{file}: the candidate {text} gives the size of images, but the samples are none: leave @ out")
    return found


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if isinstance(found, dict) else {}


def file_of(task: object) -> Path | None:
    """Return the task file that a text names, absolute; None where it names something else."""
    if not isinstance(task, str) or not task.strip():
        return None
    name, mark, _ = task.partition(".toml#")
    path = expanded(path_from(f"{name}.toml" if mark else task)).absolute()
    if kind_of(path) == "folder":
        path /= "task.toml"
    return path if path.suffix == ".toml" and kind_of(path) == "file" else None


def named_in(values: Mapping[str, Any]) -> list[str]:
    """Return the candidates that a task file names, as they are written out."""
    found = _table(values, "model").get("candidates")
    return [str(Candidate.of(text)) for text in found if isinstance(text, str)] if isinstance(found, list) else []


def matching(task: str, network: str, side: int) -> str:
    """Return the text of a task with that of its file's candidates which a bundle was made with.

    Args:
        task: What names the task.
        network: Name of the bundle's network.
        side: Side of the pictures that it takes, in pixels.
    """
    file = file_of(task)
    if file is None or ".toml#" in task:
        return task
    values = expand(read_toml(file, TaskError, "give a task file"), file)
    found = [name for name in named_in(values) if _side_of(values_of(values, name, file)) == side]
    found.sort(key=lambda name: network not in name)
    return f"{file}#{found[0]}" if found else task


def _side_of(values: Mapping[str, Any]) -> int:
    side = _table(values, "input").get("size")
    return side if isinstance(side, int) else 0


def first(task: object, models: Iterable[str]) -> tuple[object, Sequence[str], float]:
    """Return a task with the first of its candidates that can be used, to look at what a run would try.

    Returns:
        What names the task, and, where there are several candidates, all of them and the share of the time in which one
        is chosen.

    Raises:
        UsageError: Models are named for what is no task file.
        TaskError: None of the candidates can be used.
    """
    file = file_for(task, models)
    if file is None or (".toml#" in str(task) and not models):
        return task, (), 0.0
    values = expand(read_toml(file, TaskError, "give a task file"), file)
    names = candidates_of(models, values, file)
    if len(names) < 2:  # noqa: PLR2004 - there is nothing to choose from
        return (f"{file}#{names[0]}" if models else task), (), 0.0
    refused = list[TaskError]()
    for name in names:
        try:
            values_of(values, name, file)
        except TaskError as error:
            refused.append(error)
        else:
            return f"{file}#{name}", names, SHARE
    raise refused[0]


def candidates_of(models: Iterable[str], values: Mapping[str, Any], file: Path) -> list[str]:
    """Return the candidates that the user names, else those of the task file, each once."""
    named = [str(Candidate.of(text).seen_from(file)) for text in models]
    return list(dict.fromkeys(named or named_in(values)))


def file_for(task: object, models: Iterable[str]) -> Path | None:
    """Return the task file that a text names; None where it names something else, for which no models are named.

    Raises:
        UsageError: Models are named for what is no task file.
    """
    file = file_of(task)
    if file is None and [*models]:
        raise UsageError(
            f"--model takes the place of the model of a task file or of photos, and {task} is neither: leave it out"
        )
    return file
