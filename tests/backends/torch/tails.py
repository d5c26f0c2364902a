"""Tails of real architectures, their traced and planned steps, and the eager training that these answer to."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model.graph.kinds import NORMS
from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.model.graph.nodes import chain
from tuner.backends.torch.model.vision import torchvision
from tuner.backends.torch.step.optimiser import clip_gradients, optimiser
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import Step
from tuner.backends.torch.task_loss import CROSS_ENTROPY, StepLoss
from tuner.plan.parts import Optimiser, RecipePlan
from tuner_planned.torch.bound_step import Program, bound, held_by
from tuner_planned.torch.program import program

OUTPUTS, BATCH = 10, 8
Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """A module, and the shape of one sample that it takes."""

    module: nn.Module
    input_shape: tuple[int, ...]


def linear() -> Tail:
    return Tail(nn.Linear(64, OUTPUTS), (64,))


def lenet() -> Tail:
    net = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, OUTPUTS),
    )  # fmt: skip
    return Tail(net, (1, 28, 28))


def mobilenet(split: int, size: int = 96) -> Tail:
    """Blocks from `split` on: 17 cuts after f16, 14 after f13."""
    found = chain(torchvision().models.mobilenet_v2(num_classes=OUTPUTS), torch.zeros(1, 3, size, size))
    return _after(found.prefix(split), found.tail(split), size)


def resnet(size: int = 64) -> Tail:
    """ResNet-18's last basic block and its classifier."""
    found = chain(torchvision().models.resnet18(num_classes=OUTPUTS), torch.zeros(1, 3, size, size))
    split = len(found.blocks) - 2
    return _after(found.prefix(split), found.tail(split), size)


class OverTime(nn.Module):
    """Layers over a sequence [n, 6, 6]: recurrent, attention, weights that are looked up, a norm of weights."""

    places: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(6, 8, batch_first=True)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.table = nn.Parameter(torch.randn(5, 8))
        self.register_buffer("places", torch.arange(6) % 5)
        self.mixed = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 3))
        self.head = nn.Linear(8, OUTPUTS)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = self.attention(self.recurrent(value)[0] + self.table[self.places])
        value = self.mixed(value[:, ::2].transpose(1, 2))
        logits: torch.Tensor = self.head(value.mean(dim=-1) / torch.linalg.vector_norm(value, dim=-1))
        return logits


def _after(prefix: nn.Module, tail: nn.Module, size: int) -> Tail:
    with torch.no_grad():
        shape = prefix.eval()(torch.zeros(1, 3, size, size)).shape[1:]
    for module in tail.modules():  # statistics that differ from channel to channel, as trained ones do
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return Tail(tail, tuple(shape))


MADE: Mapping[str, Callable[[], Tail]] = {
    "linear head": linear,
    "LeNet": lenet,
    "MobileNetV2 after f16": lambda: mobilenet(17),
    "MobileNetV2 after f13": lambda: mobilenet(14),
    "ResNet-18, last 2": resnet,
    "LSTM and attention": lambda: Tail(OverTime(), (6, 6)),
}
#: Those that every engine trains; the longest is for what depends on how long one is.
ALL_TAILS = tuple(name for name in MADE if name != "MobileNetV2 after f13")
#: Those that memory is planned for.
TAILS = ALL_TAILS[:-1]
#: Each optimiser on the small tails, and one on each of the others: an update is of a gradient, whatever it is of.
PAIRS: Sequence[tuple[str, Optimiser]] = [
    *((name, optimiser) for name in ("linear head", "LeNet") for optimiser in ("sgd", "adam", "adamw")),
    ("MobileNetV2 after f16", "adam"),
    ("ResNet-18, last 2", "adamw"),
    ("LSTM and attention", "sgd"),
]


@cache
def _made(name: str) -> Tail:
    torch.manual_seed(0)
    return MADE[name]()


def tail_of(name: str) -> Tail:
    """Return a copy of a tail, with the same weights each time: building one takes seconds."""
    return Tail(copy.deepcopy(_made(name).module), _made(name).input_shape)


def traced(tail: Tail, recipe: RecipePlan, loss: StepLoss = CROSS_ENTROPY, *, padded: bool = True) -> Step:
    return trace(
        tail.module, recipe, loss=loss, input_shape=tail.input_shape, outputs=OUTPUTS, batch_size=BATCH, padded=padded
    )


