"""An ONNX graph under construction from a traced step; the shape and type of every traced tensor are known."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import NodeProto, helper, numpy_helper
from torch import fx

Value = str | tuple[str | None, ...]
#: numpy's name of a type, by torch's.
TYPES: Mapping[torch.dtype, str] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.bool: "bool",
}


class Graph:
    """Nodes in order, constants once each, and the names of what was lowered so far.

    Attributes:
        nodes: Nodes of the ONNX graph.
        values: Name in the ONNX graph of every traced node; several for an operator of several results.
    """

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.values: dict[fx.Node, Value] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._flat: dict[str, str] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with a single result; return its name."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Add a node; return the names of its results."""
        names = tuple(f"/{kind}/{len(self.nodes)}/{index}" for index in range(results))
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names

    def name(self, results: Sequence[str], names: Sequence[str]) -> None:
        """Let results be the graph's outputs under names of their own, without copying them where that can be."""
        made = {output for node in self.nodes for output in node.output}
        renamed: dict[str, str] = {}
        for result, name in zip(results, names, strict=True):
            if result in made and result not in renamed and result.startswith("/"):
                renamed[result] = name
            else:  # an input, or an output under another name already
                self.nodes.append(helper.make_node("Identity", [result], [name]))
        for node in self.nodes:
            for own in (node.input, node.output):
                for index, result in enumerate(own):
                    if result in renamed:
                        own[index] = renamed[result]
        self.values = {
            node: renamed.get(value, value) if isinstance(value, str) else value for node, value in self.values.items()
        }

    def constant(self, value: npt.ArrayLike, dtype: str) -> str:
        """Return the name of a constant."""
        array = np.asarray(value, dtype)
        key = (dtype, array.shape, array.tobytes())
        return self._constants.setdefault(key, f"/constant/{len(self._constants)}")

    def initializers(self) -> list[Any]:
        """Return the constants."""
        return [
            numpy_helper.from_array(np.frombuffer(content, dtype).reshape(shape), name)
            for (dtype, shape, content), name in self._constants.items()
        ]

    def integers(self, values: Sequence[int]) -> str:
        """Return the name of a list of integers: a shape, axes."""
        return self.constant(list(values), "int64")

    def of(self, argument: Any, dtype: torch.dtype | None = None) -> str:
        """Return the name of a traced node, or of a number, in a type; in its own where none is given."""
        if not isinstance(argument, fx.Node):
            return self.constant(argument, TYPES[dtype or torch.float32])
        name = self.values[argument]
        if not isinstance(name, str):
            raise TypeError(f"{argument} has several results")
        if dtype is not None and dtype_of(argument) != dtype:
            return self.cast(name, dtype)
        return name

    def cast(self, name: str, dtype: torch.dtype) -> str:
        """Return a value in another type."""
        return self.op("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[dtype])))

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """Return a value in another shape."""
        return self.op("Reshape", name, self.integers(shape))

    def flat(self, name: str) -> str:
        """Return a value as a vector."""
        if name not in self._flat:
            self._flat[name] = self.reshape(name, [-1])
        return self._flat[name]

    def lifted(self, vector: str, shape: Sequence[int]) -> str:
        """Return a vector in a shape that `flat` undoes for nothing."""
        name = self.reshape(vector, shape)
        self._flat[name] = vector
        return name

    def spread(self, kind: str, node: fx.Node, *names: str) -> str:
        """Add an elementwise node for a traced one; over vectors where the shape ends in 1.

        Where such a shape meets a single number, ONNX Runtime 1.31 loops over single elements: 20 ms instead of 0.07 ms
        for 1280 × 320 × 1 × 1 numbers times one.
        """
        shape = shape_of(node)
        shapes = [shape_of(source) if isinstance(source, fx.Node) else () for source in node.args[: len(names)]]
        if not ends_in_one(shape) or set(shapes) - {shape, ()}:
            return self.op(kind, *names)
        operands = [self.flat(name) if own else name for name, own in zip(names, shapes, strict=True)]
        return self.lifted(self.op(kind, *operands), shape)

    def masked(self, name: str, where: str) -> str:
        """Return a value where a condition holds, else zero: in two passes, where ONNX Runtime's Where makes three."""
        return self.op("Mul", name, self.cast(where, torch.float32))

    def prune(self, outputs: Sequence[str]) -> None:
        """Drop nodes that no output needs."""
        needed, reached = set(outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                reached.append(node)
        self.nodes = reached[::-1]

    def sum(self, name: str, axes: Sequence[int], *, keep: bool = False) -> str:
        """Return sums over some axes."""
        return self.op("ReduceSum", name, self.integers(axes), keepdims=int(keep))


#: Adds the nodes of one traced node; returns the names of its results.
Form = Callable[[Graph, fx.Node], Value]


def ends_in_one(shape: Sequence[int]) -> bool:
    """Whether elements lie along other axes than the last."""
    return len(shape) > 1 and shape[-1] == 1 and prod(shape) > 1


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """Return the shape of a traced tensor."""
    return tuple(node.meta["val"].shape)


def dtype_of(node: fx.Node) -> torch.dtype:
    """Return the type of a traced tensor."""
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def argument(node: fx.Node, index: int, name: str, default: Any = None) -> Any:
    """Return an argument by position or name."""
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)
