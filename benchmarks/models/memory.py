"""Planned peak memory against what a training step really takes, by the planned executor and by PyTorch's eager loop.

Batch 32, AdamW, batch norms frozen (the recipe's defaults), random inputs. Every arm runs in a fresh process; its peak
is the high-water mark of resident memory (VmHWM) over the process's rest with libraries, weights and one batch loaded.
The planned figure comes from a third process, in which the library's scratch is measured call by call. Arms alternate,
and times are medians over all rounds. ``--row NAME --arm NAME`` runs one arm and prints its figures.

The planned executor's process has transparent huge pages where the kernel offers them
(`tuner.machine.process_memory.HUGE_PAGES`), as a trial's process has; the eager arm runs as PyTorch runs by default.
The arm `tuned` is the eager loop with the same huge pages and the same settings of the allocator as the planned
executor's process, so that these are not counted as planning.
"""

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner.backends.torch.model.graph.kinds import NORMS
from tuner.backends.torch.model.graph.layout import channels_last, spatial
from tuner.backends.torch.model.graph.nodes import Chain, chain
from tuner.backends.torch.model.vision import torchvision
from tuner.backends.torch.step.optimiser import optimiser
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import Step
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.machine.control_group import usable_processors
from tuner.machine.process_memory import HUGE_PAGES, KEPT_BYTES, PeakMeter, return_freed
from tuner.models.lenet import lenet_2d
from tuner.plan.parts import RecipePlan
from tuner.planner.memory.placement import by_size, largest_at, max_live, peak_step
from tuner_growth.torch.vgg import vgg_11
from tuner_planned.torch.bound_step import bound, held_by
from tuner_planned.torch.library_memory import measured
from tuner_planned.torch.program import program

BATCH, SIZE, OUTPUTS = 32, 160, 10
RECIPE = RecipePlan(batch_size=BATCH)
#: Within 10 % or 16 MB.
SHARE, BYTES = 0.10, 16e6
MEMORY_BOUND, TIME_BOUND = 0.75, 1.15
BOUNDED = ("MobileNetV2", "VGG-11")
QUICK = ("LeNet-5", "MobileNetV2, after f16", "VGG-11")
Built = tuple[nn.Module, tuple[int, ...]]


