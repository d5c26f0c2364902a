"""Change the labels of a bundle whose head is solved for: the head is solved again for the labels that it then has."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Floats
from tuner.bundle.format import WEIGHTS, Bundle
from tuner.bundle.tensors import read_tensors
from tuner.errors import BundleError
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded
from tuner.runtime.train.files import REPLAY, SOLVED, replay_of, train_info
from tuner.runtime.train.solved import SolvedFile, SolvingTrainer
from tuner.targets.strata import presence
from tuner_labels.draft import Draft, LabelChange, made_from, relabelled, share_found

#: Bias of a label that nothing was learned of yet: no sample gets it.
NEVER = -1e4


def change_solved(bundle: Bundle, draft: Draft, out: Path, photos: Sequence[Path]) -> LabelChange:
    """Write a bundle of other labels; a new one is learned from photos.

    Raises:
        TunerError: A photo cannot be read, no sample of the user's own is left, or the folder exists.
    """
    began, (old, new), targets = time.monotonic(), draft.changed, bundle.targets
    before = SolvingTrainer(bundle)
    before.train()
    with made_from(bundle, out) as part:
        _write_unsolved(bundle, draft, part / "draft")
        trainer = SolvingTrainer(Bundle.read(part / "draft"))
        if photos:
            trainer.add(photos, [draft.labels[-1]] * len(photos))
        trainer.train()
        trainer.save(part / "made")
    found, samples = share_found(targets, trainer.left_out, trainer.labels, new)
    samples = samples if new else before.samples - trainer.samples
    score = targets.score_of_others(before.left_out, before.labels, old)[0]
    after = targets.score_of_others(trainer.left_out, trainer.labels, new)
    known = before.before, trainer.global_accuracy()
    values = (samples, found, score, *after, *known, time.monotonic() - began)
    return LabelChange(str(out), bundle.name, draft.labels, *values)


def _write_unsolved(bundle: Bundle, draft: Draft, folder: Path) -> None:
    """Write a bundle with the rows of other labels, from which its head is then solved."""
    info, file, replay = train_info(bundle, "SolvingTrainer"), SolvedFile.load(bundle), replay_of(bundle, REPLAY)
    kept, labels = draft.moved(file.labels)
    if not len(kept):
        raise BundleError(
            f"{bundle.name} must keep samples of your own to solve its head for, but none would be left: "
            "add another label first"
        )
    features = np.concatenate([file.codes * file.step, replay.read(np.arange(len(replay)))])
    given = read_tensors(bundle.file(WEIGHTS), info.weights)
    now = draft.head(LinearHead(*(given[name].astype(np.float64) for name in info.weights)), features, NEVER)
    parts = (now.weight.astype(np.float32), now.bias.astype(np.float32))
    rows: dict[str, Floats] = dict(zip(info.weights, parts, strict=True))
    codes, stored = file.codes[kept], draft.stored(bundle)
    # what the user and the global data have of one label now is of one domain: else the gate would tell them apart
    numbers = np.arange(len(draft.labels))
    both = [new for new in draft.changed[1] if presence(labels, numbers)[:, new].any()]
    joins = np.asarray(presence(stored[REPLAY].labels, numbers)[:, both].any(axis=1))
    joined = stored[REPLAY].select(np.flatnonzero(joins))
    stored[REPLAY] = stored[REPLAY].select(np.flatnonzero(~joins))
    codes = np.concatenate([codes, coded(joined.read(np.arange(len(joined))), file.step)])
    labels = np.concatenate([labels, joined.labels.astype(labels.dtype)])
    solved = SolvedFile(draft.head(file.given, features), codes, labels, file.step, file.settings)
    with relabelled(bundle, draft, folder, rows, stored, {SOLVED: solved.content}, unknown=bundle.info.unknown):
        pass
