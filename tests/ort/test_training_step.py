"""Training on the ordinary onnxruntime against PyTorch's eager loop, and what does not fit is refused."""

import copy
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import torch
from onnx import helper
from torch import nn
from torch.nn import functional

from tests.backends.torch.tails import (
    BATCH,
    OUTPUTS,
    PAIRS,
    Eager,
    Tail,
    batch_of,
    part_of,
    relative,
    step_of,
    tail_of,
    traced,
)
from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.traced import Step, StepError
from tuner.backends.torch.task_loss import StepLoss, torch_loss
from tuner.errors import TunerError
from tuner.ort.layout import StepFileError
from tuner.ort.training_step import StepSession, TrainingRows, train
from tuner.plan.parts import Optimiser, RecipePlan
from tuner.targets import LossSettings, MultiLabel, Regression, SingleLabel
from tuner.training.schedule import scheduled_rate
from tuner_onnx_steps.torch.write import model

pytestmark = pytest.mark.slow
STEPS = {"sgd": 10, "adam": 5, "adamw": 5}
RATES = {"sgd": 2e-3, "adam": 1e-4, "adamw": 1e-4}


def arrays(tail: nn.Module) -> dict[str, npt.NDArray[np.generic]]:
    return {name: value.detach().contiguous().numpy() for name, value in tail.state_dict().items()}


def session_of(step: Step, tail: nn.Module, folder: Path, seed: int = 0) -> StepSession:
    write(step, folder / "step.onnx")
    return StepSession(folder / "step.onnx", arrays(tail), seed=seed)


def compared(
    tail: Tail,
    step: Step,
    recipe: RecipePlan,
    folder: Path,
    apart: float = 1e-3,
    criterion: nn.Module | None = None,
) -> float:
    """Train on batches of changing sizes by both; return the largest relative difference of losses."""
    session = session_of(step, tail.module, folder, seed=3)
    eager = Eager(copy.deepcopy(tail.module), recipe, criterion)
    generator, noise = np.random.default_rng(0), np.random.default_rng(3)
    ours, theirs = [], []
    for index in range(STEPS[recipe.optimiser]):
        count = BATCH if index % 3 else 5
        rate = RATES[recipe.optimiser] * (1 - index / 40)
        batch = batch_of(step, generator)
        batch |= {name: noise.random(batch[name].shape, np.float32) for name in batch if name.startswith("noise")}
        batch = part_of(batch, count)
        ours.append(session.step(batch["input"].astype(np.float32), batch["label"], rate))
        theirs.append(eager.step(batch, rate))
    trained = session.weights()
    for name, value in eager.tail.state_dict().items():
        assert np.allclose(trained[name], value.numpy(), atol=apart), name
    return relative(ours, theirs)


RECIPES = [
    *((name, RecipePlan(optimiser=optimiser, weight_decay=0.01)) for name, optimiser in PAIRS),
    ("LeNet", RecipePlan(optimiser="sgd", clip=0.1)),
    ("ResNet-18, last 2", RecipePlan(optimiser="sgd", freeze_bn=False)),
]


@pytest.mark.parametrize(("name", "recipe"), RECIPES)
def test_losses_are_those_of_pytorch(name: str, recipe: RecipePlan, tmp_path: Path) -> None:
    assert compared(tail_of(name), step_of(name, recipe), recipe, tmp_path) < 1e-4


