"""Change the labels of a bundle that trains a tail by steps: its head gets other rows, and so do the step's files.

The other rows stay as they are. That of a new label is a gate between its samples and those that the bundle brings,
solved for at once; rounds of training then move it like any other.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tuner.arrays import Array, Floats, Labels
from tuner.bundle.format import MODEL, WEIGHTS, Bundle
from tuner.bundle.replay import Replay
from tuner.bundle.scores import DeviceScores
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort import answer
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.ort.tail import Tail
from tuner.ort.training_step import StepSession
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionHead, UnionSettings, union_head
from tuner.runtime.train.adapters import Adapters, fused_name
from tuner.runtime.train.files import ADAPTERS, CHECK, MERGE, OWN, REPLAY, STEP, TAIL, replay_of
from tuner.runtime.train.tail import Trainer
from tuner.training.schedule import batches_of
from tuner_labels.draft import Draft, LabelChange, made_from, relabelled, share_found
from tuner_labels.onnx_rows import Resize, counted_nodes, nodes_of, resized

#: Bias of a label that no sample gets, where two steps are compared: its probability is 0 in float32.
NEVER = -100.0
#: Least factor of the trained rows, by which the row of a new label is divided.
LEAST_FACTOR = 0.05
#: Largest share of the samples that a bundle has which a new label may take from the others; and the share of its own
#: samples that is to be found.
MOST_LOST, LEAST_FOUND = 0.01, 0.7
#: Factor by which an offset is larger than it needs to be, so that rounding to float32 takes none.
LARGER = 1.001
#: Largest difference between what the step computes before and after, as a share of the largest value.
TOLERANCE = 1e-3
_STATES = ("mean.", "square.", "momentum.")  # of the optimiser, before the name of a weight
_WAY_OUT = "`tuner apply` trains other labels where PyTorch is, or export a trial whose head is solved for"


def change_tail(bundle: Bundle, draft: Draft, out: Path, photos: Sequence[Path]) -> LabelChange:
    """Write a bundle of other labels; the row of a new one is solved for from photos.

    Raises:
        TunerError: The tail ends in something else than one linear layer, its step cannot be changed, a photo cannot be
            read, or the folder exists.
    """
    began, (old, new), targets = time.monotonic(), draft.changed, bundle.targets
    several = f"{bundle.name} trains a tail for several labels a sample, whose step stays: {_WAY_OUT}"
    targets.need_one_class(BundleError(several))
    trainer, tail = Trainer(bundle), _Tail.of(bundle)
    stored = [replay_of(bundle, name) for name in (REPLAY, OWN) if name in bundle.info.files]
    known = np.concatenate([tail.features(samples) for samples in stored])
    labels = np.concatenate([samples.labels for samples in stored])
    head, (rows, moved) = draft.head(tail.head, known), draft.moved(labels)
    logits, found = head.scores(known[rows]), None
    samples = int(np.isin(labels, old).sum())
    if photos:
        added = tail.body.logits(trainer.features(photos), tail.weights)
        solved, samples = _held_back(_solved(head, added, (known, labels)), labels), len(added)
        head, logits = _with_last_row(head, solved), solved.known_left_out
        found = share_found(targets, solved.left_out, np.full(samples, new[0]), new)[0]
    after, others = targets.score_of_others(logits, moved, new)
    kept = draft.stored(bundle)
    check = kept[CHECK]
    known_after = targets.score(head.scores(tail.features(check)), check.labels) if len(check) else None
    change, scores = (bundle, draft, tail, head, kept), DeviceScores(trainer.before, known_after, (), len(photos))
    if photos:
        with made_from(bundle, out) as part:
            _write(*change, part / "draft", scores)
            learned = Trainer(Bundle.read(part / "draft"))
            learned.before = trainer.before
            learned.add(photos, [draft.labels[-1]] * len(photos))  # its bundle keeps what a trainer was given
            learned.save(part / "made")
    else:
        _write(*change, out, scores)
    before = targets.score_of_others(tail.head.scores(known), labels, old)[0]
    values = (samples, found, before, after, others, trainer.before, known_after, time.monotonic() - began)
    without = np.setdiff1d(np.arange(len(bundle.labels)), [*labels, *old]) if photos else ()
    unseen = tuple(bundle.labels[row] for row in without)
    return LabelChange(str(out), bundle.name, draft.labels, *values, unseen)


@dataclass(frozen=True, slots=True)
class _Tail:
    """A tail as its body, and one linear layer.

    Attributes:
        names: Names of the layer's weight and bias.
        head: Their values.
        body: What is before it.
        weights: All weights of the tail, by name.
    """

    names: tuple[str, str]
    head: LinearHead
    body: Tail
    weights: Mapping[str, Array]

    @classmethod
    def of(cls, bundle: Bundle) -> "_Tail":
        info, content = bundle.info.train, bundle.file(TAIL).read_bytes()
        weights = read_tensors(bundle.file(WEIGHTS), () if info is None else info.weights)
        last = next((node for node in nodes_of(content) if LOGITS in node.outputs and node.operator == "Gemm"), None)
        inputs = () if last is None else last.inputs
        shapes = [weights[name].shape for name in inputs[1:] if name in weights]
        if (
            last is None
            or [len(shape) for shape in shapes] != [2, 1]
            or {shape[0] for shape in shapes} != {len(bundle.labels)}
        ):
            raise BundleError(f"{bundle.name} has a tail that does not end in one linear layer: {_WAY_OUT}")
        passes = {LOGITS: answer.node("Identity", inputs[:1], (LOGITS,))}
        with TemporaryDirectory() as folder:
            path = Path(folder) / "body.onnx"
            path.write_bytes(resized(content, Resize(shapes[0][1], {LOGITS: -1}, nodes=passes)))
            body = Tail(path, 1)
        weight, bias = inputs[1:]
        return cls(
            (weight, bias), LinearHead(weights[weight].astype(float), weights[bias].astype(float)), body, weights
        )

    def features(self, samples: Replay) -> Floats:
        """Return what enters the head of stored samples, float32 [n, features]."""
        batches = batches_of(np.arange(len(samples)), self.body.batch_size)
        nothing = np.zeros((0, self.head.weight.shape[1]), np.float32)
        return np.concatenate([nothing, *(self.body.logits(samples.read(rows), self.weights) for rows in batches)])


def _solved(head: LinearHead, added: Floats, known: tuple[Floats, Labels]) -> UnionHead:
    """Solve for the row of a new label, the head's last; all samples of it count as those of any other label."""
    features, labels = known
    if not len(labels):
        raise BundleError(f"the bundle has no samples that a new label could be told from: {_WAY_OUT}")
    outputs = len(head.bias)
    step = step_of(np.concatenate([added, features]))
    empty = Domain.empty(features.shape[1], outputs, step)
    local = empty.added(coded(added, step), np.full(len(added), outputs - 1))
    settings = UnionSettings(local_weight=1 / len(np.unique(labels)))
    return union_head(head, local, empty.added(coded(features, step), labels), settings)


