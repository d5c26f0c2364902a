"""Heads in closed form at every cut of a network, of features that were computed once: solved, scored and compared."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tuner.arrays import Array, Labels
from tuner.errors import BundleError, TaskError
from tuner.machine.process_memory import return_freed
from tuner.ort.session import LOGITS, Session
from tuner.plan.info import BlockInfo, ModelInfo, TaskInfo
from tuner.plan.parts import DataPlan, EditTraits, Precision, RuntimePlan, Scalar, TailEdit
from tuner.plan.trial import TrialPlan, normal_form
from tuner.ridge.choice import chosen
from tuner.ridge.solve import LinearHead, solve, spread
from tuner.ridge.sums import Sums, blocks, coded
from tuner.ridge.union import Domain, UnionHead, UnionSettings, union_head
from tuner.store.codec import Codec
from tuner.targets import Targets
from tuner.targets.base import LEFT_OUT
from tuner.task.mixing import mixed_indices
from tuner_instant.classifier import INPUT, Classifier
from tuner_instant.cuts import Cut
from tuner_instant.features import Gathered

#: Digits of a loss that count: of heads that are equal to these, the smaller file is as good.
DIGITS = 3
#: Width of stored features of known samples, in bits; and the logit of a class that the given model does not know.
BITS, UNLIKELY = 16, -1e9
#: Penalty, in samples, of what stands for the given head at a shallower cut.
STAND_IN = 30.0
#: Predictions of which the fastest counts: others shared the processor.
TIMED = 15


@dataclass(frozen=True, slots=True)
class Head:
    """A head that was tried.

    Attributes:
        settings: What was solved.
        share: Part of the known samples that it was solved with.
        known: Number of these.
        cut: Place of the cut that it reads.
        bits: Width of the weights of the layers before it.
        values: Scores and costs, as trials have them.
        seconds: Time to solve and score.
    """

    settings: UnionSettings
    share: float
    known: int
    cut: int
    bits: int
    values: dict[str, float]
    seconds: float

    @property
    def knobs(self) -> dict[str, Scalar]:
        """What tells it apart, as a trial's record keeps it."""
        own = {"cut": self.cut, "share": self.share, "bits": self.bits, "known": self.known, **asdict(self.settings)}
        return {f"instant.{name}": value for name, value in own.items()}

    @classmethod
    def of(cls, knobs: Mapping[str, Scalar], values: Mapping[str, float]) -> "Head":
        """Return the head of a trial's record; a `KeyError`, `TypeError` or `TrainingError` where it is of none."""
        own: dict[str, Any] = {name.removeprefix("instant."): value for name, value in knobs.items()}
        plain = {name: own.pop(name) for name in ("cut", "share", "bits", "known")}
        return cls(UnionSettings.of(own), values=dict(values), seconds=0.0, **plain)


