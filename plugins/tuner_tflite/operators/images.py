"""Operators on images, [1, channels, height, width]: convolutions, pools, resizing. A signal is an image of one row."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tuner_tflite.graph import Node, refused
from tuner_tflite.layout import Array, Values, channels_last

_SAME, _VALID = 0, 1


def conv(values: Values, node: Node) -> None:
    """Write a convolution; one with a filter of its own for each channel is depthwise."""
    image = _Image(values, node)
    outputs, inside, *sizes = values.shape(node.inputs[1])
    sizes = [*[1] * (2 - len(sizes)), *sizes]
    groups, dilations = node.attributes.get("group", 1), image.both("dilations", 1)
    given, padding = image.padded(sizes, dilations, 0.0)
    depthwise = groups > 1 and inside == 1 and groups == image.channels
    options: dict[str, Any] = {"padding": padding, "strideH": image.strides[0], "strideW": image.strides[1]}
    options |= {"dilationHFactor": dilations[0], "dilationWFactor": dilations[1]}
    if depthwise:
        options["depthMultiplier"] = outputs // groups
    weights = _filters(values, node.inputs[1], sizes, depthwise=depthwise)
    bias = values.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None  # noqa: PLR2004
    bias = values.model.constant(np.zeros(outputs, np.float32), "bias") if bias is None else bias
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    image.put(values.model.add(kind, (given, weights, bias), image.written, node.outputs[0], **options))


def _filters(values: Values, name: str, sizes: Sequence[int], *, depthwise: bool) -> int:
    """Return a convolution's filters, [outputs, *sizes, inputs]; depthwise ones have the first and the last turned."""
    outputs, inside, *rest = values.shape(name)
    first, last = (1, 0) if depthwise else (0, 1)
    shape = ((outputs, inside)[first], *sizes, (outputs, inside)[last])
    layout = (first, *range(2, 2 + len(rest)), last)
    if (weights := values.constant(name)) is not None:
        return values.model.constant(weights.transpose(layout).reshape(shape).astype(np.float32), name)
    return values.reshaped(values.get(name, layout), shape)


def conv_transpose(values: Values, node: Node) -> None:
    """Write a transposed convolution: zeros between the places of the image, and the filters turned round."""
    _, inside, *sizes = values.shape(node.inputs[1])
    shape, out = values.shape(node.inputs[0]), values.shape(node.outputs[0])
    groups, attributes, model = node.attributes.get("group", 1), node.attributes, values.model
    depthwise = groups > 1 and inside == 1 and groups == shape[1]
    strides, dilations = (list(attributes.get(name, [1, 1])) for name in ("strides", "dilations"))
    begins = [d * (k - 1) - p for d, k, p in zip(dilations, sizes, attributes.get("pads", [0, 0]), strict=False)]
    if len(shape) != 4 or (groups > 1 and not depthwise) or min(begins) < 0 or len(node.inputs) > 2:  # noqa: PLR2004
        raise refused(f"ConvTranspose ({groups} groups, pads {list(attributes.get('pads', []))})")
    samples, channels, height, width = shape
    tensor, (down, across) = values.get(node.inputs[0], channels_last(4)), strides
    wide = [samples, height * down, width * across, channels]
    tensor = _zeros_after(values, values.reshaped(tensor, (samples, height, 1, width * channels)), down)
    tensor = _zeros_after(values, values.reshaped(tensor, (samples * height * down, width, 1, channels)), across)
    reach = [d * (k - 1) for d, k in zip(dilations, sizes, strict=True)]
    ends = [o + r - b - w for o, r, b, w in zip(out[2:], reach, begins, wide[1:3], strict=True)]
    edges = [(0, 0), *((b, max(e, 0)) for b, e in zip(begins, ends, strict=True)), (0, 0)]
    padded = [size + sum(edge) for size, edge in zip(wide, edges, strict=True)]
    pads = model.constant(np.array(edges, np.int32), "edges")
    tensor = model.add("PAD", (values.reshaped(tensor, wide), pads), padded)
    tensor = _cut(values, tensor, [size + min(e, 0) for size, e in zip(padded, [0, *ends, 0], strict=True)])
    filters = _turned(values, values.get(node.inputs[1], (1, 2, 3, 0)))
    options: dict[str, Any] = {"padding": _VALID, "strideH": 1, "strideW": 1}
    options |= {"dilationHFactor": dilations[0], "dilationWFactor": dilations[1]}
    if depthwise:
        options["depthMultiplier"] = 1
    bias = model.constant(np.zeros(out[1], np.float32), "bias")
    written = (out[0], *out[2:], out[1])
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    found = model.add(kind, (tensor, filters, bias), written, node.outputs[0], **options)
    values.put(node.outputs[0], found, channels_last(4))


