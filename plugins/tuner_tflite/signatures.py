"""A bundle's training as signatures of one TFLite file: `train`, `infer`, `save`, `restore`, and `features`.

Weights and the optimiser's state are variables, which all signatures of an interpreter share. A graph of its own gives
them their first values, when the first of the signatures runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from tuner.arrays import Array, Floats, Labels
from tuner.bundle.format import MODEL, WEIGHTS
from tuner.bundle.tensors import read_tensors
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.ort.training_step import StepSession
from tuner.runtime.train.files import STEP
from tuner_tflite.file import Signature
from tuner_tflite.graph import Graph, between, read_graph, read_part
from tuner_tflite.interpreter import COUNT, KEPT, LOSS, Training, TrainingSteps, number_type, shape_of
from tuner_tflite.layout import Values
from tuner_tflite.model import TfliteModel, activated
from tuner_tflite.operators.convert import convert
from tuner_tflite.write import Interface, finish, float_model

#: What initialisers of ``model.onnx`` are called that a tail trains, before their names in the step.
TAIL = "tail."
INPUT = "input"
#: Java refuses to run a signature without inputs.
UNUSED = "unused"


def compare(
    training: Training, content: bytes, features: Floats, labels: Sequence[Labels], rate: float
) -> tuple[float, float, float]:
    """Train by a file and by ONNX Runtime alike.

    Args:
        training: The training.
        content: The file.
        features: A batch that is trained on again and again, float32 [batch, ...].
        labels: Labels of each step.
        rate: Learning rate.

    Returns:
        The largest relative difference of losses, and the seconds of a step in LiteRT and in ONNX Runtime.
    """
    steps = TrainingSteps(training, content, np.random.default_rng(0))
    weights = read_tensors(training.folder / WEIGHTS, finite=False)
    session = StepSession(training.folder / STEP, weights, noise=np.random.default_rng(0))
    difference, seconds = 0.0, []
    for numbers in labels:
        begun = perf_counter()
        ours = steps.step(features, numbers, rate)
        turned = perf_counter()
        theirs = session.step(features, numbers, rate)
        seconds.append((turned - begun, perf_counter() - turned))
        difference = max(difference, abs(ours - theirs) / abs(theirs))
    mine, others = np.median(seconds, axis=0)
    return difference, float(mine), float(others)


def signatures(training: Training, face: Interface, sample: Floats, *, frozen: bool) -> list[Signature]:
    """Return the models of a file.

    Args:
        training: What is trained.
        face: What a program gives and reads.
        sample: A normalised sample, float32 [1, ...].
        frozen: Whether there are blocks before what trains.

    Raises:
        BundleError: An operator is not one that is written.
    """
    around = [_infer(training, face, sample, frozen=frozen)]
    if frozen or face.takes_pixels:
        around.append(_features(training, face, sample, frozen=frozen))
    return training_signatures(training, around)


def training_signatures(training: Training, others: Sequence[Signature]) -> list[Signature]:
    """Return the models of a file that trains, among them others, which may read its variables."""
    found = [_train(training), *others, _save(training), _restore(training)]
    first = TfliteModel()
    variables = _Variables(first, training.first)
    for name, value in training.first.items():
        variables.assign(name, first.constant(value, name))
    called = [_called_once(one, len(found)) for one in found]
    return [*called, Signature("", first, {}, {})]


class _Variables:
    """The variables, as one model reads and writes them."""

    def __init__(self, model: TfliteModel, first: Mapping[str, Array]) -> None:
        self._model, self._first = model, first
        self._handles: dict[str, int] = {}

    def read(self, name: str) -> int:
        """Return a variable's tensor."""
        return self._model.add("READ_VARIABLE", (self._handle(name),), self._first[name].shape, name)

    def assign(self, name: str, tensor: int) -> None:
        """Give a variable another value."""
        self._model.act("ASSIGN_VARIABLE", (self._handle(name), tensor))

    def _handle(self, name: str) -> int:
        if name not in self._handles:
            self._handles[name] = self._model.add(
                "VAR_HANDLE", (), (), name, dtype="resource", container=b"", sharedName=name.encode()
            )
        return self._handles[name]


def _called_once(own: Signature, number: int) -> Signature:
    """Return a signature that first has the variables initialised by the graph of a number, if that was not done."""
    if not any(one.kind == "VAR_HANDLE" for one in own.model.operators):
        return own
    begun = TfliteModel(own.model.tensors, [], own.model.input, own.model.output)
    begun.act("CALL_ONCE", (), initSubgraphIndex=number)
    begun.operators.extend(own.model.operators)
    return replace(own, model=begun)


