"""The user's own samples in a bundle: a round does not forget them, and they stay within their bytes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.bundles import trainable_bundle
from tuner.arrays import Array
from tuner.bundle.format import Bundle
from tuner.bundle.replay import every_class_alike
from tuner.errors import BundleError
from tuner.runtime import Trainer
from tuner.runtime.train.files import OWN, OWN_BYTES, replay_of
from tuner.task import Samples
from tuner.task.builtin import digits

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]
OURS, OTHERS = "7", ("8", "9")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a bundle that learned the user's digits 7 to 9; its replay has none of them."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    return Bundle.open(trainable_bundle(digits(), tmp_path_factory.mktemp("own")))


def of(samples: Samples | None, *labels: str) -> tuple[list[Array], list[str]]:
    """Return the samples of some labels."""
    assert samples is not None
    rows = [row for row in range(len(samples)) if str(samples.labels[row]) in labels]
    return [samples.load(row) for row in rows], [str(samples.labels[row]) for row in rows]


def limited(bundle: Bundle, samples: int) -> Bundle:
    """Return the bundle with room for so many of the user's samples."""
    train, size = bundle.info.train, replay_of(bundle, OWN).codec.record_bytes
    assert train is not None
    return replace(bundle, info=replace(bundle.info, train=replace(train, own_bytes=samples * size)))


def test_a_round_on_one_class_keeps_the_others_by_the_users_earlier_samples(bundle: Bundle) -> None:
    train, samples = digits().local.train, of(digits().local.test, OURS)
    others, every = of(digits().local.test, *OTHERS), of(train, OURS, *OTHERS)
    info = bundle.info.train
    assert info is not None
    assert (info.own_samples, info.own_bytes) == (len(train), OWN_BYTES)
    with_them, without = Trainer(bundle, threads=1), Trainer(bundle, threads=1)
    assert with_them.earlier == len(train)
    assert without.forget(every[0]) == len(train)
    for trainer in (with_them, without):
        trainer.add(*samples)
        trainer.train()
    assert with_them.accuracy(*others) > 0.85
    assert without.accuracy(*others) < with_them.accuracy(*others) - 0.2
    right = with_them.earlier_right()
    assert right is not None
    assert [len(flags) for flags in right] == [len(train)] * 3
    assert right[1].mean() > 0.95


def test_the_next_bundle_has_old_and_new_samples_every_class_alike_within_the_bytes(
    bundle: Bundle, tmp_path: Path
) -> None:
    samples, labels = of(digits().local.test, OURS, "8")
    made = []
    for number, order in enumerate((range(len(samples)), reversed(range(len(samples))))):
        trainer = Trainer(limited(bundle, 30), threads=1)
        for row in order:
            trainer.add([samples[row]], [labels[row]])
        made.append(Bundle.open(trainer.save(tmp_path / str(number))))
    first, second = (replay_of(one, OWN) for one in made)
    assert np.bincount(first.labels).tolist() == [0] * 7 + [10] * 3
    assert made[0].info.train is not None
    assert made[0].info.train.own_samples == len(first) == 30
    assert sorted(first.marks) == sorted(second.marks)  # whatever came first
    brought = replay_of(bundle, OWN).marks
    assert 0 < np.isin(first.marks, brought).sum() < 30


def test_a_sample_that_comes_again_counts_once_and_is_forgotten_by_its_content(bundle: Bundle, tmp_path: Path) -> None:
    train = digits().local.train
    trainer = Trainer(bundle, threads=1)
    trainer.add([train.load(0)], ["9"])
    trainer.add([train.load(0)], ["8"])
    right = trainer.earlier_right()
    assert right is not None
    assert right[2].tolist() == (np.delete(train.labels, 0) == 7).tolist(), "of labels that did not come"
    assert len(right[0]) == len(train) - 1, "its old label asks nothing any more"
    own = replay_of(Bundle.open(trainer.save(tmp_path / "again")), OWN)
    mine = np.flatnonzero(~np.isin(own.marks, np.delete(replay_of(bundle, OWN).marks, 0)))
    assert (len(own), own.labels[mine].tolist()) == (len(train), [8])
    forgetting = Trainer(bundle, threads=1)
    assert forgetting.forget([train.load(0), train.load(1)]) == 2
    left = Bundle.open(forgetting.save(tmp_path / "without"))
    assert len(replay_of(left, OWN)) == len(train) - 2


def test_damaged_samples_are_refused(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.runtime.train.tail.OWN", "train/replay.safetensors")
    with pytest.raises(BundleError, match="must have marks, and codes like the replay's: export again"):
        Trainer(bundle, threads=1)


def test_a_rare_class_has_all_of_its_samples_and_of_more_classes_than_fit_the_order_decides() -> None:
    labels, order = np.array([0] * 6 + [1] * 2 + [2] * 5), np.arange(13)[::-1]
    rows = every_class_alike(labels, order, 9)
    assert np.bincount(labels[rows]).tolist() == [3, 2, 4]
    assert rows.tolist() == [3, 4, 5, 6, 7, 9, 10, 11, 12]
    assert labels[every_class_alike(labels, order, 1)].tolist() == [2]
