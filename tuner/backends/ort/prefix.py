"""Run a frozen prefix that was exported to ONNX, up to any of its cuts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime


class OrtPrefix:
    """An ONNX file with one output per cut.

    Args:
        path: Of the file.
        outputs: Names of the cuts that are wanted; nothing beyond the deepest runs.
        threads: Within an operator.
        begin: Name of the cut whose value is given instead of the model's input.
    """

    def __init__(self, path: Path, outputs: Sequence[str], threads: int, begin: str = "") -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_cpu_mem_arena = False  # the arena grows to many times the model (onnxruntime issue 11627)
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # decoding shares the processors
        self._session: Any = onnxruntime.InferenceSession(
            _after(path, begin, outputs) if begin else path, options, providers=["CPUExecutionProvider"]
        )
        self._outputs = list(outputs)
        self._input = self._session.get_inputs()[0].name
        self._options: Any = onnxruntime.RunOptions()
        self._options.only_execute_path_to_fetches = True

    def __call__(self, batch: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        """Return float32 [n, *shape] for every wanted cut."""
        found: list[npt.NDArray[np.float32]] = self._session.run(self._outputs, {self._input: batch}, self._options)
        return found


def _after(path: Path, begin: str, outputs: Sequence[str]) -> bytes:
    """Return the part of an ONNX file that computes `outputs` from the value `begin`."""
    from onnx import load
    from onnx.utils import Extractor

    part: bytes = Extractor(load(path)).extract_model([begin], list(outputs)).SerializeToString()
    return part
