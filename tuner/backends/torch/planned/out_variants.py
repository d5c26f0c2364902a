"""Overloads of operators that write their result into a given tensor."""

from typing import Any

from torch import fx

_OUT = ("out", "grad_input")


def out_of(node: fx.Node) -> tuple[Any, str]:
    """Return the overload of a node's operator that writes to a given tensor, and that argument's name."""
    packet = node.target.overloadpacket  # type: ignore[union-attr]  # pointwise nodes are of ATen's operators
    own = _arguments(node.target)
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = _arguments(overload)
        written = [argument for argument in arguments if argument not in own]
        shared = [argument for argument in arguments if argument in own]
        if len(written) == 1 and written[0][0] in _OUT and shared == own:
            return overload, written[0][0]
    return None, ""


def _arguments(overload: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in overload._schema.arguments]  # noqa: SLF001 - the schema has no public name
