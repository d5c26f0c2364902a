"""The graph under construction: what the forms of ONNX's operators are given, and what they add to."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from onnx import NodeProto, helper
from torch import fx, nn

from tuner_onnx_models.torch.file import name_of
from tuner_onnx_models.torch.values import Array, Values

_PATH = re.compile(r"\w+(\.\w+)*")


class NoFormError(ValueError):
    """A node has no form in PyTorch."""


class Build:
    """Modules, and the calls of them.

    Args:
        values: Shapes and constants.
        opset: Version of ONNX's operators.

    Attributes:
        values: The same.
        opset: The same.
        graph: The calls.
        modules: Modules and constants by the path that a call names.
        calls: What gives a value, by the value's name in the file.
        merged: Nodes that the form of another node has taken in.
    """

    def __init__(self, values: Values, opset: int) -> None:
        self.values, self.opset, self.graph = values, opset, fx.Graph()
        self.modules: dict[str, nn.Module | torch.Tensor] = {}
        self.calls: dict[str, fx.Node] = {}
        self.merged: set[str] = set()
        self._held: dict[str, str] = {}

    def data(self, node: NodeProto, at: int = 0) -> fx.Node:
        """Return an input that depends on the samples.

        Raises:
            NoFormError: It does not.
        """
        name = node.input[at] if at < len(node.input) else ""
        if name not in self.calls:
            raise NoFormError(f"its input {at} is a constant")
        return self.calls[name]

    def constant(self, node: NodeProto, at: int) -> Array | None:
        """Return an input that does not depend on the samples; None where it is left out.

        Raises:
            NoFormError: It does depend on them, or on their number.
        """
        name = node.input[at] if at < len(node.input) else ""
        if not name:
            return None
        if name not in self.values.static or self.values.varies(name):
            raise NoFormError(f"its input {name!r} depends on the samples")
        value: Array = self.values.static[name]
        return value

    def required(self, node: NodeProto, at: int) -> Array:
        """Return an input as `constant` does; it is not left out.

        Raises:
            NoFormError: It is.
        """
        value = self.constant(node, at)
        if value is None:
            raise NoFormError(f"it is without its input {at}")
        return value

    def operand(self, node: NodeProto, at: int) -> fx.Node | float:
        """Return an input, whatever it depends on; a single number as it is."""
        is_number = (
            node.input[at] not in self.calls and (value := self.required(node, at)).size == 1 and value.ndim <= 1
        )
        return value.item() if is_number else self.tensor(node, at)

    def tensor(self, node: NodeProto, at: int) -> fx.Node:
        """Return an input as a tensor, whatever it depends on."""
        name = node.input[at]
        return self.calls[name] if name in self.calls else self.held(name, self.required(node, at))

    def held(self, name: str, value: Array) -> fx.Node:
        """Return a constant that the model holds as a buffer."""
        if name not in self._held:
            self._held[name] = self._free_path(f"constant_{re.sub(r'[^0-9A-Za-z_]', '_', name).strip('_')}")
            self.modules[self._held[name]] = torch.from_numpy(np.array(value))
        return self.graph.get_attr(self._held[name])

    def call(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> fx.Node:
        """Add a call of a function."""
        return self.graph.call_function(function, arguments, settings)

    def module(self, node: NodeProto, module: nn.Module, *inputs: fx.Node) -> fx.Node:
        """Add a module, by the name that it had where the file says so, and a call of it."""
        path = self._free_path(_path(node))
        self.modules[path] = module.eval()
        return self.graph.call_module(path, inputs or (self.data(node),))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.values.shapes[name] if name in self.values.shapes else self.values.static[name].shape

    def holds_samples(self, name: str, axis: int) -> bool:
        """Return whether the samples lie along an axis of a value that depends on them."""
        return axis in self.values.places_of_batch(name)

    def follower(self, node: NodeProto) -> NodeProto | None:
        """Return the only node that reads a node's result; None where others do, or it is the output."""
        users = [user for user in self.values.nodes if node.output[0] in user.input]
        return users[0] if len(users) == 1 and node.output[0] != self.values.output else None

    def _free_path(self, path: str) -> str:
        """Return a path that nothing else has, and that no other path is within."""
        free, number = path, 1
        while any(free == own or free.startswith(f"{own}.") or own.startswith(f"{free}.") for own in self.modules):
            number += 1
            free = f"{path}_{number}"
        return free


def attributes(node: NodeProto) -> Mapping[str, Any]:
    """Return a node's attributes by name; text as text."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}


def _path(node: NodeProto) -> str:
    """Return the path that a module had in PyTorch, as its weights or its node say; or a name made of the node's."""
    for name in map(str, node.input[1:]):
        path, dot, leaf = name.rpartition(".")
        if dot and leaf == "weight" and _PATH.fullmatch(path):
            return path
    path = ""
    for scope in name_of(node).strip("/").split("/")[:-1]:  # /layer1/layer1.0/conv1/Conv is layer1.0.conv1
        path = scope if not path or scope.startswith(f"{path}.") or scope == path else f"{path}.{scope}"
    if path and _PATH.fullmatch(path):
        return path
    name = re.sub(r"\W+", "_", name_of(node)).strip("_")
    return name if name and not name[0].isdigit() else f"{node.op_type}_{name}".rstrip("_")


#: Adds the calls of one node; returns what gives its result, or its results.
Form = Callable[[Build, NodeProto], fx.Node | Sequence[fx.Node]]
