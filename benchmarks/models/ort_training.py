"""A training step on the ordinary onnxruntime against PyTorch's eager step, for six tails.

Batch 32, 160 px, SGD with momentum, norms frozen, dropout off so that losses can be compared; weights are random, which
changes no time. PyTorch runs in both memory layouts; the faster one counts. Arms are interleaved, in turns of as many
steps as take 50 ms, since threads of one library that still wait for work when the other's turn begins slow its first
steps; each has as many threads as the machine has cores. Memory is VmHWM of a fresh process that trains one tail and
does nothing else: by the base package alone, from photos to the bundle that is written, with 400 global samples mixed
in and 500 that say what was forgotten; and by PyTorch, which is given features and takes ten steps.
"""

import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave, times_faster
from benchmarks.lib.setup import PAPER_CUTS, clothing, fewer_known, plan_for, untrained_bundle
from benchmarks.models.memory import Built, cut_off
from tuner.backends.torch.model.graph.layout import channels_last
from tuner.backends.torch.model.graph.nodes import chain
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.model.vision import torchvision
from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.optimiser import optimiser
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.machine.control_group import usable_processors
from tuner.ort.training_step import StepSession
from tuner.plan.parts import RecipePlan

OUTPUTS, BATCH, SIZE = 210, 32, 160
RECIPE, RATE, COMPARED = RecipePlan(optimiser="sgd", batch_size=BATCH), 1e-3, 20
BOUNDS = {
    "last 1 (after f16)": 2.0,
    "last 4 (after f13)": 2.0,
    "last 7 (after f10)": 2.0,
    "ResNet-18, last 2": 2.0,
    "LeNet": 1.0,
    "linear head": 1.0,
}
PARITY, RESIDENT = 1e-4, 150e6
TURN_SECONDS = 0.05
MEMORY_BATCH = 16
CHECKED = 64  # samples of the user's that the bundle's export checks itself with
#: A fresh process that trains a bundle with the base package: its folder, and one of photos by label.
BASE = """
import sys
from pathlib import Path
from tuner.runtime import Trainer
photos = sorted(Path(sys.argv[2]).glob("*/*.jpg"))[::4]
trainer = Trainer(sys.argv[1])
trainer.add(photos, [photo.parent.name for photo in photos])
trainer.train(epochs=2)
trainer.save(Path(sys.argv[1]).with_name("next"))
assert "torch" not in sys.modules
"""
PEAK = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])"
TORCH = """
import sys
import torch
from benchmarks.models.ort_training import Eager, tails
from tuner.plan.parts import RecipePlan
torch.set_num_threads(1)
tail, shape = tails()["last 1 (after f16)"]
eager = Eager(tail, RecipePlan(optimiser="sgd"), last=True)
for _ in range(10):
    eager.step(torch.randn(16, *shape), torch.zeros(16, dtype=torch.int64), 1e-3)
"""


class Eager:
    """PyTorch's step, in one of its layouts."""

    def __init__(self, module: nn.Module, recipe: RecipePlan, *, last: bool) -> None:
        self._tail = channels_last(module) if last else module
        self._layout = torch.channels_last if last else torch.contiguous_format
        self._optimiser = optimiser(list(self._tail.parameters()), recipe)
        self._tail.eval()  # norms frozen, dropout off

    def step(self, value: torch.Tensor, label: torch.Tensor, rate: float) -> float:
        """Train on a batch; return the loss."""
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad()
        given = value.contiguous(memory_format=self._layout) if value.ndim == len("nchw") else value
        loss = functional.cross_entropy(self._tail(given), label)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._optimiser.step()
        return float(loss.detach())


def tails() -> Mapping[str, Built]:
    """Return the six tails, seeded."""
    torch.manual_seed(0)
    models = torchvision().models
    mobile, residual = models.mobilenet_v2(num_classes=OUTPUTS), models.resnet18(num_classes=OUTPUTS)
    lenet = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, OUTPUTS),
    )  # fmt: skip
    return {
        "last 1 (after f16)": _after(mobile, 3), "last 4 (after f13)": _after(mobile, 6),
        "last 7 (after f10)": _after(mobile, 9), "ResNet-18, last 2": _after(residual, 2),
        "LeNet": (lenet, (1, 28, 28)), "linear head": (nn.Linear(1280, OUTPUTS), (1280,)),
    }  # fmt: skip


def _after(model: nn.Module, blocks: int) -> Built:
    found = chain(model, torch.zeros(1, 3, SIZE, SIZE))
    tail, shape = cut_off(found, len(found.blocks) - blocks)
    for module in tails():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return tail, shape


