"""A model file's network in PyTorch, and what a training step of it takes: by the planned executor, by the eager loop.

Used by `benchmarks.papers.nntrainer_table4`, which runs every arm in a fresh process:
``python -m benchmarks.papers.table4_measured FILE planned|eager``.

The twin has the network's layers, batch and mean squared error, and plain SGD. Stride-2 convolutions pad both sides by
one where NNTrainer's "same" pads one: sizes are equal. The LSTM is unrolled over its one step.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.planned.bound_step import bound, held_by
from tuner.backends.torch.planned.program import program
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.task_loss import torch_loss
from tuner.plan.parts import RecipePlan
from tuner.planner.memory.placement import max_live
from tuner.process_memory import PeakMeter, return_freed
from tuner.processors import usable_processors
from tuner.targets import Regression
from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.network.layers import (
    Activation,
    Addition,
    Conv2d,
    Flatten,
    FullyConnected,
    Input,
    Lstm,
    MultiOut,
)
from tuner_nntrainer.network.network import Network, Node

STEPS = 3
RATE = 1e-3
ARMS = ("planned", "eager")


class Twin(nn.Module):
    """A network of the planner's in PyTorch; takes [n, channels, height, width], returns [n, outputs].

    Raises:
        ValueError: It has a layer that Table 4 has not.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._nodes = network.nodes
        shapes = [node.traits.shape for node in network.nodes]
        given = [shapes[node.inputs[0][0]] if node.inputs else shapes[at] for at, node in enumerate(network.nodes)]
        self.layers = nn.ModuleList(_layer(node, shape) for node, shape in zip(network.nodes, given, strict=True))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Run the layers in the network's order; what a layer no longer needs is let go."""
        last = {at: index for index, node in enumerate(self._nodes) for at, _ in node.inputs}
        values: dict[int, torch.Tensor] = {}
        for index, (node, layer) in enumerate(zip(self._nodes, self.layers, strict=True)):
            read = [values[at] for at, _ in node.inputs] or [value]
            values[index] = read[0] + read[1] if isinstance(node.operation, Addition) else layer(read[0])
            for at, _ in node.inputs:
                if last[at] == index:
                    values.pop(at, None)
        return values[len(self._nodes) - 1].flatten(1)


class OneStep(nn.Module):
    """An LSTM over a sequence of one step, [n, 1, 1, features] to [n, units]."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(features, units)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the hidden state after the step."""
        zeros = value.new_zeros(value.shape[0], self.cell.hidden_size)
        hidden: torch.Tensor = self.cell(value.flatten(1), (zeros, zeros))[0]
        return hidden


class Dense(nn.Linear):
    """A linear layer on samples of any shape."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return [n, units]."""
        return super().forward(value.flatten(1))


def _layer(node: Node, given: tuple[int, ...]) -> nn.Module:
    """Return a node's module; `given` is the shape of one sample of its input."""
    size = 1
    for one in given:
        size *= one
    match node.operation:
        case FullyConnected(unit, bias):
            return Dense(size, unit, bias)
        case Conv2d(filters, kernel, stride, _, bias):
            return nn.Conv2d(given[0], filters, kernel, stride, (kernel[0] // 2, kernel[1] // 2), bias=bias)
        case Lstm(unit):
            return OneStep(size, unit)
        case Activation("relu"):
            return nn.ReLU()
        case Activation("sigmoid"):
            return nn.Sigmoid()
        case Input() | MultiOut() | Addition() | Flatten():
            return nn.Identity()
        case other:
            raise ValueError(f"Table 4 has no layer such as {other}")


def measured(file: Path, arm: str) -> dict[str, float]:
    """Return an arm's bytes, in a fresh process: `peak` with weights and batch, and `expected` by the executor."""
    command = [sys.executable, "-m", "benchmarks.papers.table4_measured", str(file), arm]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def planned(network: Network) -> dict[str, float]:
    """Return what the planned executor takes and what it plans, in bytes."""
    tail, value, label = _given(network)
    recipe = RecipePlan(optimiser="sgd", batch_size=network.batch_size, momentum=0.0)
    step = trace(
        tail, recipe, loss=torch_loss(Regression()), input_shape=value.shape[1:], outputs=label.shape[1],
        batch_size=network.batch_size, padded=False,
    )  # fmt: skip
    made = program(step)
    numbers = {"sample_weight": torch.ones(len(value)), "learning_rate": torch.tensor(RATE)}
    given = {"input": value, "label": label, **numbers}
    run = bound(made, held_by(step, tail))
    batch = [given[name] for name in made.batch]
    found = _peak(lambda: run(*batch), tail, value, label)
    return {"peak": found, "expected": float(max_live(made.tensors))}


def eager(network: Network) -> dict[str, float]:
    """Return what PyTorch's eager loop takes, in bytes."""
    tail, value, label = _given(network)
    optimiser = torch.optim.SGD(tail.parameters(), lr=RATE)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        functional.mse_loss(tail(value), label).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()

    return {"peak": _peak(step, tail, value, label)}


def _given(network: Network) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return the twin and a batch: inputs [n, channels, height, width], labels float32 [n, outputs]."""
    torch.manual_seed(0)
    tail = channels_last(Twin(network))
    value = spatial(torch.randn(network.batch_size, *network.nodes[0].traits.shape))
    with torch.no_grad():
        outputs = tail(value[:1]).shape[1]
    return tail, value, torch.rand(network.batch_size, outputs)


def _peak(step: Callable[[], object], tail: nn.Module, *batch: torch.Tensor) -> float:
    """Return the high-water mark of a few steps over the process's rest, and the bytes that lay there before."""
    return_freed()
    meter = PeakMeter()
    for _ in range(STEPS):
        step()
    lying = sum(one.untyped_storage().nbytes() for one in (*tail.parameters(), *batch))
    return float(meter.peak_bytes() + lying)


def main() -> None:
    """Run one arm on one model file and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("arm", choices=ARMS)
    asked = parser.parse_args()
    torch.set_num_threads(usable_processors())
    network = read_ini(asked.file)
    print(json.dumps(planned(network) if asked.arm == "planned" else eager(network)))


if __name__ == "__main__":
    main()
