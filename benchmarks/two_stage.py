"""Two-stage training on stored features against single-stage training (Cache-and-Reuse, Tables 2 and 4).

``python -m benchmarks.two_stage [--quick] [--json FILE]``

MobileNetV2 with ImageNet weights, clothing photos, batch 64, cuts after f16, f13 and f10. The single-stage arm is a
plain PyTorch loop: decoded pixels in memory, the frozen prefix in evaluation mode without gradients, channels last. The
two-stage arm reads, decodes and augments 4-bit records and trains the same tail. Steps of both arms are interleaved and
an epoch is steps times the median step; end to end, the two-stage arm also pays for filling.
"""

import copy
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.report import Claim, Row, finish, interleave, interval
from benchmarks.setup import PAPER_CUTS, arguments, clothing, file_bytes, opened, plan_for, spread
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import (
    training_selections,
    validation_selections,
    whole_partition,
)
from tuner.backends.torch.model.layout import channels_last, spatial
from tuner.backends.torch.trial.inputs import TailInputs, augmenting, tail_inputs
from tuner.backends.torch.trial.scoring import score
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.store.codec import Codec
from tuner.store.sizes import scale_bytes
from tuner.task import Task
from tuner.training.epoch import EpochLoop

PAPER_RATIOS = {"last 1 (after f16)": 6.6, "last 4 (after f13)": 2.9, "last 7 (after f10)": 1.9}
BOUNDS = {"last 1 (after f16)": 6.6, "last 4 (after f13)": 3.5, "last 7 (after f10)": 2.0}
GOALS = {"last 1 (after f16)": 10.0, "last 4 (after f13)": 4.5, "last 7 (after f10)": 3.0}
BATCH = 64
EPOCHS = (1, 10, 50)
PAPER_EPOCHS = 50
QUALITY = {"32 bits": 32, "8 bits": 8, "4 bits": 4, "2 bits": 2, "1 bit": 1}
#: Codes whose scales are those of the calibration set, as they were at all widths.
SHARED_SCALES = {"1 bit, scales of all samples": 1}
ONE_BIT_GAIN = 0.10
SEEDS = (0, 1, 2)
RECIPE = RecipePlan(epochs=1, batch_size=BATCH, learning_rate=1e-3)
QUALITY_SIZE = 160
QUALITY_SAMPLES = 1000
QUALITY_RECIPE = replace(RECIPE, epochs=6, batch_size=32, learning_rate=3e-4)
LEARNED, LEARNED_FROM_FEW = 0.6, 0.3


def main() -> None:
    """Measure, print, write."""
    asked = arguments(__doc__ or "")
    size, samples, steps = (160, 320, 5) if asked.quick else (224, None, 12)
    task = clothing(size, samples, None, held=True)
    here = opened(task)
    rows: list[Row] = []
    claims: list[Claim] = []
    for cut, split in PAPER_CUTS.items():
        row, ratio = _speed(here, cut, split, steps)
        rows.append(row)
        met = ratio >= BOUNDS[cut]
        text = f"two-stage ≥ {BOUNDS[cut]}× single-stage per epoch, {cut} (goal {GOALS[cut]}×)"
        claims.append(
            Claim(text, f"paper {PAPER_RATIOS[cut]}×", f"{ratio:.2f}×", "ratio", met, _why(row) if not met else "")
        )
    rows += _bytes(here)
    print("step times are measured; now accuracies", file=sys.stderr, flush=True)
    quality = opened(clothing(QUALITY_SIZE, samples or QUALITY_SAMPLES, None, held=True))
    found = _accuracies(quality, QUALITY_RECIPE)
    for name, values in found.items():
        rows.append({"after equal epochs": name, "local accuracy": float(np.mean(values)), "seeds": spread(values)})
    alone = float(np.mean(found["32 bits"]))
    least = LEARNED_FROM_FEW if asked.quick else LEARNED
    text = f"the uncompressed cache reaches {least:.0%}: there is something to lose"
    claims.append(Claim(text, "chance is 10 %", f"{100 * alone:.1f} %", "quality", alone >= least))
    for name, bound, paper in (("4 bits", 0.015, 0.22), ("8 bits", 0.010, 0.79)):
        drops = np.array(found["32 bits"]) - np.array(found[name])
        drop, half = interval(list(drops))
        text = f"{name} within {100 * bound:.1f} points of the uncompressed cache"
        said = f"{100 * drop:+.2f} points lower, ± {100 * half:.2f} (95 %, {len(drops)} paired seeds)"
        reference = f"paper: at most {paper} points lower on six datasets"
        claims.append(Claim(text, reference, said, "quality", drop + half <= bound))
    gains = np.array(found["1 bit"]) - np.array(found["1 bit, scales of all samples"])
    gain, half = interval(list(gains))
    text = f"1 bit with scales of each sample's own gains {100 * ONE_BIT_GAIN:.0f} points over scales of all samples"
    said = f"{100 * gain:+.2f} ± {100 * half:.2f} points (95 %, {len(gains)} paired seeds)"
    claims.append(Claim(text, "bound of the project", said, "quality", gain - half >= ONE_BIT_GAIN))
    finish("two_stage", rows, claims, asked.json)


