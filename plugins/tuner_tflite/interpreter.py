"""LiteRT, which runs TFLite files: what answers, and what trains. They need LiteRT and the base package alone."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.arrays import Array, Floats, Labels
from tuner.bundle.format import WEIGHTS, Bundle
from tuner.bundle.tensors import read_tensors
from tuner.distribution import install_command
from tuner.errors import UnsupportedError
from tuner.ort.layout import Layout, Port, layout_of
from tuner.ort.session import open_session
from tuner.ort.training_step import Noise
from tuner.reading import read_bytes
from tuner.runtime.train.files import STEP
from tuner_tflite.asked import EXTRA

#: The file that trains, in a bundle's folder, and the most bytes that it may have.
TRAINS, MOST_BYTES = "tflite/train.tflite", 2**30
LOSS, COUNT = "loss", "step_count"
#: Kinds of a step's inputs that stay from one step to the next.
KEPT = frozenset({"parameter", "buffer", "state", COUNT})


class Interpreter:
    """A TFLite model that is run sample by sample on one thread.

    Args:
        content: The file's content.
        every: Whether all tensors can be read after a run; then no operators are merged.
    """

    def __init__(self, content: bytes, *, every: bool = False, threads: int = 1) -> None:
        interpreter = _litert()
        kind = interpreter.OpResolverType
        resolver = kind.BUILTIN_WITHOUT_DEFAULT_DELEGATES if every else kind.AUTO
        self._own: Any = interpreter.Interpreter(
            model_content=content,
            num_threads=threads,
            experimental_preserve_all_tensors=every,
            experimental_op_resolver_type=resolver,
        )
        self._own.allocate_tensors()
        self._input, self._output = self._own.get_input_details()[0], self._own.get_output_details()[0]

    def answers(self, batch: Floats) -> Floats:
        """Return the output of each sample as numbers that it stands for, float32 [n, outputs]."""
        return np.concatenate([self._answer(sample[None]) for sample in batch])

    def _answer(self, sample: Floats) -> Floats:
        self._own.set_tensor(self._input["index"], _as(sample, self._input))
        self._own.invoke()
        found: Floats = self._own.get_tensor(self._output["index"])
        scale, zero = self._output["quantization"]
        return found if not scale else (scale * (found.astype(np.float32) - zero)).astype(np.float32)

    def tensors(self, sample: Floats, wanted: Collection[int]) -> Iterator[tuple[int, Floats]]:
        """Run a sample [1, ...] and yield the wanted tensors in float32, by their numbers in the file."""
        self._answer(sample)
        for detail in self._own.get_tensor_details():
            if detail["index"] in wanted and detail["dtype"] is np.float32:
                try:
                    yield detail["index"], self._own.get_tensor(detail["index"])
                except ValueError:  # of a kernel's own, which has no memory
                    continue


@dataclass(frozen=True, slots=True)
class Training:
    """What a bundle's folder says of its training step.

    Attributes:
        folder: The bundle's folder.
        layout: What the step's inputs mean.
        first: Values of the variables before the first step, by the names of the step's inputs.
    """

    folder: Path
    layout: Layout
    first: Mapping[str, Array]

    @classmethod
    def of(cls, folder: Path) -> "Training":
        """Read a bundle; a counter of batches, which changes no answer, is left out."""
        layout = layout_of(folder / STEP, open_session(folder / STEP, 1, fixed_shapes=True))
        kept = [port for port in layout.inputs if port.kind in KEPT and port.dtype == "float32"]
        held = read_tensors(folder / WEIGHTS, tuple(one.name for one in kept if one.kind in {"parameter", "buffer"}))
        first = {port.name: np.asarray(held.get(port.name, np.zeros(port.shape)), np.float32) for port in kept}
        return cls(folder, layout, {port.name: first[port.name].reshape(shape_of(port)) for port in kept})


class TrainingSteps:
    """The steps of a file that trains, as `tuner.ort.training_step.StepSession` takes those of ONNX Runtime.

    Args:
        training: The training; the first step begins with its weights, whatever those of the file are.
        content: The file.
        noise: Source of the noise of dropouts.
    """

    def __init__(self, training: Training, content: bytes, noise: Noise) -> None:
        run = runners(content)
        self._layout, self._noise, self._train = training.layout, noise, run["train"]
        run["restore"](**training.first)

    def step(self, features: Floats, labels: Labels, learning_rate: float, weights: Floats | None = None) -> float:
        """Train on one batch; return its mean loss. A small batch is filled up with samples of weight 0."""
        empty = self._layout.batch_size - len(features)
        given: dict[str, Array] = {}
        for port in self._layout.inputs:
            if port.kind == "noise":
                given[port.name] = np.empty(port.shape, np.float32)
                self._noise.random(dtype=np.float32, out=given[port.name])
            elif port.kind == "sample_weight":
                given[port.name] = np.concatenate(
                    [np.ones(len(features)) if weights is None else weights, np.zeros(empty)]
                )
            elif port.kind == "learning_rate":
                given[port.name] = np.array([learning_rate])
            elif port.kind in {"input", "label"}:
                rows = features if port.kind == "input" else labels
                given[port.name] = np.concatenate([rows, np.repeat(rows[:1], empty, 0)])
        wanted = self._train.get_input_details()
        own = {
            port.name: given[port.name].astype(number_type(port)) for port in self._layout.inputs if port.name in wanted
        }
        return float(self._train(**own)[LOSS])


def steps_of(bundle: Bundle, noise: Noise) -> TrainingSteps | None:
    """Return the steps of a bundle's file, if it has one and LiteRT is here: an entry point of ``tuner.trainers``."""
    if TRAINS not in bundle.info.files or find_spec("ai_edge_litert") is None:
        return None
    return TrainingSteps(Training.of(bundle.folder), read_bytes(bundle.file(TRAINS), MOST_BYTES), noise)


def shape_of(port: Port) -> tuple[int, ...]:
    """Return the shape of a signature's input: a number has an axis, as LiteRT for Python on ARM crashes otherwise."""
    return port.shape or (1,)


def number_type(port: Port) -> str:
    """Return the type of an input of a step: labels are int32, for which LiteRT has all kernels."""
    return {"int64": "int32"}.get(port.dtype, port.dtype)


def runners(content: bytes, threads: int = 1) -> dict[str, Any]:
    """Return what runs each signature of a file: it takes inputs by name and returns outputs by name."""
    own = _litert().Interpreter(model_content=content, num_threads=threads)
    return {name: own.get_signature_runner(name) for name in own.get_signature_list()}


def _litert() -> Any:
    try:
        from ai_edge_litert import interpreter
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"TFLite needs LiteRT ({error}): {install_command(EXTRA)}") from None
    return interpreter


def _as(sample: Floats, detail: Any) -> npt.NDArray[Any]:
    """Return a sample as an input's numbers stand for it."""
    scale, zero = detail["quantization"]
    if not scale:
        return np.asarray(sample, detail["dtype"])
    limits = np.iinfo(detail["dtype"])
    return np.asarray(np.clip(np.rint(sample / scale) + zero, limits.min, limits.max), detail["dtype"])
