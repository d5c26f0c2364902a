"""What growth saves: networks that grow from a tenth of their widths against full size (MDLdroidLite, Tables 4 and 5).

MNIST with LeNet-2D from [2-5-10], and muscle signals with LeNet-1D from [2-5-10] and MobileNet-1D from [3-6-12-25], one
network for each of several people: trained on a person's first session, scored on the last one. MobileNet-1D has batch
norms here, which the paper's lacks. All arms train through the same backend, from fresh weights of the same rule, with
the same recipe, the same random changes of the signals and the same caps on parameters and FLOPs. The caps are the
claim's, as a user would give them (`growth.cap`, `growth.flops`); what is measured is the accuracy within them. The arm
``RIC's widths, Opt`` trains RIC's final widths from scratch: the difference between the two is what growing itself
costs, and the difference to full size is what the widths cost.

Recipes were chosen on other data: further training digits, and the middle session.

Arms run on one thread, as many seeds or people at a time as there are cores. Quality is the difference to full size,
paired over seeds or over people, and a claim needs the unfavourable end of its 95 % interval.

Quick: 6,000 training and 2,000 test digits, and LeNet-1D of two people, at full size, by RIC, and its widths from
scratch. Full: all digits, twelve people on both networks, and all arms (on digits only for the first seed, on signals
for the first three people). It takes hours on two cores, and can be done in pieces::

    python -m benchmarks.papers.growth.ric_grow MNIST --tasks 0 1 --keep outcomes.jsonl
    python -m benchmarks.papers.growth.ric_grow MNIST --tasks 2 3 4 5 6 7 --keep outcomes.jsonl
    python -m benchmarks.papers.growth.ric_grow --keep outcomes.jsonl     # the rest, then all tables and claims
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.lib.kept import Kept
from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.lib.setup import opened_from
from benchmarks.papers.growth.arms import control, epochs_to, final_widths, fresh, of, reached, said, trained
from tuner.machine.control_group import usable_processors
from tuner.plan.parts import RecipePlan
from tuner.results.records.trial import Outcome
from tuner.task import Domain, Task
from tuner.task.data.samples import ArraySamples
from tuner.task.spec import InputSpec, ModelSpec
from tuner_growth.edit import Edit

MNIST, LENET, MOBILENET = "MNIST", "lenet:lenet_1d", "mobilenet:mobilenet_1d"
FULL, RIC, OPT = "full", "RIC", "RIC's widths, Opt"
#: Of each network: the fractions of the full parameters and FLOPs that growth may reach.
CAPS = {MNIST: (1 / 20, 1 / 8), LENET: (1 / 20, 1.0), MOBILENET: (1 / 13, 1.0)}
#: The most accuracy lost, at the unfavourable end of the interval.
MOST_LOSS = {MNIST: 0.005, LENET: 0.010, MOBILENET: 0.020}
#: The most accuracy that full MobileNet-1D loses against full LeNet-1D, likewise.
SAME = 0.020
FASTER = 1.5
MOST_CONTROL = 0.01
#: The most accuracy that growing costs against the same widths from scratch.
OPT_LOSS = 0.005
PAPER = {
    MNIST: "MDLdroidLite Table 4: 1/20.6, 1/8.4, −0.04 points",
    LENET: "MDLdroidLite Table 4, sEMG: 1/40.7, −0.34 points",
    MOBILENET: "MDLdroidLite Table 5, sEMG: 1/13.4, −0.68 points",
}
#: Outcomes by the place of the seed or person, of every arm.
Arms = Mapping[str, Mapping[int, Outcome]]
MNIST_RECIPE = {
    True: RecipePlan(epochs=30, batch_size=50, optimiser="adam", learning_rate=3e-3, schedule="cosine"),
    False: RecipePlan(epochs=10, batch_size=100, optimiser="adam", learning_rate=3e-3, schedule="cosine"),
}
#: A person's session has about 20 batches, and a decision of growth needs 100: epochs are short, and many. At 3e-3,
#: LeNet-1D's units die for some people.
EMG_RECIPE = {
    network: RecipePlan(
        epochs=100, batch_size=64, optimiser="adam", learning_rate=rate, schedule="cosine", freeze_bn=False
    )
    for network, rate in {LENET: 1e-3, MOBILENET: 3e-3}.items()
}
#: Strength of the random changes of signals: without them, networks of any size know one session by heart.
EMG_AUGMENT = 0.5
SEEDS = {True: 3, False: 8}
PEOPLE = (
    "female0", "female1", "male0", "male1", "male2", "male3", "male4", "male5", "male6", "male7", "male8", "male9",
)  # fmt: skip
QUICK_PEOPLE = 2
QUICK_TRAIN, QUICK_TEST = 6_000, 2_000
MNIST_MEAN, MNIST_STD = 0.1307 * 255, 0.3081 * 255
EMG_TASK = """
name = "emg"
[model]
factory = "{rooms}.{factory}"
arguments = {{ channels = 8, time = 100, outputs = 7{more} }}
[local]
kind = "signals"
train = "{data}/emg/myo.npz#eval/{person}/training0"
val = "{data}/emg/myo.npz#eval/{person}/test1"
[input]
window = 100
hop = 20
[augment]
ops = ["noise", "drift", "pool", "shift"]
"""
#: Seeds or people, from the first, on which all arms are carried out.
WHOLE = {MNIST: 1, LENET: 3, MOBILENET: 3}
#: Periods that RIC looks ahead.
HORIZONS = {MNIST: 4, LENET: 4, MOBILENET: 3}


def table(title: str, found: Arms, steps: int) -> list[Row]:
    """Return the rows of one network; every arm is compared with full size on the same seeds or people."""
    return [
        {"network": title, "arm": arm, **said(list(outcomes.values()), [found[FULL][one] for one in outcomes], steps)}
        for arm, outcomes in found.items()
    ]


def judged(network: str, title: str, found: Arms, steps: int) -> list[Claim]:
    """Return the claims of one network."""
    full, ric, opt = (list(found[arm].values()) for arm in (FULL, RIC, OPT))
    return [
        small(network, title, (full, ric, opt)), ends_well(title, opt, ric), of_speed(title, full, ric),
        of_control(title, ric, steps),
    ]  # fmt: skip


def lost(first: Sequence[Outcome], second: Sequence[Outcome]) -> tuple[float, float]:
    """Return the accuracy that the second arm loses against the first, and half its 95 % interval over the pairs."""
    pairs = zip(first, second, strict=True)
    return interval([one.values["local_accuracy"] - other.values["local_accuracy"] for one, other in pairs])


def points(loss: float, half: float, count: int) -> str:
    """Return a loss with its interval as text."""
    return f"{-100 * loss:+.2f} ± {100 * half:.2f} points (95 %, {count} pairs)"


def small(network: str, title: str, arms: tuple[Sequence[Outcome], ...]) -> Claim:
    """Compare RIC with the full network; the arms are full size, RIC and Opt."""
    full, ric, opt = arms
    parameters, flops = (of(full, name) / of(ric, name) for name in ("parameters", "flops"))
    loss, half = lost(full, ric)
    least, fewer = (round(1 / cap) for cap in CAPS[network])
    met = parameters >= least and flops >= fewer and loss + half <= MOST_LOSS[network]
    structure, _ = lost(full, opt)
    return Claim(
        f"{title}: within {100 * MOST_LOSS[network]:.1f} points of full size at {least}× fewer parameters"
        + (f" and {fewer}× fewer FLOPs" if fewer > 1 else ""),
        PAPER[network],
        f"{parameters:.1f}×, {flops:.1f}×, {points(loss, half, len(full))}",
        met,
        "" if met else f"the same widths from scratch: {-100 * structure:+.2f} points",
    )


def ends_well(title: str, opt: Sequence[Outcome], ric: Sequence[Outcome]) -> Claim:
    """Compare RIC with its own final widths, trained from scratch."""
    loss, half = lost(opt, ric)
    return Claim(f"{title}: growing costs at most 0.5 points against the final widths trained from scratch",
                 "MDLdroidLite's arm _Opt", points(loss, half, len(ric)), loss + half <= OPT_LOSS)  # fmt: skip


def same(lenet: Arms, mobilenet: Arms) -> Claim:
    """Compare the full networks, so that growth is measured against one that has learnt."""
    pairs = [(lenet[FULL][one], outcome) for one, outcome in mobilenet[FULL].items() if one in lenet[FULL]]
    first, second = zip(*pairs, strict=True)
    loss, half = lost(first, second)
    return Claim(f"full MobileNet-1D is within {100 * SAME:.0f} points of full LeNet-1D",
                 "MDLdroidLite Tables 4 and 5, sEMG: 87.15 against 87.8", points(loss, half, len(pairs)),
                 loss + half <= SAME)  # fmt: skip


def learnt(full: Sequence[Outcome], ric: Sequence[Outcome]) -> str:
    """Say how well both networks fit what they were trained on: whether the small one has too few parameters."""
    at_full, small = (np.mean([one.epochs[-1]["loss"] for one in outcomes]) for outcomes in (full, ric))
    return f"RIC ends at a training loss of {small:.3f}, full size at {at_full:.3f}"


def of_speed(name: str, full: Sequence[Outcome], ric: Sequence[Outcome]) -> Claim:
    """Compare the times to the full network's accuracy less half a point."""
    slow, fast = reached(full, full), reached(ric, full)
    ratio = slow / fast if slow is not None and fast is not None else 0.0
    needed = [epochs_to(outcomes, full) for outcomes in (ric, full)]
    met = ratio >= FASTER
    return Claim(
        f"RIC trains {name} to the full network's accuracy less 0.5 points at least {FASTER}× as fast",
        "MDLdroidLite, text: 4.6× on LeNet with HAR",
        f"{ratio:.1f}×" if ratio else "not reached",
        met,
        "" if met else f"RIC needs {needed[0] or 'more than all'} epochs, full size {needed[1]}; {learnt(full, ric)}",
    )


