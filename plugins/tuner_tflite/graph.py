"""An ONNX graph for one sample: its nodes, its constants, and the shape of every value; and what refuses one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.errors import BundleError
from tuner_tflite.model import Scale

Array = npt.NDArray[Any]
#: Operators of ONNX between values in uint8 and in float32; the number of int8 that stands for 0 of uint8.
QUANTISING, LOWEST = frozenset({"QuantizeLinear", "DequantizeLinear"}), -128
#: Operators whose outputs are the same for all samples, whatever they read.
SAMPLE_FREE = frozenset({"IsNaN", "Shape", "Size"})


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of ONNX.

    Attributes:
        kind: Name of the operator.
        inputs: Names of the values it reads; empty for one that is left out.
        outputs: Names of the values it writes.
        attributes: Its attributes.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graph:
    """What is computed of one sample.

    Attributes:
        nodes: In the order they run in.
        constants: Weights, and all that does not depend on the sample.
        shapes: Shape of each value.
        input: Name of the input.
        output: Name of the output.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    shapes: Mapping[str, tuple[int, ...]]
    input: str
    output: str


def between(path: Path, inputs: Sequence[str], output: str) -> Any:
    """Return the part of an ONNX file that computes a value from its inputs, or from inner values."""
    from onnx import load
    from onnx.utils import Extractor

    return Extractor(load(path)).extract_model(list(inputs), [output])


def without_quantisation(model: Any) -> tuple[Any, dict[str, Scale]]:
    """Return a model in int8 without the nodes that round its values to uint8, and the scales of these values, as int8.

    Weights are still in int8, with the node that makes them float32.
    """
    from onnx import helper, numpy_helper

    graph, held = model.graph, {one.name: one for one in model.graph.initializer}
    left_out = [node for node in graph.node if node.op_type in QUANTISING and node.input[0] not in held]
    before = {node.output[0]: node.input[0] for node in left_out}

    def value(name: str) -> str:
        while name in before:
            name = before[name]
        return name

    scales = {}
    for node in left_out:
        scale, zero = (numpy_helper.to_array(held[name]) for name in node.input[1:3])
        scales[value(node.output[0])] = Scale((float(scale),), int(zero) + LOWEST)
    nodes = [node for node in graph.node if node.output[0] not in before]
    for node in nodes:
        node.input[:] = map(value, node.input)
    nodes += [helper.make_node("Identity", [value(one.name)], [one.name]) for one in graph.output if one.name in before]
    del graph.node[:]
    graph.node.extend(nodes)
    return model, scales


def read_graph(model: Any, output: str, sample: Floats) -> Graph:
    """Return what a model with one input computes of one sample, float32 [1, ...], as `read_part` does."""
    return read_part(model, {model.graph.input[0].name: sample}, output)


def read_part(model: Any, given: Mapping[str, Array], output: str) -> Graph:
    """Return what a model computes of its inputs, as ONNX Runtime simplifies it.

    What is computed of constants is constant: the values are taken from a run. So are sizes, and tests for values that
    are no numbers: exporters write them around a softmax, whose rows they find none in.

    Args:
        model: ONNX model.
        given: Its inputs, of which the first is the graph's.
        output: Name of the output that is wanted.
    """
    import onnx

    simple = _simplified(model, given)
    graph = simple.graph
    constants: dict[str, Array] = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    values = _run(simple, given)
    nodes = []
    for node in graph.node:
        inputs, outputs = tuple(node.input), tuple(node.output)
        if node.op_type in SAMPLE_FREE or all(one in constants or not one for one in inputs):
            constants |= {one: values[one] for one in outputs if one}
            continue
        attributes = {one.name: _attribute(one) for one in node.attribute}
        nodes.append(Node(node.op_type, inputs, outputs, attributes))
    shapes = {one: value.shape for one, value in (values | constants | dict(given)).items()}
    return Graph(tuple(nodes), constants, shapes, next(iter(given)), output)


def _attribute(attribute: Any) -> Any:
    from onnx.helper import get_attribute_value

    value = get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def _simplified(model: Any, given: Mapping[str, Array]) -> Any:
    """Return a model as ONNX Runtime folds it before it looks at the processor: norms are in convolutions then."""
    import onnx
    import onnxruntime

    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "simple.onnx")
        for value in model.graph.input:
            sizes = given[value.name].shape if value.name in given else ()
            for dimension, size in zip(value.type.tensor_type.shape.dim, sizes, strict=False):
                if dimension.dim_param:
                    options.add_free_dimension_override_by_name(dimension.dim_param, size)
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def _run(model: Any, given: Mapping[str, Array]) -> dict[str, Array]:
    """Return every value of a graph."""
    import onnx

    from tuner.ort.session import open_session

    every = onnx.ModelProto()
    every.CopyFrom(model)
    del every.graph.output[:]
    names: Sequence[str] = [one for node in model.graph.node for one in node.output if one]
    every.graph.output.extend(onnx.ValueInfoProto(name=one) for one in names)
    session = open_session(every.SerializeToString(), 1, as_written=True)
    found = session.run(list(names), {one.name: given[one.name] for one in session.get_inputs()})
    return {one: np.asarray(value) for one, value in zip(names, found, strict=True)}


class RefusedError(BundleError):
    """An operator, or one with some settings, is not written.

    Attributes:
        what: Its name, and the settings.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"--tflite does not write {what}: export without --tflite and run the ONNX model, or take another network "
            "(docs/tflite.md has those that were tried)"
        )
        self.what = what


def refused(what: str) -> RefusedError:
    """Return the error for an operator, or one with such settings."""
    return RefusedError(what)
