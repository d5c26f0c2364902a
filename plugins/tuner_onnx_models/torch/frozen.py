"""The part of an ONNX file that has no form in PyTorch, as a module: ONNX Runtime runs it as it is."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, load_model, load_model_from_string, version_converter

from tuner.backends.torch.onnx.inference import OwnNodes
from tuner.errors import TaskError
from tuner.ort.session import open_session
from tuner_onnx_models.torch.file import OnnxFile, needed_nodes, opset_of

#: Domain and name of the operator that stands for the nodes in an export, and the name of what the nodes give.
DOMAIN, OPERATOR, VALUE = "tuner", "Frozen", "value"
#: Content of the files by its hash: an operator of PyTorch takes numbers and text only.
_CONTENTS: dict[str, bytes] = {}
#: Sessions by process, as none survives a fork, by threads and by file.
_SESSIONS: dict[tuple[int, int, str], Any] = {}


class FrozenOnnx(OwnNodes):
    """Runs nodes of a file, without gradients.

    Args:
        content: The nodes as a file; see `extracted`.
        shape: Shape of the value that they give, for one sample.

    Attributes:
        digest: Hash of the nodes and their weights.
        shape: The same.
    """

    def __init__(self, content: bytes, shape: Sequence[int]) -> None:
        super().__init__()
        self.digest, self.shape = hashlib.blake2b(content, digest_size=16).hexdigest(), list(shape)
        _CONTENTS[self.digest] = content

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the value, float32 [n, ...]; in an export, stand for the nodes until `put_into` puts them there."""
        if torch.onnx.is_in_onnx_export():
            operator, about = f"{DOMAIN}::{OPERATOR}", dict[str, Any](digest=self.digest)
            shape = (batch.shape[0], *self.shape)
            value: torch.Tensor = torch.onnx.ops.symbolic(
                operator, (batch,), about, dtype=batch.dtype, shape=shape, version=1
            )
            return value
        frozen: torch.Tensor = run_frozen(batch, self.digest, self.shape)
        return frozen

    def put_into(self, path: Path) -> None:
        """Put the nodes in the place of every operator that stands for some."""
        splice(path)


@torch.library.custom_op("tuner::frozen_onnx", mutates_args=())
def run_frozen(batch: torch.Tensor, digest: str, shape: Sequence[int]) -> torch.Tensor:
    """Run a file's nodes on a batch."""
    key = os.getpid(), torch.get_num_threads(), digest
    if key not in _SESSIONS:
        _SESSIONS[key] = open_session(Path(digest), key[1], content=_CONTENTS[digest], error=TaskError)
    session = _SESSIONS[key]
    (value,) = session.run([VALUE], {session.get_inputs()[0].name: batch.detach().contiguous().numpy()})
    return torch.from_numpy(value).reshape(len(batch), *shape)


@run_frozen.register_fake
def _(batch: torch.Tensor, digest: str, shape: Sequence[int]) -> torch.Tensor:  # noqa: ARG001 - as the operator has it
    return batch.new_empty((batch.shape[0], *shape))


run_frozen.register_autograd(lambda _, __: (None, None, None))  # nothing before it trains


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
    for place in [node for node in model.graph.node if node.domain == DOMAIN]:
        given = load_model_from_string(_CONTENTS[helper.get_node_attr_value(place, "digest").decode()])
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
