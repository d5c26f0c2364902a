"""What the library takes from memory beside an operator's arguments and results, measured on this device.

Convolutions lay weights and maps out anew, and keep code compiled for each shape. How much that takes differs from
shape to shape and from processor to processor, and no formula of it is public. So each distinct call is run on zeros,
under a meter.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx

from tuner.backends.memory import PeakMeter, return_freed
from tuner.backends.torch.values import is_item, is_pointwise, is_view

#: Less scratch than this is not told apart from the meter's own error.
LEAST_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes that one operator takes.

    Attributes:
        beside: While it runs, beside its arguments and results.
        kept: From its first call on, whatever runs later: code compiled for the shape, the library's own buffers.
    """

    beside: int = 0
    kept: int = 0


Library = Callable[[fx.Node], Taken]


def nothing(_: fx.Node) -> Taken:
    """Count nothing."""
    return Taken()


def measured(node: fx.Node) -> Taken:
    """Return what the library takes for a traced operator.

    The first call of its kind runs the operator twice on zeros of the traced shapes and layouts, which takes as much
    memory as the step itself would there. Calls of equal shapes are measured once in a process.
    """
    call = signature(node)
    return Taken() if call is None else _taken(*call)


def signature(node: fx.Node) -> tuple[Any, Hashable, Hashable] | None:
    """Return what tells calls apart: operator, shapes, layouts, constants; None of views.

    Arithmetic takes no scratch, only the pages of its code, so its shapes are made small and count as equal.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or is_view(node) or is_item(node):  # noqa: SLF001 - the class has no public name
        return None
    small = is_pointwise(node)
    return node.target, _frozen(node.args, small=small), _frozen(node.kwargs, small=small)


@cache
def _taken(target: Callable[..., Any], args: Any, kwargs: Any) -> Taken:
    return_freed()
    given, named = _thawed(args), dict(_thawed(kwargs))
    with torch.inference_mode():
        resting = PeakMeter().resting
        target(*given, **named)
        return_freed()
        meter = PeakMeter()
        results = target(*given, **named)
        beside = meter.peak_bytes() - sum(one.untyped_storage().nbytes() for one in _tensors(results))
    kept = meter.resting - resting
    return Taken(beside if beside >= LEAST_BYTES else 0, max(0, kept))


def _frozen(value: Any, *, small: bool) -> Any:
    """Return an argument as something that can be compared: of a tensor its shape, strides and type."""
    if isinstance(value, fx.Node):
        traced = value.meta["val"]
        if small:
            traced = traced.new_empty([2] * traced.ndim)
        return ("tensor", tuple(traced.shape), tuple(traced.stride()), traced.dtype)
    if isinstance(value, dict):
        return ("list", tuple(("list", (key, _frozen(one, small=small))) for key, one in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_frozen(one, small=small) for one in value))
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
