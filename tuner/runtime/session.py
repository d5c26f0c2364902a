"""One ONNX Runtime session, with memory settings that do not hoard."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from tuner.errors import BundleError


class Session:
    """Runs a model file.

    Args:
        path: Of the ONNX file.
        threads: Within an operator; all the process may use where it is not given.

    Raises:
        BundleError: The file is not a model this ONNX Runtime can run.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
        options.enable_cpu_mem_arena = False  # the arena grows to many times the model (onnxruntime issue 11627)
        options.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds for a file that is not a model
            raise BundleError(f"{path} cannot be run: {str(error).splitlines()[0]}") from None
        self._input = self._session.get_inputs()[0].name

    def logits(self, batch: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return float32 [n, outputs] of a normalised batch [n, ...]."""
        return self.outputs(batch)[0]

    def outputs(self, batch: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        """Return every output of the file, in its order, for a batch [n, ...]."""
        found: list[npt.NDArray[np.float32]] = self._session.run(None, {self._input: batch})
        return found
