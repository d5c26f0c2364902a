"""Rounds that really train: a stream brings new classes, a better model is accepted, and it answers after any kill."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.killed import killed, swaps
from tests.runtime.bundles import trainable_bundle
from tuner.bundle.rounds import EXPORTED, rounds_in_use
from tuner.errors import BundleError
from tuner.runtime import Bundle, Personaliser, Trainer
from tuner.task import Subset, Task
from tuner.task.builtin import digits
from tuner.task.spec import Pretrain
from tuner_store.store import forget
from tuner_watch.conditions import ANY_TIME
from tuner_watch.monitor import Watch
from tuner_watch.orchestrator import Policy
from tuner_watch.round import has_label, local_training
from tuner_watch.watch import watch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]
LATER = "9"  # a class that the bundle was made for, and has hardly seen


@pytest.fixture(scope="module")
def task() -> Task:
    """Return the digits with one sample of the class that appears later, and a model that knows its own."""
    made = digits()
    train = made.local.train
    later = train.labels == made.labels.index(LATER)
    few = np.sort(np.append(np.flatnonzero(~later), np.flatnonzero(later)[:1]))
    local = replace(made.local, train=Subset(train, few))
    return replace(made, local=local, model=replace(made.model, pretrain=Pretrain(epochs=4, learning_rate=3e-3)))


@pytest.fixture(scope="module")
def exported(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainable_bundle(task, tmp_path_factory.mktemp("bundle"))


def stream(task: Task, folder: Path) -> tuple[list[Any], list[str]]:
    """Write a stream of the user's digits as files in class folders, and return others to test on."""
    coming, test = digits().local.train, digits().local.test
    assert test is not None
    (folder / "x").mkdir(parents=True)
    np.save(folder / "x/0.npy", np.zeros(task.input_shape, np.float32))  # no row of the head is its own
    for index, label in enumerate(coming.labels):
        file = folder / task.labels[int(label)] / f"{index}.npy"
        file.parent.mkdir(exist_ok=True)
        np.save(file, coming.load(index))
    return [test.load(index) for index in range(len(test))], [task.labels[int(label)] for label in test.labels]


def right(bundle: Path, samples: list[Any], labels: list[str]) -> float:
    model = Personaliser(bundle, threads=1)
    predicted = [prediction.label for prediction in model.predict_batch(np.stack(samples))]
    return float(np.mean([ours == theirs for ours, theirs in zip(predicted, labels, strict=True)]))


def test_new_classes_in_a_stream_are_learnt_accepted_and_survive_kills(
    task: Task, exported: Path, tmp_path: Path
) -> None:
    samples, labels = stream(task, tmp_path / "photos")
    new = [sample for sample, label in zip(samples, labels, strict=True) if label == LATER]
    before = right(exported, samples, labels), right(exported, new, [LATER] * len(new))
    events: list[dict[str, Any]] = []
    policy = Policy(watch=Watch(enough=150), conditions=ANY_TIME)
    watch(exported, str(tmp_path / "photos"), events.append, once=True, policy=policy)
    rounds = [event for event in events if "round" in event]
    assert [event["round"] for event in rounds].count("accepted") >= 1
    assert "no label 'x': `tuner labels add` adds one" in rounds[-1]["reason"]
    assert right(exported, samples, labels) > before[0]
    assert right(exported, new, [LATER] * len(new)) > before[1]
    opened = Bundle.open(exported)
    assert opened.folder.name in {"0001", "0002"}
    assert opened.info.parent is not None
    assert not (exported / "device/made").exists()
    copies = [tmp_path / "copy-0", tmp_path / "copy-1"]
    for folder, copy in zip((opened.folder, exported), copies, strict=True):
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("device"))
    for _ in killed(10, 0.2, swaps, exported, *copies):  # `test_rounds` kills the same swaps thirty times
        assert Personaliser(exported, threads=1).predict(samples[0]).probability > 0
    assert int(rounds_in_use(exported)[0]) > int(EXPORTED)
    assert list((exported / "device").rglob("own.safetensors"))
    forget(str(exported))
    assert rounds_in_use(exported)[0] == EXPORTED
    assert not list((exported / "device").rglob("own.safetensors")), "features of what watch was given"


def test_a_learner_says_what_it_cannot_learn_from(exported: Path) -> None:
    bundle = Bundle.read(exported)
    with pytest.raises(BundleError, match="a bundle without exits learns from labels, but there are none"):
        Trainer(bundle, 1).add([np.zeros(bundle.input_shape, np.float32)])
    several = replace(bundle, info=replace(bundle.info, loss="multi-label"))
    assert has_label(several, "1|9")
    assert not has_label(several, "1|x")


def test_rounds_know_what_the_bundle_knew(exported: Path) -> None:
    training = local_training(exported, threads=1)
    assert training is not None
    right = training.global_right(Bundle.read(exported))
    assert right is not None
    assert 0.5 < right.mean() <= 1
    assert right.mean() == Trainer(Bundle.read(exported), threads=1).before  # not the round that is in use
