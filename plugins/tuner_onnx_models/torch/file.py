"""An ONNX file that a user names as the model: read, checked as foreign data, and made ready for any number of samples.

It is checked by its bytes before ONNX Runtime sees it, by the rules that bundles obey, as it becomes a part of one. The
values of a large model may be in other files, which must be in its folder.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, load_model_from_string, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from tuner.bundle.onnx_check import OPERATORS, check_content
from tuner.errors import BundleError, TaskError, nearest, text_of
from tuner.reading import open_regular

#: ONNX's own operators; the second name is the older one.
DOMAINS = frozenset({"", "ai.onnx"})
#: Place of the input that says whether a dropout is on.
_MODE = 2


@dataclass(frozen=True, slots=True, eq=False)
class OnnxFile:
    """A checked file.

    Attributes:
        path: Where it was.
        model: Its content, with all values; the number of samples is free, and values have no declared shapes.
        input: Name of the input that takes the samples.
        sizes: The input's sizes without the number of samples; None where a size is free.
        batch: Number of samples that the file declares; 1 where it is free.
        outputs: Number of axes of each output by its name; None where the file does not say it.
    """

    path: Path
    model: ModelProto
    input: str
    sizes: tuple[int | None, ...]
    batch: int
    outputs: Mapping[str, int | None]

    @property
    def graph(self) -> GraphProto:
        """The graph."""
        return self.model.graph


def read(path: Path, wanted_input: str | None = None) -> OnnxFile:
    """Read and check a file.

    Args:
        path: The ONNX file.
        wanted_input: Name of the input that takes the samples, where there are several.

    Raises:
        TaskError: It is no ONNX file that can be trained, with the reason.
    """
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise TaskError(f"model.weights: {path} cannot be read ({error.strerror or error})") from None
    try:
        model = load_model_from_string(content)
    except Exception:  # noqa: BLE001 - of the library that reads messages
        raise TaskError(f"model.weights: {path} is not an ONNX file: give one that ends in .onnx and is one") from None
    if not model.graph.node:
        raise TaskError(f"model.weights: {path} is not an ONNX file with a graph of operators: export it again")
    _require_known_operators(path, model.graph)
    _require_evaluation(path, model.graph)
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(model.graph)):
        _load_outside_values(path, model.graph)
        content = model.SerializeToString()
    try:
        check_content(content)
    except BundleError as error:
        raise TaskError(f"model.weights: {path}: {error}") from None
    return _with_free_batch(path, model, wanted_input)


def _require_known_operators(path: Path, graph: GraphProto) -> None:
    """Refuse operators that no exported bundle could have; those of functions, whose own graphs are refused later."""
    for node in graph.node:
        if node.domain not in DOMAINS or node.op_type not in OPERATORS:
            operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            raise TaskError(
                f"model.weights: {path}: the node {name_of(node)!r} is the operator {operator!r}, which is not an "
                "operator of ONNX's own that gives tensors of tensors: export the model without it"
            )


def _require_evaluation(path: Path, graph: GraphProto) -> None:
    """Refuse nodes that do what they do in training: norms of each batch, and dropout that is on.

    Raises:
        TaskError: There is such a node.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {node.output[0]: value.t for node in graph.node for value in node.attribute if value.name == "value"}
    for node in graph.node:
        is_norm = node.op_type == "BatchNormalization"
        trains = any(value.name == "training_mode" and value.i for value in node.attribute)
        if is_norm and (trains or len([name for name in node.output if name]) > 1):
            what = "normalises by each batch"
        elif node.op_type == "Dropout" and _is_true(constants.get(node.input[2] if len(node.input) > _MODE else "")):
            what = "drops values at random"
        else:
            continue
        raise TaskError(
            f"model.weights: {path} was exported in training mode: the node {name_of(node)!r} {what}: export it again "
            "after model.eval(), and without training= or with training=TrainingMode.EVAL"
        )


def _is_true(tensor: TensorProto | None) -> bool:
    return tensor is not None and bool(numpy_helper.to_array(tensor).any())


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def _load_outside_values(path: Path, graph: GraphProto) -> None:
    """Read values from files in the model's own folder.

    Raises:
        TaskError: A file is elsewhere, is missing, or is too short.
    """
    for tensor in _tensors(graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        file = path.parent / location
        if not location or Path(location).name != location or file.is_symlink():
            raise TaskError(
                f"model.weights: {path} has values in {location!r}, which must be a file in the same folder: "
                "export it again"
            )
        if not file.is_file():
            raise TaskError(
                f"model.weights: {path} has values in {location!r}, which is not in its folder: copy it there, or "
                "export the model to one file"
            )
        try:
            load_external_data_for_tensor(tensor, str(path.parent))
        except Exception as error:
            raise TaskError(
                f"model.weights: the values of {tensor.name!r} cannot be read from {file} ({text_of(error)}): copy the "
                "file again"
            ) from error
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _with_free_batch(path: Path, model: ModelProto, wanted: str | None) -> OnnxFile:
    """Let a model take any number of samples by the input that is theirs.

    Raises:
        TaskError: It is not clear which input that is, or it takes no float32.
    """
    graph = model.graph
    held = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in held}
    if wanted is not None and wanted not in inputs:
        raise TaskError(
            f"model.input: {path} has no input {wanted!r}{nearest(wanted, inputs)}: it has {', '.join(inputs)}"
        )
    if wanted is None and len(inputs) != 1:
        raise TaskError(
            f"model.weights: {path} has {len(inputs)} inputs ({', '.join(inputs)}): name the one that takes the "
            "samples as model.input"
        )
    name = wanted or next(iter(inputs))
    tensor = inputs[name].type.tensor_type
    if tensor.elem_type != TensorProto.FLOAT:
        kind = TensorProto.DataType.Name(tensor.elem_type).lower()
        raise TaskError(f"model.weights: the input {name!r} of {path} takes {kind}, must be float32: export it so")
    first, *rest = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim] or [None]
    del graph.value_info[:]
    outputs = {value.name: _rank(value.type.tensor_type) for value in graph.output}
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    sizes = ["batch", *(size or f"d{at}" for at, size in enumerate(rest))]
    free = helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
    inputs[name].CopyFrom(free)
    return OnnxFile(path, model, name, tuple(size or None for size in rest), first or 1, outputs)


def _rank(tensor: TypeProto.Tensor) -> int | None:
    return len(tensor.shape.dim) if tensor.HasField("shape") else None


def name_of(node: NodeProto) -> str:
    """Return what messages call a node: its name, or that of its first output."""
    return str(node.name or next(iter(node.output), node.op_type))


def opset_of(model: ModelProto) -> int:
    """Return the version of ONNX's operators that a model uses."""
    return int(max(entry.version for entry in model.opset_import if entry.domain in DOMAINS))


def needed_nodes(graph: GraphProto, outputs: Sequence[str]) -> list[NodeProto]:
    """Return the nodes that some values depend on, in order."""
    needed, nodes = set(outputs), []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    return nodes[::-1]
