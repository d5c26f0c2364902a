"""One ONNX Runtime session, with memory settings that do not hoard."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from tuner.errors import BundleError

LOGITS, FEATURES = "logits", "features"


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
        self._options: Any = onnxruntime.RunOptions()
        self._options.only_execute_path_to_fetches = True

    def logits(self, batch: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return float32 [n, outputs] of a normalised batch [n, ...]."""
        return self._output(LOGITS, batch)

    def features(self, batch: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return what the frozen blocks make of a normalised batch, float32 [n, ...]; nothing beyond them runs."""
        return self._output(FEATURES, batch)

    def _output(self, name: str, batch: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        output: npt.NDArray[np.float32] = self._session.run([name], {self._input: batch}, self._options)[0]
        return output
