"""What growth saves: networks that grow from a tenth of their widths against full size (MDLdroidLite, Tables 4 and 5).

``python -m benchmarks.ric_grow [--quick] [--json FILE]``

MNIST with LeNet-2D from [2-5-10], and muscle signals with LeNet-1D from [2-5-10] and MobileNet-1D from [3-6-12-25], one
network for each of several people: trained on a person's first session, scored on the last one. All arms train through
the same backend; growing arms start from fresh weights, with the same recipe and the same caps on parameters and FLOPs.
The caps are the claim's, as a user would give them (`growth.cap`, `growth.flops`); what is measured is the accuracy
within them. The pruned arm is the reference point: the trained full network, cut to RIC's final widths by Taylor
saliency and trained on; its seconds are those after the cut.

Recipes were chosen on other data: further training digits, and the middle session.

Arms run on one thread, as many seeds or people at a time as there are cores. Quality is the difference to full size,
paired over three seeds or over people.

Quick: 6,000 training and 2,000 test digits, and LeNet-1D of three people, at full size and by RIC. Full: all digits,
six people on both networks, and all arms (on digits only for the first seed).
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.growth import WEIGHTS, control, epochs_to, final_widths, of, pruned, reached, said, trained
from benchmarks.report import Claim, Row, finish, interval
from benchmarks.setup import arguments
from tuner.plan.parts import RecipePlan
from tuner.results.records import Outcome
from tuner.search.setting import cores
from tuner.task import Domain, Task, load_task
from tuner.task.data.samples import ArraySamples
from tuner.task.spec import InputSpec, ModelSpec
from tuner_growth.edit import Edit

QUICK_TRAIN, QUICK_TEST = 6_000, 2_000
MNIST_MEAN, MNIST_STD = 0.1307 * 255, 0.3081 * 255
MNIST_RECIPE = {
    True: RecipePlan(epochs=30, batch_size=50, optimiser="adam", learning_rate=3e-3, schedule="cosine"),
    False: RecipePlan(epochs=10, batch_size=100, optimiser="adam", learning_rate=3e-3, schedule="cosine"),
}
EMG_RECIPE = RecipePlan(epochs=30, batch_size=64, optimiser="adam", learning_rate=3e-3, schedule="cosine")
SEEDS = 3
PEOPLE = ("female0", "female1", "male0", "male1", "male2", "male3")
QUICK_PEOPLE = 3
EMG_TASK = """
name = "emg"
[model]
factory = "tuner.models.{factory}"
arguments = {{ channels = 8, time = 100, outputs = 7 }}
[local]
kind = "signals"
train = "{data}/emg/myo.npz#eval/{person}/training0"
val = "{data}/emg/myo.npz#eval/{person}/test1"
[input]
window = 100
hop = 20
"""
LENET, MOBILENET = "lenet:lenet_1d", "mobilenet:mobilenet_1d"
#: Of MNIST, LeNet-1D and MobileNet-1D: the fractions of the full parameters and FLOPs that growth may reach.
CAPS = {"MNIST": (1 / 15, 1 / 5), LENET: (1 / 20, 1.0), MOBILENET: (1 / 8, 1.0)}
#: The most accuracy lost.
MOST_LOSS = {True: 0.010, False: 0.005}
EMG_LOSS, FASTER = 0.010, 1.5
MOST_CONTROL = 0.03
Arms = Mapping[str, Sequence[Outcome]]


def edits(cap: float, flops: float) -> dict[str, Edit | None]:
    """Return every arm's growth by name; None trains the full network."""
    ric = Edit(start=0.1, cap=cap, controller="ric", horizon=4, penalty=0.4, adapter="dspa", flops=flops)
    return {
        "full": None,
        "RIC": ric,
        "linear (NeST)": replace(ric, controller="linear", adapter="nest"),
        "exponential (CGaP)": replace(ric, controller="exponential", adapter="cgap"),
        "fixed, start": replace(ric, controller="fixed"),
    }