class Unrolled(nn.Module):
    """An LSTM over windows of a signal, [n, 6, 128] to [n, outputs], written out step by step as a trace sees it."""

    def __init__(self, channels: int = 6, width: int = 64) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(channels, width)
        self.head = nn.Linear(width, OUTPUTS)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Return logits from the last hidden state."""
        hidden = state = signal.new_zeros(signal.shape[0], self.cell.hidden_size)
        for moment in signal.unbind(2):
            hidden, state = self.cell(moment, (hidden, state))
        logits: torch.Tensor = self.head(hidden)
        return logits


def cut_off(found: Chain, split: int) -> Built:
    """Return the blocks of a network from `split` on, and the shape of one input of theirs."""
    with torch.inference_mode():
        shape = found.prefix(split).eval()(torch.zeros(1, 3, SIZE, SIZE)).shape[1:]
    return copy.deepcopy(found.tail(split)), tuple(shape)


def mobilenet(split: int) -> Built:
    """Return the blocks of MobileNetV2 from `split` on, and the shape of one input."""
    found = chain(torchvision().models.mobilenet_v2(num_classes=OUTPUTS), torch.zeros(1, 3, SIZE, SIZE))
    return cut_off(found, split) if split else (found.tail(0), (3, SIZE, SIZE))


ROWS: Mapping[str, Callable[[], Built]] = {
    "LeNet-5": lambda: (lenet_2d(OUTPUTS), (1, 28, 28)),
    "MobileNetV2": lambda: mobilenet(0),
    "MobileNetV2, after f10": lambda: mobilenet(11),
    "MobileNetV2, after f13": lambda: mobilenet(14),
    "MobileNetV2, after f16": lambda: mobilenet(17),
    "ResNet-18": lambda: (torchvision().models.resnet18(num_classes=OUTPUTS), (3, SIZE, SIZE)),
    "VGG-11": lambda: (vgg_11(outputs=OUTPUTS), (3, 32, 32)),
    "LSTM, 128 steps": lambda: (Unrolled(), (6, 128)),
}


def main() -> None:
    """Measure, print, write; or run one arm."""
    parser = benchmark_parser(__doc__, "three rows, one round")
    parser.add_argument("--only", nargs="+", choices=ROWS, help="these rows and no other")
    parser.add_argument("--row", choices=ROWS, help="run one arm of this row, in this process")
    parser.add_argument("--arm", choices=ARMS, default="planned")
    parser.add_argument("--steps", type=int, default=6)
    asked = parser.parse_args()
    torch.set_num_threads(usable_processors())
    if asked.row:
        print(json.dumps(ARMS[asked.arm](asked.row, asked.steps)))
        return
    rounds, steps = (1, 4) if asked.quick else (3, 6)
    rows = [_row(name, rounds, steps) for name in asked.only or (QUICK if asked.quick else ROWS)]
    finish("memory", rows, claims(rows), asked.json)


def _row(name: str, rounds: int, steps: int) -> Row:
    """Return a row's figures; bytes in MB of a million."""
    plan = _apart(name, "plan", steps)
    found: dict[str, list[dict[str, Any]]] = {"planned": [], "eager": [], "tuned": []}
    for _ in range(rounds):
        for arm, runs in found.items():
            runs.append(_apart(name, arm, steps))
    ours, eager, tuned = (max(one["peak_bytes"] for one in found[arm]) for arm in ("planned", "eager", "tuned"))
    seconds = {arm: [one for run in runs for one in run["seconds"]] for arm, runs in found.items()}
    ms = {arm: 1e3 * median(ones) for arm, ones in seconds.items()}
    least = {arm: 1e3 * min(ones) for arm, ones in seconds.items()}
    return {
        "model": name, "planned MB": plan["planned_bytes"] / 1e6, "measured MB": ours / 1e6,
        "off by": ours / plan["planned_bytes"] - 1, "eager MB": eager / 1e6, "of eager": ours / eager,
        "tuned eager MB": tuned / 1e6, "of tuned eager": ours / tuned, "planned ms": ms["planned"],
        "eager ms": ms["eager"], "tuned eager ms": ms["tuned"], "time of eager": ms["planned"] / ms["eager"],
        "time of tuned eager": ms["planned"] / ms["tuned"],
        "least ms": f"{least['planned']:.0f} / {least['eager']:.0f}", "pool MB": plan["pool_bytes"] / 1e6,
        "trace s": plan["trace_seconds"], "plan s": plan["plan_seconds"], "largest at the peak": plan["largest"],
    }  # fmt: skip


def _apart(name: str, arm: str, steps: int) -> dict[str, Any]:
    """Run an arm in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.models.memory", "--row", name, "--arm", arm, "--steps", str(steps)]
    environment = os.environ | (HUGE_PAGES if arm in {"planned", "tuned"} else {})
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def plan(name: str, _steps: int) -> dict[str, Any]:
    """Return the planned peak over the rest, with the library's scratch as measured here."""
    step, _, traced_in = _traced(name)
    started = time.perf_counter()
    tensors = [one for one in program(step, measured).tensors if one.kind not in {"weight", "input"}]
    largest = largest_at(tensors, peak_step(tensors), 3)
    return {
        "planned_bytes": max_live(tensors), "pool_bytes": by_size(tensors).pool_bytes, "trace_seconds": traced_in,
        "plan_seconds": time.perf_counter() - started,
        "largest": ", ".join(f"{one.name} ({one.kind}) {one.nbytes / 1e6:.1f}" for one in largest),
    }  # fmt: skip


def batch_of(step: Step) -> dict[str, torch.Tensor]:
    """Return what a step takes anew, by port."""
    return {
        "input": spatial(torch.randn(step.inputs[0].shape)), "label": torch.randint(0, OUTPUTS, (BATCH,)),
        "sample_weight": torch.ones(BATCH), "learning_rate": torch.tensor(RECIPE.learning_rate),
        "step_count": torch.tensor(1.0),
        **{port.name: torch.rand(port.shape) for port in step.inputs if port.kind == "noise"},
    }  # fmt: skip


