"""Replace weights in an ONNX file, byte by byte: a device has no onnx package.

Only the values of initialisers change, so that a model exported once runs with weights trained later. Field numbers are
those of onnx.proto3 (ONNX 1.18, IR version 10).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.bundle.onnx.protobuf import ByteRange, fields
from tuner.errors import BundleError

_GRAPH, _INITIALISER, _NAME, _RAW_DATA = 7, 5, 8, 9  # of ModelProto, of GraphProto, and twice of TensorProto


def with_weights(model: bytes, weights: Mapping[str, npt.NDArray[Any]]) -> bytearray:
    """Return an ONNX file with the values of some initialisers replaced.

    Args:
        model: Content of the file.
        weights: New values by the initialiser's name, of its shape and type.

    Raises:
        BundleError: The file has no such initialiser as raw bytes, or one of another size.
    """
    ranges = initialisers(model)
    content = bytearray(model)
    for name, value in weights.items():
        place, packed = ranges.get(name), np.ascontiguousarray(value).tobytes()
        if place is None or place.end - place.begin != len(packed):
            actual = "it has none" if place is None else f"there are {place.end - place.begin}"
            raise BundleError(f"the model must hold {len(packed)} bytes of {name}, but {actual}: export again")
        content[place.begin : place.end] = packed
    return content


def initialisers(model: bytes) -> dict[str, ByteRange]:
    """Return the bytes of each initialiser's values; one whose values are not raw bytes is left out.

    Raises:
        BundleError: The file is not an ONNX model.
    """
    ranges: dict[str, ByteRange] = {}
    for graph in _ranges(model, ByteRange(0, len(model)), _GRAPH):
        for tensor in _ranges(model, graph, _INITIALISER):
            names, data = list(_ranges(model, tensor, _NAME)), list(_ranges(model, tensor, _RAW_DATA))
            if names and data:
                ranges[model[names[0].begin : names[0].end].decode()] = data[0]
    return ranges


def _ranges(content: bytes, message: ByteRange, wanted: int) -> list[ByteRange]:
    """Return the bytes of a message's fields of one number that have a length."""
    return [value for number, value in fields(content, message) if number == wanted and isinstance(value, ByteRange)]
