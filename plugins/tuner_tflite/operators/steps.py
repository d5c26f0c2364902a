"""What a training step has more than a network: comparisons, and labels as rows of ones and zeros."""

import numpy as np

from tuner_tflite.graph import Node, refused
from tuner_tflite.layout import Values

#: Numbers that ONNX has for types of floats, and for float32.
_FLOATS, _FLOAT32 = frozenset({1, 10, 11, 16}), 1


def logical(kind: str, values: Values, node: Node) -> None:
    """Write a comparison, or a function of truth values."""
    tensors, layout = values.aligned(node.inputs, node.outputs[0])
    shape = [values.shape(node.outputs[0])[axis] for axis in layout]
    values.put(node.outputs[0], values.model.add(kind, tensors, shape, node.outputs[0], dtype="bool"), layout)


def where(values: Values, node: Node) -> None:
    """Write a choice between two values."""
    tensors, layout = values.aligned(node.inputs, node.outputs[0])
    shape = [values.shape(node.outputs[0])[axis] for axis in layout]
    dtype = values.model.tensors[tensors[1]].dtype
    values.put(node.outputs[0], values.model.add("SELECT_V2", tensors, shape, node.outputs[0], dtype=dtype), layout)


def cast(values: Values, node: Node) -> None:
    """Write numbers as floats; floats are float32 throughout."""
    from ai_edge_litert.schema_py_generated import TensorType

    tensor, layout = values.stored(node.inputs[0]), values.layout(node.inputs[0])
    own = values.model.tensors[tensor]
    if node.attributes["to"] not in _FLOATS:
        raise refused(f"Cast of computed values to type {node.attributes['to']} of ONNX")
    if own.dtype != "float32":
        types = {"inDataType": getattr(TensorType, own.dtype.upper()), "outDataType": TensorType.FLOAT32}
        tensor = values.model.add("CAST", (tensor,), own.shape, node.outputs[0], **types)
    values.put(node.outputs[0], tensor, layout)


def one_hot(values: Values, node: Node) -> None:
    """Write rows that differ from others at one place, the last axis."""
    depth, ends = (values.constant(name) for name in node.inputs[1:])
    shape = values.shape(node.outputs[0])
    if depth is None or ends is None or node.attributes.get("axis", -1) not in {-1, len(shape) - 1}:
        raise refused("OneHot along another axis than the last")
    values.put(node.outputs[0], _rows(values, node.inputs[0], shape, float(ends[1]), float(ends[0])))


def gather_elements(values: Values, node: Node) -> None:
    """Write one element of each row: the sum of the row where others are multiplied by zero."""
    shape, out = (values.shape(name) for name in (node.inputs[0], node.outputs[0]))
    if len(shape) != 2 or out != (shape[0], 1) or node.attributes.get("axis", 0) not in {1, -1}:  # noqa: PLR2004
        raise refused("GatherElements of other than one element a row")
    model = values.model
    rows = _rows(values, node.inputs[1], shape, 1.0, 0.0)
    picked = model.add("MUL", (values.get(node.inputs[0]), rows), shape)
    found = model.add("SUM", (picked, values.whole_numbers([1])), out, node.outputs[0], keepDims=True)
    values.put(node.outputs[0], found)


def _rows(values: Values, places: str, shape: tuple[int, ...], on: float, off: float) -> int:
    """Return rows of a shape with `on` at places, and `off` at all others."""
    model = values.model
    numbers = [model.constant(np.array(one, kind)) for one, kind in ((shape[-1], "i4"), (on, "f4"), (off, "f4"))]
    at = values.reshaped(values.get(places), shape[:-1])
    return model.add("ONE_HOT", (at, *numbers), shape, axis=-1)
