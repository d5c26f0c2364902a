"""Heads in closed form of features that were computed once: a few are solved, and the best is written as a bundle."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.bundle.format import MODEL, PLAN, WEIGHTS, new_folder, seal
from tuner.bundle.info import BundleInfo, Section, TrainInfo, TrainKind
from tuner.bundle.replay import Replay
from tuner.bundle.scores import Scores
from tuner.distribution import installed_version
from tuner.errors import BundleError, TaskError
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.plan.info import BlockInfo, ModelInfo
from tuner.plan.parts import DataPlan, EditTraits, RuntimePlan, TailEdit
from tuner.plan.text import describe
from tuner.plan.toml import to_toml
from tuner.plan.trial import TrialPlan, normal_form
from tuner.process_memory import return_freed
from tuner.reading import kind_of
from tuner.results.scores.pareto import best
from tuner.ridge.choice import chosen
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import blocks, coded, step_of
from tuner.ridge.union import Domain, UnionHead, UnionSettings, union_head
from tuner.runtime.train.files import CHECK, REPLAY
from tuner.runtime.train.solved import SolvedFile
from tuner.store.codec import Codec
from tuner.targets.base import LEFT_OUT
from tuner.task.info import task_info
from tuner.task.mixing import mixed_indices
from tuner.task.task import Task
from tuner_instant.classifier import BIAS, INPUT, WEIGHT, Classifier
from tuner_instant.samples import Read, chosen_rows, features_of, task_of

#: Parts of the known samples that are mixed in; none is tried too.
SHARES = (0.5, 1.0)
#: Width of stored features, in bits; number of samples that the written model is checked on; and the logit of a class
#: that the given model does not know.
BITS, CHECKED, UNLIKELY = 16, 2, -1e9


@dataclass(frozen=True, slots=True)
class Head:
    """A head that was tried.

    Attributes:
        settings: What was solved.
        share: Part of the known samples that it was solved with.
        known: Number of these.
        values: Scores and seconds, as trials have them.
        bytes: Size of the head, and of the samples that a trainable bundle keeps for it.
    """

    settings: UnionSettings
    share: float
    known: int
    values: dict[str, float]
    bytes: int


@dataclass(frozen=True, slots=True)
class Instant:
    """A bundle that was made, and what was tried for it.

    Attributes:
        bundle: Its folder.
        sentence: What was solved, with which samples.
        labels: Its labels; the first `known` are those that the model knew.
        samples: Number of samples that were read, by partition.
        left_out: Names of those that cannot be read.
        heads: Heads that were tried; `picked` is the place of the one that was written.
        input: How samples become the model's input.
        notes: Lines on the data.
        seconds: Time from the beginning to the bundle.
    """

    bundle: str
    sentence: str
    labels: tuple[str, ...]
    known: int
    samples: dict[str, int]
    left_out: tuple[str, ...]
    heads: tuple[Head, ...]
    picked: int
    input: dict[str, Any]
    notes: tuple[str, ...]
    seconds: float


def instant(
    data: Path,
    out: Path,
    model: Path | None = None,
    known: Path | None = None,
    classes: Path | None = None,
    *,
    trainable: bool = False,
    step: Callable[[str, float, float], object] = lambda _what, _done, _of: None,
) -> Instant:
    """Solve for the head of an ONNX classifier, and write it as a bundle.

    Args:
        data: Folder of the user's photos, or a task file; see `task_of`.
        out: Folder of the bundle, which must be empty or not exist yet.
        model: ONNX file of the classifier.
        known: Folder of photos of classes that it knows.
        classes: File with their rows in its head.
        trainable: Whether the bundle can learn from further samples, and forget some.
        step: Called with how many samples were run.

    Raises:
        TunerError: The data or the model cannot be used, or the folder is in use.
    """
    began = time.monotonic()
    return_freed()
    if kind_of(out) not in {"nothing", "folder"} or (kind_of(out) == "folder" and any(out.iterdir())):
        raise TaskError(f"--out {out} is not empty: give another folder")
    task, classifier = task_of(data, model, known, classes)
    if not task.labelled or not task.targets.has_classes:
        raise TaskError(f"{data}: a head is solved for classes, and these samples have none: use tuner run")
    read, left_out = features_of(task, classifier, chosen_rows(task), step)
    samples = {name: len(labels) for name, (_, labels) in read.items()}
    heads = _Heads(task, classifier, read)
    return_freed()  # by the network and the threads that decoded
    tried = heads.tried(trainable=trainable)
    picked = heads.best_of(tried)
    with new_folder(out) as part:  # last, as a limit may end the process before
        info = heads.write(part, tried[picked], trainable=trainable)
    seen = info.sentence, info.labels, len(task.head_rows), samples, left_out, tried, picked, info.input.to_dict()
    return Instant(str(out), *seen, (*task.findings, *task.notes, *task.cautions), time.monotonic() - began)


class _Heads:
    """The heads of some samples, whose features are taken out of `read`: as codes, they take half of the memory."""

    def __init__(self, task: Task, classifier: Classifier, read: dict[str, Read]) -> None:
        self._task, self._classifier = task, classifier
        rows, features, outputs = task.head_rows, classifier.features, len(task.labels)
        if max(rows, default=0) >= classifier.outputs:
            raise TaskError(
                f"the known classes have rows up to {max(rows)}, but the model's head has {classifier.outputs}: give "
                "the file of their rows with --classes"
            )
        weight, bias = np.zeros((outputs, features)), np.zeros(outputs)
        if rows:
            given = classifier.head(rows)
            weight[: len(rows)], bias[: len(rows)] = given.weight, given.bias
        self._given, codec = LinearHead(weight, bias), Codec(BITS, (features,))
        none = np.zeros((0, features), np.float32), task.local.train.labels[:0]
        self._replay, self._check = (
            Replay(codec, codec.encode(values), labels)
            for values, labels in (read.get(name, none) for name in ("global.train", "global.val"))
        )
        read["global.train"] = self._replay.read(np.arange(len(self._replay))), self._replay.labels
        self._step = step_of(np.array([np.abs(one).max(initial=0.0) for one, _ in read.values()]))
        parts = {name: _domain(*read.pop(name), outputs, self._step) for name in list(read)}
        train, val, self._known = (parts.pop(name) for name in ("local.train", "local.val", "global.train"))
        self._local = train.added(val.codes, val.labels)
        self._train, self._val = (_rows(self._local, part) for part in (slice(len(train)), slice(len(train), None)))
        self._asked = parts
        side = task.input.size  # the first photo may be one that cannot be read
        self._shape = (3, side, side) if task.input.kind == "images" and side else task.input_shape
        self._untouched = self._scores_of_given() if len(self._check) else {}

    def tried(self, *, trainable: bool) -> tuple[Head, ...]:
        """Solve for heads with several numbers of known samples; leave-one-out says of which kind, and how."""
        union = chosen(self._train, self._known, UnionSettings())
        plans = [(replace(union, gate="none"), 0.0), *((union, share) for share in SHARES if len(self._known))]
        outputs, features = self._given.weight.shape
        heads = list[Head]()
        for settings, share in plans:
            return_freed()  # by what was solved before
            began, known = time.monotonic(), self._mixed(share)
            solved = union_head(self._given, self._train, known, settings)
            values = {"train_seconds": time.monotonic() - began, **self._scored(solved)}
            kept = BITS // 8 * features * (len(self._local) + len(known)) if trainable else 0
            heads.append(Head(settings, share, len(known), values, 4 * outputs * (features + 1) + kept))
        return tuple(heads)

    def best_of(self, heads: Sequence[Head]) -> int:
        """Return the place of the head that `tuner run` would pick of these."""
        samples = {"local": len(self._val), "global": len(self._check)}
        return best({at: one.values for at, one in enumerate(heads)}, self._untouched, samples) or 0

    def write(self, folder: Path, one: Head, *, trainable: bool) -> BundleInfo:
        """Write a bundle into a folder, check it, and return what it says of itself.

        Its head is solved for again with all local samples, those that judged it included.
        """
        task = self._task
        return_freed()
        head = union_head(self._given, self._local, self._mixed(one.share), one.settings).head
        self._classifier.write(folder / MODEL, head)
        save_file({WEIGHT: head.weight.astype(np.float32), BIAS: head.bias.astype(np.float32)}, folder / WEIGHTS)
        plan = self._plan(one)
        (folder / PLAN).write_text(to_toml(plan), encoding="utf-8")
        noise = np.random.default_rng(0).standard_normal((CHECKED, *self._shape), np.float32)
        try:
            written = Session(folder / MODEL, 1).run(noise, FEATURES, LOGITS)
        except BundleError as error:
            raise TaskError(f"{error}: export it with an open size of the batch (dynamic_shapes)") from None
        require_parity(
            "the written model", "numpy", largest_difference(written[1], head.scores(written[0]).astype(np.float32))
        )
        scores = {key: value for key, value in one.values.items() if key.startswith("local") and LEFT_OUT not in key}
        for partition, domain in (("global.val", "global"), ("local.test", "test")):
            if partition in self._asked:
                scores |= self._scores(domain, head, self._asked[partition])
        info = BundleInfo(
            name=task.name,
            labels=task.labels,
            input=task.input,
            input_shape=self._shape,
            loss=task.loss,
            made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            tuner=installed_version(),
            sentence=describe(plan),
            scores=Scores(one.values, self._untouched, scores, refit_samples=len(self._val)),
            train=self._write_samples(folder, one) if trainable else None,
            label_map=dict(task.label_map),
        )
        return seal(folder, info.to_dict())

    def _write_samples(self, folder: Path, one: Head) -> TrainInfo:
        """Write what the head is solved for again from, when samples are added or forgotten."""
        (folder / Section.TRAIN).mkdir(mode=0o700)
        replay = self._replay.select(mixed_indices(self._known.labels, one.share))
        SolvedFile(self._given, self._local.codes, self._local.labels, self._step, one.settings).save(folder)
        replay.save(folder / REPLAY)
        self._check.save(folder / CHECK)
        return TrainInfo(
            TrainKind.CLOSED_FORM,
            replay_samples=len(replay),
            check_samples=len(self._check),
            own_samples=len(self._local),
            bits=BITS,
            bytes=sum(path.stat().st_size for path in (folder / Section.TRAIN).iterdir()),
            weights=(WEIGHT, BIAS),
            cut=1,
        )

    def _plan(self, one: Head) -> TrialPlan:
        """Return the plan: a network of two blocks, of which the second is solved for."""
        task, weights, reads = self._task, self._given.weight, self._classifier.reads
        sizes = {"local_train": len(self._train), "local_val": len(self._val), "global_val": len(self._check)}
        info = replace(task_info(task), **sizes)
        network = BlockInfo("network", INPUT, self._shape, 0, 0, 0)
        head = BlockInfo("head", reads, weights.shape[1:], 2 * weights.size, weights.size + len(weights), 0)
        share = len(self._known) / max(1, sum(info.global_per_class)) * one.share
        return normal_form(
            TrialPlan(
                ModelInfo(task.model.name, info.fingerprint, len(task.labels), (network, head)),
                info,
                DataPlan(share, refit=True),
                split=1,
                shape=(TailEdit.of("closed-form", EditTraits(solves=True)),),
                runtime=RuntimePlan(backend="onnxruntime"),
            )
        )

    def _scored(self, solved: UnionHead) -> dict[str, float]:
        values = self._scores("local", solved.head, self._val)
        both = np.concatenate([solved.head.scores(self._val.features), solved.left_out]).astype(np.float32)
        every = np.concatenate([self._val.labels, self._train.labels])
        values |= self._task.targets.scores(LEFT_OUT, both, every, labelled=True)
        return values | (self._scores("global", solved.head, self._asked["global.val"]) if len(self._check) else {})

    def _scores(self, domain: str, head: LinearHead, samples: Domain) -> dict[str, float]:
        logits = head.scores(samples.features).astype(np.float32)
        return self._task.targets.scores(domain, logits, samples.labels, labelled=True)

    def _scores_of_given(self) -> dict[str, float]:
        """Return the given model's accuracies: it knows the first rows only."""
        unknown = np.arange(len(self._given.bias)) >= len(self._task.head_rows)
        given = LinearHead(self._given.weight, np.where(unknown, UNLIKELY, self._given.bias))
        return self._scores("local", given, self._val) | self._scores("global", given, self._asked["global.val"])

    def _mixed(self, share: float) -> Domain:
        return _rows(self._known, mixed_indices(self._known.labels, share))


def _domain(features: Floats, labels: Labels, outputs: int, step: float) -> Domain:
    """Return samples as codes of 16 bits."""
    codes = np.empty(features.shape, np.int16)
    for rows in blocks(len(features)):
        codes[rows] = coded(features[rows], step)
    return Domain(codes, labels, outputs, step)


def _rows(samples: Domain, rows: RowNumbers | slice) -> Domain:
    return replace(samples, codes=samples.codes[rows], labels=samples.labels[rows])