@cache
def step_of(name: str, recipe: RecipePlan, loss: StepLoss = CROSS_ENTROPY, *, padded: bool = True) -> Step:
    """Trace a tail's step, once a process, which takes seconds: no test changes one."""
    return traced(tail_of(name), recipe, loss, padded=padded)


class Planned:
    """Runs a step's program on a tail's own weights."""

    def __init__(self, step: Step, tail: nn.Module, made: Program | None = None) -> None:
        self.program = made or program(step)
        self._run = bound(self.program, held_by(step, tail))
        self._count = 0

    def step(self, batch: Arrays, rate: float, weight: tuple[float, ...] = (1.0,) * BATCH) -> float:
        self._count += 1
        given = {name: torch.from_numpy(value) for name, value in batch.items()}
        given["input"] = spatial(given["input"])
        given |= {
            "sample_weight": torch.tensor(weight),
            "learning_rate": torch.tensor(rate),
            "step_count": torch.tensor(float(self._count)),
        }
        return float(self._run(*[given[name] for name in self.program.batch]))


class Eager:
    """The eager loop's step, with the noise of dropouts given; pads nothing. A criterion of PyTorch may be given."""

    def __init__(self, tail: nn.Module, recipe: RecipePlan, criterion: nn.Module | None = None) -> None:
        self.tail, self._criterion = channels_last(tail).train(), criterion
        self.noise: list[torch.Tensor] = []
        for module in tail.modules():
            if recipe.freeze_bn and isinstance(module, NORMS):
                module.eval()
            if isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d) and module.p > 0:
                module.forward = self._dropout(float(module.p))  # type: ignore[assignment,method-assign]  # for the test's sake
        self._optimiser, self._recipe = optimiser(list(tail.parameters()), recipe), recipe

    def _dropout(self, probability: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda value: value * (self.noise.pop(0) >= probability) / (1 - probability)

    def step(self, values: Arrays, rate: float) -> float:
        """Train on a batch: `input`, `label` and noises by name; return the loss."""
        self.noise = [torch.from_numpy(values[name]) for name in sorted(values) if name.startswith("noise")]
        label = torch.from_numpy(values["label"])
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad()
        outputs = self.tail(spatial(torch.from_numpy(values["input"])))
        if self._criterion is not None:
            loss: torch.Tensor = self._criterion(outputs, label)
        elif label.is_floating_point():
            loss = functional.binary_cross_entropy_with_logits(outputs, label)
        else:
            loss = functional.cross_entropy(outputs, label)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        clip_gradients(self.tail.parameters(), self._recipe)
        self._optimiser.step()
        return float(loss.detach())


def batch_of(step: Step, generator: np.random.Generator) -> dict[str, npt.NDArray[np.generic]]:
    """Return random inputs and noises of a step; labels are those of the loss it was traced with."""
    found: dict[str, npt.NDArray[np.generic]] = {}
    for port in step.inputs:
        if port.kind == "input":
            found[port.name] = generator.standard_normal(port.shape, np.float32)
        elif port.kind == "noise":
            found[port.name] = generator.random(port.shape, np.float32)
        elif port.kind == "label" and port.dtype == "int64":
            found[port.name] = generator.integers(0, OUTPUTS, port.shape)
        elif port.kind == "label":
            found[port.name] = generator.integers(0, 2, port.shape).astype(np.float32)
    return found


def first_values(step: Step, tail: nn.Module) -> dict[str, torch.Tensor]:
    """Return what a step takes of the tail before the first step: copies of weights and buffers, states of zero."""
    state = tail.state_dict()
    kept = {port.name: state[port.name].detach().clone() for port in step.inputs if port.name in state}
    return kept | {port.name: torch.zeros(port.shape) for port in step.inputs if port.kind == "state"}


def part_of(values: Arrays, count: int) -> dict[str, npt.NDArray[np.generic]]:
    """Return the first samples of a batch."""
    return {name: value[:count] for name, value in values.items()}


def relative(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the largest difference, relative to the second."""
    return float(np.max(np.abs(np.array(ours) - np.array(theirs)) / np.abs(theirs)))
