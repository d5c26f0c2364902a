"""Few samples: the nearest-mean anchor of SimpleShot, and HandMoji's ten drawings.

The anchor: a conv4 of NNTrainer's own example makes features of 5-way CIFAR-100 tasks; they are scaled to unit length,
and a test sample belongs to the nearest class mean. Features go through the feature store, at several widths.

HandMoji (NNTrainer, section 5): a user draws two emoji five times each, and a watch learns to tell them apart on
MobileNetV2's features, which are computed in epoch 1 and kept. Drawings are PNG files of two of MNIST's digits, drawn
with a seed, three times; `tuner.runtime.Trainer` reads, trains for 40 epochs and saves. Seconds count from opening the
bundle until the new one is written; imports do not count.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import nn

from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.lib.setup import opened, plan_for, untrained_bundle
from tuner.backends.torch.features.access import VALIDATION_BITS
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import whole_partition
from tuner.backends.torch.model.load import load
from tuner.plan.parts import RecipePlan
from tuner.runtime import Personaliser, Trainer
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Task

#: Shots and right answers out of 75: NNTrainer's example data with its own backbone (20 shots), reproduced.
ANCHORS = {5: 51, 10: 54, 20: 55}
BITS = (32, 8, 4)
EMOJI, DRAWINGS, EPOCHS, OTHERS = 2, 5, 40, 100
SHARE, SECONDS = 0.1, 10.0
Array = npt.NDArray[np.generic]


def conv4(file: str) -> nn.Module:
    """Return the backbone of an ``.npz`` and a head of five outputs: float32 [n, 3, 32, 32] to [n, 5]."""
    parts: list[nn.Module] = []
    with np.load(file) as content:
        for at, pooled in enumerate((True, True, False, True)):
            weight, bias = (torch.from_numpy(content[f"conv{at}.{part}"]) for part in ("weight", "bias"))
            convolution = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[-1])
            convolution.load_state_dict({"weight": weight, "bias": bias})
            parts += [convolution, nn.MaxPool2d(2), nn.ReLU()] if pooled else [convolution, nn.ReLU()]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(parts[0].out_channels, 5))  # type: ignore[arg-type]  # a number


def main() -> None:
    """Measure, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    rows: list[Row] = []
    claims: list[Claim] = []
    for shots, expected in ANCHORS.items():
        row = _anchor(shots)
        rows.append(row)
        right, of = row["32 bits"], row["of"]
        why = "" if right == expected else "another float32 convolution; see the row"
        text = f"{shots} shots, nearest class mean: {expected} of 75 right ({expected / 75:.2%})"
        reference = "spec.md §8.3; NNTrainer's SimpleShot" if shots == max(ANCHORS) else "spec.md §8.3"
        claims.append(Claim(text, reference, f"{right} of {of}", "exact", right == expected, why))
    drawn = _handmoji(1 if asked.quick else 3)
    rows += drawn
    slowest = max(float(str(row["slowest of the others / epoch 1"])) for row in drawn)
    longest = max(float(str(row["total s"])) for row in drawn)
    claims += [
        Claim(
            f"HandMoji: each of epochs 2…{EPOCHS} takes ≤ {SHARE:g} of epoch 1",
            "NNTrainer §5: features are cached in epoch 1",
            f"{slowest:.4f} at most",
            "ratio",
            slowest <= SHARE,
            "" if slowest <= SHARE else "one step of a head, against the frozen blocks on ten drawings",
        ),
        Claim(
            f"HandMoji: {EMOJI * DRAWINGS} drawings are learned in < {SECONDS:g} s",
            "NNTrainer: < 10 s on a watch",
            f"{longest:.2f} s at most",
            "ratio",
            longest < SECONDS,
            "" if longest < SECONDS else "see the rows",
        ),
    ]
    finish("fewshot", rows, claims, asked.json)


def _anchor(shots: int) -> Row:
    """Return how many test samples are right, by the width of the stored training features."""
    file, spec = DATA / "fewshot" / "simpleshot.npz", InputSpec("arrays")
    with np.load(file) as content:
        parts = {name: content[name] for name in content.files if "/" in name}
    train, test = (
        ArraySamples(parts[f"{name}/x"], parts[f"{name}/y"].astype(np.int64), spec, name)
        for name in (f"{shots}shot", "test")
    )
    model = ModelSpec("benchmarks.papers.fewshot:conv4", (("file", str(file)),))
    names = tuple(map(str, range(5)))
    task = Task("fewshot", model, spec, "single-label", Domain(train, test), None, names, (), tuple(range(5)))
    loaded = load(task)
    split = loaded.info.num_blocks - 1
    access = opened(task, "torch-fp32", loaded)
    plans = [plan_for(task, loaded, split, bits=bits, recipe=RecipePlan()) for bits in BITS]
    fill(access, plans)
    given, asked = whole_partition(task, "local.train"), whole_partition(task, "local.val")
    scored = Reader(access, split, VALIDATION_BITS, [asked]).read(asked.ids())
    row: dict[str, object] = {"shots": shots, "of": len(test)}
    for bits in BITS:
        features = Reader(access, split, bits, [given]).read(given.ids())
        row[f"{bits} bits"] = int((nearest_mean(features, train.labels, scored) == test.labels).sum())
    return row


