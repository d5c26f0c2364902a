"""Exits train again without PyTorch, with labels or without; the path to the final head never changes."""

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn import functional

from tests.runtime.bundles import known_digits, trainable_exits
from tuner.backends.torch.step.losses import ExitLoss, exit_loss
from tuner.backends.torch.task_loss import torch_loss
from tuner.errors import BundleError
from tuner.ort.training_step import StepSession
from tuner.plan.heads import Exit, HeadsPlan, effective_heads
from tuner.runtime import Bundle, ExitsTrainer, Personaliser, Trainer
from tuner.runtime.infer.chain import Chain
from tuner.runtime.train.exit_targets import entropy, exit_targets
from tuner.runtime.train.exits import LEAST
from tuner.targets import KINDS, SINGLE_LABEL, LossSettings, Regression, Targets
from tuner.task import Task, normalise
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_watch.conditions import ANY_TIME
from tuner_watch.monitor import Watch
from tuner_watch.orchestrator import Orchestrator, Policy, World
from tuner_watch.ring import Ring
from tuner_watch.round import local_training

pytestmark = pytest.mark.usefixtures("own_cache")
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def task() -> Task:
    return known_digits()


@pytest.fixture(scope="module")
def bundle(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainable_exits(task, tmp_path_factory.mktemp("bundle"), HeadsPlan("exits-only", distilled=1.0))


def photos(first: int, last: int) -> tuple[list[npt.NDArray[Any]], list[str]]:
    """Return new digits of a user who writes a pixel further down."""
    known = digits().global_
    assert known is not None
    samples, chosen = known.train, range(first, last)
    return [np.roll(samples.load(index), 1, axis=1) for index in chosen], [
        str(samples.labels[index]) for index in chosen
    ]


def every(folder: Path, samples: list[npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    bundle = Bundle.open(folder)
    return Chain.of(bundle, 1).every(normalise(np.stack(samples), bundle.input))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind(LossSettings(delta=0.5)) for kind in KINDS.values()])
@pytest.mark.parametrize("weights", [(1.0, 0.5, 0.0), (0.0, 1.0, 0.0), (0.0, 0.7, 1.0), (1.0, 0.0, 0.0)])
def test_what_is_wanted_gives_the_exits_loss_but_for_a_constant(
    weights: tuple[float, float, float], kind: Targets
) -> None:
    supervised, distilled, pseudo = weights
    plan = HeadsPlan("exits-only", supervised=supervised, distilled=distilled, pseudo=pseudo, temperature=3.0)
    if isinstance(kind, Regression):
        plan = effective_heads(replace(plan, exits=(Exit(1, 8),)), 3, replace(task_info(digits()), loss=kind.name))
    loss = torch_loss(kind)
    generator = torch.Generator().manual_seed(0)
    final = torch.randn(6, 4, generator=generator)
    truth = torch.arange(6) % 4 if kind.one_class else torch.randint(0, 2, (6, 4), generator=generator).float()
    label = torch.from_numpy(exit_targets(plan, final.numpy(), truth.numpy(), kind=kind))
    gaps, slopes = [], []
    for _ in range(2):
        outputs = torch.randn(6, 4, generator=generator, requires_grad=True)
        pair = (
            ExitLoss(plan, loss).losses(outputs, label).mean(),
            exit_loss(outputs, final, truth, plan, loss),
        )
        gaps.append(float((pair[0] - pair[1]).detach()))
        slopes.append([torch.autograd.grad(one, outputs, retain_graph=True)[0] for one in pair])
    constant = entropy(plan, label.numpy(), kind=kind)
    assert gaps == pytest.approx([constant, constant], abs=1e-5)
    for ours, theirs in slopes:
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


@slow
def test_exits_learn_from_the_final_heads_answers_which_stay_bit_for_bit(bundle: Path, tmp_path: Path) -> None:
    samples, _ = photos(0, 150)
    others, _ = photos(150, 250)
    trainer = ExitsTrainer(bundle, threads=1)
    trainer.add(samples)
    losses = trainer.train(epochs=8)
    assert len(losses) == 8
    assert 0 < losses[-1] < losses[0]
    made = trainer.save(tmp_path / "next")
    before, after = every(bundle, others), every(made, others)
    assert np.array_equal(before[-1], after[-1])
    agree = [(one[:-1].argmax(axis=2) == one[-1].argmax(axis=1)).mean() for one in (before, after)]
    assert agree[1] > agree[0]
    said, model = Bundle.open(made), Personaliser(made, threads=1)
    assert said.info.parent == Bundle.open(bundle).identity
    assert said.exits is not None
    assert model.thresholds == trainer.thresholds == said.exits.thresholds
    assert said.exits.temperatures == trainer.temperatures
    assert said.exits.calibration_samples is not None
    assert said.exits.calibration_samples >= 30
    assert said.exits.labelled is False
    answers = [one.label for one in model.predict_batch(np.stack(others))]
    final = [said.labels[row] for row in after[-1].argmax(axis=1)]
    same = np.mean([ours == theirs for ours, theirs in zip(answers, final, strict=True)])
    assert abs(trainer.accuracy(others) - same) < 0.02
    again = ExitsTrainer(made, threads=1)
    assert said.info.scores.device is not None
    assert again.before == said.info.scores.device.after
    assert (made / "exits.safetensors").stat().st_mode & 0o077 == 0


@slow
def test_the_step_trains_as_pytorch_does_and_labels_change_nothing_where_the_plan_has_no_use_for_them(
    bundle: Path,
) -> None:
    samples, labels = photos(0, 60)
    trainer = ExitsTrainer(bundle, threads=1)
    train = Bundle.open(bundle).info.train
    assert train is not None
    assert train.largest_loss_difference <= 1e-4
    trainer.add(samples, labels)
    first = trainer.train(epochs=3)
    twin = ExitsTrainer(bundle, threads=1)
    twin.add(samples)
    assert twin.train(epochs=3) == first


@slow
def test_labels_teach_where_the_plan_wants_them(task: Task, tmp_path: Path) -> None:
    made = trainable_exits(task, tmp_path, HeadsPlan("with-tail", supervised=1.0, distilled=0.0, against="best"))
    samples, labels = photos(0, 100)
    wrong = [str(6 - int(label)) for label in labels]
    accuracies = []
    for given in (labels, wrong):
        trainer = ExitsTrainer(made, threads=1)
        trainer.add(samples, given)
        trainer.train(epochs=3)
        accuracies.append(trainer.accuracy(*photos(100, 200)))
    assert accuracies[0] > accuracies[1]
    after = trainer.save(tmp_path / "next")
    others = photos(100, 150)[0]
    assert np.array_equal(every(made, others)[-1], every(after, others)[-1])
    assert not np.array_equal(every(made, others)[0], every(after, others)[0])


@slow
def test_few_new_samples_leave_the_thresholds(bundle: Path) -> None:
    trainer = ExitsTrainer(bundle, threads=1)
    before = trainer.thresholds, trainer.temperatures
    trainer.add(photos(0, LEAST)[0])
    trainer.train(epochs=1)
    assert (trainer.thresholds, trainer.temperatures) == before
    trainer.add(photos(LEAST, 40)[0])
    trainer.train(epochs=1)
    assert trainer.temperatures != before[1]


@slow
def test_what_cannot_be_trained_is_reported(bundle: Path, tmp_path: Path) -> None:
    trainer = ExitsTrainer(bundle, threads=1)
    with pytest.raises(BundleError, match="nothing new to train on: add samples first"):
        trainer.train()
    with pytest.raises(BundleError, match="there are 1 samples and 2 labels"):
        trainer.add(photos(0, 1)[0], ["1", "2"])
    with pytest.raises(BundleError, match="some samples have no label: add those in a call of their own"):
        trainer.add(photos(0, 2)[0], ["1", None])  # type: ignore[list-item]  # what a script may well do
    with pytest.raises(BundleError, match="has no label 'x'"):
        trainer.add(photos(0, 1)[0], ["x"])
    with pytest.raises(BundleError, match=r"trains its exits: use tuner\.runtime\.ExitsTrainer"):
        Trainer(bundle)
    copied = tmp_path / "copied"
    shutil.copytree(bundle, copied)
    (copied / "train/exit0.onnx").write_bytes(b"no model")
    with pytest.raises(BundleError, match="its hash differs"):
        ExitsTrainer(copied)


@slow
def test_a_stop_leaves_whole_epochs_and_a_failure_leaves_all_weights(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, samples = ExitsTrainer(bundle, threads=1), photos(0, 60)[0]
    trainer.add(samples)
    seen: list[int] = []

    def stopping(step: int, _steps: int) -> bool:
        seen.append(step)
        return len(seen) > 25

    assert len(trainer.train(epochs=4, watch=stopping)) in {1, 2}
    assert len(seen) == 26
    before = trainer.accuracy(samples), trainer.thresholds
    whole, asked = StepSession.weights, []

    def last_diverged(session: StepSession) -> dict[str, npt.NDArray[Any]]:
        asked.append(session)
        last = len(asked) == len(trainer.thresholds)
        return {name: one * np.nan if last else one for name, one in whole(session).items()}

    monkeypatch.setattr(StepSession, "weights", last_diverged)
    with pytest.raises(BundleError, match=r"no longer finite: lower recipe\.learning_rate"):
        trainer.train(epochs=1)
    assert (trainer.accuracy(samples), trainer.thresholds) == before


@slow
def test_the_order_of_samples_decides_nothing(bundle: Path) -> None:
    samples = photos(0, 120)[0]
    trainers = ExitsTrainer(bundle, threads=1), ExitsTrainer(bundle, threads=1)
    for trainer, given in zip(trainers, (samples, samples[::-1]), strict=True):
        trainer.add(given)
    held_out = [set(trainer._places) for trainer in trainers]
    assert held_out[0] == held_out[1]
    assert len(held_out[0]) == len(set(map(bytes, samples)))


@slow
def test_a_stream_without_labels_gets_exits_of_its_own(bundle: Path, tmp_path: Path) -> None:
    """The whole service: no label is given, a round trains, and what it accepts leaves earlier or agrees more often."""
    watched = tmp_path / "watched"
    shutil.copytree(bundle, watched)
    samples, _ = photos(0, 300)
    policy = Policy(watch=Watch(enough=250), conditions=ANY_TIME)
    world = World(draw=random.Random(0))
    with Orchestrator(watched, Ring(tmp_path / "ring"), local_training(watched, 1), policy, world) as service:
        for sample in samples:
            service.infer(sample)
        verdict = service.tend(wait=True)
        assert verdict is not None
        rounds = service.state.rounds
    assert "in agreement with the last exit" in rounds[-1].reason
    assert rounds[-1].accepted
    assert np.array_equal(every(bundle, samples[:50])[-1], every(watched, samples[:50])[-1])


def test_softened_answers_are_the_teachers() -> None:
    final = np.array([[2.0, 0.0, -1.0]], np.float32)
    found = exit_targets(HeadsPlan(temperature=2.0), final, np.array([1]), kind=SINGLE_LABEL)
    assert found[0, :3].tolist() == [1, 0, 0]
    soft = functional.softmax(torch.from_numpy(final) / 2, dim=1).numpy()
    np.testing.assert_allclose(found[:, 3:], soft, rtol=1e-6)


@slow
def test_exits_in_closed_form_are_solved_for_in_a_round(task: Task, tmp_path: Path) -> None:
    heads = HeadsPlan("exits-only", supervised=1.0, distilled=0.0, ridge=10.0)
    bundle = trainable_exits(task, tmp_path, heads)
    samples, labels = photos(0, 150)
    others, truths = photos(150, 250)
    trainer = ExitsTrainer(bundle, threads=1)
    trainer.add(samples, labels)
    assert trainer.train() == ()
    made = trainer.save(tmp_path / "next")
    before, after = every(bundle, others), every(made, others)
    assert np.array_equal(before[-1], after[-1])
    right = [(one[:-1].argmax(axis=2) == np.array(truths, int)).mean() for one in (before, after)]
    assert right[1] > right[0]
    policy = Bundle.open(made).exits
    assert policy is not None
    assert policy.calibration_samples == 150  # each by exits without its fold: none is withheld
    assert len(policy.temperatures) == len(policy.segments)
