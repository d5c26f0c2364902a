"""What growth saves: networks that grow from a tenth of their widths against full size (MDLdroidLite, Tables 4 and 5).

``python -m benchmarks.ric_grow [--quick] [--json FILE]``

MNIST with LeNet-2D from [2-5-10], and muscle signals with LeNet-1D from [2-5-10] and MobileNet-1D from [3-6-12-25], one
network for each of several people: trained on a person's first session, scored on the last one. All arms train through
the same backend, from fresh weights of the same rule, with the same recipe and the same caps on parameters and FLOPs.
The caps are the claim's, as a user would give them (`growth.cap`, `growth.flops`); what is measured is the accuracy
within them. Three arms are reference points:

- ``RIC's widths, Opt``: RIC's final widths, trained from scratch. The difference between the two is what growing
  itself costs; the difference to full size is what the widths cost.
- ``pruned``: the trained full network, cut to RIC's final widths by Taylor saliency and trained on; its seconds are
  those after the cut.
- ``S-search``: widths by a search of one parent and one child; its seconds include the search.

Recipes were chosen on other data: further training digits, and the middle session.

Arms run on one thread, as many seeds or people at a time as there are cores. Quality is the difference to full size,
paired over three seeds or over people, and a claim needs the unfavourable end of its 95 % interval.

Quick: 6,000 training and 2,000 test digits, and LeNet-1D of three people, at full size, by RIC, and its widths from
scratch. Full: all digits, six people on both networks, and all arms (on digits only for the first seed).
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.growth import (
    WEIGHTS,
    control,
    epochs_to,
    final_widths,
    fresh,
    of,
    pruned,
    reached,
    said,
    searched,
    trained,
)  # fmt: skip
from benchmarks.growth_tasks import emg, mnist
from benchmarks.report import Claim, Row, finish, interval
from benchmarks.setup import parser
from tuner.plan.parts import RecipePlan
from tuner.results.records import Outcome
from tuner.search.setting import cores
from tuner.task import Task
from tuner_growth.edit import Edit

MNIST_RECIPE = {
    True: RecipePlan(epochs=30, batch_size=50, optimiser="adam", learning_rate=3e-3, schedule="cosine"),
    False: RecipePlan(epochs=10, batch_size=100, optimiser="adam", learning_rate=3e-3, schedule="cosine"),
}
#: A person's session has about 20 batches, and a decision of growth needs 100: epochs are short, and many.
EMG_RECIPE = RecipePlan(epochs=100, batch_size=64, optimiser="adam", learning_rate=3e-3, schedule="cosine")
SEEDS = 3
PEOPLE = ("female0", "female1", "male0", "male1", "male2", "male3")
QUICK_PEOPLE = 3
LENET, MOBILENET = "lenet:lenet_1d", "mobilenet:mobilenet_1d"
#: Of MNIST, LeNet-1D and MobileNet-1D: the fractions of the full parameters and FLOPs that growth may reach.
CAPS = {"MNIST": (1 / 20, 1 / 8), LENET: (1 / 20, 1.0), MOBILENET: (1 / 13, 1.0)}
#: Periods that RIC looks ahead.
HORIZONS = {"MNIST": 4, LENET: 4, MOBILENET: 3}
#: The most accuracy lost, at the unfavourable end of the interval.
MOST_LOSS = {"MNIST": 0.005, LENET: 0.010, MOBILENET: 0.020}
#: The most accuracy that full MobileNet-1D loses against full LeNet-1D, likewise.
SAME = 0.020
FASTER = 1.5
MOST_CONTROL = 0.01
#: The most accuracy that growing costs against the same widths from scratch.
OPT_LOSS = 0.005
PAPER = {
    "MNIST": "MDLdroidLite Table 4: 1/20.6, 1/8.4, −0.04 points",
    LENET: "MDLdroidLite Table 4, sEMG: 1/40.7, −0.34 points",
    MOBILENET: "MDLdroidLite Table 5, sEMG: 1/13.4, −0.68 points",
}
FULL, RIC, OPT = "full", "RIC", "RIC's widths, Opt"
Arms = Mapping[str, Sequence[Outcome]]


def edits(network: str) -> dict[str, Edit | None]:
    """Return the growth of every arm that trains in one go, by name; None trains the full network."""
    (cap, flops), horizon = CAPS[network], HORIZONS[network]
    ric = Edit(start=0.1, cap=cap, controller="ric", horizon=horizon, penalty=0.4, adapter="dspa", flops=flops)
    return {
        FULL: None,
        RIC: ric,
        "linear (NeST)": replace(ric, controller="linear", adapter="nest"),
        "exponential (CGaP)": replace(ric, controller="exponential", adapter="cgap"),
        "fixed, start": replace(ric, controller="fixed"),
    }


def main() -> None:
    """Measure, print, write."""
    options = parser(__doc__ or "")
    options.add_argument("networks", nargs="*", metavar="NETWORK", help=f"some of {', '.join(CAPS)}; all by default")
    asked = options.parse_args()
    recipe, whole = MNIST_RECIPE[asked.quick], 0 if asked.quick else 1
    people = PEOPLE[: QUICK_PEOPLE if asked.quick else None]
    rows, claims, found = [], [], {}
    for network in asked.networks or (("MNIST", LENET) if asked.quick else tuple(CAPS)):
        if network == "MNIST":
            tasks, title = [partial(mnist, quick=asked.quick)] * SEEDS, "MNIST, LeNet-2D"
        else:
            tasks = [partial(emg, person, network) for person in people]
            recipe, whole = EMG_RECIPE, 0 if asked.quick else len(people)
            title = f"EMG, {network.partition(':')[2]}, {len(people)} people"
        found[network], steps = arms(tasks, recipe, network, whole)
        rows += table(title, found[network], steps)
        claims += [small(network, title, found[network]), ends_well(title, found[network])]
        claims += [of_speed(title, found[network]), of_control(title, found[network], steps)]
    if LENET in found and MOBILENET in found:
        claims.append(same(found[LENET], found[MOBILENET]))
    finish("ric_grow", rows, claims, asked.json)


def arms(tasks: Sequence[Callable[[], Task]], recipe: RecipePlan, network: str, whole: int) -> tuple[Arms, int]:
    """Carry arms out on every task, one process each; return what was found, and the steps of an epoch in the mean.

    Args:
        tasks: Make one task each; its place is the seed.
        recipe: Of all arms.
        network: Key of the caps.
        whole: Tasks, from the first, on which all arms are carried out; on the others, full size, RIC and Opt.
    """
    found: dict[str, list[Outcome]] = {}
    steps = []
    with ProcessPoolExecutor(cores(), get_context("spawn"), max_tasks_per_child=1) as pool:
        running = [pool.submit(arms_of, make, recipe, network, seed, seed < whole) for seed, make in enumerate(tasks)]
        for one in running:
            outcomes, count = one.result()
            steps.append(count)
            for arm, outcome in outcomes.items():
                found.setdefault(arm, []).append(outcome)
    return found, round(float(np.mean(steps)))


def arms_of(
    make: Callable[[], Task], recipe: RecipePlan, network: str, seed: int, whole: bool
) -> tuple[dict[str, Outcome], int]:
    """Carry arms out on one task, one after the other; return what was found, and the steps of an epoch."""
    torch.set_num_threads(1)
    task, found = make(), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for arm, edit in edits(network).items():
            if whole or arm in {FULL, RIC}:
                start = task if edit else fresh(task, {}, seed, folder / "fresh.safetensors")
                found[arm] = trained(start, edit, recipe, seed, folder / arm)
        widths = final_widths(found[RIC])
        again = fresh(task, widths, seed, folder / "fresh.safetensors")
        found[OPT] = trained(again, None, recipe, seed, folder / "opt")
        if whole:
            small = pruned(task, folder / FULL / WEIGHTS, widths, folder / "pruned.safetensors")
            found["pruned"] = trained(small, None, recipe, seed, folder / "pruned")
            found["S-search"] = searched(task, CAPS[network], recipe, seed, folder)
    return found, -(-len(task.local.train) // recipe.batch_size)


def table(title: str, found: Arms, steps: int) -> list[Row]:
    """Return the rows of one network."""
    full = found[FULL]
    return [
        {"network": title, "arm": arm, **said(outcomes, full[: len(outcomes)], steps)}
        for arm, outcomes in found.items()
    ]


def lost(first: Sequence[Outcome], second: Sequence[Outcome]) -> tuple[float, float]:
    """Return the accuracy that the second arm loses against the first, and half its 95 % interval over the pairs."""
    pairs = zip(first, second, strict=True)
    return interval([one.values["local_accuracy"] - other.values["local_accuracy"] for one, other in pairs])


def points(loss: float, half: float, count: int) -> str:
    """Return a loss with its interval as text."""
    return f"{-100 * loss:+.2f} ± {100 * half:.2f} points (95 %, {count} pairs)"


def small(network: str, title: str, found: Arms) -> Claim:
    """Compare RIC with the full network."""
    full, ric = found[FULL], found[RIC]
    parameters, flops = (of(full, name) / of(ric, name) for name in ("parameters", "flops"))
    loss, half = lost(full, ric)
    least, fewer = (round(1 / cap) for cap in CAPS[network])
    met = parameters >= least and flops >= fewer and loss + half <= MOST_LOSS[network]
    structure, _ = lost(full, found[OPT])
    return Claim(
        f"{title}: within {100 * MOST_LOSS[network]:.1f} points of full size at {least}× fewer parameters"
        + (f" and {fewer}× fewer FLOPs" if fewer > 1 else ""),
        PAPER[network],
        f"{parameters:.1f}×, {flops:.1f}×, {points(loss, half, len(full))}",
        "quality",
        met,
        "" if met else f"the same widths from scratch: {-100 * structure:+.2f} points",
    )


def ends_well(title: str, found: Arms) -> Claim:
    """Compare RIC with its own final widths, trained from scratch."""
    loss, half = lost(found[OPT], found[RIC])
    return Claim(
        f"{title}: growing costs at most 0.5 points against the final widths trained from scratch",
        "MDLdroidLite's arm _Opt",
        points(loss, half, len(found[RIC])),
        "quality",
        loss + half <= OPT_LOSS,
    )


def same(lenet: Arms, mobilenet: Arms) -> Claim:
    """Compare the full networks, so that growth is measured against one that has learnt."""
    loss, half = lost(lenet[FULL], mobilenet[FULL])
    return Claim(
        f"full MobileNet-1D is within {100 * SAME:.0f} points of full LeNet-1D",
        "MDLdroidLite Tables 4 and 5, sEMG: 87.15 against 87.8",
        points(loss, half, len(lenet[FULL])),
        "quality",
        loss + half <= SAME,
    )


def learnt(found: Arms) -> str:
    """Say how well both networks fit what they were trained on: whether the small one has too few parameters."""
    full, ric = (np.mean([one.epochs[-1]["loss"] for one in found[arm]]) for arm in (FULL, RIC))
    return f"RIC ends at a training loss of {ric:.3f}, full size at {full:.3f}"


def of_speed(name: str, found: Arms) -> Claim:
    """Compare the times to the full network's accuracy less half a point."""
    slow, fast = reached(found[FULL], found[FULL]), reached(found[RIC], found[FULL])
    ratio = slow / fast if slow is not None and fast is not None else 0.0
    needed = [epochs_to(found[arm], found[FULL]) for arm in (RIC, FULL)]
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
    share = control(found[RIC])
    logged = [epoch for one in found[RIC] for epoch in one.epochs if "controller_seconds" in epoch]
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


if __name__ == "__main__":
    main()