def _held_back(solved: UnionHead, labels: Labels) -> UnionHead:
    """Return a head whose last row takes at most `MOST_LOST` of the known samples from their labels.

    Its offset is lowered as far as that needs: a new label that is not found can be taught with more photos, but what
    the others lose is not seen. Where a label has no known sample, nobody sees what it loses: then the offset is as low
    as it may be with `LEAST_FOUND` of the new label's samples found. Each sample is answered by a row that was solved
    without it.
    """
    logits, places, drop = solved.known_left_out, np.arange(len(labels)), np.zeros(len(solved.head.bias))
    right = logits[:, :-1].argmax(axis=1) == labels
    above = np.sort((logits[:, -1] - logits[places, labels])[right])[::-1]
    most = int(MOST_LOST * len(labels))
    taken = above[most] * LARGER if len(above) > most else 0.0
    own = solved.left_out[:, -1] - solved.left_out[:, :-1].max(axis=1)
    spare = float(np.quantile(own, 1 - LEAST_FOUND, method="lower")) / LARGER
    drop[-1] = max(0.0, taken, 0.0 if len(np.unique(labels)) == logits.shape[1] - 1 else spare)
    head = LinearHead(solved.head.weight, solved.head.bias - drop)
    return UnionHead(head, solved.numbers, solved.left_out - drop, logits - drop)


