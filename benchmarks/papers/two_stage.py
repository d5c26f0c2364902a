"""Two-stage training on stored features against single-stage training (Cache-and-Reuse, Tables 2 and 4).

*Speed*: MobileNetV2 with ImageNet weights, clothing photos at 224 px, batch 64, cuts after f16, f13 and f10; and a
MaxViT (convolutions and attention) of half MaxViT-T's widths, at 160 px, of which the last stage trains. It has random
weights: only times mean something. The single stage has decoded pixels in memory, changes them at random
(`benchmarks.papers.two_stage_accuracy`), and runs them through the frozen blocks without gradients; the two-stage arm
reads, decodes and changes 4-bit records. In both, the norms of frozen blocks are folded into convolutions, and tail and
step are the same. Steps of both arms are interleaved. A ratio is the median over rounds, and a claim holds at the lower
end of its 95 % interval, by ranks. An epoch is steps times the median step; end to end, filling is paid for too.

*Accuracy*: see `benchmarks.papers.two_stage_accuracy`; 160 px, all 1,192 photos, 4 epochs (the paper: 224 px, 50
epochs). The arms that answer the paper's claim have five seeds, the others three. Intervals are of seeds on the same
test photos.

The full lane takes about 25 minutes of one core, of which speed 4.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave, median_interval
from benchmarks.lib.setup import PAPER_CUTS, clothing, opened, plan_for, stepper
from benchmarks.papers import two_stage_accuracy as accuracy
from benchmarks.papers.two_stage_accuracy import pixel_inputs
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.trial.inputs import augmenting, stored_inputs
from tuner.plan.parts import RecipePlan
from tuner.task.spec import ModelSpec

PAPER_RATIOS = {"last 1 (after f16)": 6.6, "last 4 (after f13)": 2.9, "last 7 (after f10)": 1.9}
#: Of EfficientFormerV2-S0's last 5 blocks, the paper's transformer.
PAPER_TRANSFORMER = 2.5
BATCH, STRENGTH = 64, 0.5
EPOCHS = (1, 10, 50)
RECIPE = RecipePlan(epochs=1, batch_size=BATCH, learning_rate=1e-3, freeze_bn=False)
STAGE, STAGE_SIZE = "blocks.3.", 160
MAXVIT = (
    ("block_channels", [32, 64, 128, 256]), ("block_layers", [1, 1, 2, 1]), ("head_dim", 32),
    ("input_size", (STAGE_SIZE, STAGE_SIZE)), ("partition_size", STAGE_SIZE // 32), ("stem_channels", 32),
    ("stochastic_depth_prob", 0.0),
)  # fmt: skip
#: Seconds of each arm's rounds.
Seconds = Mapping[str, Sequence[float]]


def main() -> None:
    """Measure, print, write."""
    options = benchmark_parser(__doc__)
    options.add_argument("--only", choices=("speed", "accuracy"), help="one half of it")
    asked = options.parse_args()
    rows: list[Row] = []
    claims: list[Claim] = []
    if asked.only != "accuracy":
        rows, claims = speed(quick=asked.quick)
        print("step times are measured; now accuracies", file=sys.stderr, flush=True)
    if asked.only != "speed":
        found = accuracy.measure(accuracy.QUICK if asked.quick else accuracy.Lane())
        rows, claims = [*rows, *accuracy.rows_of(found)], [*claims, *accuracy.claims_of(found)]
    finish("two_stage", rows, claims, asked.json)


def speed(*, quick: bool) -> tuple[list[Row], list[Claim]]:
    """Return times of both models, and what they show."""
    samples, steps = (128, 6) if quick else (256, 24)
    here = opened(clothing(160 if quick else 224, samples, 32, held=True))
    cuts = {f"MobileNetV2, {name}": (split, PAPER_RATIOS[name]) for name, split in PAPER_CUTS.items()}
    rows, claims = list[Row](), list[Claim]()
    for name, (split, paper) in cuts.items():
        seconds, row = _speed(here, split, steps)
        rows.append({"cut": name, **row, "paper": paper})
        text = f"{name}: a two-stage step is as many times faster as the paper's, {paper}×"
        claims.append(ratio_claim(text, f"paper {paper}×", seconds, paper))
    photos, network = clothing(STAGE_SIZE, samples, 32, held=True), ModelSpec("torchvision.models:MaxVit", MAXVIT)
    transformer = opened(replace(photos, model=network))
    split = next(at for at, block in enumerate(transformer.loaded.info.blocks) if block.name.startswith(STAGE))
    seconds, row = _speed(transformer, split, max(6, steps // 2))
    name, least = "MaxViT, last stage", by_flops(transformer, split)
    rows.append({"cut": name, **row, "paper": f"{PAPER_TRANSFORMER} (EfficientFormerV2-S0)"})
    text = f"{name}: a two-stage step is as many times faster as its FLOPs say, {least:.2f}×"
    claims.append(ratio_claim(text, f"FLOPs of its blocks; paper {PAPER_TRANSFORMER}×", seconds, least))
    return rows, claims


def ratio_claim(text: str, reference: str, seconds: Seconds, least: float) -> Claim:
    """Return the claim that a two-stage step is at least so many times faster, at the interval's lower end."""
    ratios = _ratios(seconds)
    low, high = median_interval(ratios)  # no numbers where rounds are too few for an interval
    measured = f"{median(ratios):.2f}×, {low:.2f} to {high:.2f} (95 % of {len(ratios)} paired steps)"
    single, two = (1e3 * median(seconds[name]) / BATCH for name in ("single", "two"))
    why = f"a step takes {single:.2f} ms an image against {two:.2f}"
    return Claim(text, reference, measured, low >= least, "" if low >= least else why)


