"""The replay of a bundle grows until a round forgets little enough, or it is too large."""

from collections.abc import Sequence

import numpy as np
import pytest

from tuner.backends.torch.export.trainable import rehearsal
from tuner.backends.torch.export.trainable.features import Features
from tuner.backends.torch.export.trainable.rehearsal import sufficient_replay
from tuner.backends.torch.features.selection import Selection
from tuner.bundle.replay import Replay
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.store.codec import Codec
from tuner.task import Domain, InputSpec, ModelSpec, Task
from tuner.task.data.samples import ArraySamples

SPEC, CLASSES, EACH = InputSpec(kind="arrays"), 5, 30


def samples(name: str) -> ArraySamples:
    labels = np.repeat(np.arange(CLASSES), EACH)
    return ArraySamples(np.arange(len(labels), dtype=np.float32)[:, None, None, None], labels, SPEC, name)


@pytest.fixture
def task() -> Task:
    known, own = samples("known"), samples("own")
    return Task(
        name="numbers",
        model=ModelSpec("tuner.models.digits:build"),
        input=SPEC,
        loss="single-label",
        local=Domain(own, own),
        global_=Domain(known, known),
        labels=tuple("abcde"),
        head_rows=tuple(range(CLASSES)),
        local_labels=tuple(range(CLASSES)),
    )


def grown(task: Task, drops: Sequence[float], mixed: Sequence[int] = ()) -> tuple[Replay, list[int]]:
    """Return the replay where tried rounds lower the accuracy by these amounts in turn, and its sizes at these."""
    features = Features(task, TrialPlan(example_model(2), example_task()), lambda pixels: pixels)
    coming, sizes = iter(drops), list[int]()

    def drop(replay: Replay) -> float:
        sizes.append(len(replay))
        return next(coming)

    assert task.global_ is not None
    chosen = [Selection("global.train", task.global_.train, np.array(mixed))] if mixed else []
    return sufficient_replay(features, task, chosen, Codec(16, (1, 1, 1)), drop), sizes


def test_it_stays_as_it_was_trained_on_where_a_round_forgets_little(task: Task) -> None:
    replay, sizes = grown(task, [0.01], mixed=[3, 40, 70])
    assert replay.labels.tolist() == [0, 1, 2]
    assert sizes == [3]


def test_it_doubles_while_rounds_forget_with_every_class_alike_and_no_sample_twice(task: Task) -> None:
    replay, sizes = grown(task, [0.05, 0.03, 0.02, 0.0])
    assert sizes == [0, 5, 10, 20]
    assert np.bincount(replay.labels).tolist() == [4] * CLASSES
    values = replay.read(np.arange(len(replay))).ravel()
    assert len(set(values.tolist())) == len(replay)


def test_it_ends_with_the_samples_that_there_are_and_with_its_limit(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(grown(task, [1.0] * 9)[0]) == CLASSES * EACH
    monkeypatch.setattr(rehearsal, "MOST_BYTES", 2 * 30)
    assert len(grown(task, [1.0] * 9)[0]) == 30