def _with_last_row(head: LinearHead, solved: UnionHead) -> LinearHead:
    """Return the head with the last row of a solved one, in the scale of the other rows, which stay as they are."""
    factor = max(solved.numbers[0], LEAST_FACTOR)
    weight, bias = solved.head.weight[-1:] / factor, solved.head.bias[-1:] / factor
    return LinearHead(np.concatenate([head.weight[:-1], weight]), np.concatenate([head.bias[:-1], bias]))


def _write(
    bundle: Bundle,
    draft: Draft,
    tail: _Tail,
    head: LinearHead,
    stored: Mapping[str, Replay],
    out: Path,
    scores: DeviceScores,
) -> None:
    """Write the bundle, and check that its files compute what they are to."""
    parts = (head.weight.astype(np.float32), head.bias.astype(np.float32))
    rows: dict[str, Floats] = dict(zip(tail.names, parts, strict=True))
    step, inference = bundle.file(STEP).read_bytes(), bundle.file(TAIL).read_bytes()
    ports = {f"{state}{name}": 0 for name in rows for state in ("", *_STATES)}
    axes = {LOGITS: -1, **ports, **{f"next.{name}": 0 for name in ports}}
    counted = counted_nodes(step, draft.count)
    contents = {
        TAIL: lambda: resized(inference, Resize(len(draft.labels), axes)),
        STEP: lambda: resized(step, Resize(len(draft.labels), axes, counted=counted)),
    }
    # the distance to the user's samples stays true where none comes or goes: where two labels become one
    unknown = bundle.info.unknown if any(len(olds) > 1 for olds in draft.rows) else None
    with relabelled(bundle, draft, out, rows, stored, contents, scores, unknown) as part:
        pixels = np.random.default_rng(0).standard_normal((2, *bundle.input_shape), np.float32)
        model = Session(part / MODEL, 1)
        features = model.features(pixels) if FEATURES in model.outputs else pixels
        answers = head.scores(tail.body.logits(features, tail.weights)).astype(np.float32)
        for written in (model.logits(pixels), Tail(part / TAIL, 1).logits(features, {**tail.weights, **rows})):
            require_parity("the bundle of other labels", "its head", largest_difference(written, answers))
        _require_same_step(bundle, part, draft, tail)


def _require_same_step(bundle: Bundle, part: Path, draft: Draft, tail: _Tail) -> None:
    """Check that a step trains as it did what both bundles have, where no sample gets any other label."""
    pairs = [(olds[0], new) for new, olds in enumerate(draft.rows) if len(olds) == 1]
    olds, news = map(list, zip(*pairs, strict=True))
    generator, seen = np.random.default_rng(0), []
    draws = generator.integers(0, len(pairs), 2**16)
    for path, count, rows in ((bundle.file(STEP), draft.count, olds), (part / STEP, len(draft.labels), news)):
        weight = np.zeros((count, tail.head.weight.shape[1]), np.float32)
        bias = np.full(count, NEVER, np.float32)
        weight[rows], bias[rows] = tail.head.weight[olds], tail.head.bias[olds]
        given = {**tail.weights, **dict(zip(tail.names, (weight, bias), strict=True))}
        if ADAPTERS in bundle.info.files:
            given = Adapters(bundle.file(ADAPTERS), bundle.file(MERGE)).begin(given)
        session = StepSession(path, given)
        input_ = session.layout.only("input").shape
        features = np.random.default_rng(1).standard_normal(input_, np.float32)
        loss = session.step(features, np.array(rows)[draws[: input_[0]]], 1e-3)
        values = session.state()[0] or session.weights()
        seen.append(
            {name: value[rows] if _of_head(name, tail) else value for name, value in values.items()}
            | {"loss": np.array(loss)}
        )
    before, after = seen
    for name, value in before.items():
        other = after[name]
        size = max(float(np.abs(value).max(initial=0)), 1e-6)
        if value.shape != other.shape or not float(np.abs(value - other).max(initial=0)) <= TOLERANCE * size:
            raise BundleError(f"the training step of {bundle.name} cannot be given other labels ({name}): {_WAY_OUT}")


def _of_head(name: str, tail: _Tail) -> bool:
    """Return whether a weight of a step, or a state of it, is the head's."""
    own = next((name.removeprefix(state) for state in _STATES if name.startswith(state)), name)
    return fused_name(own) in tail.names
