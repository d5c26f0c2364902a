"""The weights of a network's layers in int8: a file of a quarter of the size, which predicts as fast.

A weight is stored as whole numbers with a scale for each of its rows, and two nodes multiply both out: ONNX Runtime
does so once, when it opens the file, and then computes in float32. Field numbers are those of onnx.proto3 (ONNX 1.23).
"""

from collections.abc import Mapping

import numpy as np

from tuner.arrays import Floats
from tuner.ort import answer
from tuner.ort.protobuf import Message, field, integer

_NODE, _INITIALISER = 1, 5  # of GraphProto
_FLOAT32, _INT8 = 1, 3  # of TensorProto.DataType
_INT = 2  # of AttributeProto.AttributeType
#: Smaller weights are not worth two nodes.
LEAST = 512
LARGEST = 127


def in_int8(graph: Message, weights: Mapping[bytes, tuple[str, Floats]]) -> Message:
    """Return a graph with weights in int8, each row with a scale of its own.

    Args:
        graph: Its fields.
        weights: Name and values, float32 [rows, ...], by the initialiser's bytes.
    """
    nodes, rest = Message(), Message()
    for number, value in graph:
        if number != _INITIALISER or not isinstance(value, bytes) or value not in weights:
            rest.append((number, value))
            continue
        name, values = weights[value]
        codes, real, scale = (f"{name}.{part}" for part in ("codes", "real", "scale"))
        largest = np.abs(values.reshape(len(values), -1)).max(axis=1).reshape(-1, *[1] * (values.ndim - 1))
        scales = (np.where(largest > 0, largest, 1) / LARGEST).astype(np.float32)
        numbers = np.rint(values / scales).astype(np.int8)
        sizes = b"".join(integer(1, size) for size in values.shape)
        held = sizes + integer(2, _INT8) + field(8, codes.encode()) + field(9, numbers.tobytes())
        rest += [(_INITIALISER, held), (_INITIALISER, answer.tensor(scale, scales))]
        to = field(5, field(1, b"to") + integer(3, _FLOAT32) + integer(20, _INT))
        nodes += [
            (_NODE, answer.node("Cast", (codes,), (real,)) + to),
            (_NODE, answer.node("Mul", (real, scale), (name,))),
        ]
    return [*nodes, *rest]
