"""What an operator takes from memory beside its arguments and results, measured on this device.

Convolutions lay weights and maps out anew, and how much that takes differs from shape to shape and from processor to
processor; no formula of the library's is public. So each distinct call is run once on zeros, under a meter.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import fx

from tuner.backends.memory import PeakMeter, return_freed
from tuner.backends.torch.values import is_item, is_pointwise, is_view

Scratch = Callable[[fx.Node], int]
#: Less than this is not told apart from the meter's own error.
LEAST_BYTES = 131_072


def nothing(_: fx.Node) -> int:
    """Return 0: no scratch is counted."""
    return 0


def measured(node: fx.Node) -> int:
    """Return the bytes that a traced operator takes beside its arguments and results.

    The first call of its kind runs the operator twice on zeros of the traced shapes and layouts, which takes as much
    memory as the step itself would there. Calls of equal shapes are measured once in a process.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or is_view(node) or is_pointwise(node) or is_item(node):  # noqa: SLF001 - the class has no public name
        return 0
    return _taken(node.target, _frozen(node.args), _frozen(node.kwargs))


@cache
def _taken(target: Callable[..., Any], args: Any, kwargs: Any) -> int:
    return_freed()
    given, named = _thawed(args), dict(_thawed(kwargs))
    with torch.inference_mode():
        target(*given, **named)  # code that is compiled for the shape is kept; it is not scratch
        meter = PeakMeter()
        results = target(*given, **named)
        beside = meter.peak_bytes() - sum(one.untyped_storage().nbytes() for one in _tensors(results))
    return beside if beside >= LEAST_BYTES else 0


def _frozen(value: Any) -> Any:
    """Return an argument as something that can be compared: of a tensor its shape, strides and type."""
    if isinstance(value, fx.Node):
        traced = value.meta["val"]
        return ("tensor", tuple(traced.shape), tuple(traced.stride()), traced.dtype)
    if isinstance(value, dict):
        return ("list", tuple(("list", (key, _frozen(one))) for key, one in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_frozen(one) for one in value))
    return value


def _thawed(value: Any) -> Any:
    """Return an argument from what `_frozen` made of it; tensors are of zeros."""
    if isinstance(value, tuple) and value[0] == "tensor":
        _, shape, stride, dtype = value
        return torch.empty_strided(shape, stride, dtype=dtype).zero_()
    if isinstance(value, tuple) and value[0] == "list":
        return [_thawed(one) for one in value[1]]
    return value


def _tensors(results: Any) -> Iterator[torch.Tensor]:
    if isinstance(results, torch.Tensor):
        yield results
    elif isinstance(results, (list, tuple)):
        for one in results:
            yield from _tensors(one)
