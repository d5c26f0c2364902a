"""ONNX Runtime sessions, with settings that hoard neither memory nor processor time."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from tuner.errors import BundleError

LOGITS, FEATURES = "logits", "features"
Floats = npt.NDArray[np.float32]


class Session:
    """Runs a model file.

    Args:
        path: Of the ONNX file.
        threads: Within an operator; all the process may use where it is not given. They sleep while they wait for work
            instead of spinning, which would take the processor from the next session of a chain, and from the user.

    Raises:
        BundleError: The file is not a model this ONNX Runtime can run.
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
        options.enable_cpu_mem_arena = False  # the arena grows to many times the model (onnxruntime issue 11627)
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._path = path
        try:
            self._session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds for a file that is not a model
            raise BundleError(f"{path} cannot be run: {str(error).splitlines()[0]}") from None
        self._input = self._session.get_inputs()[0].name
        self.outputs: tuple[str, ...] = tuple(one.name for one in self._session.get_outputs())
        self._options: Any = onnxruntime.RunOptions()
        self._options.only_execute_path_to_fetches = True

    def logits(self, batch: Floats) -> Floats:
        """Return float32 [n, outputs] of a normalised batch [n, ...]."""
        return self.run(batch, LOGITS)[0]

    def features(self, batch: Floats) -> Floats:
        """Return what the model carries on of a batch, float32 [n, ...]; nothing beyond it runs."""
        return self.run(batch, FEATURES)[0]

    def run(self, batch: Floats, *names: str) -> list[Floats]:
        """Return the named outputs; nothing runs that they do not need.

        Raises:
            BundleError: The model cannot compute this batch.
        """
        try:
            found: list[Floats] = self._session.run(list(names), {self._input: batch}, self._options)
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds, all of its own making
            raise BundleError(f"{self._path} fails as it runs: {str(error).splitlines()[0]}") from None
        return found