def of_control(name: str, ric: Sequence[Outcome], batches: int) -> Claim:
    """Compare the controller's own time with training's."""
    share = control(ric)
    logged = [epoch for one in ric for epoch in one.epochs if "controller_seconds" in epoch]
    own, all_of = (
        1e3 * float(np.median([epoch[key] for epoch in logged])) for key in ("controller_seconds", "seconds")
    )
    text = f"{name}: the controller takes at most {100 * MOST_CONTROL:.0f} % of training"
    met = share <= MOST_CONTROL
    why = f"an epoch of {batches} batches takes {all_of:.0f} ms; saliencies and a decision take {own:.1f} ms"
    return Claim(text, "project's bound", f"{100 * share:.1f} %", met, "" if met else why)


def edits(network: str) -> dict[str, Edit | None]:
    """Return the growth of every arm that trains in one go, by name; None trains the full network."""
    (cap, flops), horizon = CAPS[network], HORIZONS[network]
    ric = Edit(start=0.1, cap=cap, controller="ric", horizon=horizon, penalty=0.4, adapter="dspa", flops=flops)
    return {
        FULL: None, RIC: ric, "linear (NeST)": replace(ric, controller="linear", adapter="nest"),
        "exponential (CGaP)": replace(ric, controller="exponential", adapter="cgap"),
        "fixed, start": replace(ric, controller="fixed"),
    }  # fmt: skip