def _zeros_after(values: Values, tensor: int, stride: int) -> int:
    """Return a tensor [a, b, 1, c] as [a, b, stride, c] with zeros after each row."""
    first, second, _, last = values.model.tensors[tensor].shape
    edges = values.model.constant(np.array([(0, 0), (0, 0), (0, stride - 1), (0, 0)], np.int32), "edges")
    return values.model.add("PAD", (tensor, edges), (first, second, stride, last)) if stride > 1 else tensor


def _cut(values: Values, tensor: int, sizes: Sequence[int]) -> int:
    """Return the first places of each axis."""
    if values.model.tensors[tensor].shape == tuple(sizes):
        return tensor
    parts = [values.whole_numbers(numbers) for numbers in ([0] * 4, sizes, [1] * 4)]
    return values.model.add("STRIDED_SLICE", (tensor, *parts), sizes)


def _turned(values: Values, filters: int) -> int:
    """Return filters [outputs, height, width, inputs] turned round."""
    shape = values.model.tensors[filters].shape
    begins = [0, shape[1] - 1, shape[2] - 1, 0]
    ends = [shape[0], -1 - shape[1], -1 - shape[2], shape[3]]
    parts = [values.whole_numbers(numbers) for numbers in (begins, ends, [1, -1, -1, 1])]
    return values.model.add("STRIDED_SLICE", (filters, *parts), shape)


def pool(values: Values, node: Node) -> None:
    """Write a pool; what an average leaves out of its count at the edges is made up for by a factor."""
    if len(node.outputs) > 1 and node.outputs[1]:
        raise refused(f"{node.kind} that says where its values are")
    image = _Image(values, node)
    sizes = [*[1] * (2 - len(node.attributes["kernel_shape"])), *node.attributes["kernel_shape"]]
    is_mean = node.kind == "AveragePool"
    lowest = 0.0 if is_mean else float(np.finfo(np.float32).min)
    given, padding = image.padded(sizes, image.both("dilations", 1), lowest, same=not is_mean)
    options: dict[str, Any] = {"padding": padding, "strideH": image.strides[0], "strideW": image.strides[1]}
    options |= {"filterHeight": sizes[0], "filterWidth": sizes[1]}
    if image.both("dilations", 1) != [1, 1]:
        raise refused(f"{node.kind} with dilations")
    kind = "AVERAGE_POOL_2D" if is_mean else "MAX_POOL_2D"
    pooled = values.model.add(kind, (given,), image.written, node.outputs[0], **options)
    if is_mean and (factor := image.count_factor(sizes)) is not None:
        pooled = values.model.add("MUL", (pooled, values.model.constant(factor)), image.written)
    image.put(pooled)