def _train(training: Training) -> Signature:
    """One step: a batch and a rate to the loss; the variables become what the step gives them."""
    import onnx

    model = onnx.load(training.folder / STEP)
    layout, sizes = training.layout, {value.name: _sizes(value) for value in model.graph.input}
    ports = [port for port in layout.inputs if port.name in sizes]
    given = {port.name: np.zeros(sizes[port.name], port.dtype) for port in ports}
    updates = {output: name for output, name in layout.updates.items() if name in training.first}
    graph = _needed(read_part(model, given, LOSS), [LOSS, *updates])
    values = Values(graph)
    variables, inputs = _Variables(values.model, training.first), {}
    for port in ports:
        if port.name in training.first:
            tensor = variables.read(port.name)
            if port.kind == COUNT:
                one = values.model.constant(np.ones(1, np.float32))
                tensor = values.model.add("ADD", (tensor, one), shape_of(port), port.name)
                variables.assign(port.name, tensor)
        elif port.kind in KEPT:
            continue
        else:
            tensor = inputs[port.name] = values.model.tensor(port.name, shape_of(port), number_type(port))
        values.put(port.name, values.reshaped(tensor, sizes[port.name]))
    convert(graph, values)
    values.model.output = values.get(LOSS)
    for output, name in updates.items():
        variables.assign(name, values.reshaped(values.get(output), training.first[name].shape))
    return Signature("train", activated(values.model), inputs, {LOSS: values.model.output})


def _infer(training: Training, face: Interface, sample: Floats, *, frozen: bool) -> Signature:
    """One sample's features to its answer, by what trains."""
    begin = FEATURES if frozen else INPUT
    model = between(training.folder / MODEL, [begin, INPUT] if frozen else [INPUT], LOGITS)
    held = {f"{TAIL}{name}": value for name, value in training.first.items()}
    given = {begin: Session(training.folder / MODEL, 1).features(sample) if frozen else sample, INPUT: sample}
    given |= {name: held[name] for name in _as_inputs(model, held)}
    graph = _needed(read_part(model, given, LOGITS), [LOGITS])
    values = Values(graph)
    variables = _Variables(values.model, training.first)
    tensor = values.model.input = values.model.tensor(INPUT, given[begin].shape)
    values.put(begin, tensor)
    for name in given:
        if name.startswith(TAIL):
            values.put(name, variables.read(name.removeprefix(TAIL)))
    convert(graph, values)
    model = finish(values, graph, face)
    return Signature("infer", model, {INPUT: model.input}, {"answer": model.output})


def _save(training: Training) -> Signature:
    """All variables."""
    model = TfliteModel()
    variables, unused = _Variables(model, training.first), model.tensor(UNUSED, (1,))
    return Signature("save", model, {UNUSED: unused}, {name: variables.read(name) for name in training.first})


def _restore(training: Training) -> Signature:
    """All variables, from what `save` gave."""
    model = TfliteModel()
    variables = _Variables(model, training.first)
    inputs = {name: model.tensor(name, value.shape) for name, value in training.first.items()}
    for name, tensor in inputs.items():
        variables.assign(name, tensor)
    return Signature("restore", model, inputs, {})


def _features(training: Training, face: Interface, sample: Floats, *, frozen: bool) -> Signature:
    """One sample to its features: what `train` and `infer` take, as the bundle stores it."""
    graph = Graph((), {}, {INPUT: sample.shape}, INPUT, INPUT)
    if frozen:
        graph = read_graph(between(training.folder / MODEL, [INPUT], FEATURES), FEATURES, sample)
    model = float_model(graph, replace(face, ending=""))
    return Signature(FEATURES, model, {"sample": model.input}, {FEATURES: model.output})


def _as_inputs(model: Any, names: Mapping[str, Array]) -> Iterator[str]:
    """Make initialisers of a model inputs; yield their names."""
    from onnx import helper

    others = []
    for held in model.graph.initializer:
        if held.name in names:
            model.graph.input.append(helper.make_tensor_value_info(held.name, held.data_type, held.dims))
            yield held.name
        else:
            others.append(held)
    del model.graph.initializer[:]
    model.graph.initializer.extend(others)


def _needed(graph: Graph, outputs: list[str]) -> Graph:
    """Return a graph without the nodes that no output needs."""
    needed, nodes = set(outputs), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes[::-1]))


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
