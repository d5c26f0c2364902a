"""Write a bundle's TFLite file, and compare its answers: entry points of the group `tuner.questions`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.torch.clock import in_turns
from tuner.backends.torch.export.check import CHECK_BATCH, scored_partitions
from tuner.backends.torch.export.trainable.step_check import STEPS, TOLERANCE
from tuner.backends.torch.export.whole import Parts, loaded_tail
from tuner.backends.torch.features.int8 import calibration_batches
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.onnx.quantise import part_of
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import MODEL
from tuner.bundle.info import Section
from tuner.errors import BundleError
from tuner.metrics import percent
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import LOGITS, Session
from tuner.plan.trial import TrialPlan
from tuner.runtime.train.files import ADAPTERS, STEP
from tuner.task import Samples, Task
from tuner.training.schedule import batches_of
from tuner.units import format_bytes
from tuner_tflite.devices import fitted
from tuner_tflite.file import file_of, to_bytes
from tuner_tflite.graph import Graph, RefusedError, read_graph, refused, without_quantisation
from tuner_tflite.interpreter import TRAINS, Interpreter, Training, runners
from tuner_tflite.model import Scale, TfliteModel
from tuner_tflite.quantise import calibrated, quantised, with_scales
from tuner_tflite.signatures import compare, signatures
from tuner_tflite.write import Interface, description, float_model, interface, label_lines

#: What makes probabilities of logits, by the ONNX operator that does.
ENDINGS = {"Softmax": "SOFTMAX", "Sigmoid": "LOGISTIC", "Identity": ""}
#: How whole numbers stand for pixels.
PIXELS = Scale((1.0,), -128)
#: Folder in the bundle's, and the files in it.
FOLDER, FILE, LABELS, ABOUT, REPORT = "tflite", "model.tflite", "labels.txt", "model.json", "report.txt"
#: Number of steps that LiteRT's losses are compared in with ONNX Runtime's.
COMPARED_STEPS = 20


def require_operators(opened: OpenTask, plan: TrialPlan, weights: Path, device: str | None) -> None:
    """Refuse a model before it is refitted, which changes its weights alone.

    Raises:
        BundleError: An operator is not written, or a microcontroller has none; or a label has a line break.
    """
    label_lines(opened.task.labels)
    own = opened.described_by(plan)
    prefix = own.model.prefix(plan.split) if plan.split else nn.Identity()
    parts = Parts(prefix, loaded_tail(own, plan, weights), with_features=False).eval()
    sample = own.task.batch(own.task.local.val, [0])
    with TemporaryDirectory() as folder:
        write_onnx(parts, torch.from_numpy(np.concatenate([sample, sample])), Path(folder) / MODEL, [LOGITS])
        graph = read_graph(part_of(Path(folder) / MODEL, [LOGITS]), LOGITS, sample)
    model = float_model(graph, _interface(own.task, sample))
    if device == "micro":
        fitted(model, device)


def write(
    opened: OpenTask, plan: TrialPlan, folder: Path, kind: str, most_loss: float, device: str | None, *, test: bool
) -> None:
    """Write the folder ``tflite`` next to a bundle's ONNX model: the model, its labels, and how the two compare.

    Args:
        opened: The task, with the samples that calibrate and compare.
        plan: The bundle's plan.
        folder: The bundle's folder.
        kind: One of `tuner_tflite.asked.KINDS`.
        most_loss: Share that an accuracy may fall by. Where int8 throughout loses more, weights alone are in int8.
        device: Device that the file is for, which then has whole numbers throughout; None for any with LiteRT.
        test: Whether test samples are compared too.

    Raises:
        BundleError: An operator is not written, float32 answers otherwise than the ONNX model, or int8 loses too much.
    """
    names = label_lines(opened.task.labels)
    own = opened.described_by(plan)
    task = (own if test else own.without_test()).task
    sample = task.batch(task.local.val, [0])
    whole, scales = without_quantisation(part_of(folder / MODEL, [LOGITS]))
    graph, face = read_graph(whole, LOGITS, sample), _interface(task, sample)
    model = float_model(graph, face)
    about = partial(description, task.labels, face, kind)
    content, note = to_bytes(model, about(model)), ""
    if kind == "float32":
        compared = _compared(task, folder / MODEL, content, face)
        require_parity("LiteRT", "ONNX Runtime", max(own.difference for own in compared.values()))
    elif scales:
        model = with_scales(model, named(scales, graph, face), kind)
        content = to_bytes(model, about(model))
        compared = _compared(task, folder / MODEL, content, face)
        if last := _loss(compared, most_loss):
            raise BundleError(f"--tflite {kind} {last}, more than --int8-loss {100 * most_loss:g}: allow more")
        note = "it computes with the numbers of the bundle, and in float32 what the bundle computes in float32"
    else:
        batches = [face.raw(batch) for batch in calibration_batches(task)]
        count, given = sum(map(len, batches)), model
        ranges = calibrated(model, content, batches, count, pixels=face.takes_pixels)
        for weights_only in (False, True) if device is None else (False,):
            model = quantised(given, ranges, kind, weights_only=weights_only)
            content = to_bytes(model, about(model))
            compared = _compared(task, folder / MODEL, content, face)
            if not (last := _loss(compared, most_loss)):
                break
            note = note or f"only the weights are in int8, all is computed in float32: int8 throughout {last}"
        if last:
            way = f"allow more, or {'take --tflite float32' if device is None else 'leave out --for'}"
            raise BundleError(f"--tflite {kind} {last}, more than --int8-loss {100 * most_loss:g}: {way}")
    fit = [] if device is None else fitted(model, device)
    before, after = Session(folder / MODEL, 1), Interpreter(content)
    runs = [partial(before.logits, sample), partial(after.answers, face.raw(sample))]
    seconds = [median(own) for own in in_turns(runs)]
    target = folder / FOLDER
    target.mkdir()
    (target / FILE).write_bytes(content)
    (target / LABELS).write_text(names, encoding="utf-8")
    sizes = [(folder / MODEL).stat().st_size, len(content)]
    (target / ABOUT).write_text(about(model), encoding="utf-8")
    lines = [*_lines(compared, kind, model, sizes, seconds, note), *fit]
    if (folder / Section.TRAIN).is_dir():
        lines.append(_training(task, plan, folder, face, kind, about(model)))
    (target / REPORT).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _training(task: Task, plan: TrialPlan, folder: Path, face: Interface, kind: str, about: str) -> str:
    """Write the file that trains, if it can be, and return what is said of it."""
    name = Path(TRAINS).name
    if kind != "float32":
        return f"  no {name}, which comes with --tflite float32"
    if not (folder / STEP).is_file():
        return f"  no {name}: a head in closed form has no training step; --c writes one that learns in C"
    try:
        content, difference, seconds = _trained(task, plan, folder, face, about)
    except RefusedError as error:
        return f"  no {name}: --tflite does not write {error.what}; train by train/step.onnx, or pick another trial"
    (folder / TRAINS).write_bytes(content)
    mine, others = (f"{1e3 * own:.3g} ms" for own in seconds)
    return (
        f"  {name}: {format_bytes(len(content))}, {mine} a step (ONNX Runtime: {others}); losses of {COMPARED_STEPS} "
        f"steps differ by {difference:.1g}"
    )


def _trained(
    task: Task, plan: TrialPlan, folder: Path, face: Interface, about: str
) -> tuple[bytes, float, tuple[float, float]]:
    """Return a file that trains, by how much its losses differ from ONNX Runtime's, and the seconds of both's steps."""
    if (folder / ADAPTERS).exists():
        raise refused("adapters, whose weights are merged after a training")
    training, samples, recipe = Training.of(folder), task.local.train, plan.recipe
    batch = task.batch(samples, np.resize(np.arange(len(samples)), recipe.batch_size))
    content = file_of(signatures(training, face, batch[:1], frozen=plan.split > 0), about)
    session = Session(folder / MODEL, 1)
    features = session.features(batch) if plan.split else batch
    answer = runners(content)["infer"](input=features[:1])["answer"]
    logits = session.logits(batch[:1])
    theirs = task.targets.probabilities(logits) if face.ending else logits
    require_parity("LiteRT", "ONNX Runtime", largest_difference(answer, theirs.astype(np.float32)))
    generator = np.random.default_rng(1)
    labels = [task.targets.random(generator, recipe.batch_size, len(task.labels)) for _ in range(COMPARED_STEPS)]
    difference, *seconds = compare(training, content, features, labels, STEPS[recipe.optimiser][1])
    if not difference <= TOLERANCE:
        raise refused(f"this training step: its losses differ by {difference:.2g} where {TOLERANCE:g} is allowed")
    return content, difference, (seconds[0], seconds[1])


def _interface(task: Task, sample: Floats) -> Interface:
    """Return what goes into a task's file, and what comes out."""
    own, ending = task.input, ENDINGS[task.targets.activation]
    return interface(own.kind, own.mean, own.std, sample.shape[1], ending)


