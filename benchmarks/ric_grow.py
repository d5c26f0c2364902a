"""What growth saves: LeNet-2D on MNIST, full size against networks that grow from [2-5-10] (MDLdroidLite, Table 4).

``python -m benchmarks.ric_grow [--quick] [--json FILE]``

All arms train through the same backend, 20 epochs of Adam at a constant rate. Growing arms start from fresh weights.
The pruned arm is the reference point: the trained full network, cut to RIC's final widths by Taylor saliency and
trained on; its seconds are those after the cut.

Quick: 6,000 training and 2,000 test digits, one seed, batches of 50 at 1e-3; full: all of them, three seeds, batches of
100 at 5e-4 (the paper's).
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from benchmarks.report import Claim, Row, finish
from benchmarks.ric_adaption import lenet
from benchmarks.setup import arguments
from tuner.backends.torch import TorchBackend
from tuner.backends.torch.widths import find, install, selected, traced
from tuner.plan import RecipePlan, TrialPlan
from tuner.results.records import Outcome
from tuner.run import task_info
from tuner.store.store import Store
from tuner.task import Domain, Task, normalise
from tuner.task.samples import ArraySamples
from tuner.task.spec import InputSpec, ModelSpec
from tuner_growth import Edit, Growth, Knobs

EPOCHS = 20
#: Batch and learning rate: the paper's, and, for a tenth of its digits, what trains as far in as many epochs.
FULL_STEPS, QUICK_STEPS = (100, 5e-4), (50, 1e-3)
WEIGHTS = "weights.safetensors"
#: Training digits that Taylor saliency is taken from.
SALIENT = 1_000
QUICK_TRAIN, QUICK_TEST = 6_000, 2_000
MNIST_MEAN, MNIST_STD = 0.1307 * 255, 0.3081 * 255
RIC = Edit(start=0.1, cap=1.0, controller="ric", horizon=4, penalty=0.4, adapter="dspa")
#: What each arm's growth is; None trains the full network.
ARMS: dict[str, Edit | None] = {
    "full": None,
    "RIC": RIC,
    "linear (NeST)": replace(RIC, controller="linear", adapter="nest"),
    "exponential (CGaP)": replace(RIC, controller="exponential", adapter="cgap"),
    "fixed": replace(RIC, controller="fixed"),
}
FEWER_PARAMETERS, FEWER_FLOPS, MOST_LOSS = 15, 5, {True: 0.010, False: 0.005}
#: Time counts to the full network's accuracy less this.
NEAR = 0.005
MOST_CONTROL = 0.03


def main() -> None:
    """Measure, print, write."""
    asked = arguments(__doc__ or "")
    task = mnist(quick=asked.quick)
    seeds = range(1 if asked.quick else 3)
    outcomes = {seed: arms(task, seed) for seed in seeds}
    rows = [
        row(name, seed, outcome, outcomes[seed]["full"]) for seed in seeds for name, outcome in outcomes[seed].items()
    ]
    finish("ric_grow", rows, claims([outcomes[seed] for seed in seeds], quick=asked.quick), asked.json)


def arms(task: Task, seed: int) -> dict[str, Outcome]:
    """Carry every arm out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {arm: trained(task, edit, seed, folder / arm) for arm, edit in ARMS.items()}
        small = pruned(task, folder / "full" / WEIGHTS, final_widths(found["RIC"]), folder / "pruned.safetensors")
        return {**found, "pruned": trained(small, None, seed, folder / "pruned")}


def final_widths(outcome: Outcome) -> dict[str, int]:
    """Return the widths after the last decision, by module."""
    logged = [(name, value) for epoch in outcome.epochs for name, value in epoch.items() if name.endswith(".width")]
    return {name.removesuffix(".width"): int(value) for name, value in logged}


def pruned(task: Task, weights: Path, sizes: dict[str, int], path: Path) -> Task:
    """Cut a trained network to some widths, its least salient channels first; return the task that starts from it."""
    model = lenet()
    model.load_state_dict(load_file(weights))
    body, samples = traced(model), task.local.train
    values = torch.from_numpy(normalise(np.stack([samples.load(index) for index in range(SALIENT)]), task.input))
    functional.cross_entropy(body(values), torch.from_numpy(samples.labels[:SALIENT])).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    kept = {}
    for width in find(body).growable:
        weight = body.get_submodule(width.name).get_parameter("weight")
        if weight.grad is None:
            raise ValueError(f"{width.name} has no gradient")
        saliency = (weight * weight.grad).detach().abs().flatten(1).sum(dim=1)
        kept[width] = sorted(saliency.argsort(descending=True)[: sizes[width.name]].tolist())
    for width, channels in kept.items():
        install(body, selected(body, width, channels))
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return replace(task, model=replace(task.model, weights=str(path), head=task.labels))