def main() -> None:
    """Measure, print, write."""
    asked = arguments(__doc__ or "")
    rows, claims = [], []
    recipe = MNIST_RECIPE[asked.quick]
    digits = [partial(mnist, quick=asked.quick)] * SEEDS
    found, steps = arms(digits, recipe, CAPS["MNIST"], 0 if asked.quick else 1)
    rows += table("MNIST, LeNet-2D", found, steps)
    claims += [of_digits(found, quick=asked.quick), of_control("MNIST", found, steps)]
    for factory in (LENET,) if asked.quick else (LENET, MOBILENET):
        people = [partial(emg, person, factory) for person in PEOPLE[: QUICK_PEOPLE if asked.quick else None]]
        found, steps = arms(people, EMG_RECIPE, CAPS[factory], 0 if asked.quick else len(people))
        name = factory.partition(":")[2]
        rows += table(f"EMG, {name}, {len(people)} people", found, steps)
        claims += [
            *([of_people(found)] if factory == LENET else []),
            of_speed(name, found),
            of_control(name, found, steps),
        ]
    finish("ric_grow", rows, claims, asked.json)


def arms(
    tasks: Sequence[Callable[[], Task]], recipe: RecipePlan, caps: tuple[float, float], whole: int
) -> tuple[Arms, int]:
    """Carry arms out on every task, one process each; return what was found, and the steps of an epoch in the mean.

    Args:
        tasks: Make one task each; its place is the seed.
        recipe: Of all arms.
        caps: Fractions of the full parameters and FLOPs that growth may reach.
        whole: Tasks, from the first, on which all arms are carried out; on the others, full size and RIC.
    """
    found: dict[str, list[Outcome]] = {}
    steps = []
    with ProcessPoolExecutor(cores(), get_context("spawn"), max_tasks_per_child=1) as pool:
        running = [pool.submit(arms_of, make, recipe, caps, seed, seed < whole) for seed, make in enumerate(tasks)]
        for one in running:
            outcomes, count = one.result()
            steps.append(count)
            for arm, outcome in outcomes.items():
                found.setdefault(arm, []).append(outcome)
    return found, round(float(np.mean(steps)))


