"""Change the labels of a bundle whose head is solved for: the head is solved again for the labels that it then has."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from tuner.arrays import Floats
from tuner.bundle.format import MODEL, WEIGHTS, Bundle, successor
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ort.session import LOGITS
from tuner.ridge.solve import LinearHead
from tuner.runtime.train.files import CHECK, REPLAY, SOLVED, replay_of, train_info
from tuner.runtime.train.solved import SolvedFile, SolvingTrainer
from tuner_labels.draft import (
    Draft,
    LabelChange,
    made_from,
    new_labels,
    score_of_others,
    share_found,
)
from tuner_labels.onnx_rows import Resize, resized

#: Bias of a label that nothing was learned of yet: no sample gets it.
NEVER = -1e4


def change_solved(bundle: Bundle, draft: Draft, out: Path, photos: Sequence[Path]) -> LabelChange:
    """Write a bundle of other labels; a new one is learned from photos.

    Raises:
        TunerError: A photo cannot be read, no sample of the user's own is left, or the folder exists.
    """
    began, (old, new) = time.monotonic(), draft.changed
    before = SolvingTrainer(bundle)
    before.train()
    with made_from(bundle, out) as part:
        trainer = SolvingTrainer(_with_labels(bundle, draft, part / "draft"))
        if photos:
            trainer.add(photos, [draft.labels[-1]] * len(photos))
        trainer.train()
        trainer.save(part / "made")
    targets, after = bundle.targets, trainer.left_out
    found, samples = share_found(targets, after, trainer.labels, new)
    score, others = score_of_others(targets, after, trainer.labels, new)
    return LabelChange(
        str(out),
        bundle.name,
        draft.labels,
        samples if new else before.samples - trainer.samples,
        found,
        score_of_others(targets, before.left_out, before.labels, old)[0],
        score,
        others,
        before.before,
        trainer.global_accuracy(),
        time.monotonic() - began,
    )


def _with_labels(bundle: Bundle, draft: Draft, folder: Path) -> Bundle:
    """Write a bundle with the rows of other labels, from which its head is then solved."""
    info, file = train_info(bundle, "SolvingTrainer"), SolvedFile.load(bundle)
    kept, labels = draft.moved(file.labels)
    if not len(kept):
        raise BundleError(
            f"{bundle.name} must keep samples of your own to solve its head for, but none would be left: "
            "add another label first"
        )
    replay, check = (replay_of(bundle, name) for name in (REPLAY, CHECK))
    features = np.concatenate([file.codes * file.step, replay.read(np.arange(len(replay)))])
    tensors = read_tensors(bundle.file(WEIGHTS), finite=False)
    weight, bias = info.weights
    now = draft.head(LinearHead(*(tensors[name].astype(np.float64) for name in info.weights)), features, NEVER)
    head: dict[str, Floats] = {weight: now.weight.astype(np.float32), bias: now.bias.astype(np.float32)}
    solved = SolvedFile(draft.head(file.given, features), file.codes[kept], labels, file.step, file.settings)
    model = Resize(len(draft.labels), {LOGITS: -1}, {f"tail.{name}": value for name, value in head.items()})
    contents = {
        MODEL: lambda: resized((bundle.folder / MODEL).read_bytes(), model),
        WEIGHTS: lambda: save({**tensors, **head}),
        SOLVED: solved.content,
    }
    stored = {}
    for name, samples in ((REPLAY, replay), (CHECK, check)):
        rows, numbers = draft.moved(samples.labels)
        stored[name] = replace(samples.select(rows), labels=numbers)
    counts = replace(info, replay_samples=len(stored[REPLAY]), check_samples=len(stored[CHECK]))
    changes = {**new_labels(bundle, draft), "train": counts}
    with successor(bundle, folder, contents, None, unknown=bundle.info.unknown, **changes) as part:
        for name, samples in stored.items():
            samples.save(part / name)
    return Bundle.read(folder)
