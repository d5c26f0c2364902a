"""A training step as signatures of a TFLite file: LiteRT trains as ONNX Runtime does."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from tools import kept_steps
from tuner.bundle.format import CONFORMANCE, MODEL, WEIGHTS, Bundle
from tuner.ort.session import Session
from tuner.runtime.train.files import STEP
from tuner_conformance.files import TENSORS, compared
from tuner_tflite.file import file_of
from tuner_tflite.graph import RefusedError
from tuner_tflite.interpreter import Training, runners
from tuner_tflite.signatures import compare, signatures, training_signatures
from tuner_tflite.write import interface

pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")

BUNDLE = Path(__file__).parents[2] / "fixtures" / "digits" / "bundle"
STEPS, MOST = 20, 1e-4


@pytest.fixture(scope="module")
def written() -> tuple[Training, bytes]:
    """Return the training of a convolution, a norm and a dense layer by SGD, and its file."""
    training = Training.of(BUNDLE)
    sample = np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32)
    return training, file_of(signatures(training, interface("arrays", (), (), 1, "SOFTMAX"), sample, frozen=True), "")


def test_twenty_steps_have_the_losses_of_onnx_runtime(written: tuple[Training, bytes]) -> None:
    training, content = written
    draw = np.random.default_rng(1)
    features = draw.normal(size=training.layout.only("input").shape).astype(np.float32)
    labels = [draw.integers(0, 10, len(features)) for _ in range(STEPS)]
    assert compare(training, content, features, labels, 0.01)[0] < MOST


def test_the_kept_twenty_steps_have_the_kept_losses(tmp_path: Path) -> None:
    folder = kept_steps.write(tmp_path / "bundle")
    checks = {one.name: one for one in compared(Bundle.open(folder), folder / CONFORMANCE)}
    assert all(one.holds for one in checks.values())
    assert {"losses", "losses.LiteRT"} <= checks.keys()
    assert checks["losses.LiteRT"].values == STEPS
    path = folder / CONFORMANCE / TENSORS
    tensors = load_file(path)
    save_file({**tensors, "expected.losses": tensors["expected.losses"] + 0.01}, path)
    broken = {one.name for one in compared(Bundle.open(folder), folder / CONFORMANCE) if not one.holds}
    assert broken == {"losses", "losses.LiteRT"}


def test_a_sample_is_answered_and_a_training_continues_from_what_was_saved(written: tuple[Training, bytes]) -> None:
    content, draw = written[1], np.random.default_rng(2)
    run, session = runners(content), Session(BUNDLE / MODEL, 1)
    sample = draw.normal(size=(1, 1, 8, 8)).astype(np.float32)
    features = run["features"](sample=sample)["features"]
    assert np.abs(features - session.features(sample)).max() < MOST
    logits = session.logits(sample)
    answer = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(run["infer"](input=features)["answer"] - answer).max() < MOST
    batch = {"input": np.repeat(features, 16, 0), "label": np.arange(16, dtype=np.int32) % 10}
    batch |= {"sample_weight": np.ones(16, np.float32), "learning_rate": np.array([0.1], np.float32)}
    run["train"](**batch)
    saved = run["save"](unused=np.zeros(1, np.float32))
    assert all(len(detail["shape"]) for own in run.values() for detail in own.get_input_details().values())
    next_losses = [run["train"](**batch)["loss"] for _ in range(2)]
    other = runners(content)
    other["restore"](**saved)
    assert [other["train"](**batch)["loss"] for _ in range(2)] == next_losses
    assert np.abs(other["infer"](input=features)["answer"] - answer).max() > MOST


def test_adam_norms_that_train_dropout_and_convolutions_with_strides(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    write = pytest.importorskip("tuner_onnx_steps.torch.write").write
    from tuner.backends.torch.step.trace import trace
    from tuner.backends.torch.task_loss import CROSS_ENTROPY
    from tuner.plan.parts import RecipePlan

    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(8, 16, 1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU6())
    strides = torch.nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=16)
    ends = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 5))
    tail, recipe = (
        torch.nn.Sequential(*layers, strides, *ends),
        RecipePlan(optimiser="adam", batch_size=4, freeze_bn=False),
    )
    (tmp_path / STEP).parent.mkdir()
    step = trace(tail, recipe, loss=CROSS_ENTROPY, input_shape=(8, 14, 14), outputs=5, batch_size=4)
    write(step, tmp_path / STEP)
    save_file({name: value.numpy(force=True) for name, value in tail.state_dict().items()}, tmp_path / WEIGHTS)
    training = Training.of(tmp_path)
    content = file_of(training_signatures(training, []), "")
    draw = np.random.default_rng(1)
    features, labels = draw.normal(size=(4, 8, 14, 14)).astype(np.float32), draw.integers(0, 5, (STEPS, 4))
    assert compare(training, content, features, list(labels), 1e-3)[0] < MOST


def test_an_operator_of_a_step_that_is_not_written_is_named(tmp_path: Path) -> None:
    shutil.copytree(BUNDLE, tmp_path, dirs_exist_ok=True)
    model = onnx.load(tmp_path / STEP)
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Erf"
    onnx.save(model, tmp_path / STEP)
    with pytest.raises(RefusedError, match="does not write Erf"):
        training_signatures(Training.of(tmp_path), [])
