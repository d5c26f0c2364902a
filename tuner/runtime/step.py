"""Train with the ordinary onnxruntime: a traced step runs again and again, its results becoming its next inputs.

Weights and optimiser state lie in two sets of buffers. A step reads one and writes the other, then the two swap roles:
nothing is copied between steps. This module needs the base package alone.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from tuner.backends.port import Port
from tuner.errors import TunerError
from tuner.plan import RecipePlan

FORMAT = 1
Array = npt.NDArray[Any]
#: Takes row numbers and returns the tail's input for them, float32 [n, ...].
Read = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]]
#: Called before every step with its number and the number of all steps; returns whether to stop there.
Watch = Callable[[int, int], bool]


class StepFileError(TunerError):
    """A file is not a training step, or not one for what it is given."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a step file's inputs mean.

    Attributes:
        inputs: Of the step.
        updates: By the name of an output, the input that it replaces in the next step.
    """

    inputs: tuple[Port, ...]
    updates: Mapping[str, str]

    @property
    def batch_size(self) -> int:
        """Samples a step."""
        return self.only("input").shape[0]

    def only(self, kind: str) -> Port:
        """Return the one input of a kind."""
        return next(port for port in self.inputs if port.kind == kind)


class StepSession:
    """A step file, its weights and its optimiser's state.

    Args:
        path: Of a file that `tuner.backends.torch.lower.write` wrote.
        weights: The tail's state dictionary; copied.
        threads: Within an operator.
        seed: Of the noise of dropouts.

    Attributes:
        layout: Of the file.

    Raises:
        StepFileError: The file is not a step, or the weights are another tail's.
    """

    def __init__(self, path: Path, weights: Mapping[str, Array], threads: int = 1, seed: int = 0) -> None:
        self._session: Any = opened(path, threads, keeps=True)
        self.layout = layout_of(path, self._session)
        self._noise = np.random.default_rng(seed)
        self._steps = 0
        replaced = set(self.layout.updates.values())
        first = {port.name: _first(port, weights) for port in self.layout.inputs}
        second = {name: np.empty_like(value) if name in replaced else value for name, value in first.items()}
        self._sets = (first, second)
        self._loss = np.zeros((), np.float32)
        self._bindings = tuple(self._bound(*pair) for pair in ((first, second), (second, first)))

    def step(self, features: npt.NDArray[np.float32], labels: Array, learning_rate: float) -> float:
        """Train on one batch; return its mean loss.

        Args:
            features: The tail's input, float32 [n, ...], n at most the step's batch size.
            labels: int64 [n], or float32 [n, outputs] of several labels a sample.
            learning_rate: Of this step.
        """
        most, count = self.layout.batch_size, len(features)
        if not 0 < count <= most:
            raise StepFileError(f"this step takes 1 to {most} samples, but got {count}: trace one for that batch size")
        self._steps += 1
        for port in self.layout.inputs:
            value = self._sets[0][port.name]
            if port.kind == "input":
                value[:count], value[count:] = features, features[:1]  # real values: of weight zero, but not NaN
            elif port.kind == "label":
                value[:count], value[count:] = labels, labels[:1]
            elif port.kind == "sample_weight":
                value[:count], value[count:] = 1, 0
            elif port.kind == "learning_rate":
                value[...] = learning_rate
            elif port.kind == "step_count":
                value[...] = self._steps
            elif port.kind == "noise":
                self._noise.random(dtype=np.float32, out=value)
        try:
            self._session.run_with_iobinding(self._bindings[(self._steps - 1) % 2])
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds
            said = str(error).splitlines()[0]
            raise TunerError(f"ONNX Runtime cannot run step {self._steps} (of numbers that grow?): {said}") from None
        return float(self._loss)

    def weights(self) -> dict[str, Array]:
        """Return copies of the tail's parameters and buffers as they are now, by their names in its state."""
        now = self._sets[self._steps % 2]
        return {port.name: now[port.name].copy() for port in self.layout.inputs if port.kind in {"parameter", "buffer"}}

    def _bound(self, before: Mapping[str, Array], after: Mapping[str, Array]) -> Any:
        """Return a binding of inputs and outputs to buffers, which must outlive it."""
        binding = self._session.io_binding()
        for one in self._session.get_inputs():
            _bind(binding.bind_input, one, before[one.name])
        for one in self._session.get_outputs():
            name = self.layout.updates.get(one.name)
            _bind(binding.bind_output, one, self._loss if name is None else after[name])
        return binding


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples to train on.

    Attributes:
        read: Their features, as often as they are asked for: a store's reader, with or without random changes.
        labels: Of all rows.
    """

    read: Read
    labels: Array


def train(
    session: StepSession, rows: Rows, recipe: RecipePlan, seed: int, watch: Watch = lambda _step, _steps: False
) -> Iterator[tuple[float, bool]]:
    """Train for a recipe's epochs, in the order and at the rates of `tuner.backends.torch.training.Loop`.

    Args:
        session: Of a step traced for the recipe.
        rows: The samples.
        recipe: Epochs, learning rate and its schedule, and a batch size of at most the step's; the optimiser is the
            step's.
        seed: Of the order of samples.
        watch: Told of every step.

    Yields:
        After every epoch its mean loss, and whether it was told to stop before the end.

    Raises:
        StepFileError: The batches are larger than those the step was planned for.
        TunerError: The loss is no longer a number.
    """
    order = np.random.default_rng(seed)
    size, most, count = recipe.batch_size, session.layout.batch_size, len(rows.labels)
    if size > most:
        raise StepFileError(f"the step was planned for batches of at most {most}, but recipe.batch_size is {size}")
    steps, step = recipe.epochs * math.ceil(count / size), 0
    for epoch in range(recipe.epochs):
        total, shuffled = 0.0, order.permutation(count)
        for begin in range(0, count, size):
            batch = shuffled[begin : begin + size]
            if not recipe.freeze_bn and len(batch) == 1 and count > 1:
                continue  # a batch norm has no statistics of one sample
            rate = scheduled(recipe, step / steps)
            total += session.step(rows.read(batch), rows.labels[batch], rate) * len(batch)
            step += 1
            if watch(step, steps):
                yield total / count, True
                return
        if not math.isfinite(total):
            raise TunerError(
                f"the loss became {total / count} in epoch {epoch + 1}: lower recipe.learning_rate, which is "
                f"{recipe.learning_rate:g}"
            )
        yield total / count, False


def scheduled(recipe: RecipePlan, share: float) -> float:
    """Return the learning rate after a share of all steps."""
    scale = 0.5 * (1 + math.cos(math.pi * share)) if recipe.schedule == "cosine" else 1.0
    return recipe.learning_rate * scale


def opened(path: Path, threads: int, *, keeps: bool) -> Any:
    """Return an ONNX Runtime session of a file of fixed shapes, with memory settings for these.

    Args:
        path: Of the file.
        threads: Within an operator.
        keeps: Whether the file is a step, whose memory is kept from run to run, by the arena. It hoards where shapes
            vary (onnxruntime issue 11627). Those of a step never do: what one operator freed fits the next, and less is
            taken, in less time.

    Raises:
        StepFileError: The file is not a model this ONNX Runtime can run.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = keeps
    options.enable_mem_pattern = False  # one block for a whole step, beside the arena: a third more, and no faster
    # Waiting threads spin between the operators of a step, which are many and short; not beside what decodes samples.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if keeps else "0")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds for a file that is not a model
        raise StepFileError(f"{path} cannot be run: {str(error).splitlines()[0]}") from None