class Heads:
    """The heads of what was gathered."""

    def __init__(self, gathered: Gathered, classifier: Classifier, targets: Targets | None = None) -> None:
        rows = gathered.rows
        if max(rows, default=0) >= classifier.outputs:
            raise TaskError(
                f"the known classes have rows up to {max(rows)}, but the model's head has {classifier.outputs}: give "
                "the file of their rows with --classes"
            )
        self.gathered, self.classifier = gathered, classifier
        self.targets = gathered.info.targets if targets is None else targets
        self._outputs = len(gathered.info.labels)
        self._own = classifier.head(rows) if rows else None
        self._untouched: dict[str, float] | None = None

    def has(self, part: str) -> bool:
        """Return whether there are samples of a partition."""
        return part in self.gathered.parts

    def count(self, part: str) -> int:
        """Return the number of samples of a partition."""
        begin, end = self.gathered.parts.get(part, (0, 0))
        return end - begin

    @property
    def plans(self) -> int:
        """Number of heads that `tried` yields."""
        return len(self.gathered.codes) * (2 if self.has("global.train") else 1)

    def domain(self, at: int, *parts: str) -> Domain:
        """Return samples of partitions at a place of codes; of known ones, features as a bundle's replay has them."""
        gathered, step = self.gathered, self.gathered.steps[at]
        places = [np.arange(*gathered.parts.get(part, (0, 0))) for part in parts]
        rows = np.concatenate(places)
        codes = gathered.codes[at][rows]
        if parts == ("global.train",):
            codec = self.codec(at)
            for here in blocks(len(codes)):
                codes[here] = coded(codec.decode(codec.encode((codes[here] * step).astype(np.float32))), step)
        return Domain(codes, gathered.labels[rows], self._outputs, step)

    def codec(self, at: int) -> Codec:
        """Return how a bundle stores features of known samples."""
        return Codec(BITS, (self.gathered.codes[at].shape[1],))

    def mixed(self, at: int, share: float) -> Domain:
        """Return a part of the known samples."""
        known = self.domain(at, "global.train")
        rows = mixed_indices(known.labels, share)
        return replace(known, codes=known.codes[rows], labels=known.labels[rows])

    def given(self, at: int) -> LinearHead:
        """Return the given head of what the model knows; what it does not know has zeros.

        At a shallower cut, a ridge head of that one's logits stands for it.
        """
        gathered, known = self.gathered, len(self.gathered.rows)
        features, cuts = gathered.codes[at].shape[1], len(gathered.cuts)
        last = at // cuts * cuts + cuts - 1
        weight, bias = np.zeros((self._outputs, features)), np.zeros(self._outputs)
        head = self._own
        if head is None:
            return LinearHead(weight, bias)
        if at < last:
            parts = [part for part in ("local.train", "global.train") if self.has(part)]
            seen, own = self.domain(last, *parts), self.domain(at, *parts)
            sums = Sums.empty(features, known, own.step)
            for here in blocks(len(own)):
                sums = sums.added(own.codes[here].astype(float), head.scores(seen.codes[here] * seen.step))
            head = solve(sums, STAND_IN * spread(sums) or 1.0).head
        weight[:known], bias[:known] = head.weight, head.bias
        return LinearHead(weight, bias)

    def untouched(self) -> dict[str, float]:
        """Return the given model's accuracies: it knows the first rows only; nothing where no known class is named."""
        if self._untouched is None:
            self._untouched = {}
            if self.gathered.rows:
                last = len(self.gathered.codes) - 1  # of the widest network
                head = self.given(last)
                unknown = np.arange(self._outputs) >= len(self.gathered.rows)
                own = LinearHead(head.weight, np.where(unknown, UNLIKELY, head.bias))
                for domain in ("local", "global") if self.has("global.val") else ():
                    self._untouched |= self.scores(domain, own, self.domain(last, f"{domain}.val"))
        return self._untouched

    def tried(self) -> Iterator[Head]:
        """Yield heads at every cut, with known samples and without; leave-one-out says of which kind, and how."""
        gathered = self.gathered
        for number, cut in enumerate(gathered.cuts):
            costs, began = self._costs(cut), time.monotonic()
            union = chosen(self.domain(number, "local.train"), self.domain(number, "global.train"), UnionSettings())
            plans = [(replace(union, gate="none"), 0.0)]
            plans += [(union, 1.0)] if self.has("global.train") else []
            for bits in gathered.widths:
                at = gathered.place(number, bits)
                given, train = self.given(at), self.domain(at, "local.train")
                for settings, share in plans:
                    return_freed()  # by what was solved before
                    known = self.mixed(at, share)
                    values = {**self._scored(at, union_head(given, train, known, settings)), **costs[bits]}
                    yield Head(settings, share, len(known), number, bits, values, time.monotonic() - began)
                    began = time.monotonic()

    def solved(self, head: Head, *, refit: bool = True) -> LinearHead:
        """Return a head anew, of all local samples, those that judged it included; without `refit`, as it was tried."""
        return_freed()
        at = self.place(head)
        local = self.domain(at, "local.train", *(["local.val"] if refit else []))
        return union_head(self.given(at), local, self.mixed(at, head.share), head.settings).head

    def place(self, head: Head) -> int:
        """Return the place of the codes that a head reads."""
        return self.gathered.place(head.cut, head.bits)

    def scores(self, domain: str, head: LinearHead, samples: Domain) -> dict[str, float]:
        """Return the scores of a head on samples, by name, which begins with the domain."""
        return self._scores(domain, head.scores(samples.features), samples.labels)

    def plan(self, head: Head, info: TaskInfo) -> TrialPlan:
        """Return the plan of a head for a task in numbers: the blocks up to its cut, and what is solved behind them."""
        alpha = self.count("global.train") / max(1, sum(info.global_per_class)) * head.share
        precision: Precision = "fp32" if head.bits == 32 else "int8"  # noqa: PLR2004 - float32
        return normal_form(
            TrialPlan(
                self.model(info),
                info,
                DataPlan(alpha),
                split=head.cut + 1,
                shape=(TailEdit.of("closed-form", EditTraits(solves=True)),),
                runtime=RuntimePlan("onnxruntime", precision=precision),
            )
        )

    def model(self, info: TaskInfo) -> ModelInfo:
        """Return the network as a chain of blocks: from cut to cut, and the head."""
        cuts, own = self.gathered.cuts, self.gathered.info
        before = [(INPUT, own.input_shape, 0, 0), *((cut.value, cut.shape, cut.flops, cut.parameters) for cut in cuts)]
        blocks = [
            BlockInfo(f"up to {cut.value}", name, shape, cut.flops - flops, cut.parameters - parameters, 0)
            for cut, (name, shape, flops, parameters) in zip(cuts, before, strict=False)
        ]
        size = self._outputs * cuts[-1].features
        head = BlockInfo("head", self.classifier.reads, (cuts[-1].features,), 2 * size, size + self._outputs, 0)
        name = self.gathered.model.stem
        return ModelInfo(name, self.gathered.digest or info.fingerprint, self._outputs, (*blocks, head))

    def _costs(self, cut: Cut) -> dict[int, dict[str, float]]:
        """Return what a bundle at a cut costs, by the width of its weights.

        The time is measured once: weights in int8 are float32 when the file is open.
        """
        head = LinearHead(np.zeros((self._outputs, cut.features)), np.zeros(self._outputs))
        size, found = 4 * self._outputs * (cut.features + 1), dict[int, dict[str, float]]()
        seconds = 0.0
        with TemporaryDirectory() as folder:
            for bits in self.gathered.widths:
                path = self.classifier.write(Path(folder) / f"{bits}.onnx", [cut], head, bits)
                seconds = seconds or self._latency(path)
                found[bits] = {
                    "mean_latency_seconds": seconds,
                    "bundle_bytes": float(path.stat().st_size + size),
                    "peak_bytes": float(cut.peak_bytes + size),
                    "flops": float(cut.flops + size // 2),
                }
        return found

    def _latency(self, path: Path) -> float:
        """Return the seconds of a prediction in one thread; what a batch of two cannot run is refused."""
        session, seconds = Session(path, 1), list[float]()
        noise = np.random.default_rng(0).standard_normal((2, *self.gathered.info.input_shape), np.float32)
        try:
            session.logits(noise)
        except BundleError as error:
            raise TaskError(f"{error}: export it with an open size of the batch (dynamic_shapes)") from None
        for _ in range(TIMED):
            began = time.perf_counter()
            session.run(noise[:1], LOGITS)
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    def _scored(self, at: int, solved: UnionHead) -> dict[str, float]:
        val = self.domain(at, "local.val")
        own = solved.head.scores(val.features)
        both = np.concatenate([own, solved.left_out]).astype(np.float32)
        train = self.gathered.labels[slice(*self.gathered.parts["local.train"])]
        values = self._scores("local", own, val.labels)
        values |= self._scores(LEFT_OUT, both, np.concatenate([val.labels, train]))
        if self.has("global.val"):
            values |= self.scores("global", solved.head, self.domain(at, "global.val"))
        return values

    def _scores(self, domain: str, logits: Array, labels: Labels) -> dict[str, float]:
        values = self.targets.scores(domain, logits.astype(np.float32), labels, labelled=True)
        return {name: round(value, DIGITS) if name.endswith("_loss") else value for name, value in values.items()}
