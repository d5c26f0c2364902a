"""Forms of ONNX's operators that are functions of PyTorch: arithmetic, reductions, views."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from onnx import NodeProto, helper
from torch import fx
from torch.nn import functional

from tuner_onnx_models.torch.build import Build, Form, NoFormError, attributes

_FAR = 2**31 - 1
_ONE_AXIS = 13  # opset since which a softmax is over one axis


def _elementwise(function: Callable[..., Any]) -> Form:
    return lambda into, node: into.call(function, into.operand(node, 0), into.operand(node, 1))


def _unary(function: Callable[..., Any]) -> Form:
    return lambda into, node: into.call(function, into.data(node))


def _of_all(function: Callable[..., Any], *, mean: bool = False) -> Form:
    """Return the form of an operator of any number of inputs, one after the other."""

    def form(into: Build, node: NodeProto) -> fx.Node:
        result = into.operand(node, 0)
        for at in range(1, len(node.input)):
            result = into.call(function, result, into.operand(node, at))
        result = into.call(operator.truediv, result, len(node.input)) if mean else result
        if not isinstance(result, fx.Node):
            raise NoFormError("it does not depend on the samples")
        return result

    return form


def _extreme(of_two: Callable[..., Any], bound: str) -> Form:
    """Return the form of the larger or the smaller of two values, one of which may be a number."""

    def form(into: Build, node: NodeProto) -> fx.Node:
        if len(node.input) != 2:  # noqa: PLR2004 - as the name says
            raise NoFormError(f"it has {len(node.input)} inputs")
        values = [into.operand(node, 0), into.operand(node, 1)]
        tensor, other = sorted(values, key=lambda value: not isinstance(value, fx.Node))
        if isinstance(other, fx.Node):
            return into.call(of_two, tensor, other)
        return into.call(torch.clamp, tensor, **{bound: other})

    return form


def _axes(into: Build, node: NodeProto, at: int) -> list[int] | None:
    """Return the axes of an operator: an attribute in older files, an input in newer ones."""
    value = into.constant(node, at)
    axes = attributes(node).get("axes") if value is None else value.tolist()
    return None if axes is None else [int(axis) for axis in axes]


def _reduced(function: Callable[..., Any]) -> Form:
    def form(into: Build, node: NodeProto) -> fx.Node:
        given, axes = attributes(node), _axes(into, node, 1)
        if not axes and given.get("noop_with_empty_axes", 0):
            return into.data(node)
        rank = len(into.shape(node.input[0]))
        axes = [axis % rank for axis in axes or range(rank)]
        if any(into.holds_samples(node.input[0], axis) for axis in axes):
            raise NoFormError("it reduces over the samples")
        return into.call(function, into.data(node), dim=axes, keepdim=bool(given.get("keepdims", 1)))

    return form


def _norm(into: Build, node: NodeProto) -> fx.Node:
    squares = _reduced(torch.sum)
    value = into.data(node)
    into.calls[node.input[0]] = into.call(operator.mul, value, value)
    result = squares(into, node)
    into.calls[node.input[0]] = value
    return into.call(torch.sqrt, result)


def _reshaped(into: Build, node: NodeProto) -> fx.Node:
    """Any view, by the shape that it gives: the axis of the samples takes what is left."""
    name = node.output[0]
    before, after, places = into.shape(node.input[0]), list(into.shape(name)), into.values.places_of_batch(name)
    if len(places) != 1:
        raise NoFormError(f"its result {after} has the number of samples in {len(places)} axes")
    value = into.data(node)
    keeps_rows = places == into.values.places_of_batch(node.input[0]) == (0,) and before[0] == after[0]
    if keeps_rows and len(after) == 2 and len(before) > 1:  # noqa: PLR2004 - a matrix
        return into.call(torch.flatten, value, 1)
    after[places[0]] = -1
    return into.call(torch.reshape, value, tuple(after))


def _transposed(into: Build, node: NodeProto) -> fx.Node:
    rank = len(into.shape(node.input[0]))
    return into.call(torch.permute, into.data(node), tuple(attributes(node).get("perm", range(rank)[::-1])))


def _joined(into: Build, node: NodeProto) -> fx.Node:
    """A constant among the parts, such as a class token, is repeated for each sample."""
    axis = attributes(node)["axis"] % len(into.shape(node.output[0]))
    first = next(into.calls[name] for name in node.input if name in into.calls)
    parts = []
    for name in node.input:
        if name in into.calls:
            parts.append(into.calls[name])
            continue
        value = into.values.static[name]
        if axis == 0 or not len(value) or (value != value[:1]).any():
            raise NoFormError(f"its input {name!r} is not the same for every sample")
        count = into.call(torch.Tensor.size, first, 0)
        parts.append(into.call(torch.Tensor.expand, into.held(name, value[:1]), count, *value.shape[1:]))
    return into.call(torch.cat, parts, axis)


def _split(into: Build, node: NodeProto) -> Sequence[fx.Node]:
    axis = attributes(node).get("axis", 0) % len(into.shape(node.input[0]))
    sizes = [into.shape(name)[axis] for name in node.output]
    if into.holds_samples(node.input[0], axis):
        raise NoFormError("it splits the samples")
    parts = into.call(torch.split, into.data(node), sizes, axis)
    return [into.call(operator.getitem, parts, at) for at in range(len(sizes))]


def _sliced(into: Build, node: NodeProto) -> fx.Node:
    given, rank = attributes(node), len(into.shape(node.input[0]))
    bounds = [into.constant(node, at) for at in range(1, 5)]
    begins, ends, axes, steps = (None if value is None else [int(one) for one in value] for value in bounds)
    begins, ends, axes = begins or given["starts"], ends or given["ends"], axes or given.get("axes")
    slices = [slice(None)] * rank
    for at, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        axis, step = (axes[at] if axes else at) % rank, steps[at] if steps else 1
        if step < 1 or into.holds_samples(node.input[0], axis):
            raise NoFormError("it reverses an axis, or takes some of the samples")
        slices[axis] = slice(begin or None, None if end >= _FAR else end, None if step == 1 else step)
    return into.call(operator.getitem, into.data(node), tuple(slices))


def _gathered(into: Build, node: NodeProto) -> fx.Node:
    """Take one place of an axis, or several; all of them in order are a view."""
    shape = into.shape(node.input[0])
    axis, places = attributes(node).get("axis", 0) % len(shape), into.values.static.get(node.input[1])
    if places is not None and len(shape) == 1 and np.array_equal(places.reshape(-1), np.arange(shape[0])):
        return _reshaped(into, node)  # torch.onnx writes as_strided so, which follows pools over a whole map
    places = into.required(node, 1)
    if places.ndim > 1 or into.holds_samples(node.input[0], axis):
        raise NoFormError("it takes some of the samples, or several axes of places")
    if places.ndim == 0:
        return into.call(torch.select, into.data(node), axis, int(places))
    return into.call(torch.index_select, into.data(node), axis, into.held(node.input[1], places))


def _softmax(function: Callable[..., Any]) -> Form:
    """Over one axis; files before opset 13 mean all axes from that one, which is the same for the last."""

    def form(into: Build, node: NodeProto) -> fx.Node:
        flattens, shape = into.opset < _ONE_AXIS, into.shape(node.input[0])
        axis = attributes(node).get("axis", 1 if flattens else -1) % len(shape)
        if flattens and any(size != 1 for size in shape[axis + 1 :]):
            raise NoFormError("it is over several axes")
        return into.call(function, into.data(node), dim=axis)

    return form


def _pad(into: Build, node: NodeProto) -> fx.Node:
    given, rank = attributes(node), len(into.shape(node.input[0]))
    pads, fill, axes = into.constant(node, 1), into.constant(node, 2), into.constant(node, 3)
    sizes = given["pads"] if pads is None else pads.tolist()
    places = range(rank) if axes is None else [int(axis) % rank for axis in axes]
    before, after = (dict(zip(places, part, strict=True)) for part in (sizes[: len(places)], sizes[len(places) :]))
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}.get(given.get("mode", "constant"))
    if mode is None or before.get(0) or after.get(0):
        raise NoFormError("it pads the samples, or in a way that PyTorch has not")
    first = 1 if mode == "constant" else 2
    pairs = [side.get(axis, 0) for axis in range(rank - 1, first - 1, -1) for side in (before, after)]
    if mode != "constant":
        return into.call(functional.pad, into.data(node), pairs, mode=mode)
    value = given.get("value", 0.0) if fill is None or not fill.size else float(fill.item())
    return into.call(functional.pad, into.data(node), pairs, value=value)


def _cast(into: Build, node: NodeProto) -> fx.Node:
    dtype = helper.tensor_dtype_to_np_dtype(attributes(node)["to"])
    return into.call(torch.Tensor.to, into.data(node), getattr(torch, str(dtype).replace("bool_", "bool")))


def _where(into: Build, node: NodeProto) -> fx.Node:
    condition = into.operand(node, 0)
    return into.call(torch.where, condition, into.operand(node, 1), into.operand(node, 2))


_UNARY: Mapping[str, Callable[..., Any]] = {
    "Abs": torch.abs, "Ceil": torch.ceil, "Cos": torch.cos, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor,
    "Log": torch.log, "Neg": torch.neg, "Reciprocal": torch.reciprocal, "Round": torch.round, "Sign": torch.sign,
    "Sin": torch.sin, "Softsign": functional.softsign, "Sqrt": torch.sqrt, "Not": torch.logical_not,
    "Selu": functional.selu,
}  # fmt: skip
_BINARY: Mapping[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv, "Pow": operator.pow,
    "Greater": operator.gt, "GreaterOrEqual": operator.ge, "Less": operator.lt, "LessOrEqual": operator.le,
    "Equal": operator.eq,
}  # fmt: skip
FORMS: Mapping[str, Form] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _elementwise(function) for name, function in _BINARY.items()},
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshaped),
    "Max": _extreme(torch.maximum, "min"),
    "Min": _extreme(torch.minimum, "max"),
    "Sum": _of_all(operator.add),
    "Mean": _of_all(operator.add, mean=True),
    "ReduceMean": _reduced(torch.mean),
    "ReduceSum": _reduced(torch.sum),
    "ReduceMax": _reduced(torch.amax),
    "ReduceMin": _reduced(torch.amin),
    "ReduceL2": _norm,
    "Transpose": _transposed,
    "Concat": _joined,
    "Split": _split,
    "Slice": _sliced,
    "Gather": _gathered,
    "Softmax": _softmax(torch.softmax),
    "LogSoftmax": _softmax(torch.log_softmax),
    "Pad": _pad,
    "Cast": _cast,
    "Where": _where,
}