def _speed(here: Access, cut: str, split: int, steps: int) -> tuple[Row, float]:
    """Return a row of step times, and the ratio of single-stage over two-stage."""
    task, loaded = here.task, here.loaded
    plan = plan_for(task, loaded, split, bits=4, recipe=RECIPE, augment=0.5)
    filling = fill(here, [plan])
    two = _steps(
        here,
        plan,
        tail_inputs(
            task,
            loaded,
            split,
            training_selections(task, plan),
            Reader(here, split, 4, training_selections(task, plan)),
            _augment(plan),
        ),
    )
    one = _steps(here, plan, _plain(task, here, split))
    folded = _steps(here, plan, tail_inputs(task, loaded, split, training_selections(task, plan), None, _augment(plan)))
    count = len(task.local.train)
    seconds = interleave(
        {"single": _stepper(one, count), "two": _stepper(two, count), "folded": _stepper(folded, count)}, steps
    )
    per_image = {name: median(values) / BATCH for name, values in seconds.items()}
    ratio = per_image["single"] / per_image["two"]
    fill_each = filling.seconds / max(filling.records, 1)
    row: dict[str, object] = {
        "cut": cut,
        "single ms/img": 1e3 * per_image["single"],
        "two-stage ms/img": 1e3 * per_image["two"],
        "least": f"{1e3 * min(seconds['single']) / BATCH:.2f} / {1e3 * min(seconds['two']) / BATCH:.2f}",
        "ratio": ratio,
        "paper": PAPER_RATIOS[cut],
        "over a folded prefix": per_image["folded"] / per_image["two"],
        "fill ms/img": 1e3 * fill_each,
    }
    for epochs in EPOCHS:
        whole = epochs * per_image["single"] / (fill_each + epochs * per_image["two"])
        row[f"end to end, {epochs} epochs (extrapolated)"] = whole
    return row, ratio


def _steps(here: Access, plan: TrialPlan, rows: TailInputs) -> EagerSteps:
    steps = EagerSteps(here.task, plan, copy.deepcopy(here.loaded.tail(plan.split)), rows, 0)
    steps.begin_epoch()
    return steps


def _stepper(steps: EagerSteps, count: int) -> Callable[[], float]:
    generator = np.random.default_rng(0)
    return lambda: steps.step(generator.permutation(count)[:BATCH], RECIPE.learning_rate)


