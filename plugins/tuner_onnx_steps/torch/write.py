"""Write a traced step as an ONNX file that the ordinary onnxruntime trains with.

The file holds no weights: these are inputs, and their next values are outputs. Its metadata says what its inputs mean,
in the form that `tuner.ort.layout` reads. The graph is written node by node, without torch.onnx: that
takes a tenth of the time, and no optimiser comes between that would drop Adam's ε as a term that changes nothing.
"""

import json
import operator
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, TensorProto, helper
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tuner.backends.torch.step.traced import Step, StepError
from tuner.errors import TunerError
from tuner.ort.layout import Port
from tuner_onnx_steps.torch import basic, convolution, indexing, maps, matrices
from tuner_onnx_steps.torch.folding import Folds
from tuner_onnx_steps.torch.graph import Form, Graph, ends_in_one

OPSET, IR_VERSION = 20, 10  # which onnxruntime 1.20 knows
FORMAT = 1
FORMS: dict[Any, Form] = {**basic.FORMS, **indexing.FORMS, **matrices.FORMS, **convolution.FORMS, **maps.FORMS}


def write(step: Step, path: Path) -> None:
    """Write a step, traced with `padded` unless its norms are frozen; see `model`."""
    path.write_bytes(model(step).SerializeToString())


def model(step: Step) -> ModelProto:
    """Return a step as an ONNX model; raise StepError where an operator has no ONNX form."""
    traced = _decomposed(step)
    graph, folds = Graph(), Folds(traced)
    ports = iter(step.inputs)
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            port = next(ports)
            graph.values[node] = graph.lifted(port.name, port.shape) if _is_vector(port) else port.name
        elif node.op == "call_function":
            graph.values[node] = folds.lower(graph, node) if node in folds else _lowered(graph, node)
        elif node.op == "get_attr":
            value = getattr(traced, node.target)
            graph.values[node] = graph.constant(value.numpy(force=True), str(value.dtype).removeprefix("torch."))
    results = next(node for node in traced.graph.nodes if node.op == "output").args[0]
    made = [graph.of(result) for result in results]
    made = [graph.flat(name) if _is_vector(port) else name for name, port in zip(made, step.outputs, strict=True)]
    graph.name(made, [port.name for port in step.outputs])
    graph.prune([port.name for port in step.outputs])
    ported = ([_info(port) for port in ports] for ports in (step.inputs, step.outputs))
    onnx_graph = helper.make_graph(graph.nodes, "step", *ported, initializer=graph.initializers())
    onnx_model = helper.make_model(
        onnx_graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="tuner"
    )
    about = {
        "format": FORMAT,
        "inputs": [asdict(port) for port in step.inputs],
        "updates": dict(step.updates),
    }
    helper.set_model_props(onnx_model, {"tuner.step": json.dumps(about), "torch": version("torch")})
    return onnx_model


def _decomposed(step: Step) -> fx.GraphModule:
    """Return the step's graph with operators that have no form of their own taken apart into ones that have."""
    if not _strange(step.graph):
        return step.graph
    table = {target: rule for target, rule in _rules().items() if target not in FORMS}
    with FakeTensorMode():
        example = [torch.empty(port.shape, dtype=getattr(torch, port.dtype)) for port in step.inputs]
    graph = make_fx(step.graph, table, tracing_mode="fake")(*example)
    graph.graph.eliminate_dead_code()
    strange = _strange(graph)
    if strange:
        raise StepError(f"a step with {strange[0]} has no ONNX form: train it with --backend torch")
    return graph


@cache
def _rules() -> Mapping[Any, Any]:
    """Return how operators are taken apart; listing all of them takes longer than most graphs do."""
    return dict(core_aten_decompositions())


def _strange(graph: fx.GraphModule) -> list[str]:
    """Return operators that have no form."""
    called = [node for node in graph.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    return [str(node.target) for node in called if node.target not in FORMS]


def _lowered(graph: Graph, node: fx.Node) -> Any:
    if node.target in FORMS:
        return FORMS[node.target](graph, node)
    values: Any = graph.values[node.args[0]]  # type: ignore[index]  # getitem's first argument is a node
    return values[node.args[1]]


def _info(port: Port) -> Any:
    kind = getattr(TensorProto, {"float32": "FLOAT", "int64": "INT64"}.get(port.dtype, ""), None)
    if kind is None:
        raise TunerError(f"a step's tensors are float32 or int64, but {port.name} is {port.dtype}")
    return helper.make_tensor_value_info(port.name, kind, [prod(port.shape)] if _is_vector(port) else port.shape)


def _is_vector(port: Port) -> bool:
    """Whether a port is a vector in the file, because its shape is slow with numbers; see `Graph.spread`."""
    return port.kind in {"parameter", "state"} and ends_in_one(port.shape)