def planned(name: str, steps: int) -> dict[str, Any]:
    """Return the planned executor's peak and step times, and the peak planned without measured scratch."""
    step, tail, _ = _traced(name)
    made = program(step)
    given = batch_of(step)
    batch = [given[port] for port in made.batch]
    return_freed()
    meter = PeakMeter()
    run = bound(made, held_by(step, tail))
    expected = max_live([one for one in made.tensors if one.kind not in {"weight", "input"}])
    return {"planned_bytes": expected, **_timed(lambda: float(run(*batch)), meter, steps)}


def eager(name: str, steps: int) -> dict[str, Any]:
    """Return the eager loop's peak and step times: `tuner.backends.torch.trial.tail`'s step on one batch."""
    tail, shape = _built(name)
    inputs, labels = spatial(torch.randn(BATCH, *shape)), torch.randint(0, OUTPUTS, (BATCH,))
    tail.train()
    for module in tail.modules():
        if isinstance(module, NORMS):
            module.eval()
    meter = PeakMeter()
    made = optimiser(list(tail.parameters()), RECIPE)

    def step() -> float:
        made.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(tail(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        made.step()
        return float(loss.detach())

    return _timed(step, meter, steps)


def tuned(name: str, steps: int) -> dict[str, Any]:
    """Return the eager loop's peak and step times with the allocator's settings of the planned executor."""
    return_freed(KEPT_BYTES)
    return eager(name, steps)


ARMS: Mapping[str, Callable[[str, int], dict[str, Any]]] = {
    "plan": plan,
    "planned": planned,
    "eager": eager,
    "tuned": tuned,
}


def _built(name: str) -> Built:
    torch.manual_seed(0)
    tail, shape = ROWS[name]()
    for parameter in tail.parameters():
        parameter.requires_grad_()
    return channels_last(tail), shape


def _traced(name: str) -> tuple[Step, nn.Module, float]:
    tail, shape = _built(name)
    started = time.perf_counter()
    step = trace(tail, RECIPE, loss=CROSS_ENTROPY, input_shape=shape, outputs=OUTPUTS, batch_size=BATCH)
    return step, tail, time.perf_counter() - started


def _timed(run: Callable[[], float], meter: PeakMeter, steps: int) -> dict[str, Any]:
    seconds = []
    for _ in range(steps):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return {"peak_bytes": meter.peak_bytes(), "seconds": seconds[1:]}


def claims(rows: list[Row]) -> list[Claim]:
    """Compare the peaks with the planned ones, and the planned executor with the eager loop."""
    off = {str(row["model"]): _off_bytes(row) for row in rows}
    far = [name for name, (here, allowed) in off.items() if here > allowed]
    worst = max(off, key=lambda name: off[name][0] / off[name][1])
    found = [
        Claim("planned and measured peak within 10 % or 16 MB on every row", "bound of the project",
              f"{len(rows) - len(far)} of {len(rows)} rows; furthest {worst}, {off[worst][0] / 1e6:.1f} MB",
              not far, f"outside: {', '.join(far)}" if far else "")
    ]  # fmt: skip
    for row in rows:
        if row["model"] not in BOUNDED:
            continue
        for key, what, bound_ in (
            ("of eager", "the eager loop's peak", MEMORY_BOUND),
            ("of tuned eager", "the peak of the eager loop with the same settings of the allocator", MEMORY_BOUND),
            ("time of eager", "the eager loop's time", TIME_BOUND),
        ):
            share = float(str(row[key]))
            text = f"the planned executor takes ≤ {bound_} × {what}, {row['model']}"
            found.append(Claim(text, "bound of the project", f"{share:.2f}×", share <= bound_))
    return found


def _off_bytes(row: Row) -> tuple[float, float]:
    """Return how far the measured peak is from the planned one, and how far it may be."""
    expected, found = (1e6 * float(str(row[key])) for key in ("planned MB", "measured MB"))
    return abs(found - expected), max(BYTES, SHARE * expected)


if __name__ == "__main__":
    main()