def nearest_mean(features: npt.NDArray[np.float32], labels: Array, others: npt.NDArray[np.float32]) -> Array:
    """Return the label of the nearest class mean of each of `others`; all are scaled to unit length.

    Source: Wang et al., SimpleShot (arXiv 1911.04623), section 3, L2N.
    """
    lengths = (np.linalg.norm(one.reshape(len(one), -1), axis=1, keepdims=True) for one in (features, others))
    known, asked = (one.reshape(len(one), -1) / size for one, size in zip((features, others), lengths, strict=True))
    classes = np.unique(labels)
    means = np.stack([known[labels == one].mean(0) for one in classes])
    found: Array = classes[np.linalg.norm(asked[:, None] - means, axis=2).argmin(1)]
    return found


def _handmoji(runs: int) -> list[Row]:
    with np.load(DATA / "mnist" / "mnist.npz") as content:
        pixels, digits = content["x_train"], content["y_train"]
    spec = InputSpec("images", size=160, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    names = ("this", "that")
    shown = ArraySamples(pixels[:EMOJI], np.arange(EMOJI), spec)  # what an export needs to check itself with
    weights = str(DATA / "models" / "mobilenet_v2_imagenet.pth")
    model = ModelSpec("torchvision.models:mobilenet_v2", weights=weights)
    task = Task("handmoji", model, spec, "single-label", Domain(shown, shown), None, names, (), tuple(range(EMOJI)))
    loaded = load(task)
    recipe = RecipePlan(
        epochs=EPOCHS, batch_size=EMOJI * DRAWINGS, optimiser="adam", learning_rate=1e-3, schedule="constant"
    )
    plan = plan_for(task, loaded, loaded.info.num_blocks - 1, bits=8, recipe=recipe)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = untrained_bundle(task, plan, Path(folder))
        for seed in range(runs):
            generator = np.random.default_rng(seed)
            pair = np.sort(generator.permutation(10)[:EMOJI])
            chosen = [generator.permutation(np.flatnonzero(digits == digit)) for digit in pair]
            files = [_drawn(pixels, rows_of[: DRAWINGS + OTHERS // EMOJI], Path(folder)) for rows_of in chosen]
            rows.append({"drawings of": " and ".join(map(str, pair)), **_learned(bundle, files, Path(folder), seed)})
    return rows


def _drawn(pixels: Array, rows: Array, folder: Path) -> list[Path]:
    """Write drawings as image files."""
    files = [folder / f"{row}.png" for row in rows]
    for row, file in zip(rows, files, strict=True):
        Image.fromarray(pixels[row]).save(file)
    return files


def _learned(bundle: Path, files: list[list[Path]], folder: Path, seed: int) -> Row:
    """Train on the first drawings of each emoji, and predict the others with the bundle that was saved."""
    names = Trainer(bundle).bundle.labels
    new = [(file, name) for own, name in zip(files, names, strict=True) for file in own[:DRAWINGS]]
    ends: list[float] = []

    def watch(_step: int, _steps: int) -> bool:
        ends.append(time.perf_counter())
        return False

    started = time.perf_counter()
    trainer = Trainer(bundle, seed=seed)
    begun = time.perf_counter()
    trainer.add([file for file, _ in new], [name for _, name in new])
    trainer.train(watch=watch)  # one step an epoch
    made = trainer.save(folder / f"learned-{seed}")
    ended = time.perf_counter()
    epochs = np.diff([begun, *ends])
    personaliser = Personaliser(made)
    right = [
        personaliser.predict_file(file).label == name
        for own, name in zip(files, names, strict=True)
        for file in own[DRAWINGS:]
    ]
    return {
        "epoch 1 ms": 1e3 * float(epochs[0]),
        "median of the others ms": 1e3 * float(np.median(epochs[1:])),
        "slowest of the others / epoch 1": float(epochs[1:].max() / epochs[0]),
        "epochs": len(epochs),
        "total s": ended - started,
        "right of other drawings": float(np.mean(right)),
    }


if __name__ == "__main__":
    main()