def named(scales: Mapping[str, Scale], graph: Graph, face: Interface) -> dict[str, Scale]:
    """Return the scales of an ONNX model's values by the names that they have in the file."""
    if not face.ending:
        raise refused("the numbers of a bundle in int8, whose answers have no range")
    if (own := scales.get(graph.input)) is None:
        raise refused("a bundle in int8 whose first layer is in float32")
    return {**scales, **({"pixels": PIXELS, "normalised": own} if face.takes_pixels else {})}


@dataclass(frozen=True, slots=True)
class Compared:
    """The two models' answers to a partition; `same` is the share of equal classes, None where there is none."""

    samples: int
    before: float
    after: float
    same: float | None
    difference: float


def _compared(task: Task, onnx: Path, content: bytes, face: Interface) -> dict[str, Compared]:
    """Return how the answers compare on the samples that an export is scored on, by the accuracy's name."""
    original, written = Session(onnx), Interpreter(content)
    found = {}
    for name, samples in scored_partitions(task).items():
        logits, answers = _answers(task, samples, original, written, face)
        theirs = task.targets.probabilities(logits) if face.ending else logits
        same = task.targets.hits(answers, task.targets.answers(logits))
        before, after = (task.targets.score(own, samples.labels) for own in (logits, answers))
        difference = largest_difference(answers, theirs.astype(np.float32))
        found[name] = Compared(len(samples), before, after, None if same is None else float(np.mean(same)), difference)
    return found


