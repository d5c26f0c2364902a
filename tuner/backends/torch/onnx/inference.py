"""Write a module's inference as an ONNX file, by PyTorch's own exporter."""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from io import StringIO
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch import nn


class OwnNodes(nn.Module, ABC):
    """A module with ONNX nodes of its own: it exports itself as one operator, which they replace in the file."""

    @abstractmethod
    def put_into(self, path: Path) -> None:
        """Put the nodes into an exported file."""


def write_onnx(
    module: nn.Module, sample: torch.Tensor, path: Path, outputs: Sequence[str], *, optimize: bool = True
) -> None:
    """Export a module with a dynamic batch; quietly, and to one file that names no place on this device.

    Args:
        module: Module in evaluation mode.
        sample: At least two samples: an example of one would fix the batch at one.
        path: File to write.
        outputs: Names of the outputs.
        optimize: Whether the exporter may fold weights into others. Where it may not, it folds what is computed of
            constants alone, and ONNX Runtime folds weights when it loads the file.
    """
    _share_operators()
    output = StringIO()
    with warnings.catch_warnings(), redirect_stdout(output), redirect_stderr(output), _out_of_place(module):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program: Any = torch.onnx.export(
            module,
            (sample,),
            input_names=["input"],
            output_names=list(outputs),
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            dynamo=True,
            verbose=False,
            optimize=optimize,
        )
        if not optimize:
            _fold_constants(program.model)
        _strip(program.model)
        program.save(path, external_data=False)
        for part in module.modules():
            if isinstance(part, OwnNodes):
                part.put_into(path)


@contextmanager
def _out_of_place(module: nn.Module) -> Iterator[None]:
    """Let activations write new tensors meanwhile: what is changed in place is rewritten operator by operator.

    That took half of MobileNetV2's export: 13 s of processor time, where 7 are left (measured on torch 2.13).
    """
    changed: list[Any] = [part for part in module.modules() if getattr(part, "inplace", None) is True]
    try:
        for part in changed:
            part.inplace = False
        yield
    finally:
        for part in changed:
            part.inplace = True


@cache
def _share_operators() -> None:
    """Let all exports of a process use one table of ONNX operators.

    `torch.onnx.export` reads the source of 500 operators for each file: half of an export's 1.0 s of processor time
    (measured on torch 2.13). It changes the table for operators of one's own only, which are not asked for here.
    """
    with suppress(ImportError, AttributeError):  # where a later PyTorch has it elsewhere, each export makes its own
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        ONNXRegistry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))  # type: ignore[method-assign]
    share_lookups()
    _keep_known_operators()


@cache
def _keep_known_operators() -> None:
    """Let PyTorch take a graph apart only where ONNX lacks one of its operators: it traces all of it again for that.

    That takes 60 % of an export's processor time (measured on torch 2.13, with MobileNetV2 whose norms are folded).
    """
    with suppress(ImportError, AttributeError):  # where a later PyTorch has it elsewhere, all are taken apart
        from torch.onnx._internal.exporter import _decomp, _fx_passes

        take_apart = _fx_passes.decompose_with_registry
        has = _decomp.get_onnx_implemented_overloads

        def take_apart_unknown(program: Any, registry: Any) -> Any:
            nodes = [node for node in program.graph.nodes if node.op == "call_function"]
            for node in nodes:
                _simplify(node)
            known = {one for one in has(registry) if isinstance(one, torch._ops.OpOverload)} | {getitem}  # noqa: SLF001
            targets = {node.target for node in program.graph.nodes if node.op == "call_function"} - {getitem}
            as_is = targets <= known and not any(one._schema.is_mutable for one in targets)  # noqa: SLF001
            return program if as_is else take_apart(program, registry)

        _fx_passes.decompose_with_registry = take_apart_unknown  # type: ignore[assignment]  # of any types


def _simplify(node: Any) -> None:
    """Write a norm that has its statistics, and a pool of equal parts, as operators that ONNX has."""
    aten = torch.ops.aten
    if node.target is aten.batch_norm.default and node.args[5] is False:
        mean = node.args[3].meta["val"]
        with node.graph.inserting_before(node):
            known_statistics = aten._native_batch_norm_legit_no_training.default  # noqa: SLF001
            norm = node.graph.call_function(known_statistics, (*node.args[:5], *node.args[6:8]))
            norm.meta = {**node.meta, "val": (node.meta["val"], mean, mean)}
        node.target, node.args = getitem, (norm, 0)
    elif node.target is aten.adaptive_avg_pool2d.default:
        sides = zip(node.args[0].meta["val"].shape[-2:], node.args[1], strict=True)
        parts = [side // of if isinstance(side, int) and side % of == 0 else None for side, of in sides]
        if list(node.args[1]) == [1, 1]:
            node.target, node.args = aten.mean.dim, (node.args[0], [-1, -2], True)
        elif None not in parts:
            node.target, node.args = aten.avg_pool2d.default, (node.args[0], parts, parts)


@cache
def share_lookups() -> None:
    """Let PyTorch look an operator up once, not for each of its 29 namespaces every time that it lists all of them.

    That takes a quarter of an export's 0.6 s of processor time (measured on torch 2.13). Operators that are registered
    meanwhile are looked up.
    """
    with suppress(ImportError, AttributeError):  # where a later PyTorch has it elsewhere, all are looked up
        from torch._export import utils

        look_up = utils._materialize_cpp_cia_ops  # noqa: SLF001 - torch has no public name for it
        registered = torch._C._dispatch_get_registrations_for_dispatch_key  # noqa: SLF001 - likewise
        known: list[str] = []

        def look_up_new() -> None:
            found = registered("CompositeImplicitAutograd")
            if found != known:
                look_up()
                known[:] = found

        utils._materialize_cpp_cia_ops = look_up_new  # noqa: SLF001 - likewise


def _fold_constants(model: Any) -> None:
    """Compute what does not depend on weights or inputs.

    The exporter writes bounds of a Clip, and the bias of a convolution that has none, as operators on constants. While
    these are there, ONNX Runtime joins neither an activation nor a norm with the convolution before it: MobileNetV2
    then takes 5.5 ms a sample in the place of 4.0.
    """
    from onnxscript.optimizer import fold_constants, remove_unused_nodes

    weights = {id(value) for value in model.graph.initializers.values()}

    def should_fold(node: Any) -> bool | None:
        return False if any(id(value) in weights for value in node.inputs) else None  # None: as the library decides

    fold_constants(model, onnx_shape_inference=False, should_fold=should_fold)
    remove_unused_nodes(model)


def _strip(model: Any) -> None:
    """Drop the exporter's notes on where an operator comes from: its Python source, by absolute path, and module."""
    model.metadata_props.clear()
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        graph.metadata_props.clear()
        for value in (*graph.inputs, *graph.initializers.values()):
            value.metadata_props.clear()
        for node in graph.all_nodes():
            node.metadata_props.clear()
            for value in node.outputs:
                value.metadata_props.clear()
    for function in model.functions.values():
        function.metadata_props.clear()