#: Losses other than cross-entropy, next to PyTorch's own.
LOSSES: Mapping[str, tuple[Optimiser, StepLoss, nn.Module]] = {
    "several labels": ("adamw", torch_loss(MultiLabel()), nn.BCEWithLogitsLoss()),
    "squared": ("adam", torch_loss(Regression()), nn.MSELoss()),
    "Huber": ("adam", torch_loss(Regression(LossSettings(delta=0.3))), nn.HuberLoss(delta=0.3)),
    "smoothed": (
        "adam",
        torch_loss(SingleLabel(LossSettings(label_smoothing=0.2))),
        nn.CrossEntropyLoss(label_smoothing=0.2),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_pytorchs(name: str, tmp_path: Path) -> None:
    optimiser, loss, criterion = LOSSES[name]
    recipe = RecipePlan(optimiser=optimiser, weight_decay=0.01)
    step = step_of("LeNet", recipe, loss)
    assert compared(tail_of("LeNet"), step, recipe, tmp_path, criterion=criterion) < 1e-4


def conv(inputs: int, outputs: int, kernel: int, rank: int = 2, **more: Any) -> nn.Module:
    return (nn.Conv1d if rank == 1 else nn.Conv2d)(inputs, outputs, kernel, **more)


class Scaled(nn.Module):
    """Times a number each, so that what follows has a gradient of its input."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, prod(shape)).reshape(shape))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * self.weight


class Attention(nn.Module):
    """Softmax attention in operators of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 18)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        query, key, content = self.inner(value).chunk(3, -1)
        mixed: torch.Tensor = torch.softmax(query @ key.transpose(-2, -1) / 2, -1) @ content
        return mixed


class Whole(nn.Module):
    """Numbers of rows."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return (3 * value.abs()).long().clamp(max=19)


class Gated(nn.Module):
    """A product of matrices beside a scaled value of another shape or type, which no operator adds in one."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Linear(6, 1, bias=False)
        self.wide = nn.Linear(6, 6, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = (value > 0) * 0.5 + self.wide(value * 0.1 + self.narrow(value))
        return outputs


class Sliced(nn.Module):
    """Channels from the middle, from the end, and up to the last but one."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return torch.cat([value[:, 1:3], value[:, -2:], value[:, :-1]], 1)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: conv(6, 4, 3, stride=2, padding=1), (6, 9, 8)),
        (lambda: conv(6, 4, 3, dilation=2), (6, 9, 8)),
        (lambda: conv(6, 4, 2, stride=3), (6, 9, 8)),
        (lambda: conv(6, 4, 1, stride=2), (6, 9, 8)),
        (lambda: conv(6, 4, 1, padding=1), (6, 5, 5)),
        (lambda: conv(6, 4, 3, padding=4), (6, 5, 5)),
        (lambda: conv(6, 4, 3, groups=2, padding=1), (6, 9, 8)),
        (lambda: conv(6, 6, 3, groups=6, padding=1), (6, 9, 8)),
        (lambda: conv(6, 6, 5, groups=6, stride=2, padding=2), (6, 9, 8)),
        (lambda: conv(6, 6, 3, groups=6, stride=2, padding=1, dilation=2), (6, 9, 8)),
        (lambda: conv(6, 12, 3, groups=6, padding=1), (6, 9, 8)),
        (lambda: conv(20, 4, 3, stride=2, padding=1), (20, 9, 8)),
        (lambda: conv(20, 4, 3, padding=4), (20, 5, 5)),
        (lambda: conv(6, 6, 3, groups=6, padding=1), (6, 5, 4)),
        (lambda: conv(6, 6, 3, groups=6, stride=2, padding=1, dilation=2, bias=False), (6, 9, 8)),
        (lambda: conv(6, 6, 5, groups=6, stride=2, padding=2), (6, 24, 20)),
        (lambda: conv(6, 6, 3, groups=6, padding=1, dilation=2), (6, 3, 102)),
        (lambda: conv(6, 6, 5, rank=1, groups=6, stride=2, padding=2), (6, 40)),
        (lambda: conv(6, 6, 3, rank=1, groups=6, padding=1), (6, 130)),
        (lambda: conv(6, 4, 5, rank=1, stride=2, padding=2), (6, 19)),
        (lambda: conv(6, 6, 3, rank=1, groups=6, padding=1), (6, 19)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.MaxPool2d(3, stride=2, padding=1)), (6, 9, 8)),
        (lambda: conv(3, 4, 3, rank=1, padding=2, dilation=2), (3, 20)),
        (lambda: conv(1, 4, 3, rank=1, stride=2, padding=1), (1, 20)),
        (lambda: conv(6, 6, 31, groups=6, padding=15), (6, 10, 10)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)), (6, 9, 7)),
        (lambda: nn.Sequential(conv(6, 4, 1), nn.ReLU(), nn.MaxPool2d(2, padding=1)), (6, 4, 4)),
        (lambda: nn.Sequential(conv(6, 4, 1, rank=1), nn.MaxPool1d(2, padding=1)), (6, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2)), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.MaxPool2d((2, 1), stride=(3, 2), ceil_mode=True)), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 1), nn.MaxPool2d(2, stride=4, ceil_mode=True)), (6, 8, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.MaxPool2d(2, dilation=2)), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True)), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.AvgPool2d(2, count_include_pad=False, padding=1)), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.AdaptiveAvgPool2d((3, 4))), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.Upsample(scale_factor=1.7, mode="bilinear")), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.Upsample((3, 11), mode="bilinear")), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.Upsample((1, 9), mode="bilinear", align_corners=True)), (6, 9, 8)),
        (lambda: nn.Sequential(conv(6, 4, 5, rank=1), nn.MaxPool1d(2), nn.Dropout1d(0.3)), (6, 19)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.Dropout2d(0.4)), (6, 9, 8)),
        (lambda: nn.Sequential(nn.LayerNorm(6), Attention(), nn.GELU(), nn.Linear(6, 4), nn.SiLU()), (5, 6)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.GroupNorm(2, 4), nn.LeakyReLU(0.1), nn.Sigmoid()), (6, 9, 8)),
        (lambda: nn.Sequential(Sliced(), conv(9, 4, 3)), (6, 5, 5)),
        (lambda: nn.Sequential(conv(6, 4, 3), nn.Tanh(), nn.ELU(), nn.Hardsigmoid()), (6, 9, 8)),
        (Gated, (6,)),
        (lambda: nn.Sequential(Whole(), nn.Embedding(20, 6), nn.Linear(6, 3)), (7,)),
        (lambda: nn.Sequential(Whole(), nn.Embedding(20, 6, padding_idx=2), nn.GELU()), (7,)),
    ],
)
def test_layers_train_as_in_pytorch(layer: Callable[[], nn.Module], shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    body = nn.Sequential(Scaled(shape), layer(), nn.Flatten())
    features = body(torch.zeros(2, *shape)).shape[1]
    tail = Tail(nn.Sequential(body, nn.Linear(features, OUTPUTS)), shape)
    recipe = RecipePlan(optimiser="sgd")
    assert compared(tail, traced(tail, recipe), recipe, tmp_path, apart=1e-6) < 1e-4


class Masked(nn.Module):
    """Classes that are not there have a logit of minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, OUTPUTS)
        self.absent: torch.Tensor
        self.register_buffer("absent", torch.tensor([0.0] * (OUTPUTS - 1) + [-torch.inf]))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(value) + self.absent
        return outputs


def test_an_absent_class_costs_nothing(tmp_path: Path) -> None:
    tail = Tail(Masked(), (4,))
    session = session_of(traced(tail, RecipePlan(optimiser="sgd")), tail.module, tmp_path)
    loss = session.step(np.ones((BATCH, 4), np.float32), np.arange(BATCH), 1e-3)
    assert np.isfinite(loss)


class Dead(nn.Module):
    """Half of the units never fire; one parameter is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.outer = nn.Linear(8, OUTPUTS)
        self.unused = nn.Parameter(torch.ones(3))
        nn.init.constant_(self.inner.bias[:4], -100.0)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.outer(functional.relu(self.inner(value)))
        return outputs


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_dead_units_stay_numbers(optimiser: Optimiser, tmp_path: Path) -> None:
    with torch.no_grad():
        tail = Tail(Dead(), (4,))
    recipe = RecipePlan(optimiser=optimiser, weight_decay=0.0)
    step = traced(tail, recipe)
    session = session_of(step, tail.module, tmp_path)
    batch = batch_of(step, np.random.default_rng(0))
    losses = [session.step(batch["input"].astype(np.float32), batch["label"], 1e-2) for _ in range(5)]
    trained, before = session.weights(), arrays(tail.module)
    assert losses[-1] < losses[0]
    assert all(np.isfinite(value).all() for value in trained.values())
    assert np.array_equal(trained["inner.weight"][:4], before["inner.weight"][:4])
    assert np.array_equal(trained["unused"], before["unused"])


def test_epochs_follow_the_recipe(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((21, 64), np.float32)
    labels = generator.integers(0, OUTPUTS, 21)
    recipe = RecipePlan(epochs=3, batch_size=BATCH, optimiser="sgd", learning_rate=0.05, schedule="cosine")
    tail = tail_of("linear head")
    session = session_of(traced(tail, recipe), tail.module, tmp_path)
    eager = Eager(copy.deepcopy(tail.module), recipe)
    reported: list[tuple[int, int]] = []

    def watch(step: int, steps: int) -> bool:
        reported.append((step, steps))
        return step == 8

    found = list(train(session, TrainingRows(lambda rows: features[rows], labels), recipe, 5, watch))
    order, step, means = np.random.default_rng(5), 0, []
    for _ in range(3):
        shuffled, total = order.permutation(21), 0.0
        for begin in range(0, 21, BATCH):
            rows = shuffled[begin : begin + BATCH]
            total += len(rows) * eager.step(
                {"input": features[rows], "label": labels[rows]}, scheduled_rate(recipe, step, 9)
            )
            step += 1
        means.append(total / 21)
    assert reported == [(index, 9) for index in range(1, 9)]
    assert [stopped for _, stopped in found] == [False, False, True]
    assert relative([mean for mean, _ in found[:2]], means[:2]) < 1e-5


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    tail = tail_of("linear head")
    recipe = RecipePlan(epochs=2, batch_size=BATCH, optimiser="sgd", learning_rate=0.5)
    session = session_of(traced(tail, recipe), tail.module, tmp_path)
    rows = TrainingRows(lambda rows: np.full((len(rows), 64), np.inf, np.float32), np.zeros(4, np.int64))
    with pytest.raises(TunerError, match=r"the loss became nan in epoch 1: lower recipe.learning_rate, which is 0.5"):
        list(train(session, rows, recipe, 0))


def test_a_file_that_is_no_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    after = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [info], [after])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    with pytest.raises(StepFileError, match=r"a training step of format 1 is wanted, but .*other\.onnx holds none"):
        StepSession(path, {})
    path.write_bytes(b"no")
    with pytest.raises(StepFileError, match=r"cannot load .*other\.onnx"):
        StepSession(path, {})


def test_weights_and_batches_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tail = tail_of("linear head")
    step = traced(tail, RecipePlan())
    weights, session = arrays(tail.module), session_of(step, tail.module, tmp_path)
    with pytest.raises(StepFileError, match="takes 1 to 8 samples, got 9: give fewer at a time"):
        session.step(np.zeros((9, 64), np.float32), np.zeros(9, np.int64), 0.1)
    rows = TrainingRows(lambda rows: np.zeros((len(rows), 64), np.float32), np.zeros(9, np.int64))
    with pytest.raises(
        StepFileError, match=r"takes batches of at most 8 samples, but recipe.batch_size is 32: give at most 8"
    ):
        list(train(session, rows, RecipePlan(batch_size=32), 0))
    with pytest.raises(StepFileError, match=r"trains weight of shape \[10, 64\], but the weights have shape \[2\]"):
        StepSession(tmp_path / "step.onnx", {**weights, "weight": np.zeros(2)})
    with pytest.raises(StepFileError, match="but the weights are not there"):
        StepSession(tmp_path / "step.onnx", {"bias": weights["bias"]})


class Sorted(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value.sort(-1).values


def test_an_operator_without_a_form_is_named() -> None:
    tail = Tail(nn.Sequential(Sorted(), nn.Linear(4, OUTPUTS)), (4,))
    with pytest.raises(
        StepError, match=r"a step with aten.sort.default has no ONNX form: train it with --backend torch"
    ):
        model(traced(tail, RecipePlan()))
