"""Adapters of a bundle's tail: what trains in the place of its weights, and how the weights come of it.

A training step may hold other tensors than the model: a weight as it is given, whose name ends in ``.original``, and
what trains of it. Adapters begin anew with every training, from the current weights, and are merged when it ends.
"""

from collections.abc import Mapping
from pathlib import Path

from tuner.arrays import Array
from tuner.bundle.tensors import read_tensors
from tuner.errors import first_line
from tuner.ort.layout import StepFileError, layout_of
from tuner.ort.session import open_session

_MARK, ORIGINAL = "parametrizations.", ".original"


def fused_name(name: str) -> str:
    """Return the name of the weight that a tensor of an adapter is a part of; any other name as it is."""
    layer, _, rest = name.partition(_MARK)
    return layer + rest.partition(".")[0] if rest else name


class Adapters:
    """The adapters of a training step.

    Args:
        initial: File of what an adapter begins with.
        merge: ONNX file that gives the merged weights.

    Raises:
        BundleError: The first file cannot be read.
        StepFileError: The second file is no such, or the weights are others: from the methods too.
    """

    def __init__(self, initial: Path, merge: Path) -> None:
        self._initial = read_tensors(initial)
        self._session = open_session(merge, 1, error=StepFileError)
        self._ports = layout_of(merge, self._session).inputs

    def begin(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the step begins with, by its own names, of the tail's weights."""
        missing = {fused_name(port.name) for port in self._ports if port.name.endswith(ORIGINAL)} - weights.keys()
        if missing:
            raise StepFileError(f"the adapters are of {min(missing)}, which the tail does not have: export again")
        given = {port.name: weights[fused_name(port.name)] for port in self._ports if port.name.endswith(ORIGINAL)}
        return {**weights, **self._initial, **given}

    def merged(self, state: Mapping[str, Array]) -> dict[str, Array]:
        """Return the tail's weights, of the step's parameters and buffers."""
        shapes = {value.name: value.shape for value in self._session.get_inputs()}  # some are vectors in the file
        names = [value.name for value in self._session.get_outputs()]
        wanted = {fused_name(name): value.shape for name, value in state.items() if name.endswith(ORIGINAL)}
        kept = {name: value for name, value in state.items() if fused_name(name) == name}
        try:
            fed = {port.name: state[port.name].astype(port.dtype).reshape(shapes[port.name]) for port in self._ports}
            values = dict(zip(names, self._session.run(names, fed), strict=True))
            return kept | {name: values[name].reshape(shape) for name, shape in wanted.items()}
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds
            raise StepFileError(f"the adapters cannot be merged ({first_line(error)}): export again") from None
