"""ONNX files by their bytes: a device has no onnx package, and a library would allocate what a file declares.

Field numbers are those of onnx.proto3 (ONNX 1.23).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import BundleError
from tuner.ort.protobuf import ByteRange, ranges

_GRAPH, _INITIALISER, _NAME, _RAW_DATA = 7, 5, 8, 9  # of ModelProto, of GraphProto, and twice of TensorProto


def with_weights(model: bytes, weights: Mapping[str, npt.NDArray[Any]]) -> bytearray:
    """Return an ONNX file with the values of some initialisers replaced, by name.

    Raises:
        BundleError: The file has no such initialiser as raw bytes, or one of another size.
    """
    places = initialisers(model)
    content = bytearray(model)
    for name, value in weights.items():
        place, packed = places.get(name), np.ascontiguousarray(value).tobytes()
        if place is None or place.end - place.begin != len(packed):
            actual = "it has none" if place is None else f"there are {place.end - place.begin}"
            raise BundleError(f"the model must hold {len(packed)} bytes of {name}, but {actual}: export again")
        content[place.begin : place.end] = packed
    return content


def initialisers(model: bytes) -> dict[str, ByteRange]:
    """Return the bytes of each initialiser's values; one whose values are not raw bytes is left out."""
    places: dict[str, ByteRange] = {}
    for graph in ranges(model, ByteRange(0, len(model)), _GRAPH):
        for tensor in ranges(model, graph, _INITIALISER):
            names, data = ranges(model, tensor, _NAME), ranges(model, tensor, _RAW_DATA)
            if names and data:
                places[model[names[0].begin : names[0].end].decode()] = data[0]
    return places
