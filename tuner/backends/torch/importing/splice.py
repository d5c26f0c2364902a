"""Nodes of an ONNX file as a file of their own, and back into an exported one."""

from pathlib import Path

from onnx import ModelProto, NodeProto, ValueInfoProto, helper, load_model, load_model_from_string, version_converter

from tuner.backends.torch.importing.file import OnnxFile, needed_nodes, opset_of
from tuner.backends.torch.importing.frozen import CONTENTS, DOMAIN, VALUE


def extracted(file: OnnxFile, value: str) -> bytes:
    """Return the part of a file that gives a value, as a file."""
    nodes = needed_nodes(file.graph, [value])
    read = {name for node in nodes for name in node.input}
    held = [tensor for tensor in file.graph.initializer if tensor.name in read]
    inputs = [entry for entry in file.graph.input if entry.name == file.input]
    last = helper.make_node("Identity", [value], [VALUE])
    graph = helper.make_graph([*nodes, last], "frozen", inputs, [ValueInfoProto(name=VALUE)], held)
    model = helper.make_model(graph, opset_imports=file.model.opset_import, ir_version=file.model.ir_version)
    return bytes(model.SerializeToString())


def splice(path: Path) -> None:
    """Put the given nodes in the place of those that stand for them in a file.

    Raises:
        Exception: The given nodes cannot be expressed by the same version of ONNX's operators.
    """
    model = load_model(path)
    places = [node for node in model.graph.node if node.domain == DOMAIN]
    for place in places:
        given = load_model_from_string(CONTENTS[helper.get_node_attr_value(place, "digest").decode()])
        opset = max(opset_of(model), opset_of(given))
        model, given = (_in_opset(part, opset) for part in (model, given))
        _replace(model, given)
    kept = [entry for entry in model.opset_import if entry.domain != DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    path.write_bytes(model.SerializeToString())


def _in_opset(model: ModelProto, opset: int) -> ModelProto:
    return model if opset_of(model) == opset else version_converter.convert_version(model, opset)


def _replace(model: ModelProto, given: ModelProto) -> None:
    """Replace the first node that stands for others."""
    nodes = list(model.graph.node)
    at = next(index for index, node in enumerate(nodes) if node.domain == DOMAIN)
    ends = {given.graph.input[0].name: nodes[at].input[0], VALUE: nodes[at].output[0], "": ""}

    def renamed(node: NodeProto) -> NodeProto:
        copied = NodeProto()
        copied.CopyFrom(node)
        for names in (copied.input, copied.output):
            names[:] = [ends.get(name, f"{DOMAIN}/{name}") for name in names]
        return copied

    for tensor in given.graph.initializer:
        tensor.name = f"{DOMAIN}/{tensor.name}"
    model.graph.initializer.extend(given.graph.initializer)
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:at], *(renamed(node) for node in given.graph.node), *nodes[at + 1 :]])
