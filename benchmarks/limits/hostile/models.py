"""ONNX files that no bundle should hold, each with the reason it is hostile; made with onnx, or byte by byte."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

SHAPE = [1, 8, 8]
LABELS = 10
HUGE = 10**6


def plain(
    more: Sequence[Any] = (), constants: Sequence[TensorProto] = (), values: Sequence[Any] = (), **changes: Any
) -> ModelProto:
    """Return a linear model of the digits, with more nodes, constants and values in it."""
    weights = changes.pop("weights", np.full((64, LABELS), 0.01, np.float32))
    rows = changes.pop("input", helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", *SHAPE]))
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", LABELS])
    nodes = [helper.make_node("Flatten", ["input"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["logits"])]
    own = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph([*more, *nodes], "g", [rows], [out], [*own, *constants], value_info=list(values))
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, **changes)
    return made


def packed(model: ModelProto) -> bytes:
    """Return a model's bytes."""
    content: bytes = model.SerializeToString()
    return content


def numbers(name: str, *values: int) -> TensorProto:
    """Return a constant of whole numbers."""
    made: TensorProto = numpy_helper.from_array(np.array(values, np.int64), name)
    return made


def sized(operator: str, inputs: Sequence[str], *constants: TensorProto, **attributes: Any) -> bytes:
    """Return a model with a node that makes a large value of numbers in the file, which the logits need."""
    node = helper.make_node(operator, inputs, ["large"], **attributes)
    total = helper.make_node("ReduceSum", ["large"], ["total"], keepdims=0)
    model = plain([node, total], constants)
    model.graph.node[-1].output[0] = "raw"
    model.graph.node.append(helper.make_node("Add", ["raw", "total"], ["logits"]))
    return packed(model)


def outside(location: str, **entries: str) -> bytes:
    """Return a model whose weights are in another file."""
    model = plain()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return packed(model)


def changed(change: Callable[[ModelProto], object]) -> bytes:
    """Return the plain model after a change."""
    model = plain()
    change(model)
    return packed(model)


def _first(model: ModelProto) -> TensorProto:
    tensor: TensorProto = model.graph.initializer[0]
    return tensor


def _subgraph(operator: str, attribute: str) -> bytes:
    body = helper.make_graph([], "body", [], [])
    node = helper.make_node(operator, ["input"], ["other"])
    node.attribute.append(AttributeProto(name=attribute, type=AttributeProto.GRAPH, g=body))
    return packed(plain([node]))


def _typed(operator: str, domain: str = "", inputs: Sequence[str] = ("input",), **attributes: Any) -> bytes:
    return packed(plain([helper.make_node(operator, inputs, ["other"], domain=domain, **attributes)]))


def _squares() -> bytes:
    """A size that each of forty nodes squares."""
    nodes = [helper.make_node("Mul", [f"s{at}", f"s{at}"], [f"s{at + 1}"]) for at in range(40)]
    nodes.append(helper.make_node("ConstantOfShape", ["s40"], ["large"]))
    return packed(plain(nodes, [numbers("s0", 9, 9)]))


def _chain(operator: str, count: int, *more: str, **attributes: Any) -> bytes:
    """Return a model with a chain of nodes, each of which reads the one before twice, or a constant too."""
    nodes, value = list[Any](), "input"
    for at in range(count):
        nodes.append(helper.make_node(operator, [value, *(more or (value,))], [f"large{at}"], **attributes))
        value = f"large{at}"
    nodes.append(helper.make_node("ReduceSum", [value], ["total"], keepdims=0))
    kernel = numpy_helper.from_array(np.ones((1, 1, 4, 4), np.float32), "kernel")
    model = plain(nodes, [kernel, numbers("pads", *[0] * 6, 4096, 4096)])
    model.graph.node[-1].output[0] = "raw"
    model.graph.node.append(helper.make_node("Add", ["raw", "total"], ["logits"]))
    return packed(model)