def main() -> None:
    """Measure, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    torch.set_num_threads(usable_processors())
    rows: list[Row] = []
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, tail in tails().items():
            rows.append(_measured(name, *tail, Path(folder), 5 if asked.quick else 20))
        memory = _memory(Path(folder))
    for row in rows:
        name = str(row["tail"])
        text = f"step ≤ {BOUNDS[name]}× the faster of PyTorch's layouts, {name}"
        claims.append(_claim(row, f"{text}, at the upper end", "ratio, upper end", BOUNDS[name]))
    worst = max(rows, key=lambda row: float(str(row["loss difference"])))
    claims.append(_claim(worst, f"losses within {PARITY:g} relative, six tails", "loss difference", PARITY))
    text = f"base package alone trains after f16, batch {MEMORY_BATCH}, in ≤ {RESIDENT / 1e6:g} MB"
    said = f"{memory['base'] / 1e6:.0f} MB, PyTorch {memory['torch'] / 1e6:.0f} MB"
    claims.append(Claim(text, "design", said, memory["base"] <= RESIDENT))
    finish("ort_training", rows, claims, asked.json)


def _claim(row: Row, text: str, key: str, bound: float) -> Claim:
    value = float(str(row[key]))
    why = "" if value <= bound else f"{row['ort ms']:.1f} ms a step against {row['torch ms']:.1f}"
    said = f"{value:.3g}, {row['tail']}"
    return Claim(text, "design", said, value <= bound, why)


def _measured(name: str, tail: nn.Module, shape: tuple[int, ...], folder: Path, steps: int) -> Row:
    generator = np.random.default_rng(0)
    value = generator.standard_normal((BATCH, *shape), np.float32)
    label = generator.integers(0, OUTPUTS, BATCH)
    given = torch.from_numpy(value), torch.from_numpy(label)
    path = folder / "step.onnx"
    step = trace(tail, RECIPE, loss=CROSS_ENTROPY, input_shape=shape, outputs=OUTPUTS, batch_size=BATCH)
    write(step, path)
    state = {key: value.numpy(force=True) for key, value in tail.state_dict().items()}
    session = StepSession(path, state, usable_processors())
    last, first = (Eager(copy.deepcopy(tail), RECIPE, last=is_last) for is_last in (True, False))
    pairs = [(session.step(value, label, RATE), last.step(*given, RATE)) for _ in range(COMPARED)]
    arms: dict[str, Callable[[], object]] = {
        "ort": lambda: session.step(value, label, RATE),
        "channels last": lambda: last.step(*given, RATE),
        "channels first": lambda: first.step(*given, RATE),
    }
    each = max(1, round(TURN_SECONDS / min(interleave(arms, 3)["ort"])))
    turns = {arm: partial(_repeat, run, each) for arm, run in arms.items()}
    seconds = {arm: [1e3 * one / each for one in found] for arm, found in interleave(turns, steps).items()}
    best = min(("channels last", "channels first"), key=lambda arm: median(seconds[arm]))
    times, _, most = times_faster(seconds, "ort", best)
    return {
        "tail": name, "loss difference": max(abs(ours - theirs) / theirs for ours, theirs in pairs),
        "ort ms": median(seconds["ort"]), "torch ms": median(seconds[best]), "torch layout": best,
        "least ms": f"{min(seconds['ort']):.2f} / {min(seconds[best]):.2f}", "ratio": times,
        "ratio, upper end": most, "artefact bytes": path.stat().st_size,
    }  # fmt: skip


def _repeat(step: Callable[[], object], times: int) -> None:
    for _ in range(times):
        step()


def _memory(folder: Path) -> dict[str, float]:
    """Return VmHWM in bytes of both fresh processes."""
    task = fewer_known(clothing(SIZE, CHECKED, CHECKED), slice(None), slice(None, None, 4))
    recipe = RecipePlan(optimiser="sgd", batch_size=MEMORY_BATCH)
    plan = plan_for(task, load(task), PAPER_CUTS["last 1 (after f16)"], bits=8, recipe=recipe, alpha=0.05)
    bundle = untrained_bundle(task, plan, folder)
    found = {}
    for name, script in (("base", BASE), ("torch", TORCH)):
        command = [sys.executable, "-c", script + PEAK, str(bundle), str(DATA / "images" / "local" / "val")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name] = 1024 * float(json.loads(done.stdout.splitlines()[-1]))
    return found


if __name__ == "__main__":
    main()
