"""Memory that the library takes in addition to an operator's arguments and results, measured on this device.

Convolutions lay weights and maps out anew, and keep code compiled for each shape. No formula of what that takes is
public, so each distinct call is run on zeros, under a meter.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from tuner.machine.process_memory import PeakMeter, return_freed
from tuner_planned.torch.nodes import is_item, is_pointwise, is_view

#: Less scratch than this cannot be told from the meter's own error.
LEAST_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class LibraryMemory:
    """Bytes that one operator takes.

    Attributes:
        scratch: Memory while it runs, in addition to its arguments and results.
        resident: Memory from its first call on, whatever runs later: code compiled for the shape, own buffers.
    """

    scratch: int = 0
    resident: int = 0


#: Takes a traced operator, returns what the library takes for it.
Library = Callable[[fx.Node], LibraryMemory]


def nothing(_: fx.Node) -> LibraryMemory:
    """Count nothing."""
    return LibraryMemory()


def measured(node: fx.Node) -> LibraryMemory:
    """Return what the library takes for a traced operator.

    The first call of its kind runs the operator twice on zeros of the traced shapes and layouts, which takes as much
    memory as the step itself would there. Calls of equal shapes are measured once in a process.
    """
    call = signature(node)
    return LibraryMemory() if call is None else _taken(*call)


def signature(node: fx.Node) -> tuple[Any, Hashable, Hashable] | None:
    """Return what distinguishes calls: operator, shapes, layouts, constants; None of views.

    Arithmetic takes no scratch, only the pages of its code, so its shapes are made small and count as equal.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or is_view(node) or is_item(node):  # noqa: SLF001 - the class has no public name
        return None
    small = is_pointwise(node)
    return node.target, _frozen(node.args, small=small), _frozen(node.kwargs, small=small)


@cache
def _taken(target: Callable[..., Any], args: Any, kwargs: Any) -> LibraryMemory:
    return_freed()
    positional, named = _thawed(args), dict(_thawed(kwargs))
    with torch.inference_mode():
        resting = PeakMeter().resting
        target(*positional, **named)
        return_freed()
        meter = PeakMeter()
        results = target(*positional, **named)
        tensors = [result for result in tree_leaves(results) if isinstance(result, torch.Tensor)]
        scratch = meter.peak_bytes() - sum(result.untyped_storage().nbytes() for result in tensors)
    resident = meter.resting - resting
    return LibraryMemory(scratch if scratch >= LEAST_BYTES else 0, max(0, resident))


def _frozen(value: Any, *, small: bool) -> Any:
    """Return an argument as something that can be compared: of a tensor its shape, strides and type."""
    if isinstance(value, fx.Node):
        traced = value.meta["val"]
        if small:
            traced = traced.new_empty([2] * traced.ndim)
        return ("tensor", tuple(traced.shape), tuple(traced.stride()), traced.dtype)
    if isinstance(value, dict):
        return ("list", tuple(("list", (key, _frozen(entry, small=small))) for key, entry in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_frozen(entry, small=small) for entry in value))
    return value


def _thawed(value: Any) -> Any:
    """Return an argument from what `_frozen` made of it; tensors are of zeros."""
    if isinstance(value, tuple) and value[0] == "tensor":
        _, shape, stride, dtype = value
        return torch.empty_strided(shape, stride, dtype=dtype).zero_()
    if isinstance(value, tuple) and value[0] == "list":
        return [_thawed(entry) for entry in value[1]]
    return value