def _loop() -> bytes:
    nodes = [helper.make_node("Add", ["b", "input"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    return packed(plain(nodes))


def _with(model: ModelProto, name: str, values: Sequence[Any]) -> None:
    getattr(model.graph if hasattr(model.graph, name) else model, name).extend(values)


VALUE, TENSOR = helper.make_tensor_value_info, helper.make_tensor
#: What is changed in the plain model, by the reason that this is hostile.
CHANGES: Mapping[str, Callable[[ModelProto], object]] = {
    "functions": lambda m: m.functions.add(name="f", domain="d"),
    "training graphs": lambda m: m.training_info.add(),
    "sparse values": lambda m: m.graph.sparse_initializer.add(),
    "a tensor of text": lambda m: m.graph.initializer.append(TENSOR("t", TensorProto.STRING, [1], [b"x"])),
    "a sequence as input": lambda m: m.graph.input.append(helper.make_tensor_sequence_value_info("s", 1, [1])),
    "dimensions larger than the values": lambda m: _first(m).dims.__setitem__(0, 10**12),
    "dimensions whose product overflows": lambda m: _first(m).dims.extend([2**31, 2**31, 4]),
    "negative dimensions": lambda m: _first(m).dims.__setitem__(0, -64),
    "fewer values than dimensions": lambda m: setattr(_first(m), "raw_data", b"\0" * 12),
    "more values than dimensions": lambda m: setattr(_first(m), "raw_data", b"\0" * 99999),
    "no values": lambda m: _first(m).ClearField("raw_data"),
    "two kinds of values": lambda m: _first(m).float_data.extend([1.0] * 640),
    "an unknown type": lambda m: setattr(_first(m), "data_type", 99),
    "a declared value of 10¹⁵ elements": lambda m: m.graph.value_info.append(VALUE("x", 1, [10**8, 10**7])),
    "1,100,000 nodes": lambda m: _with(m, "node", [helper.make_node("Relu", ["input"], ["r"])] * 220_000),
    "no logits": lambda m: setattr(m.graph.output[0], "name", "answers"),
    "no input": lambda m: m.graph.ClearField("input"),
}


#: Graphs that are small, and take gigabytes as they run.
GROWING: Mapping[str, bytes] = {
    "26 times Concat with itself": _chain("Concat", 26, axis=3),
    "an Einsum of five samples": _chain("Einsum", 1, *["input"] * 4, equation="nahw,nbij,nckl,ndmo,nepq->nhwijklmopq"),
    "ConvTranspose with strides of 4096, twice": _chain("ConvTranspose", 2, "kernel", strides=[4096, 4096]),
    "pads of 4096, nine times": _chain("Pad", 9, "pads"),
}


def models(canary: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each hostile file.

    Args:
        canary: Path from a bundle to a file outside it.
    """
    yield from ((name, changed(change)) for name, change in CHANGES.items())
    yield from ((name, packed(model)) for name, model in _made().items())
    yield from _packed(canary).items()
    yield from GROWING.items()


def _made() -> Mapping[str, ModelProto]:
    """Return models that are hostile by what they compute or hold."""
    cast = helper.make_node("Cast", ["input"], ["n"], to=TensorProto.INT64)
    return {
        "an input of 10¹² elements": plain(input=VALUE("input", TensorProto.FLOAT, ["batch", HUGE, HUGE])),
        "ConstantOfShape of the sample's values": plain([cast, helper.make_node("ConstantOfShape", ["n"], ["large"])]),
        "no graph": ModelProto(ir_version=9),
        "logits of another number of labels": plain(weights=np.ones((64, 3), np.float32)),
        "logits that are not numbers": plain(weights=np.full((64, LABELS), np.nan, np.float32)),
        "float64 weights": plain(weights=np.ones((64, LABELS))),
    }


def _packed(canary: str) -> Mapping[str, bytes]:
    """Return files that are hostile by their operators, their sizes, or their bytes."""
    whole = packed(plain())
    scales, kernel = (np.array([1, 1, 1e6, 1e6], np.float32), np.ones((1, 1, 1, 1), np.float32))
    ends = [numbers(name, value) for name, value in zip("abc", (0, HUGE**2, 1), strict=True)]
    return {
        "external data above the folder": outside(canary),
        "external data by an absolute path": outside("/etc/hostname"),
        "external data in the folder": outside("plan.toml", offset="0", length="2560"),
        "external data entries without a location": changed(
            lambda m: _first(m).external_data.add(key="location", value=canary)
        ),
        "operator of another domain": _typed("FusedConv", "com.microsoft"),
        "operator that nobody knows": _typed("Exfiltrate"),
        "operator of random numbers": _typed("RandomNormalLike"),
        "operator of text": _typed("StringNormalizer"),
        "operator that decodes images": _typed("ImageDecoder"),
        "If": _subgraph("If", "then_branch"),
        "Loop": _subgraph("Loop", "body"),
        "Scan": _subgraph("Scan", "body"),
        "a graph as an attribute of Relu": _subgraph("Relu", "body"),
        "ConstantOfShape of 10¹²": sized("ConstantOfShape", ["n"], numbers("n", HUGE, HUGE)),
        "ConstantOfShape of 40 squares": _squares(),
        "Expand to 10¹²": sized("Expand", ["one", "n"], numbers("one", 1), numbers("n", HUGE, HUGE)),
        "Tile by 10¹²": sized("Tile", ["one", "n"], numbers("one", 1, 1), numbers("n", HUGE, HUGE)),
        "Range to 10¹²": sized("Range", ["a", "b", "c"], *ends),
        "Pad by 10⁶": sized("Pad", ["input", "n"], numbers("n", *([0, 0, HUGE, HUGE] * 2))),
        "Resize by 10⁶": sized("Resize", ["input", "", "s"], numpy_helper.from_array(scales, "s")),
        "OneHot of 10¹¹": sized("OneHot", ["i", "n", "v"], numbers("i", 1), numbers("n", 10**11), numbers("v", 0, 1)),
        "Conv with pads of 10⁸": sized("Conv", ["input", "k"], numpy_helper.from_array(kernel, "k"), pads=[10**8] * 4),
        "AveragePool with a kernel of 10⁸": _typed("AveragePool", kernel_shape=[10**8] * 2, pads=[10**7] * 4),
        "nodes in a circle": _loop(),
        "two graphs, merged by who reads them": whole * 2,
        "text that is not UTF-8": whole.replace(b"MatMul", b"Mat\xff\xfel"),
        "a graph that ends too early": whole[: len(whole) // 2],
        "a length beyond the file": b"\x3a\xff\xff\xff\xff\x7f" + whole,
        "a number without an end": b"\xff" * 200,
        "groups in groups": b"\x0b" * 100_000,
        "an unknown field": whole + b"\xfa\x01\x01x",
        "text instead of a model": b"not a model at all\n" * 20,
        "nothing": b"",
        "graphs in graphs in graphs": _nested(),
    }


def _nested() -> bytes:
    graph = GraphProto(name="deepest")
    for _ in range(25):
        node = helper.make_node("If", ["input"], ["x"])
        node.attribute.append(AttributeProto(name="then_branch", type=AttributeProto.GRAPH, g=graph))
        graph = GraphProto(name="g", node=[node])
    return packed(plain(list(graph.node)))
