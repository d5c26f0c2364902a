"""Heads in closed form of features that were computed once: a few are solved, and the best is written as a bundle."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tuner.arrays import Doubles, Labels
from tuner.bundle.format import MODEL, PLAN, WEIGHTS, new_folder, seal
from tuner.bundle.info import BundleInfo, Section, TrainInfo, TrainKind
from tuner.bundle.replay import Replay
from tuner.bundle.scores import Scores
from tuner.distribution import installed_version
from tuner.errors import TaskError
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import Session
from tuner.plan.info import BlockInfo, ModelInfo
from tuner.plan.parts import DataPlan, EditTraits, RuntimePlan, TailEdit
from tuner.plan.text import describe
from tuner.plan.toml import to_toml
from tuner.plan.trial import TrialPlan, normal_form
from tuner.results.scores.pareto import best
from tuner.ridge.choice import chosen
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionHead, UnionSettings, union_head
from tuner.runtime.train.files import CHECK, REPLAY
from tuner.runtime.train.solved import SolvedFile
from tuner.store.codec import Codec
from tuner.targets.base import LEFT_OUT
from tuner.task.info import task_info
from tuner.task.mixing import mixed_indices
from tuner.task.task import Task
from tuner_instant.classifier import BIAS, WEIGHT, Classifier
from tuner_instant.samples import Read, chosen_rows, features_of, task_of

#: Parts of the known samples that are tried, and what all local ones count in a joint head that is for them first.
SHARES, PERSONAL = (0.0, 0.5, 1.0), 16.0
#: Width of stored features, in bits; and samples that the written model is checked on.
BITS, CHECKED = 16, 4


@dataclass(frozen=True, slots=True)
class HeadScore:
    """A head that was tried.

    Attributes:
        kind: What was solved, for people.
        known: Number of known samples that it was solved with.
        local_accuracy: On the user's validation samples.
        global_accuracy: On known validation samples; None without any.
        left_out_accuracy: On all of the user's samples, each answered by a head without it.
        seconds: Time to solve for it.
        bytes: Size of the head, and of the samples that a trainable bundle keeps for it.
    """

    kind: str
    known: int
    local_accuracy: float
    global_accuracy: float | None
    left_out_accuracy: float
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Instant:
    """A bundle that was made, and what was tried for it.

    Attributes:
        sentence: What was solved, with which samples.
        labels: Labels that it answers with; the first `known` of these are those that the model knew.
        samples: Number of samples by partition; those of known classes are a part of what is there.
        left_out: Samples that cannot be read.
        heads: Heads that were tried; `picked` is the place of the one that was written.
        untouched: Accuracy of the given model on the known validation samples; None without any.
        test_accuracy: Accuracy of the bundle on test samples; None without any.
        assumed: How samples become the model's input.
        notes: Lines on the data.
        seconds: Time from the beginning to the bundle.
    """

    bundle: str
    sentence: str
    labels: tuple[str, ...]
    known: int
    samples: dict[str, int]
    left_out: tuple[str, ...]
    heads: tuple[HeadScore, ...]
    picked: int
    untouched: float | None
    test_accuracy: float | None
    assumed: str
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
    """Solve for the head of an ONNX classifier, and write it as a bundle; the other arguments are those of `task_of`.

    Args:
        data: The user's samples.
        out: Folder of the bundle, which must be empty or not exist yet.
        model: ONNX file of the classifier.
        known: Samples of classes that it knows.
        classes: Their rows in its head.
        trainable: Whether the bundle can learn from further samples, and forget some.
        step: Called with how many samples were run.

    Raises:
        TunerError: The data or the model cannot be used, or the folder is in use.
    """
    began = time.monotonic()
    with new_folder(out) as part:
        task, path = task_of(data, model, known, classes)
        if not task.labelled or not task.targets.has_classes:
            raise TaskError(f"{data}: a head is solved for classes, and these samples have none: use tuner run")
        classifier = Classifier.open(path)
        alpha, rows = chosen_rows(task)
        read, left_out = features_of(task, classifier, rows, step)
        heads = _Heads(task, classifier, read, alpha, path.stem)
        heads.solve()
        picked = heads.picked
        final = heads.refitted(picked)
        info = heads.write(part, picked, final, trainable=trainable)
    scores = info.scores
    size = len(info.labels) * (final.weight.shape[1] + 1) * 4
    kept = 2 * final.weight.shape[1] if trainable else 0
    return Instant(
        str(out),
        info.sentence,
        info.labels,
        len(task.head_rows),
        {name: len(labels) for name, (_, labels) in read.items()},
        left_out,
        tuple(
            HeadScore(
                one.settings.text,
                one.known,
                one.values["local_accuracy"],
                one.values.get("global_accuracy"),
                one.values[f"{LEFT_OUT}_accuracy"],
                one.values["train_seconds"],
                size + kept * (len(heads.local) + one.known),
            )
            for one in heads.tried
        ),
        picked,
        scores.untouched.get("global_accuracy"),
        scores.from_pixels.get("test_accuracy"),
        _assumed(task),
        (*task.findings, *task.notes, *task.cautions),
        time.monotonic() - began,
    )


def _assumed(task: Task) -> str:
    spec = task.input
    size = f"{spec.size} × {spec.size} pixels" if spec.size else " × ".join(map(str, task.input_shape))
    scale = [
        f"{name} {', '.join(f'{one:g}' for one in values)}"
        for name, values in (("mean", spec.mean), ("std", spec.std))
        if values
    ]
    return ", ".join((size, *scale))


@dataclass(frozen=True, slots=True, eq=False)
class _Tried:
    """A head that was solved for."""

    settings: UnionSettings
    share: float
    known: int
    values: dict[str, float]


class _Heads:
    """The heads of some features: `solve` tries them, `refitted` learns all local samples, `write` writes one."""

    def __init__(self, task: Task, classifier: Classifier, read: dict[str, Read], alpha: float, name: str) -> None:
        self._task, self._classifier, self._read, self._alpha, self._name = task, classifier, read, alpha, name
        given, outputs = classifier.head, len(task.labels)
        if task.head_rows and max(task.head_rows) >= len(given.bias):
            raise TaskError(
                f"the known classes have rows up to {max(task.head_rows)}, but the model's head has {len(given.bias)}: "
                "give the file of their rows with --classes"
            )
        features, rows = given.weight.shape[1], list(task.head_rows)
        weight, bias = np.zeros((outputs, features)), np.zeros(outputs)
        weight[: len(rows)], bias[: len(rows)] = given.weight[rows], given.bias[rows]
        self._given, codec = LinearHead(weight, bias), Codec(BITS, (features,))
        none = np.zeros((0, features), np.float32), task.local.train.labels[:0]
        self._replay, self._check = (
            Replay(codec, codec.encode(values), labels)
            for values, labels in (read.get(name, none) for name in ("global.train", "global.val"))
        )
        known = self._replay.read(np.arange(len(self._replay)))
        self._step = step_of(np.concatenate([read["local.train"][0], read["local.val"][0], known]))
        empty = Domain.empty(features, outputs, self._step, multi=task.targets.several)
        self.local = empty.added(self._coded("local.train"), read["local.train"][1])
        self._known = empty.added(coded(known, self._step), self._replay.labels)
        self.tried: list[_Tried] = []

    def solve(self) -> None:
        """Solve for heads of several kinds, with several numbers of known samples; leave-one-out sets the rest."""
        union = chosen(self.local, self._known, UnionSettings())
        plans = [(replace(union, gate="none"), 0.0)]
        if len(self._known):
            plans += [(union, share) for share in SHARES[1:]]
            if self._task.targets.one_class:
                joint = chosen(self.local, self._known, UnionSettings(scores="joint"))
                plans += [(joint, SHARES[-1]), (replace(joint, local_weight=PERSONAL), SHARES[-1])]
        for settings, share in plans:
            began, known = time.monotonic(), self._mixed(share)
            solved = union_head(self._given, self.local, known, settings)
            seconds = time.monotonic() - began
            self.tried.append(_Tried(settings, share, len(known), self._scored(solved) | {"train_seconds": seconds}))

    @property
    def picked(self) -> int:
        """Place of the head that `tuner run` would pick of these."""
        samples = {"local": len(self._read["local.val"][1]), "global": len(self._check)}
        place = best({at: one.values for at, one in enumerate(self.tried)}, self._untouched(), samples)
        return 0 if place is None else place

    def refitted(self, place: int) -> LinearHead:
        """Return the head of all local samples, those that judged it too."""
        one = self.tried[place]
        return union_head(self._given, self._every_local(), self._mixed(one.share), one.settings).head

    def write(self, folder: Path, place: int, head: LinearHead, *, trainable: bool) -> BundleInfo:
        """Write a bundle of a head into a folder, check it, and return what it says of itself."""
        task, one = self._task, self.tried[place]
        (folder / MODEL).write_bytes(self._classifier.with_head(head))
        save_file({WEIGHT: head.weight.astype(np.float32), BIAS: head.bias.astype(np.float32)}, folder / WEIGHTS)
        plan = self._plan(one)
        (folder / PLAN).write_text(to_toml(plan), encoding="utf-8")
        written = Session(folder / MODEL, 1).logits(
            task.batch(task.local.val, range(min(CHECKED, len(task.local.val))))
        )
        values = self._read["local.val"][0][: len(written)]
        require_parity("the written model", "numpy", largest_difference(written, head.scores(values)))
        pixels = {
            name: value for name, value in one.values.items() if name.startswith("local_") and LEFT_OUT not in name
        }
        for name, domain in (("global.val", "global"), ("local.test", "test")):
            if name in self._read:
                features, labels = self._read[name]
                pixels |= task.targets.scores(domain, head.scores(features).astype(np.float32), labels, labelled=True)
        refit = len(self._read["local.val"][1])
        info = BundleInfo(
            name=task.name,
            labels=task.labels,
            input=task.input,
            input_shape=task.input_shape,
            loss=task.loss,
            made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            tuner=installed_version(),
            sentence=describe(plan),
            scores=Scores(one.values, self._untouched(), pixels, refit_samples=refit),
            train=self._write_samples(folder, one) if trainable else None,
            label_map=dict(task.label_map),
        )
        return seal(folder, info.to_dict())

    def _write_samples(self, folder: Path, one: _Tried) -> TrainInfo:
        """Write what the head is solved for again from, when samples are added or forgotten."""
        (folder / Section.TRAIN).mkdir(mode=0o700)
        local, replay = self._every_local(), self._replay.select(self._mixed_rows(one.share))
        SolvedFile(self._given, local.codes, local.labels, self._step, one.settings).save(folder)
        replay.save(folder / REPLAY)
        self._check.save(folder / CHECK)
        size = sum(path.stat().st_size for path in (folder / Section.TRAIN).iterdir())
        samples = {"replay_samples": len(replay), "check_samples": len(self._check)}
        return TrainInfo(TrainKind.CLOSED_FORM, **samples, bits=BITS, bytes=size, weights=(WEIGHT, BIAS), cut=1)

    def _plan(self, one: _Tried) -> TrialPlan:
        """Return the plan: a network of two blocks, of which the second is solved for."""
        task, size = self._task, self._given.weight.shape[1]
        info = replace(task_info(task), global_val=len(self._check))
        blocks = (
            BlockInfo("network", "input", task.input_shape, 0, 0, 0),
            BlockInfo(
                "head", self._classifier.reads, (size,), 2 * self._given.weight.size, self._given.weight.size, 4 * size
            ),
        )
        model = ModelInfo(self._name, info.fingerprint, len(task.labels), blocks)
        edit = TailEdit.of(
            "closed-form", EditTraits(solves=True), **({"joint": True} if one.settings.scores == "joint" else {})
        )
        data = DataPlan(self._alpha * one.share, weight=1 / one.settings.local_weight, refit=True)
        return normal_form(
            TrialPlan(model, info, data, split=1, shape=(edit,), runtime=RuntimePlan(backend="onnxruntime"))
        )

    def _scored(self, solved: UnionHead) -> dict[str, float]:
        targets, head = self._task.targets, solved.head
        features, labels = self._read["local.val"]
        logits = head.scores(features).astype(np.float32)
        both = np.concatenate([logits, solved.left_out.astype(np.float32)])
        values = targets.scores("local", logits, labels, labelled=True)
        values |= targets.scores(LEFT_OUT, both, np.concatenate([labels, self.local.labels]), labelled=True)
        if len(self._check):
            features, labels = self._read["global.val"]
            values |= targets.scores("global", head.scores(features).astype(np.float32), labels, labelled=True)
        return values

    def _untouched(self) -> dict[str, float]:
        """Return the given model's accuracies: it knows the first rows only."""
        if not len(self._check):
            return {}
        unknown = np.arange(len(self._given.bias)) >= len(self._task.head_rows)
        given = LinearHead(self._given.weight, np.where(unknown, -1e9, self._given.bias))
        parts = ((domain, *self._read[f"{domain}.val"]) for domain in ("local", "global"))
        score = self._task.targets.score
        return {f"{domain}_accuracy": score(given.scores(features), labels) for domain, features, labels in parts}

    def _every_local(self) -> Domain:
        return self.local.added(self._coded("local.val"), self._read["local.val"][1])

    def _coded(self, name: str) -> Doubles:
        return coded(self._read[name][0], self._step)

    def _mixed_rows(self, share: float) -> Labels:
        return mixed_indices(self._known.labels, share)

    def _mixed(self, share: float) -> Domain:
        rows = self._mixed_rows(share)
        return Domain(self._known.codes[rows], self._known.labels[rows], self._known.outputs, self._step)
