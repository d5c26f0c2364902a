"""A tail's inference with the weights of the moment: its file holds none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.runtime.step import layout_of, opened


class Tail:
    """The trainable part of a bundle, from features to logits.

    Args:
        path: Of a file that `tuner.backends.torch.lower.write` wrote of `tuner.backends.torch.step.trace_inference`.
        threads: Within an operator.

    Attributes:
        batch_size: Samples that run at once; fewer are padded.

    Raises:
        StepFileError: The file is none.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self._session = opened(path, threads, keeps=False)
        self._layout = layout_of(path, self._session)
        self.batch_size = self._layout.batch_size

    def logits(
        self, features: npt.NDArray[np.float32], weights: Mapping[str, npt.NDArray[Any]]
    ) -> npt.NDArray[np.float32]:
        """Return float32 [n, outputs] of features [n, ...].

        Args:
            features: The tail's input.
            weights: Its parameters and buffers, by name.
        """
        size = self.batch_size
        shapes = {one.name: one.shape for one in self._session.get_inputs()}  # some weights are vectors in the file
        named = {port.name: port for port in self._layout.inputs if port.name in weights}
        given = {name: weights[name].astype(port.dtype).reshape(shapes[name]) for name, port in named.items()}
        batch = np.zeros(self._layout.only("input").shape, np.float32)
        parts = []
        for begin in range(0, len(features), size):
            part = features[begin : begin + size]
            batch[: len(part)] = part
            found: npt.NDArray[np.float32] = self._session.run(None, {"input": batch, **given})[0]
            parts.append(found[: len(part)])
        return np.concatenate(parts)