def layout_of(path: Path, session: Any) -> Layout:
    """Read what a file's inputs mean from its metadata.

    Raises:
        StepFileError: It says nothing of them, or in another version's format.
    """
    about = json.loads(session.get_modelmeta().custom_metadata_map.get("tuner.step", "{}"))
    if about.get("format") != FORMAT:
        said = f"format {about['format']}" if "format" in about else "none"
        raise StepFileError(f"a training step of format {FORMAT} is wanted, but {path} holds {said}: export it again")
    ports = (Port(**{**port, "shape": tuple(port["shape"])}) for port in about["inputs"])
    return Layout(tuple(ports), about["updates"])


def _first(port: Port, weights: Mapping[str, Array]) -> Array:
    """Return an input's buffer as it is before the first step."""
    if port.kind not in {"parameter", "buffer"}:
        return np.zeros(port.shape, port.dtype)
    given = weights.get(port.name)
    if given is None or given.shape != port.shape:
        found = "are not there" if given is None else f"have shape {list(given.shape)}"
        raise StepFileError(
            f"the step trains {port.name} of shape {list(port.shape)}, but the weights {found}: give those of its tail"
        )
    return np.array(given, port.dtype, order="C")


def _bind(bind: Callable[..., None], one: Any, value: Array) -> None:
    """Bind a buffer to an input or output, in the shape that the file gives it."""
    bind(one.name, "cpu", 0, value.dtype.type, one.shape, value.ctypes.data)
