"""Norms, whose weights may be computed."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from tuner_tflite.graph import Node
from tuner_tflite.layout import Layout, Values


def batch_norm(values: Values, node: Node) -> None:
    """Write a norm by statistics that are given."""
    epsilon = node.attributes.get("epsilon", 1e-5)
    tensor, layout, model = values.stored(node.inputs[0]), values.layout(node.inputs[0]), values.model
    shape = model.tensors[tensor].shape
    wide = (1, -1, *[1] * (len(shape) - 2))
    known = [values.constant(name) for name in node.inputs[1:5]]
    if all(one is not None for one in known):
        scale, bias, mean, variance = (np.asarray(one) for one in known)
        factor = scale / np.sqrt(variance + epsilon)
        parts = [own.astype(np.float32).reshape(wide).transpose(layout) for own in (factor, bias - mean * factor)]
        pair = [model.constant(own) for own in parts]
    else:
        scales, biases, means, variances = (values.get(name) for name in node.inputs[1:5])
        size = values.shape(node.inputs[1])
        inverse = model.add("RSQRT", (model.add("ADD", (variances, _scalar(values, epsilon)), size),), size)
        factors = model.add("MUL", (scales, inverse), size)
        shift = model.add("SUB", (biases, model.add("MUL", (means, factors), size)), size)
        places = [size[0] if axis == 1 else 1 for axis in layout]
        pair = [values.reshaped(own, places) for own in (factors, shift)]
    for kind, own in zip(("MUL", "ADD"), pair, strict=True):
        tensor = model.add(kind, (tensor, own), shape, node.outputs[0])
    values.put(node.outputs[0], tensor, layout)


def norm(values: Values, node: Node) -> None:
    """Write a norm over axes of the sample: of a layer, or of an instance."""
    layout, shape, model = values.layout(node.inputs[0]), values.shape(node.inputs[0]), values.model
    is_layer = node.kind == "LayerNormalization"
    first = node.attributes.get("axis", -1) % len(shape) if is_layer else 2
    tensor = values.stored(node.inputs[0])
    sizes = model.tensors[tensor].shape
    places = values.whole_numbers([place for place, axis in enumerate(layout) if axis >= first])
    kept = [1 if axis >= first else size for axis, size in zip(layout, sizes, strict=True)]
    add = partial(model.add, exact=True)
    mean = add("MEAN", (tensor, places), kept, keepDims=True)
    centred = add("SUB", (tensor, mean), sizes)
    variance = add("MEAN", (add("MUL", (centred, centred), sizes), places), kept, keepDims=True)
    epsilon = _scalar(values, node.attributes.get("epsilon", 1e-5))
    inverse = add("RSQRT", (add("ADD", (variance, epsilon), kept),), kept)
    scaled = add("MUL", (centred, inverse), sizes)
    for kind, name in zip(("MUL", "ADD"), node.inputs[1:], strict=False):
        size = values.shape(name)
        wide = (*[1] * (len(shape) - len(size)), *size) if is_layer else (1, *size, *[1] * (len(shape) - 2))
        scaled = add(kind, (scaled, _affine(values, name, wide, layout)), sizes, node.outputs[0])
    values.put(node.outputs[0], scaled, layout)
    for name, statistic in zip(node.outputs[1:], (mean, inverse), strict=False):
        values.put(name, statistic, layout)


def _affine(values: Values, name: str, wide: Sequence[int], layout: Layout) -> int:
    """Return a norm's weights in the layout of what it is multiplied with."""
    if (own := values.constant(name)) is not None:
        return values.model.constant(own.reshape(wide).transpose(layout).astype(np.float32))
    return values.transposed(values.reshaped(values.get(name), wide), layout)


def _scalar(values: Values, value: float) -> int:
    return values.model.constant(np.array([value], np.float32))