def _plain(task: Task, here: Access, split: int) -> TailInputs:
    """Return the plain loop's inputs: pixels in memory, random flips and crops of them, the frozen prefix unfolded."""
    prefix = channels_last(here.loaded.prefix(split).eval())
    train = task.local.train
    pixels = task.batch(train, range(len(train)))
    change = _augment(plan_for(task, here.loaded, split, bits=None, recipe=RECIPE, augment=0.5))

    def read(rows: npt.NDArray[np.int64]) -> torch.Tensor:
        with torch.no_grad():
            value: torch.Tensor = prefix(spatial(torch.from_numpy(change(pixels[rows]))))
        return value

    return TailInputs(read, train.labels)


def _augment(plan: TrialPlan) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]:
    return augmenting(plan, 0)


def _bytes(here: Access) -> list[Row]:
    """Return the bytes of a stored sample at each width beside three denominators."""
    task = here.task
    train = task.local.train
    raw = float(np.prod(task.input_shape))
    native = float(np.mean([_native_bytes(train.name(index)) for index in range(0, len(train), 8)]))
    files = file_bytes(train) / len(train)
    rows: list[Row] = []
    for cut, split in PAPER_CUTS.items():
        shape = here.loaded.info.blocks[split].in_shape
        for bits in (32, 8, 4, 2, 1):
            each = -(-math.prod(shape) * bits // 8) + scale_bytes(bits, shape)
            rows.append(
                {
                    "cut": cut,
                    "bits": bits,
                    "bytes a sample": each,
                    "of raw uint8 at the input size": each / raw,
                    "of native uint8 pixels": each / native,
                    "of the files on disk": each / files,
                }
            )
    return rows


def _native_bytes(path: str) -> int:
    from PIL import Image

    with Image.open(path) as image:
        return 3 * image.width * image.height


def _accuracies(here: Access, recipe: RecipePlan) -> dict[str, list[float]]:
    """Return local accuracies by arm over the seeds: last 4 blocks, equal epochs."""
    split = PAPER_CUTS["last 4 (after f13)"]
    found: dict[str, list[float]] = {}
    for name, bits in QUALITY.items():
        for strength, label in ((0.5, name), (0.0, f"{name} without augmentation")):
            if strength == 0.0 and bits != 4:
                continue
            found[label] = [_accuracy(here, split, bits, strength, recipe, seed) for seed in SEEDS]
            print(f"{label}: {spread(found[label])}", file=sys.stderr, flush=True)
    for label, bits in SHARED_SCALES.items():
        found[label] = [_accuracy(here, split, bits, 0.5, recipe, seed, shared=True) for seed in SEEDS]
        print(f"{label}: {spread(found[label])}", file=sys.stderr, flush=True)
    return found


def _accuracy(
    here: Access, split: int, bits: int, strength: float, recipe: RecipePlan, seed: int, *, shared: bool = False
) -> float:
    task, loaded = here.task, here.loaded
    plan = plan_for(task, loaded, split, bits=bits, recipe=recipe, augment=strength)
    fill(here, [plan])
    picks = training_selections(task, plan)
    change, shape = augmenting(plan, seed), loaded.info.blocks[split].in_shape
    if shared:
        low, high, _ = here.scales(split) or (None, None, "")
        codec = Codec(bits, shape, low, high)
        reader = Reader(here, split, 8, picks)  # the codes that all narrower ones are made of
        rows = tail_inputs(task, loaded, split, picks, reader, lambda maps: change(codec.decode(codec.encode(maps))))
    else:
        rows = tail_inputs(task, loaded, split, picks, Reader(here, split, bits, picks), change)
    tail = copy.deepcopy(loaded.tail(split))
    torch.manual_seed(seed)
    for _ in EpochLoop(EagerSteps(task, plan, tail, rows, seed), recipe, len(rows.labels), seed).epochs():
        pass
    exact = Reader(here, split, 16, validation_selections(task))
    return score(task, tail, tail_inputs(task, loaded, split, [whole_partition(task, "local.val")], exact))


def _why(row: Row) -> str:
    single, two = row["single ms/img"], row["two-stage ms/img"]
    return f"a step takes {single:.2f} ms an image against {two:.2f}: the tail's own forward and backward dominate"


if __name__ == "__main__":
    main()