def main() -> None:
    """Measure, print, write."""
    options = benchmark_parser(__doc__)
    options.add_argument("networks", nargs="*", metavar="NETWORK", help=f"some of {', '.join(CAPS)}; all by default")
    options.add_argument("--tasks", nargs="+", type=int, metavar="N", help="only these seeds or people, from 0")
    options.add_argument("--whole", type=int, metavar="N", help="all arms on the first N of them; by default as above")
    options.add_argument("--keep", type=Path, metavar="FILE", help="outcomes of this and earlier calls")
    asked = options.parse_args()
    rows: list[Row] = []
    claims: list[Claim] = []
    found = {}
    for network in asked.networks or ((MNIST, LENET) if asked.quick else tuple(CAPS)):
        found[network], steps = arms(network, asked)
        count = len(found[network][FULL])
        title = "MNIST, LeNet-2D" if network == MNIST else f"EMG, {network.partition(':')[2]}, {count} people"
        rows += table(title, found[network], steps)
        claims += judged(network, title, found[network], steps)
    if LENET in found and MOBILENET in found:
        claims.append(same(found[LENET], found[MOBILENET]))
    finish("ric_grow", rows, claims, asked.json)


def arms(network: str, asked: argparse.Namespace) -> tuple[Arms, int]:
    """Carry arms out on every task, one process each; return what was found, and the steps of an epoch in the mean."""
    count = SEEDS[asked.quick] if network == MNIST else len(PEOPLE[: QUICK_PEOPLE if asked.quick else None])
    whole = (0 if asked.quick else WHOLE[network]) if asked.whole is None else asked.whole
    found: dict[str, dict[int, Outcome]] = {}
    steps = []
    places = [place for place in range(count) if asked.tasks is None or place in asked.tasks]
    with ProcessPoolExecutor(usable_processors(), get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {
            place: pool.submit(arms_of, network, place, Kept(asked.keep), quick=asked.quick, whole=place < whole)
            for place in places
        }
        for place, one in running.items():
            outcomes, batches = one.result()
            steps.append(batches)
            for arm, outcome in outcomes.items():
                found.setdefault(arm, {})[place] = outcome
    return found, round(float(np.mean(steps)))


def task_of(network: str, place: int, *, quick: bool) -> tuple[Task, RecipePlan, float]:
    """Return a seed's or person's task, and how all arms train on it: the recipe, and the strength of changes."""
    if network == MNIST:
        return mnist(quick=quick), MNIST_RECIPE[quick], 0.0
    return emg(PEOPLE[place], network), EMG_RECIPE[network], EMG_AUGMENT


def arms_of(network: str, place: int, kept: Kept, *, quick: bool, whole: bool) -> tuple[dict[str, Outcome], int]:
    """Carry arms out on one task, one after the other; return what was found, and the steps of an epoch.

    Args:
        network: Key of the caps.
        place: Of the seed, or of the person; the arms' seed.
        kept: Outcomes there are.
        quick: Whether the task is the small one.
        whole: Whether all arms are carried out, or only full size, RIC and Opt.
    """
    torch.set_num_threads(1)
    task, recipe, augment = task_of(network, place, quick=quick)
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def measure(arm: str, edit: Edit | None, sizes: dict[str, int] | None = None) -> Outcome:
            start = task if edit else fresh(task, sizes or {}, place, folder / "fresh.safetensors")
            return trained(start, edit, recipe, place, folder / arm, augment=augment)

        key = (network, place, quick, recipe, augment)
        for arm, edit in edits(network).items():
            if whole or arm in {FULL, RIC}:
                found[arm] = kept.outcome((*key, arm, edit), partial(measure, arm, edit))
        widths = final_widths(found[RIC])
        found[OPT] = kept.outcome((*key, OPT, widths), partial(measure, "opt", None, widths))
    return found, -(-len(task.local.train) // recipe.batch_size)


def mnist(*, quick: bool) -> Task:
    """Return MNIST as a task with LeNet-2D [20-50-500], fresh; its test images are what arms are scored on."""
    spec = InputSpec(kind="arrays", mean=(MNIST_MEAN,), std=(MNIST_STD,))

    def samples(split: str, count: int | None) -> ArraySamples:
        with np.load(DATA / "mnist" / "mnist.npz") as content:
            images, labels = content[f"x_{split}"], content[f"y_{split}"]
        chosen = np.random.default_rng(0).permutation(len(labels))[:count]
        return ArraySamples(images[chosen].astype(np.float32), labels[chosen].astype(np.int64), spec, f"x_{split}")

    train, test = samples("train", QUICK_TRAIN if quick else None), samples("test", QUICK_TEST if quick else None)
    digits = tuple(str(digit) for digit in range(10))
    rows = tuple(range(10))
    model = ModelSpec("tuner.models.lenet:lenet_2d")
    return Task("mnist", model, spec, "single-label", Domain(train, test), None, digits, rows, rows)


def emg(person: str, factory: str) -> Task:
    """Return one person's muscle signals as a task with a fresh network of full size, a MobileNet with norms."""
    rooms, more = ("tuner_growth.torch", ", norms = true") if factory == MOBILENET else ("tuner.models", "")
    return opened_from(EMG_TASK.format(rooms=rooms, factory=factory, data=DATA.resolve(), person=person, more=more))


if __name__ == "__main__":
    main()