def by_flops(here: Access, split: int) -> float:
    """Return the ratio of a step's FLOPs without and with stored features: a backward pass is two forward ones."""
    flops = [block.flops for block in here.loaded.info.blocks]
    frozen, trained = sum(flops[:split]), 3 * sum(flops[split:])
    return (frozen + trained) / trained


def _ratios(seconds: Seconds) -> list[float]:
    return [single / two for single, two in zip(seconds["single"], seconds["two"], strict=True)]


def _speed(here: Access, split: int, steps: int) -> tuple[Seconds, Row]:
    """Return the seconds of both arms' steps, and a row of them."""
    task, loaded = here.task, here.loaded
    plan = plan_for(task, loaded, split, bits=4, recipe=RECIPE, augment=STRENGTH)
    filling, picks = fill(here, [plan]), training_selections(task, plan)
    stored = stored_inputs(Reader(here, split, 4, picks), picks, augmenting(task, plan, np.random.default_rng((0, 1))))
    arms = {"single": pixel_inputs(here, split, STRENGTH, 0), "two": stored}
    seconds = interleave({name: stepper(here, plan, rows) for name, rows in arms.items()}, steps, warmup=8)
    per_image = {name: median(values) / BATCH for name, values in seconds.items()}
    fill_each = filling.seconds / max(filling.records, 1)
    row: dict[str, object] = {
        "single ms/img": 1e3 * per_image["single"], "two-stage ms/img": 1e3 * per_image["two"],
        "least": f"{1e3 * min(seconds['single']) / BATCH:.2f} / {1e3 * min(seconds['two']) / BATCH:.2f}",
        "ratio": median(_ratios(seconds)), "by FLOPs": by_flops(here, split), "fill ms/img": 1e3 * fill_each,
    }  # fmt: skip
    for epochs in EPOCHS:
        whole = epochs * per_image["single"] / (fill_each + epochs * per_image["two"])
        row[f"end to end, {epochs} epochs (extrapolated)"] = whole
    return seconds, row


if __name__ == "__main__":
    main()
