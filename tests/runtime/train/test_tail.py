"""A bundle trains again without PyTorch, keeps what it knew, and refuses what it cannot take."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from tests.runtime.bundles import BATCH, trainable_bundle
from tuner.backends.torch.export.trainable import step_check
from tuner.backends.torch.export.trainable import tail as trainable
from tuner.backends.torch.export.trainable.tail import refuse_untrainable
from tuner.backends.torch.step.trace import trace
from tuner.bundle.format import FILE, file_hash
from tuner.bundle.replay import Replay
from tuner.bundle.scores import DeviceScores
from tuner.errors import BundleError, TunerError
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.runtime import Bundle, Personaliser, Trainer
from tuner.runtime.train.tail import mixed_rows
from tuner.store.codec import Codec
from tuner.task.builtin import digits
from tuner.task.spec import Pretrain
from tuner_onnx_steps.torch import write as lower

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


def known_digits() -> Any:
    task = digits()
    return replace(task, model=replace(task.model, pretrain=Pretrain(epochs=4, learning_rate=3e-3)))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trainable_bundle(known_digits(), tmp_path_factory.mktemp("bundle"))


def photos(count: int) -> tuple[list[npt.NDArray[Any]], list[str]]:
    """Return new digits of a user who writes a pixel further down."""
    samples = digits().local.test
    assert samples is not None
    chosen = range(min(count, len(samples)))
    return [np.roll(samples.load(index), 1, axis=1) for index in chosen], [
        str(samples.labels[index]) for index in chosen
    ]


def test_it_learns_new_samples_and_forgets_little(bundle: Path, tmp_path: Path) -> None:
    samples, labels = photos(100)
    trainer = Trainer(bundle, threads=1)
    trainer.add(samples[:60], labels[:60])
    before, known = trainer.accuracy(samples[60:], labels[60:]), trainer.global_accuracy()
    losses = trainer.train(epochs=3)
    after, kept = trainer.accuracy(samples[60:], labels[60:]), trainer.global_accuracy()
    assert len(losses) == 3
    assert after > before
    assert known is not None
    assert kept is not None
    assert kept >= known - 0.03
    made = trainer.save(tmp_path / "next")
    opened, parent = Bundle.open(made), Bundle.open(bundle)
    assert opened.info.parent == parent.identity
    assert parent.info.unknown is not None
    assert opened.info.unknown is None  # measured on features that have changed
    assert opened.info.scores.device == DeviceScores(known, kept, tuple(losses), 60)
    personaliser = Personaliser(made, threads=1)
    right = [personaliser.predict(one).label == label for one, label in zip(samples[60:], labels[60:], strict=True)]
    assert abs(float(np.mean(right)) - after) < 0.03
    again = Trainer(made, threads=1)
    assert again.global_accuracy() == kept
    trained, given = load_file(made / "weights.safetensors"), load_file(bundle / "weights.safetensors")
    moved = {name for name in given if not np.array_equal(trained[name], given[name])}
    assert moved
    assert {name: value.shape for name, value in trained.items()} == {name: one.shape for name, one in given.items()}
    assert opened.info.train is not None
    assert moved <= set(opened.info.train.weights)
    assert (made / "train").stat().st_mode & 0o077 == 0


def test_smaller_batches_train_otherwise_and_larger_ones_than_the_steps_are_refused(bundle: Path) -> None:
    samples, labels = photos(BATCH + 4)
    ours, smaller = Trainer(bundle, threads=1), Trainer(bundle, threads=1)
    ours.add(samples, labels)
    smaller.add(samples, labels)
    assert smaller.train(epochs=1, batch_size=5) != ours.train(epochs=1)
    with pytest.raises(TunerError, match=f"takes batches of at most {BATCH} samples, but recipe.batch_size is 64"):
        ours.train(batch_size=64)


def test_a_whole_model_with_norms_that_train_is_trained_from_pixels(tmp_path: Path) -> None:
    made = trainable_bundle(known_digits(), tmp_path, split=0, freeze_bn=False, optimiser="sgd", epochs=1)
    samples, labels = photos(20)
    trainer = Trainer(made, threads=1)
    trainer.add(samples, labels)
    trainer.train(epochs=1)
    assert Personaliser(trainer.save(tmp_path / "next"), threads=1).predict(samples[0]).label


def test_what_a_trainer_cannot_take_is_reported(bundle: Path) -> None:
    samples, _ = photos(2)
    trainer = Trainer(bundle, threads=1)
    with pytest.raises(BundleError, match="nothing new to train on: add samples first"):
        trainer.train()
    with pytest.raises(BundleError, match=r"digits has no label 'x'.*`tuner apply` trains new ones"):
        trainer.add(samples[:1], ["x"])
    with pytest.raises(BundleError, match=r"takes samples of shape \[1, 8, 8\], but sample 0 has \[2, 8, 8\]"):
        trainer.add([np.zeros((2, 8, 8), np.float32)], ["1"])
    with pytest.raises(BundleError, match="there are 2 samples and 1 labels"):
        trainer.add(samples, ["1"])


def changed(bundle: Path, folder: Path, **content: Any) -> Path:
    """Return a copy of a bundle whose description says something else."""
    shutil.copytree(bundle, folder)
    info = json.loads((folder / FILE).read_text(encoding="utf-8"))
    (folder / FILE).write_text(json.dumps(info | content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("content", "train", "says"),
    [
        ({"format": 9}, {}, "has bundle format 9, this version reads 1: update tuner"),
        ({}, {"format": 9}, "has training format 9, this version reads 1: update tuner"),
        (
            {},
            {"kind": "closed-form"},
            "has a training of kind 'closed-form', not Trainer's: use tuner.runtime.SolvingTrainer",
        ),
        ({}, {"kind": "by-hand"}, "has a training of kind 'by-hand', not Trainer's: update tuner"),
        (
            {"loss": "hinge"},
            {},
            "loss must be single-label or multi-label or regression, got 'hinge': update tuner",
        ),
        ({"train": None}, {}, "cannot be trained: export it with `tuner export RUN OUT --trainable`"),
    ],
)
def test_bundles_of_other_versions_and_losses_are_refused(
    content: dict[str, Any], train: dict[str, Any], says: str, bundle: Path, tmp_path: Path
) -> None:
    made = Bundle.open(bundle).info.train
    assert made is not None
    with pytest.raises(BundleError, match=says):
        Trainer(changed(bundle, tmp_path / "copy", **{"train": {**made.to_dict(), **train}, **content}))


@pytest.mark.parametrize("name", ["train/step.onnx", "train/tail.onnx", "train/replay.safetensors"])
def test_a_part_that_was_changed_is_refused_by_its_name(bundle: Path, tmp_path: Path, name: str) -> None:
    copied = changed(bundle, tmp_path / "copy")
    part = copied / name
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(BundleError, match=f"{name} is not what was exported .its hash differs.: export again"):
        Trainer(copied)
    part.unlink()
    with pytest.raises(BundleError, match=f"lacks {name}: copy the whole folder"):
        Trainer(copied)


def test_a_step_of_another_format_is_refused(bundle: Path, tmp_path: Path) -> None:
    copied = changed(bundle, tmp_path / "copy")
    part = copied / "train/step.onnx"
    part.write_bytes(part.read_bytes().replace(b'{"format": 1', b'{"format": 7'))
    files = Bundle.open(bundle).info.files
    info = json.loads((copied / FILE).read_text(encoding="utf-8"))
    info["files"] = {**files, "train/step.onnx": file_hash(part)}
    (copied / FILE).write_text(json.dumps(info), encoding="utf-8")
    trainer = Trainer(copied, threads=1)
    trainer.add(*photos(4))
    with pytest.raises(TunerError, match=r"format 1 is wanted, but .*step.onnx holds format 7: export it again"):
        trainer.train()


def test_an_operator_without_a_form_is_reported_at_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(lower.FORMS, torch.ops.aten.convolution_backward.default)
    monkeypatch.setattr(lower, "core_aten_decompositions", dict)
    with pytest.raises(
        BundleError, match=r"aten\.convolution_backward\.default.* cannot write it: export without --trainable"
    ):
        trainable_bundle(known_digits(), tmp_path, epochs=1)
    assert not (tmp_path / "bundle").exists()


def test_a_step_that_trains_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decayed(tail: nn.Module, recipe: RecipePlan, **given: Any) -> Any:
        return trace(tail, replace(recipe, weight_decay=0.5), **given)

    monkeypatch.setattr(trainable, "trace", decayed)
    with pytest.raises(
        BundleError, match=r"from PyTorch's, and by .* in double precision, where 0.0001 is allowed: export"
    ):
        trainable_bundle(known_digits(), tmp_path, epochs=1, optimiser="sgd")


def test_a_step_is_compared_with_double_precision_where_pytorch_itself_deviates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strayed(batch: torch.Tensor) -> torch.Tensor:
        return batch * 1.01 if batch.dtype == torch.float32 else batch

    monkeypatch.setattr(step_check, "spatial", strayed)
    made = trainable_bundle(known_digits(), tmp_path, epochs=1)
    train = Bundle.open(made).info.train
    assert train is not None
    assert train.largest_loss_difference > step_check.TOLERANCE


def test_a_tail_with_weights_of_its_own_is_refused() -> None:
    plan = TrialPlan(example_model(3), example_task())
    with pytest.raises(
        BundleError, match="has a weight weight that the model does not have: export without --trainable"
    ):
        refuse_untrainable(nn.Linear(2, 2), {}, plan)


def replay(labels: list[int]) -> Replay:
    codec = Codec(32, (2,))
    return Replay(codec, codec.encode(np.ones((len(labels), 2), np.float32)), np.array(labels))


def test_global_samples_weigh_and_classes_are_balanced_as_in_the_trial() -> None:
    rows = mixed_rows(DataPlan(0.1, weight=4.0, balance=True), replay([0] * 9), replay([1]))
    assert rows.weights is not None
    assert rows.weights.tolist() == [1.0] * 9 + [4.0]
    assert rows.order is not None
    assert np.bincount(rows.labels[rows.order(np.random.default_rng(0))]).tolist() == [5, 5]
