"""What a kind of samples is: its files, how they become the model's inputs, and the random changes that suit it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tuner.arrays import Array, Floats
from tuner.errors import TaskError
from tuner.task.spec import InputDefaults, InputSpec

if TYPE_CHECKING:  # a process that only predicts reads no data of tasks, and changes nothing at random
    from tuner.task.data.entry import Entry, EntrySource
    from tuner.task.data.samples import Samples


@dataclass(frozen=True, slots=True)
class Network:
    """A network that `tuner init` proposes for samples of a kind, where the user names none.

    Attributes:
        factory: As ``model.factory`` of a task file.
        arguments: As ``model.arguments``.
        weights: Pattern of names of files with its pretrained weights; empty where it has none.
        ops: Random changes, as ``augment.ops``.
        about: Sentence on what it has learned already and on what it trains; empty where it has learned nothing.
    """

    factory: str
    arguments: Mapping[str, Any]
    weights: str = ""
    ops: tuple[str, ...] = ()
    about: str = ""


def flat_network(shape: Sequence[int], outputs: int) -> Network:
    """Return a small network of linear layers, which takes samples of any shape."""
    return Network("tuner.models.rows:mlp", {"inputs": math.prod(shape), "outputs": outputs})


class InputKind(ABC):
    """A kind of samples; it must import no tensor library, as it runs on devices too.

    Attributes:
        name: Value of ``kind`` in task files and bundles.
        suffixes: Endings of files that can be predicted, in lower case.
        noun: Word for the samples, such as ``"images"``.
        settings: Which of ``size``, ``resize``, ``window``, ``hop`` and ``recording`` apply in ``[input]``.
        windowed: Whether a file may hold several samples: windows, whose mean prediction is the file's.
        whole: Word for a file in names of scores, where exports score whole files too; empty where they do not.
        timed: Whether predictions have a timeline in seconds (`seconds`).
        is_standardised: Whether ``input.mean`` and ``input.std`` are measured where a task file leaves them out.
    """

    name: ClassVar[str]
    suffixes: ClassVar[frozenset[str]]
    noun: ClassVar[str] = "samples"
    settings: ClassVar[frozenset[str]] = frozenset()
    windowed: ClassVar[bool] = False
    whole: ClassVar[str] = ""
    timed: ClassVar[bool] = False
    is_standardised: ClassVar[bool] = False

    @abstractmethod
    def entry(self, source: "EntrySource") -> "Entry":
        """Return the samples that an entry of a task file lists, and their labels; these are ignored if not needed.

        Raises:
            TaskError: The entry is missing, empty, malformed, or of another kind.
        """

    @abstractmethod
    def read(self, path: Path, spec: InputSpec) -> Array:
        """Return the content of a file as in training, not normalised: a sample, or what `pieces` takes.

        For a windowed kind, `InputSpec.window` is the last axis of the input's shape.

        Raises:
            TaskError: The file is missing, or cannot be read.
        """

    def claims(self, file: Path) -> bool:  # noqa: ARG002 - for others
        """Return whether a file of many samples is of this kind; asked where the user of `tuner init` names none."""
        return False

    def decoded(self, sample: Any, spec: InputSpec) -> Array:  # noqa: ARG002 - for others
        """Return a sample that a program holds as `read` returns that of a file; an array is one already."""
        return np.asarray(sample)

    def note(self, path: Path, spec: InputSpec) -> str:  # noqa: ARG002 - for others
        """Return what `read` changes in a file that a person should know; empty for nothing."""
        return ""

    def pieces(self, content: Array, spec: InputSpec, name: str) -> tuple[range, Array]:  # noqa: ARG002 - for others
        """Return where each sample begins in the content of a file, and the samples, [n, ...].

        The content is what `read` returns, or an array of the user's.

        Raises:
            TaskError: Nothing can be cut from the content.
        """
        return range(1), content[np.newaxis]

    def graph(self, spec: InputSpec) -> bytes | None:  # noqa: ARG002 - for others
        """Return an ONNX model that does the same as `pieces` for runtimes without Python; None where that is simple.

        Its input is what a file decodes to everywhere; its output, float32 [n, ...], are samples, not normalised.
        """
        return None

    def seconds(self, begins: range, spec: InputSpec) -> list[float]:  # noqa: ARG002 - for others
        """Return the second in the middle of each sample that `pieces` returns, where the kind is `timed`."""
        return []

    def completed(
        self,
        given: Mapping[str, Any],
        published: Callable[[], InputDefaults | None],  # noqa: ARG002 - for others
    ) -> dict[str, Any]:
        """Return the fields of `InputSpec` but its kind, with what a task file leaves out.

        Args:
            given: The fields as the file has them.
            published: Returns how images of the published model are prepared, if anybody knows.

        Raises:
            TaskError: One is missing that has no default, or does not suit the kind.
        """
        return dict(given)

    def check(self, spec: InputSpec, recording: str | None = None) -> None:
        """Require that only settings of this kind are given, ``input.recording`` of a task file among them.

        Raises:
            TaskError: One does not apply.
        """
        given = {key: getattr(spec, key) for key in ("size", "resize", "window", "hop")} | {"recording": recording}
        key = next((key for key, value in given.items() if value is not None and key not in self.settings), None)
        if key is not None:
            other = ', or set kind = "signals"' if key in {"window", "hop"} else ""
            way_out = "give input.window" if "window" in self.settings else f"leave it out{other}"
            raise TaskError(f"input.{key} = {given[key]} does not apply to kind {self.name!r}: {way_out}")

    def standardised(self, spec: InputSpec, partitions: "Mapping[str, Samples]") -> InputSpec:  # noqa: ARG002 - for others
        """Return the input with mean and deviation of the data, where they are measured.

        Partitions are by full name, such as ``global.train``; first those that the model was trained on.

        Raises:
            TaskError: They do not fit each other, or cannot be standardised.
        """
        return spec

    def proposed(self, source: "EntrySource") -> dict[str, Any]:  # noqa: ARG002 - for others
        """Return what `tuner init` writes as ``[input]`` for the samples of an entry, before it has read them all."""
        return {}

    def network(self, shape: Sequence[int], outputs: int) -> Network:
        """Return the network that `tuner init` proposes for samples of a shape."""
        return flat_network(shape, outputs)

    def check_operations(self, ops: frozenset[str]) -> None:
        """Require random changes that keep a sample's label.

        Raises:
            StoreError: Samples of the kind cannot take one of them.
        """
        from tuner.augment.operations import check_operations

        check_operations(ops)

    def augment(self, maps: Floats, generator: np.random.Generator, ops: frozenset[str], strength: float) -> Floats:
        """Return samples, or maps that blocks of the model made of them, changed at random; float32 [n, ...] both.

        Raises:
            StoreError: The operations do not suit the maps, or the strength is not from 0 to 1.
        """
        from tuner.augment.maps import augment

        return augment(maps, generator, ops, strength)