def row(name: str, seed: int, outcome: Outcome, full: Outcome) -> Row:
    """Return an arm's figures, ratios against the full network beside them."""
    values, most = outcome.values, full.values
    return {
        "arm": name,
        "seed": seed,
        "accuracy": f"{100 * values['local_accuracy']:.2f} %",
        "parameters": int(values["parameters"]),
        "fewer": f"{most['parameters'] / values['parameters']:.1f}×",
        "MFLOPs": values["flops"] / 1e6,
        "less": f"{most['flops'] / values['flops']:.1f}×",
        "train s": values["train_seconds"],
        "s to near full": reached(outcome, full),
        "peak MB": values["peak_bytes"] / 1e6,
        "controller": f"{100 * control(outcome):.1f} %",
        "widths": (outcome.notes or ("",))[0].removeprefix("final widths: "),
    }


def claims(seeds: list[dict[str, Outcome]], *, quick: bool) -> list[Claim]:
    """Compare RIC with the full network."""
    pairs = [(arms["full"].values, arms["RIC"].values) for arms in seeds]
    parameters = min(full["parameters"] / ric["parameters"] for full, ric in pairs)
    flops = min(full["flops"] / ric["flops"] for full, ric in pairs)
    loss = mean(full["local_accuracy"] - ric["local_accuracy"] for full, ric in pairs)
    share = max(control(arms["RIC"]) for arms in seeds)
    small = parameters >= FEWER_PARAMETERS and flops >= FEWER_FLOPS
    return [
        Claim(
            f"RIC needs at most 1/{FEWER_PARAMETERS} of the parameters and 1/{FEWER_FLOPS} of the FLOPs within "
            f"{100 * MOST_LOSS[quick]:.1f} points",
            "MDLdroidLite Table 4: 1/20.6, 1/8.4, −0.04 points",
            f"1/{parameters:.1f}, 1/{flops:.1f}, {-100 * loss:+.2f} points",
            "quality",
            small and loss <= MOST_LOSS[quick],
        ),
        Claim(
            f"the controller takes at most {100 * MOST_CONTROL:.0f} % of training",
            "issue 6",
            f"{100 * share:.1f} %",
            "ratio",
            share <= MOST_CONTROL,
        ),
    ]


def trained(task: Task, edit: Edit | None, seed: int, folder: Path) -> Outcome:
    """Carry one arm out, in a folder of its own."""
    backend = TorchBackend()
    batch, rate = QUICK_STEPS if len(task.local.train) <= QUICK_TRAIN else FULL_STEPS
    recipe = RecipePlan(
        epochs=EPOCHS, batch_size=batch, optimiser="adam", learning_rate=rate, schedule="constant",
        patience=EPOCHS,  # never stops, but scores every epoch
    )  # fmt: skip
    plan = TrialPlan(backend.describe(task), task_info(task), recipe=recipe)
    plan = Growth().apply(plan, Knobs("none" if edit is None else "scratch", edit))
    return backend.train(task, plan, seed, Store(folder / "store"), folder / WEIGHTS)


def reached(outcome: Outcome, full: Outcome) -> str:
    """Return the training seconds to the full network's final accuracy less `NEAR`; a dash where it is not reached."""
    wanted, spent = full.values["local_accuracy"] - NEAR, 0.0
    for epoch in outcome.epochs:
        spent += epoch["seconds"]
        if epoch["local_accuracy"] >= wanted:
            return f"{spent:.1f}"
        spent += epoch.get("evolve_seconds", 0.0)
    return "–"


def control(outcome: Outcome) -> float:
    """Return the controller's share of the training seconds."""
    return sum(epoch.get("controller_seconds", 0.0) for epoch in outcome.epochs) / outcome.values["train_seconds"]


def mnist(*, quick: bool) -> Task:
    """Return MNIST as a task with LeNet-2D [20-50-500], fresh."""
    data = Path(os.environ.get("TUNER_DATA", Path(__file__).parents[2] / "shared" / "data"))
    spec = InputSpec(kind="arrays", mean=(MNIST_MEAN,), std=(MNIST_STD,))

    def samples(split: str, count: int | None) -> ArraySamples:
        with np.load(data / "mnist" / "mnist.npz") as content:
            images, labels = content[f"x_{split}"], content[f"y_{split}"]
        chosen = np.random.default_rng(0).permutation(len(labels))[:count]
        return ArraySamples(images[chosen].astype(np.float32), labels[chosen].astype(np.int64), spec, f"x_{split}")

    train, test = samples("train", QUICK_TRAIN if quick else None), samples("test", QUICK_TEST if quick else None)
    digits = tuple(str(digit) for digit in range(10))
    rows = tuple(range(10))
    model = ModelSpec("benchmarks.ric_adaption:lenet")
    return Task("mnist", model, spec, "single-label", Domain(train, test), None, digits, rows, rows)


if __name__ == "__main__":
    main()
