"""A tail's inference with its current weights: its file holds none."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Floats
from tuner.ort.layout import StepFileError, layout_of
from tuner.ort.session import open_session
from tuner.training.schedule import batches_of


class Tail:
    """The trainable part of a bundle, from features to logits.

    Args:
        path: A file that `tuner.backends.torch.onnx.write.write` wrote of
            `tuner.backends.torch.step.inference.trace_inference`.
        threads: Threads within an operator.

    Attributes:
        batch_size: Samples that run at once; fewer are padded.

    Raises:
        StepFileError: The file is none.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self._session = open_session(path, threads, fixed_shapes=True, error=StepFileError)
        self._layout = layout_of(path, self._session)
        self.batch_size = self._layout.batch_size

    def logits(self, features: Floats, weights: Mapping[str, Array]) -> Floats:
        """Return float32 [n, outputs] of features [n, ...], by the tail's parameters and buffers.

        Raises:
            StepFileError: The features or weights are another tail's.
        """
        shapes = {value.name: value.shape for value in self._session.get_inputs()}  # some are vectors in the file
        ports = {port.name: port for port in self._layout.inputs if port.name in weights}
        for name, port in ports.items():
            if weights[name].size != math.prod(port.shape):
                raise StepFileError(
                    f"the tail has {name} of shape {list(port.shape)}, but the weights {list(weights[name].shape)}: "
                    "give those of its tail"
                )
        state = {name: weights[name].astype(port.dtype).reshape(shapes[name]) for name, port in ports.items()}
        batch = np.zeros(self._layout.only("input").shape, np.float32)
        if features.shape[1:] != batch.shape[1:]:
            raise StepFileError(f"the tail takes {list(batch.shape[1:])}, but features are {list(features.shape[1:])}")
        logits = []
        for rows in batches_of(np.arange(len(features)), self.batch_size):
            batch[: len(rows)] = features[rows]
            try:
                outputs: Floats = self._session.run(None, {"input": batch, **state})[0]
            except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds
                raise StepFileError(f"the tail failed while it ran: {str(error).splitlines()[0]}") from None
            if outputs.ndim != 2 or len(outputs) != len(batch):  # noqa: PLR2004 - a row a sample
                shape = list(outputs.shape)
                raise StepFileError(f"the tail answers {len(batch)} samples with values of shape {shape}: export again")
            logits.append(outputs[: len(rows)])
        return np.concatenate(logits)
