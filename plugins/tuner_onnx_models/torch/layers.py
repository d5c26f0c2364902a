"""Forms of ONNX's operators that are layers of PyTorch: with weights, or with settings that a module holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from onnx import NodeProto
from torch import fx, nn
from torch.nn import functional

from tuner_onnx_models.torch.build import Build, Form, NoFormError, attributes
from tuner_onnx_models.torch.values import Array

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
_MATRIX = 2


def _convolution(into: Build, node: NodeProto) -> fx.Node:
    given, weight, bias = attributes(node), into.required(node, 1), into.constant(node, 2)
    rank = weight.ndim - 2
    if not 1 <= rank <= len(_CONVOLUTIONS):
        raise NoFormError(f"it convolves over {rank} axes")
    kernel, strides, dilations, before, after = _window(into, node, weight.shape[2:])
    kind: Any = _CONVOLUTIONS[rank - 1]
    layer = kind(
        weight.shape[1] * (groups := given.get("group", 1)),
        weight.shape[0],
        kernel,
        strides,
        before if before == after else 0,
        dilations,
        groups,
        bias=bias is not None,
    )
    _load(layer, weight=weight, bias=bias)
    value = into.data(node)
    return into.module(node, layer, value if before == after else _padded(into, value, before, after, 0.0))


def _window(
    into: Build, node: NodeProto, kernel: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return kernel, strides, dilations and both paddings of what slides over a map."""
    given, rank = attributes(node), len(kernel)
    strides, dilations = (tuple(given.get(name, [1] * rank)) for name in ("strides", "dilations"))
    pads, auto = tuple(given.get("pads", [0] * (2 * rank))), given.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        sizes = zip(into.shape(node.input[0])[2:], kernel, strides, dilations, strict=True)
        total = [
            max(0, (-(-size // step) - 1) * step + (width - 1) * far + 1 - size) for size, width, step, far in sizes
        ]
        less, more = [each // 2 for each in total], [-(-each // 2) for each in total]
        pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    return tuple(kernel), strides, dilations, pads[:rank], pads[rank:]


def _padded(into: Build, value: fx.Node, before: Sequence[int], after: Sequence[int], fill: float) -> fx.Node:
    pairs = [size for pair in reversed(list(zip(before, after, strict=True))) for size in pair]
    return into.call(functional.pad, value, pairs, value=fill)


def _load(layer: nn.Module, **tensors: Array | None) -> None:
    """Give a layer its weights."""
    with torch.no_grad():
        for name, value in tensors.items():
            if value is not None:
                getattr(layer, name).copy_(torch.from_numpy(np.array(value)))


def _linear(into: Build, node: NodeProto, weight: Array, bias: Array | None) -> fx.Node:
    """Add a linear layer.

    Args:
        into: The graph.
        node: The node that it is for.
        weight: float32 [outputs, inputs].
        bias: float32 of `outputs` elements, or of one, or None.
    """
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    _load(layer, weight=weight, bias=None if bias is None else np.broadcast_to(bias.reshape(-1), weight.shape[:1]))
    return into.module(node, layer)


def _gemm(into: Build, node: NodeProto) -> fx.Node:
    given, weight, bias = attributes(node), into.required(node, 1), into.constant(node, 2)
    weight = (weight if given.get("transB", 0) else weight.T) * np.float32(given.get("alpha", 1.0))
    if given.get("transA", 0) or (bias is not None and bias.size not in {1, len(weight)}):
        raise NoFormError("its first matrix is transposed, or what it adds is no vector")
    return _linear(into, node, weight, None if bias is None else bias * np.float32(given.get("beta", 1.0)))


def _matmul(into: Build, node: NodeProto) -> fx.Node:
    """A linear layer where the second matrix is a constant, with the bias that the next node adds."""
    if node.input[0] not in into.calls or node.input[1] in into.calls or len(into.shape(node.input[1])) != _MATRIX:
        return into.call(torch.matmul, into.tensor(node, 0), into.tensor(node, 1))
    weight, following = into.required(node, 1).T, into.follower(node)
    bias = None
    if following is not None and following.op_type == "Add":
        other = next((name for name in following.input if name != node.output[0]), "")
        value = into.values.static.get(other)
        if value is not None and not into.values.varies(other) and (value.size,) == value.shape[-1:] == (len(weight),):
            bias = value
            into.merged.add(following.output[0])
    return _linear(into, node, weight, bias)


def _batch_norm(into: Build, node: NodeProto) -> fx.Node:
    scale, shift, mean, variance = (into.required(node, at) for at in range(1, 5))
    given, kind = attributes(node), _NORMS.get(len(into.shape(node.input[0])))
    if kind is None:
        raise NoFormError("its input has no channels")
    layer = kind(len(scale), given.get("epsilon", 1e-5), 1 - given.get("momentum", 0.9))
    _load(layer, weight=scale, bias=shift, running_mean=mean, running_var=variance)
    return into.module(node, layer)


def _layer_norm(into: Build, node: NodeProto) -> fx.Node:
    scale, shift, given = into.required(node, 1), into.constant(node, 2), attributes(node)
    rank = len(into.shape(node.input[0]))
    if scale.ndim != rank - given.get("axis", -1) % rank:
        raise NoFormError("its scale is not that of the axes that it normalises")
    layer = nn.LayerNorm(scale.shape, given.get("epsilon", 1e-5), bias=shift is not None)
    _load(layer, weight=scale, bias=shift)
    return into.module(node, layer)


def _instance_norm(into: Build, node: NodeProto) -> fx.Node:
    """A group norm with a group for each channel, which it is."""
    scale, shift = into.required(node, 1), into.required(node, 2)
    layer = nn.GroupNorm(len(scale), len(scale), attributes(node).get("epsilon", 1e-5))
    _load(layer, weight=scale, bias=shift)
    return into.module(node, layer)


def _group_norm(into: Build, node: NodeProto) -> fx.Node:
    scale, shift, given = into.required(node, 1), into.required(node, 2), attributes(node)
    channels = into.shape(node.input[0])[1]
    if len(scale) != channels:
        raise NoFormError("its scale is not of channels")
    layer = nn.GroupNorm(given["num_groups"], channels, given.get("epsilon", 1e-5))
    _load(layer, weight=scale, bias=shift)
    return into.module(node, layer)


def _pool(maximum: Sequence[type[nn.Module]], mean: Sequence[type[nn.Module]]) -> tuple[Form, Form]:
    def max_pool(into: Build, node: NodeProto) -> fx.Node:
        given = attributes(node)
        kernel, strides, dilations, before, after = _window(into, node, given["kernel_shape"])
        if len(node.output) > 1 and any(node.output[1] in user.input for user in into.values.nodes):
            raise NoFormError("its indices are read")
        value, padding = into.data(node), before
        if before != after or any(2 * pad > size for pad, size in zip(before, kernel, strict=True)):
            value, padding = _padded(into, value, before, after, float("-inf")), (0,) * len(kernel)
        layer: Any = maximum[len(kernel) - 1]
        ceil = bool(given.get("ceil_mode", 0))
        return into.module(node, layer(kernel, strides, padding, dilations, ceil_mode=ceil), value)

    def mean_pool(into: Build, node: NodeProto) -> fx.Node:
        given = attributes(node)
        kernel, strides, dilations, before, after = _window(into, node, given["kernel_shape"])
        counted, value, padding = bool(given.get("count_include_pad", 0)), into.data(node), before
        if set(dilations) != {1} or (before != after and not counted):
            raise NoFormError("its window is dilated, or padded at one side")
        if before != after:
            value, padding = _padded(into, value, before, after, 0.0), (0,) * len(kernel)
        layer: Any = mean[len(kernel) - 1]
        ceil = bool(given.get("ceil_mode", 0))
        return into.module(node, layer(kernel, strides, padding, ceil_mode=ceil, count_include_pad=counted), value)

    return max_pool, mean_pool


def _global(kinds: Sequence[type[nn.Module]]) -> Form:
    def form(into: Build, node: NodeProto) -> fx.Node:
        kind: Any = kinds[len(into.shape(node.input[0])) - 3]
        return into.module(node, kind(1))

    return form


def _activation(make: Callable[[Mapping[str, Any]], nn.Module]) -> Form:
    return lambda into, node: into.module(node, make(attributes(node)))


def _clip(into: Build, node: NodeProto) -> fx.Node:
    """ReLU and ReLU6 by these names, as other parts know them."""
    given = attributes(node)
    low, high = (into.constant(node, at) for at in (1, 2))
    least = float(low.item()) if low is not None else given.get("min", float("-inf"))
    most = float(high.item()) if high is not None else given.get("max", float("inf"))
    known = {(0.0, 6.0): nn.ReLU6, (0.0, float("inf")): nn.ReLU}
    kind = known.get((least, most))
    return into.module(node, kind() if kind is not None else nn.Hardtanh(least, most))


def _leaky(into: Build, node: NodeProto) -> fx.Node:
    slope = into.required(node, 1).reshape(-1)
    layer = nn.PReLU(len(slope))
    _load(layer, weight=slope)
    return into.module(node, layer)


def _dropout(into: Build, node: NodeProto) -> fx.Node:
    ratio = into.constant(node, 1)
    return into.module(node, nn.Dropout(attributes(node).get("ratio", 0.5) if ratio is None else float(ratio.item())))


def _hard_sigmoid(given: Mapping[str, Any]) -> nn.Module:
    if abs(given.get("alpha", 0.2) - 1 / 6) > 1e-4 or given.get("beta", 0.5) != 0.5:  # noqa: PLR2004 - PyTorch's own
        raise NoFormError("its slope is not that of PyTorch's")
    return nn.Hardsigmoid()


def _local_response_norm(given: Mapping[str, Any]) -> nn.Module:
    offset = [value for name, value in given.items() if name not in {"size", "alpha", "beta"}] or [1.0]
    return nn.LocalResponseNorm(given["size"], given.get("alpha", 1e-4), given.get("beta", 0.75), *offset)


def _gelu(given: Mapping[str, Any]) -> nn.Module:
    return nn.GELU(given.get("approximate", "none"))


_MAX, _MEAN = _pool((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d))
FORMS: Mapping[str, Form] = {
    "Conv": _convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "MaxPool": _MAX,
    "AveragePool": _MEAN,
    "GlobalAveragePool": _global((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)),
    "GlobalMaxPool": _global((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)),
    "Clip": _clip,
    "PRelu": _leaky,
    "Dropout": _dropout,
    "LRN": _activation(_local_response_norm),
    "Relu": _activation(lambda _: nn.ReLU()),
    "LeakyRelu": _activation(lambda given: nn.LeakyReLU(given.get("alpha", 0.01))),
    "Elu": _activation(lambda given: nn.ELU(given.get("alpha", 1.0))),
    "Gelu": _activation(_gelu),
    "HardSigmoid": _activation(_hard_sigmoid),
    "HardSwish": _activation(lambda _: nn.Hardswish()),
    "Mish": _activation(lambda _: nn.Mish()),
    "Sigmoid": _activation(lambda _: nn.Sigmoid()),
    "Softplus": _activation(lambda _: nn.Softplus()),
    "Tanh": _activation(lambda _: nn.Tanh()),
    "Identity": lambda into, node: into.data(node),
}
