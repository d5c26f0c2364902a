"""Run a frozen prefix that was exported to ONNX, up to any of its cuts."""

from collections.abc import Sequence
from pathlib import Path

from tuner.arrays import Floats
from tuner.ort.session import Session


class OrtPrefix:
    """An ONNX file with one output per cut.

    Args:
        path: The file.
        outputs: Names of the cuts that are wanted; nothing beyond the deepest runs.
        threads: Threads within an operator.
        begin: Name of the cut whose value takes the place of the model's input.
    """

    def __init__(self, path: Path, outputs: Sequence[str], threads: int, begin: str = "") -> None:
        self._session = Session(_after(path, begin, outputs) if begin else path, threads)
        self._outputs = tuple(outputs)

    def __call__(self, batch: Floats) -> list[Floats]:
        """Return float32 [n, *shape] for every wanted cut."""
        return self._session.run(batch, *self._outputs)


def _after(path: Path, begin: str, outputs: Sequence[str]) -> bytes:
    """Return the part of an ONNX file that computes `outputs` from the value `begin`."""
    from onnx import load
    from onnx.utils import Extractor

    part: bytes = Extractor(load(path)).extract_model([begin], list(outputs)).SerializeToString()
    return part
