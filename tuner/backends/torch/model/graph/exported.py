"""A model as torch.export traces it, with the calls of torch's own modules put back in the place of their operators.

torch.export gives operators on weights. Training must reach modules: norms that stay frozen, dropouts that are active,
layers that an adapter changes. So the operators of each call of such a module become one call of it again, and what is
left between them stays as operators.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.export import Dim, ExportedProgram, export

from tuner.backends.torch.model.graph.kinds import ACTIVATIONS, BARE, NORMS, RANDOM

_POOLS = (nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd)  # noqa: SLF001 - torch has no public base class of its pools
#: Modules that take one tensor and give one.
_CALLED = (*NORMS, *BARE, *RANDOM, *ACTIVATIONS, *_POOLS, nn.Flatten)
_ATEN = torch.ops.aten
_VIEWS = (_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default)  # noqa: SLF001 - named so by torch
#: Largest difference of two ways to compute the same, relative to the largest value.
SAME = 1e-3


def exported(model: nn.Module, sample: torch.Tensor) -> fx.GraphModule:
    """Return the graph of a model in evaluation mode, for any number of samples; shares the model's weights.

    `sample` is float32 [1, ...]. Whatever torch.export raises of a model that it cannot trace is raised.

    Raises:
        ValueError: The graph computes something that the model does not.
    """
    batch = torch.cat([sample, sample])
    program = export(model, (batch,), dynamic_shapes=({0: Dim.DYNAMIC},))
    module = _Rewriter(model, program).graph_module()
    noise = torch.rand(3, *sample.shape[1:], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted, given = model(noise), module(noise)
    if not torch.allclose(wanted, given, rtol=SAME, atol=SAME * float(wanted.abs().max())):
        raise ValueError("the exported graph computes something else")
    return module


class _Rewriter:
    """Copies an exported graph over the model's own modules and names."""

    def __init__(self, model: nn.Module, program: ExportedProgram) -> None:
        self._model, self._program = model, program
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._nodes = [node for node in program.graph.nodes if not _is_check(node)]
        self._graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}
        self._constants: dict[str, torch.Tensor] = {}
        signature = program.graph_signature
        self._names: Mapping[str, str] = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._data = self._of_the_input()

    def graph_module(self) -> fx.GraphModule:
        """Return the copied graph."""
        calls = dict[fx.Node, tuple[str, fx.Node]](self._calls())
        inner = {node for group in self._groups() for node in group if group[-1] in calls}
        for node in self._nodes:
            if node in calls:
                name, source = calls[node]
                self._copies[node] = self._graph.call_module(name, (self._copies[source],))
                self._copies[node].meta["nn_module_stack"] = self._meta(node)
            elif node.op == "output":
                (result,) = node.args[0]
                self._graph.output(self._copies[result])
            elif node in self._data and node not in inner:
                self._copies[node] = self._copy(node)
        root = copy.copy(self._model)  # of its own lists of names, so that constants are no attributes of the model
        root._buffers = dict(self._model._buffers)  # noqa: SLF001 - as torch itself copies a module
        for name, value in self._constants.items():
            root.register_buffer(name, value, persistent=False)
        return fx.GraphModule(root, self._graph)

    def _of_the_input(self) -> set[fx.Node]:
        """Return the nodes whose values depend on the samples, and not on their number or on weights alone."""
        data = {node for node in self._nodes if node.op == "placeholder" and node.name not in self._names}
        for node in self._nodes:
            if not _is_number(node) and not data.isdisjoint(node.all_input_nodes):
                data.add(node)
        return data

    def _groups(self) -> Iterator[list[fx.Node]]:
        """Yield the operators of each call of one of torch's modules that gives one tensor of one tensor."""
        group: list[fx.Node] = []
        for node in [*self._nodes, None]:
            key = None if node is None or node not in self._data else self._module_of(node)
            if group and key != self._module_of(group[0]):
                yield group
                group = []
            if key is not None and node is not None:
                group.append(node)

    def _calls(self) -> Iterator[tuple[fx.Node, tuple[str, fx.Node]]]:
        """Yield the last operator of a call, the name of the module, and the call's input."""
        for group in self._groups():
            members = set(group)
            taken = {source for node in group for source in node.all_input_nodes} - members
            inputs = [node for node in taken if node in self._data]
            given = [node for node in group if any(user not in members for user in node.users)]
            if len(inputs) == 1 and given == [group[-1]]:
                name = self._module_of(group[0])
                yield group[-1], (str(name).partition("@")[0], inputs[0])

    def _module_of(self, node: fx.Node) -> str | None:
        """Return the path of the outermost of torch's modules whose code an operator is of; None where there is none.

        The outermost, as a norm of a library's own may hold its activation.
        """
        modules = ((path, self._modules[path.partition("@")[0]]) for path in self._stack(node))
        return next((path for path, module in modules if isinstance(module, _CALLED)), None)

    def _stack(self, node: fx.Node) -> list[str]:
        """Return the paths of the modules around an operator, from outside to inside; ``@1`` ends a second call's."""
        paths = (path for path, _ in node.meta.get("nn_module_stack", {}).values())
        return [path for path in paths if path and path.partition("@")[0] in self._modules]

    def _copy(self, node: fx.Node) -> fx.Node:
        """Copy an operator, or what it reads of the model."""
        if node.op == "placeholder":
            name = self._names.get(node.name)
            if name is None:
                return self._graph.placeholder("x")
            if name in self._program.constants and not _has(self._model, name):
                self._constants[name.replace(".", "_")] = self._program.constants[name]
                name = name.replace(".", "_")
            return self._graph.get_attr(name)
        target: Any = node.target
        arguments: Any = node.args
        if target in _VIEWS:
            target, arguments = _ATEN.reshape.default, (node.args[0], _any_batch(node), *node.args[2:])
        named: Any = node.kwargs
        if target is _ATEN.contiguous.default:  # a copy always: of attention's result it is one in some forms only
            target, named = _ATEN.clone.default, {"memory_format": torch.contiguous_format}
        places = fx.node.map_arg(arguments, self._copied), fx.node.map_arg(named, self._copied)
        copied = self._graph.call_function(target, *places)
        copied.meta["nn_module_stack"] = self._meta(node)
        return copied

    def _copied(self, argument: fx.Node) -> fx.Node:
        """Return the copy of an operator's argument, made anew where it does not depend on the samples.

        Such a value, a mask for instance, may be one for many operators; read by each for itself, it crosses no cut. A
        number of samples is read of the nearest value for the same reason.
        """
        if argument in self._data:
            return self._copies[argument]
        if _is_number(argument):
            wanted = str(argument.meta["val"])
            for source, copied in reversed(self._copies.items()):
                value = source.meta.get("val")
                for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                    if isinstance(size, torch.SymInt) and str(size) == wanted:
                        return self._graph.call_function(_ATEN.sym_size.int, (copied, axis))
        return self._copy(argument)

    def _meta(self, node: fx.Node) -> dict[str, tuple[str, type]]:
        """Return the modules around an operator, as torch.fx has them."""
        paths = [path.partition("@")[0] for path in self._stack(node)]
        return {path: (path, type(self._modules[path])) for path in paths}


def _is_check(node: fx.Node) -> bool:
    """Return whether a node checks something, and gives nothing."""
    return node.op == "call_function" and not node.users and "assert" in str(node.target)


def _is_number(node: fx.Node) -> bool:
    """Return whether a node gives a number, which depends on the number of samples."""
    return isinstance(node.meta.get("val"), torch.SymInt | int)


def _any_batch(view: fx.Node) -> Any:
    """Return the sizes of a view, the one that depends on the number of samples as -1, where there is one such."""
    sizes = list(view.meta["val"].shape)
    if sum(isinstance(size, torch.SymInt) for size in sizes) != 1:
        return view.args[1]
    return [-1 if isinstance(size, torch.SymInt) else size for size in sizes]


def _has(model: nn.Module, name: str) -> bool:
    path, _, leaf = name.rpartition(".")
    try:
        return hasattr(model.get_submodule(path), leaf)
    except AttributeError:
        return False
