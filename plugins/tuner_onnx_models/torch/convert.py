"""An ONNX graph as a torch.fx graph of PyTorch's own modules, whose logits can be trained.

No library on PyPI does this for files of today: of eight networks of torchvision as PyTorch's two exporters write them,
onnx2torch 1.5.15 imports one, onnx2pytorch 0.6.0 five, for one sample and in a form that torch.fx cannot trace, and
onnx2fx 0.0.1 gives no modules that could be frozen, widened or folded. The forms here rest on ONNX Runtime: what does
not depend on the samples is read from a run of the file instead of being worked out.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from onnx import NodeProto
from torch import fx, nn

from tuner.arrays import Floats
from tuner.errors import TaskError, first_line, nearest
from tuner.ort.parity import TOLERANCE
from tuner.targets.base import ROUNDING
from tuner.task import Task
from tuner_onnx_models.torch import layers, operators
from tuner_onnx_models.torch.build import Build, Form, NoFormError
from tuner_onnx_models.torch.file import OnnxFile, name_of, opset_of, read
from tuner_onnx_models.torch.frozen import FrozenOnnx, extracted
from tuner_onnx_models.torch.values import Values

FORMS: dict[str, Form] = {**operators.FORMS, **layers.FORMS}
_LOGITS = "logits"
#: How a file is exported for any number of samples.
FREE = (
    "with a free number of samples, such as torch.onnx.export(model, (x,), FILE, dynamo=True, "
    'dynamic_shapes=({0: "samples"},))'
)
_ROWS, _MAPS = 2, 4  # dimensions of [n, classes] and [n, channels, height, width]


def imported(task: Task) -> tuple[fx.GraphModule, str]:
    """Import the file that a task names, and compare it with ONNX Runtime on some samples.

    Returns:
        The model in evaluation mode, which gives logits [n, classes]; and what became of the file, for people.

    Raises:
        TaskError: The file cannot be a model, or PyTorch computes something else; one line with the reason.
    """
    spec, count = task.model, len(task.local.train)
    samples = task.batch(task.local.train, sorted({0, count // 2, count - 1}))
    file = read(Path((spec.source or ("", ""))[1]), spec.input)
    order = _order(file, samples.shape[1:])
    given = samples if order is None else samples.transpose(0, *order)
    name, dropped, is_inner = _chosen(file, spec.output, task.targets.after_logits)
    if is_inner and task.targets.classes(task.head_rows) and not (spec.pretrain or spec.head):
        raise TaskError(
            f"model.output: the new head on {name!r} knows none of the global classes: leave [global] out, or give "
            "[model.pretrain]"
        )
    values = Values(file, name, given[:1])
    build, frozen = _built(file, values, order, may_end=is_inner)
    build.graph.output(_as_rows(build, file, name, len(task.labels), is_inner=is_inner))
    model = fx.GraphModule(build.modules, build.graph, "OnnxModel").eval()
    if not is_inner:
        _compare(file, model, values, samples, given)
    notes = f"{len(values.nodes) - frozen} of {len(values.nodes)} nodes as PyTorch"
    notes += ", those before them frozen in ONNX Runtime" if frozen else ""
    notes += ", channels last" if order is not None else ""
    notes += f", without the {' and '.join(dropped)} at its end" if dropped else ""
    notes += f", with a new head on {name!r}" if is_inner else ""
    return model, f"an ONNX file, {notes}"


def _order(file: OnnxFile, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the order of a sample's axes in which the file takes it, with channels last; None where it takes it so.

    Raises:
        TaskError: The file does not take such samples.
    """

    def fits(sizes: Sequence[int]) -> bool:
        return len(sizes) == len(file.sizes) and all(
            own in {None, size} for own, size in zip(file.sizes, sizes, strict=True)
        )

    if fits(shape):
        return None
    last = (*range(2, len(shape) + 1), 1)
    if len(shape) > 1 and fits([shape[axis - 1] for axis in last]):
        return last
    wanted = [size or "any" for size in file.sizes]
    raise TaskError(
        f"model.weights: {file.path} takes samples of shape {wanted}, but these are {list(shape)}: set [input] to what "
        "the model takes, or export it for this size"
    )


def _chosen(file: OnnxFile, wanted: str | None, droppable: frozenset[str]) -> tuple[str, list[str], bool]:
    """Return the name of the value that training ends with, what is dropped after it, and whether it is inner.

    Raises:
        TaskError: It is not clear which value that is.
    """
    makers = {name: node for node in file.graph.node for name in node.output}
    names = list(file.outputs)
    if wanted is not None and wanted not in names:
        if wanted not in makers:
            listed = ", ".join(names)
            raise TaskError(
                f"model.output: {file.path} has no value {wanted!r}{nearest(wanted, makers)}: it has the outputs "
                f"{listed}, and the values between its nodes"
            )
        return wanted, [], True
    fitting = [name for name in names if file.outputs[name] in {None, _ROWS}]
    single = names if len(names) == 1 else [_LOGITS] if _LOGITS in names else fitting
    if wanted is None and len(single) != 1:
        raise TaskError(
            f"model.weights: {file.path} has {len(names)} outputs ({', '.join(names)}): name the one with a score for "
            "each class as model.output"
        )
    name, dropped = wanted or single[0], []
    while name in makers and makers[name].op_type in droppable:
        dropped += [makers[name].op_type] if makers[name].op_type not in {"Identity", *ROUNDING} else []
        name = makers[name].input[0]
    return name, dropped, False