def arms_of(
    make: Callable[[], Task], recipe: RecipePlan, caps: tuple[float, float], seed: int, whole: bool
) -> tuple[dict[str, Outcome], int]:
    """Carry arms out on one task, one after the other; return what was found, and the steps of an epoch."""
    torch.set_num_threads(1)
    task, found = make(), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for arm, edit in edits(*caps).items():
            if whole or arm in {"full", "RIC"}:
                found[arm] = trained(task, edit, recipe, seed, folder / arm)
        if whole:
            small = pruned(task, folder / "full" / WEIGHTS, final_widths(found["RIC"]), folder / "pruned.safetensors")
            found["pruned"] = trained(small, None, recipe, seed, folder / "pruned")
    return found, -(-len(task.local.train) // recipe.batch_size)


def table(title: str, found: Arms, steps: int) -> list[Row]:
    """Return the rows of one network."""
    full = found["full"]
    return [
        {"network": title, "arm": arm, **said(outcomes, full[: len(outcomes)], steps)}
        for arm, outcomes in found.items()
    ]


def lost(found: Arms) -> tuple[float, float]:
    """Return the accuracy that RIC loses against full size, and half its 95 % interval over the pairs."""
    pairs = zip(found["full"], found["RIC"], strict=True)
    return interval([full.values["local_accuracy"] - ric.values["local_accuracy"] for full, ric in pairs])


def learnt(found: Arms) -> str:
    """Say how well both networks fit what they were trained on: whether the small one has too few parameters."""
    full, ric = (np.mean([one.epochs[-1]["loss"] for one in found[arm]]) for arm in ("full", "RIC"))
    return f"RIC ends at a training loss of {ric:.3f}, full size at {full:.3f}"


def of_digits(found: Arms, *, quick: bool) -> Claim:
    """Compare RIC with the full network on MNIST."""
    full, ric = found["full"], found["RIC"]
    parameters, flops = (of(full, name) / of(ric, name) for name in ("parameters", "flops"))
    loss, half = lost(found)
    least, fewer = (round(1 / cap) for cap in CAPS["MNIST"])
    met = parameters >= least and flops >= fewer and loss - half <= MOST_LOSS[quick]
    return Claim(
        f"RIC needs at most 1/{least} of LeNet-2D's parameters and 1/{fewer} of its FLOPs within "
        f"{100 * MOST_LOSS[quick]:.1f} points",
        "MDLdroidLite Table 4: 1/20.6, 1/8.4, −0.04 points",
        f"1/{parameters:.1f}, 1/{flops:.1f}, {-100 * loss:+.2f} ± {100 * half:.2f} points (95 %, {len(full)} seeds)",
        "quality",
        met,
        "" if met else learnt(found),
    )


def of_people(found: Arms) -> Claim:
    """Compare RIC with the full network on the mean of the people."""
    full, ric = found["full"], found["RIC"]
    parameters = of(full, "parameters") / of(ric, "parameters")
    loss, half = lost(found)
    least = round(1 / CAPS[LENET][0])
    met = parameters >= least and loss - half <= EMG_LOSS
    return Claim(
        f"RIC needs at most 1/{least} of LeNet-1D's parameters within {100 * EMG_LOSS:.0f} point on the mean of "
        f"{len(full)} people",
        "MDLdroidLite Table 4, sEMG: 1/40.7, −0.34 points",
        f"1/{parameters:.1f}, {-100 * loss:+.2f} ± {100 * half:.2f} points (95 %)",
        "quality",
        met,
        "" if met else learnt(found),
    )


def of_speed(name: str, found: Arms) -> Claim:
    """Compare the times to the full network's accuracy less half a point."""
    slow, fast = reached(found["full"], found["full"]), reached(found["RIC"], found["full"])
    ratio = slow / fast if slow is not None and fast is not None else 0.0
    needed = [epochs_to(found[arm], found["full"]) for arm in ("RIC", "full")]
    met = ratio >= FASTER
    return Claim(
        f"RIC trains {name} to the full network's accuracy less 0.5 points at least {FASTER}× as fast",
        "MDLdroidLite, text: 4.6× on LeNet with HAR",
        f"{ratio:.1f}×" if ratio else "not reached",
        "ratio",
        met,
        "" if met else f"RIC needs {needed[0] or 'more than all'} epochs, full size {needed[1]}; {learnt(found)}",
    )


def of_control(name: str, found: Arms, batches: int) -> Claim:
    """Compare the controller's own time with training's."""
    share = control(found["RIC"])
    logged = [epoch for one in found["RIC"] for epoch in one.epochs if "controller_seconds" in epoch]
    own, all_of = (
        1e3 * float(np.median([epoch[key] for epoch in logged])) for key in ("controller_seconds", "seconds")
    )
    met = share <= MOST_CONTROL
    return Claim(
        f"{name}: the controller takes at most {100 * MOST_CONTROL:.0f} % of training",
        "project's bound",
        f"{100 * share:.1f} %",
        "ratio",
        met,
        ""
        if met
        else f"an epoch of {batches} batches takes {all_of:.0f} ms; saliencies and a decision take {own:.1f} ms",
    )


def data_folder() -> Path:
    """Return the folder with the real data."""
    return Path(os.environ.get("TUNER_DATA", Path(__file__).parents[2] / "shared" / "data"))


def mnist(*, quick: bool) -> Task:
    """Return MNIST as a task with LeNet-2D [20-50-500], fresh; its test images are what arms are scored on."""
    spec = InputSpec(kind="arrays", mean=(MNIST_MEAN,), std=(MNIST_STD,))

    def samples(split: str, count: int | None) -> ArraySamples:
        with np.load(data_folder() / "mnist" / "mnist.npz") as content:
            images, labels = content[f"x_{split}"], content[f"y_{split}"]
        chosen = np.random.default_rng(0).permutation(len(labels))[:count]
        return ArraySamples(images[chosen].astype(np.float32), labels[chosen].astype(np.int64), spec, f"x_{split}")

    train, test = samples("train", QUICK_TRAIN if quick else None), samples("test", QUICK_TEST if quick else None)
    digits = tuple(str(digit) for digit in range(10))
    rows = tuple(range(10))
    model = ModelSpec("tuner.models.lenet:lenet_2d")
    return Task("mnist", model, spec, "single-label", Domain(train, test), None, digits, rows, rows)


def emg(person: str, factory: str) -> Task:
    """Return one person's muscle signals as a task with a fresh network of full size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(EMG_TASK.format(factory=factory, data=data_folder().resolve(), person=person))
        return load_task(str(path), {})


if __name__ == "__main__":
    main()