def _answers(
    task: Task, samples: Samples, original: Session, written: Interpreter, face: Interface
) -> tuple[Floats, Floats]:
    """Return the ONNX model's logits and the TFLite model's answers, float32 [n, outputs] each."""
    parts = []
    for rows in batches_of(np.arange(len(samples)), CHECK_BATCH):
        batch = task.batch(samples, rows)
        parts.append((original.logits(batch), written.answers(face.raw(batch))))
    logits, answers = (np.concatenate(own) for own in zip(*parts, strict=True))
    return logits, answers


def _loss(compared: Mapping[str, Compared], most: float) -> str:
    """Return what a file in int8 loses where that is more than is allowed; nothing where it is not."""
    for name, own in compared.items():
        if not own.before - own.after <= most:
            return (
                f"lowers {name.replace('_', ' ')} by {100 * (own.before - own.after):.1f} points, from "
                f"{percent(own.before)} to {percent(own.after)} of {own.samples:,} samples"
            )
    return ""


def _lines(
    compared: Mapping[str, Compared],
    kind: str,
    model: TfliteModel,
    sizes: list[int],
    seconds: list[float],
    note: str,
) -> list[str]:
    """Return what is said of a file; `note` is how it computes, where it is not in int8 throughout."""
    computed = [model.tensors[one.output].dtype for one in model.operators if one.kind != "DEQUANTIZE"]
    onnx, file = map(format_bytes, sizes)
    slow, fast = (f"{1e3 * own:.3g} ms" for own in seconds)
    lines = [f"TFLite, {kind}: {file} (ONNX: {onnx}), {fast} a sample on one thread (ONNX Runtime: {slow})"]
    if note:
        lines.append(f"  {note}")
    elif kind != "float32" and (floats := computed.count("float32")):
        lines.append(f"  {floats} of {len(computed)} operators stay in float32: they have no kernel in int8")
    for name, own in compared.items():
        same = "" if own.same is None else f", the same class for {percent(own.same)}"
        lines.append(
            f"  {name.replace('_', ' ')} {percent(own.before)} → {percent(own.after)} of {own.samples:,} samples{same}"
        )
    return lines