def _built(file: OnnxFile, values: Values, order: tuple[int, ...] | None, *, may_end: bool) -> tuple[Build, int]:
    """Return the graph up to its output, and the number of nodes that stay as they are.

    Where a node has no form, ONNX Runtime runs all nodes up to the next place where one value connects the parts.

    Args:
        file: The file.
        values: Its values.
        order: Order of a sample's axes in which the file takes it; None where it is that of the samples.
        may_end: Whether all nodes may stay as they are, as a new head follows.

    Raises:
        TaskError: There is no such place.
    """
    opset, frozen = opset_of(file.model), 0
    while True:
        build = Build(values, opset)
        start = build.graph.placeholder("x")
        start = start if order is None else build.call(torch.permute, start, (0, *order))
        value = _crossing(values, frozen)
        build.calls[value] = start
        if frozen:
            build.modules["frozen"] = FrozenOnnx(extracted(file, value), values.shapes[value][1:])
            build.calls[value] = build.graph.call_module("frozen", (start,))
        for at, node in enumerate(values.nodes[frozen:], frozen):
            try:
                _add(build, node)
            except Exception as error:  # noqa: BLE001 - a form may meet what it does not know
                reason = str(error) if isinstance(error, NoFormError) else first_line(error)
                frozen = _next_cut(file, values, at, reason, may_end=may_end)
                break
        else:
            return build, frozen


def _next_cut(file: OnnxFile, values: Values, at: int, reason: str, *, may_end: bool) -> int:
    """Return how many nodes stay as they are, if the one at a place must.

    Raises:
        TaskError: No single value connects them with the others.
    """
    node = values.nodes[at]
    if not values.free_batch:
        raise TaskError(
            f"model.weights: {file.path}: the node {name_of(node)!r} is the operator {node.op_type}, which cannot be "
            f"trained here ({reason}), and can stay frozen only if the number of samples is free: export it {FREE}"
        )
    last = len(values.nodes) + may_end
    cut = next((count for count in range(at + 1, last) if _crossing(values, count)), None)
    if cut is None:
        raise TaskError(
            f"model.weights: {file.path}: the node {name_of(node)!r} is the operator {node.op_type}, which cannot be "
            f"trained here ({reason}), and no single value leads from there to the outputs: name a value between the "
            "nodes as model.output, for a new head on it"
        )
    return cut


def _crossing(values: Values, count: int) -> str:
    """Return the one value that leads from the first nodes to the others; nothing where there are several."""
    before, after = values.nodes[:count], values.nodes[count:]
    read = {name for node in after for name in node.input} | {values.output}
    made = {values.input} if not count else {values.input, *(name for node in before for name in node.output)}
    crossing = [name for name in made & read if name in values.shapes]
    fits = len(crossing) == 1 and values.places_of_batch(crossing[0]) == (0,) and values.is_float(crossing[0])
    return crossing[0] if fits else ""


def _add(build: Build, node: NodeProto) -> None:
    if node.output[0] in build.merged:
        made = next(build.calls[name] for name in node.input if name in build.calls)
        build.calls[node.output[0]] = made
        return
    if node.op_type not in FORMS:
        raise NoFormError("it has no form in PyTorch")
    results = FORMS[node.op_type](build, node)
    for name, call in zip(node.output, [results] if isinstance(results, fx.Node) else results, strict=False):
        build.calls[name] = call


def _as_rows(build: Build, file: OnnxFile, name: str, rows: int, *, is_inner: bool) -> fx.Node:
    """Return what gives [n, classes] of a value: itself, or a new head on it.

    Raises:
        TaskError: It has other axes.
    """
    shape, value = build.shape(name), build.calls[name]
    if not is_inner and len(shape) >= _ROWS and all(size == 1 for size in shape[_ROWS:]):
        return value if len(shape) == _ROWS else build.call(torch.flatten, value, 1)
    if not is_inner:
        raise TaskError(
            f"model.weights: the output {name!r} of {file.path} has the shape {list(shape)}, must be [n, classes]: "
            "name another as model.output, or a value between its nodes, for a new head on it"
        )
    if len(shape) not in {_ROWS, _MAPS}:
        raise TaskError(
            f"model.output: {name!r} has the shape {list(shape)}, but a head is put on [n, channels] or [n, channels, "
            "height, width]: name another value"
        )
    pooled = value if len(shape) == _ROWS else build.call(torch.mean, value, (2, 3))
    head = nn.Linear(shape[1], rows)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    build.modules["new_head"] = head
    return build.graph.call_module("new_head", (pooled,))


def _compare(file: OnnxFile, model: nn.Module, values: Values, samples: Floats, given: Floats) -> None:
    """Run samples through both.

    Raises:
        TaskError: They differ.
    """
    wanted = torch.from_numpy(values.logits(given)).reshape(len(samples), -1)
    try:
        with torch.inference_mode():
            logits = model(torch.from_numpy(samples))
        difference = float((logits - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))
    except RuntimeError as error:
        raise TaskError(
            f"model.weights: {file.path} does not take {len(samples)} samples at a time ({first_line(error)}): export "
            f"it {FREE}"
        ) from error
    if not difference <= TOLERANCE:
        raise TaskError(
            f"model.weights: as PyTorch, {file.path} gives logits that differ by {difference:.2g} of the largest from "
            f"ONNX Runtime's, more than {TOLERANCE:g}: export it {FREE}"
        )