def resize(values: Values, node: Node) -> None:
    """Write a change of the height and the width by the nearest or by linear interpolation."""
    mode = str(node.attributes.get("mode", "nearest"))
    place = str(node.attributes.get("coordinate_transformation_mode", "half_pixel"))
    kinds = {"nearest": "RESIZE_NEAREST_NEIGHBOR", "linear": "RESIZE_BILINEAR"}
    known = {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"}
    if mode not in kinds or place not in known or len(values.shape(node.inputs[0])) != 4:  # noqa: PLR2004
        raise refused(f"Resize ({mode}, {place})")
    image = _Image(values, node)
    half = place.endswith("half_pixel")
    options: dict[str, Any] = {"alignCorners": place == "align_corners", "halfPixelCenters": half}
    sizes = values.whole_numbers(image.written[1:3])
    image.put(values.model.add(kinds[mode], (image.tensor, sizes), image.written, node.outputs[0], **options))


class _Image:
    """A node's input as an image with its channels last, and what the node's attributes say of it."""

    def __init__(self, values: Values, node: Node) -> None:
        self._values, self._node = values, node
        shape, out = values.shape(node.inputs[0]), values.shape(node.outputs[0])
        if len(shape) not in (3, 4):
            raise refused(f"{node.kind} of {len(shape) - 2} dimensions")
        self.channels = shape[1]
        self._rank = len(shape)
        tensor = values.get(node.inputs[0], channels_last(self._rank))
        rows = [1] * (4 - self._rank)
        self._size = [*rows, *shape[2:]]
        self.written = (out[0], *rows, *out[2:], out[1])
        self.tensor = values.reshaped(tensor, (shape[0], *self._size, shape[1]))
        self.strides = self.both("strides", 1)
        pads = list(node.attributes.get("pads", [0] * 2 * (self._rank - 2)))
        half = len(pads) // 2
        self._pads = [*[(0, 0)] * (4 - self._rank), *zip(pads[:half], pads[half:], strict=True)]
        if node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
            raise refused(f"{node.kind} with auto_pad")

    def both(self, name: str, default: int) -> list[int]:
        """Return an attribute of the height and the width."""
        own = list(self._node.attributes.get(name, [default] * (self._rank - 2)))
        return [*[1] * (2 - len(own)), *own]

    def padded(
        self, sizes: Sequence[int], dilations: Sequence[int], value: float, *, same: bool = True
    ) -> tuple[int, int]:
        """Return the image with its edges, and the padding that is left to the operator.

        TFLite's own padding counts from the size of what is written; where strides make it another one than ONNX's, the
        edges are written. A pool with rounding up reads beyond them.
        """
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]
        wants = [
            max(0, (out - 1) * stride + own - size)
            for out, stride, own, size in zip(self.written[1:3], self.strides, reach, self._size, strict=True)
        ]
        pads = [(first, max(last, want - first)) for (first, last), want in zip(self._pads, wants, strict=True)]
        if not any(map(sum, pads)):
            return self.tensor, _VALID
        outs = [-(-size // stride) for size, stride in zip(self._size, self.strides, strict=True)]
        is_same = all(
            pair == (want // 2, want - want // 2) and out == own
            for pair, want, out, own in zip(pads, wants, self.written[1:3], outs, strict=True)
        )
        if same and is_same:
            return self.tensor, _SAME
        model, shape = self._values.model, self._values.model.tensors[self.tensor].shape
        edges = np.array([(0, 0), *pads, (0, 0)], np.int32)
        inputs = (self.tensor, model.constant(edges, "edges"))
        wide = [size + sum(edge) for size, edge in zip(shape, edges.tolist(), strict=True)]
        if value == 0:
            return model.add("PAD", inputs, wide), _VALID
        return model.add("PADV2", (*inputs, model.constant(np.array(value, np.float32), "edge")), wide), _VALID

    def count_factor(self, sizes: Sequence[int]) -> Array | None:
        """Return by what a mean over all of a window is multiplied, float32 [1, height, width, 1]; None for nothing."""
        counts_edges = bool(self._node.attributes.get("count_include_pad", 0))
        shares = []
        for axis in range(2):
            first, last = self._pads[axis] if counts_edges else (0, 0)
            begins = np.arange(self.written[1 + axis]) * self.strides[axis] - self._pads[axis][0]
            ends = np.minimum(begins + sizes[axis], self._size[axis] + last)
            shares.append(ends - np.maximum(begins, -first))
        factor = prod(sizes) / np.outer(*shares).astype(np.float32)
        return None if np.all(factor == 1) else factor[None, :, :, None].astype(np.float32)

    def put(self, tensor: int) -> None:
        """Say that a tensor is what the node writes."""
        out = self._values.shape(self._node.outputs[0])
        shape = [out[axis] for axis in channels_last(self._rank)]
        self._values.put(self._node.outputs[0], self._values.reshaped(tensor, shape), channels_last(self._rank))
