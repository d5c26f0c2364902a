"""Train with the ordinary onnxruntime: a traced step runs again and again, its results becoming its next inputs.

Weights and optimiser state lie in two sets of buffers. A step reads one and writes the other, then the two swap roles:
nothing is copied between steps. This module needs the base package alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tuner.arrays import Array, Floats, Labels, RowNumbers
from tuner.errors import TunerError
from tuner.ort.layout import Port, StepFileError, layout_of, require_buffer
from tuner.ort.session import open_session
from tuner.plan.parts import RecipePlan
from tuner.training.emphasis import Order
from tuner.training.epoch import EpochLoop, EpochResult, Watch
from tuner.training.steps import Steps

#: Takes row numbers and returns the tail's input for them, float32 [n, ...].
Read = Callable[[RowNumbers], Floats]


class Noise(Protocol):
    """Where the noise of dropouts comes from; a generator of numpy is one."""

    def random(self, *, dtype: type[np.float32], out: Floats) -> object:
        """Fill `out` with numbers in [0, 1)."""
        ...


class StepSession:
    """A step file, its weights and its optimiser's state.

    Args:
        path: A file that `tuner.backends.torch.onnx.write.write` wrote.
        weights: The tail's state dictionary; copied.
        threads: Threads within an operator.
        seed: Seed of the noise of dropouts.
        noise: Source of that noise instead.

    Attributes:
        layout: What the file's inputs mean.

    Raises:
        StepFileError: The file is not a step, or the weights are another tail's.
    """

    def __init__(
        self, path: Path, weights: Mapping[str, Array], threads: int = 1, seed: int = 0, noise: Noise | None = None
    ) -> None:
        self._path = path
        self._session = open_session(path, threads, fixed_shapes=True, repeats=True, error=StepFileError)
        self.layout = layout_of(path, self._session)
        self._noise: Noise = noise or np.random.default_rng(seed)
        self._steps = 0
        replaced = set(self.layout.updates.values())
        first = {port.name: _first(port, weights) for port in self.layout.inputs}
        second = {name: np.empty_like(value) if name in replaced else value for name, value in first.items()}
        self._sets = (first, second)
        self._loss = np.zeros((), np.float32)
        self._bindings = tuple(self._bound(*pair) for pair in ((first, second), (second, first)))

    def step(
        self,
        features: Floats,
        labels: Labels,
        learning_rate: float,
        teacher: Floats | None = None,
        weights: Floats | None = None,
    ) -> float:
        """Train on one batch; return its mean loss.

        Args:
            features: The tail's input, float32 [n, ...], n at most the step's batch size.
            labels: int64 [n], or float32 [n, outputs] of several labels a sample.
            learning_rate: Learning rate of this step.
            teacher: Logits of a teacher, float32 [n, outputs], where the step's loss reads them.
            weights: Weights in the mean loss, float32 [n], where they differ.
        """
        most, count = self.layout.batch_size, len(features)
        if not 0 < count <= most:
            raise StepFileError(
                f"a training step of this file takes 1 to {most} samples, got {count}: give fewer at a time"
            )
        self._steps += 1
        given = {"input": features, "label": labels, "teacher": teacher}
        for port in self.layout.inputs:
            value = self._sets[0][port.name]
            if (rows := given.get(port.kind)) is not None:
                value[:count], value[count:] = rows, rows[:1]  # real values: of weight zero, but not NaN
            elif port.kind == "sample_weight":
                value[:count], value[count:] = 1 if weights is None else weights, 0
            elif port.kind == "learning_rate":
                value[...] = learning_rate
            elif port.kind == "step_count":
                value[...] = self._steps
            elif port.kind == "noise":
                self._noise.random(dtype=np.float32, out=value)
        try:
            self._session.run_with_iobinding(self._bindings[(self._steps - 1) % 2])
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds
            raise TunerError(
                f"ONNX Runtime failed in training step {self._steps} ({str(error).splitlines()[0]}): if numbers grew "
                "too large, lower recipe.learning_rate"
            ) from None
        return float(self._loss)

    def weights(self) -> dict[str, Array]:
        """Return copies of the tail's current parameters and buffers, by their names in its state."""
        current = self._sets[self._steps % 2]
        names = [port.name for port in self.layout.inputs if port.kind in {"parameter", "buffer"}]
        return {name: current[name].copy() for name in names}

    def state(self) -> tuple[dict[str, Array], int]:
        """Return copies of the optimiser's state, by its names in the file, and the number of steps."""
        current = self._sets[self._steps % 2]
        return {one.name: current[one.name].copy() for one in self.layout.inputs if one.kind == "state"}, self._steps

    def restore(self, state: Mapping[str, Array], steps: int) -> None:
        """Continue from what `state` returned, in a session that was made with the weights of then."""
        begun, current = self._sets[self._steps % 2], self._sets[steps % 2]
        for port in self.layout.inputs:
            if port.kind in {"parameter", "buffer"}:
                current[port.name][...] = begun[port.name]
            elif port.kind == "state":
                current[port.name][...] = state[port.name]
        self._steps = steps

    def _bound(self, before: Mapping[str, Array], after: Mapping[str, Array]) -> Any:
        """Return a binding of inputs and outputs to buffers, which must outlive it."""
        binding = self._session.io_binding()
        for value in self._session.get_inputs():
            self._bind(binding.bind_input, value, before[value.name])
        for value in self._session.get_outputs():
            name = self.layout.updates.get(value.name)
            self._bind(binding.bind_output, value, self._loss if name is None else after[name])
        return binding

    def _bind(self, bind: Callable[..., None], value: Any, buffer: Array) -> None:
        """Bind a buffer to an input or output, in the shape that the file gives it."""
        require_buffer(self._path, value, buffer.shape, buffer.dtype.name)
        bind(value.name, "cpu", 0, buffer.dtype.type, value.shape, buffer.ctypes.data)


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Samples to train on.

    Attributes:
        read: Returns their features, as often as asked: a store's reader, with or without random changes.
        labels: Labels of all rows.
        teacher: Logits of a teacher, float32 [rows, outputs], where the step's loss reads them.
        weights: Weights in the loss, float32 [rows], where they differ.
        order: Draws the rows of an epoch, where it is no permutation of all.
    """

    read: Read
    labels: Labels
    teacher: Floats | None = None
    weights: Floats | None = None
    order: Order | None = None


class SessionSteps(Steps):
    """The steps of a training that ONNX Runtime runs, in batches of at most the size that the step was traced for."""

    def __init__(self, session: StepSession, rows: TrainingRows, recipe: RecipePlan) -> None:
        most = session.layout.batch_size
        if recipe.batch_size > most:
            raise StepFileError(
                f"the training step takes batches of at most {most} samples, but recipe.batch_size is "
                f"{recipe.batch_size}: give at most {most}"
            )
        self._session, self._rows, self.norms_train = session, rows, not recipe.freeze_bn

    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on one batch; return its mean loss."""
        own = self._rows
        teacher, weights = (None if values is None else values[rows] for values in (own.teacher, own.weights))
        return self._session.step(own.read(rows), own.labels[rows], rate, teacher, weights)


def train(
    session: StepSession, rows: TrainingRows, recipe: RecipePlan, seed: int, watch: Watch = lambda _step, _steps: False
) -> Iterator[EpochResult]:
    """Train for a recipe's epochs; see `tuner.training.epoch.EpochLoop`.

    The step was traced for the recipe, and has its optimiser; `seed` is that of the order of samples, and `watch` is
    called after every step.

    Raises:
        StepFileError: The batches are larger than those the step was planned for.
        TunerError: The loss is no longer a number.
    """
    steps = SessionSteps(session, rows, recipe)
    return EpochLoop(steps, recipe, len(rows.labels), seed, order=rows.order).epochs(watch)


def _first(port: Port, weights: Mapping[str, Array]) -> Array:
    """Return an input's buffer as it is before the first step."""
    if port.kind not in {"parameter", "buffer"}:
        return np.zeros(port.shape, port.dtype)
    value = weights.get(port.name)
    if value is None or value.shape != port.shape:
        state = "are not there" if value is None else f"have shape {list(value.shape)}"
        raise StepFileError(
            f"the step trains {port.name} of shape {list(port.shape)}, but the weights {state}: give those of its tail"
        )
    return np.array(value, port.dtype, order="C")
