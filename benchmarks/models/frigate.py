"""Frigate's recipe for a custom classification model, by hand, next to ``tuner frigate train``: the same photos.

The recipe is that of ``frigate/util/classification.py`` (version 0.17): a frozen MobileNetV2, the mean over positions,
a dense layer of 128, dropout of 0.3, a dense layer; Adam at 0.001, batches of 16, 50 epochs in which the backbone runs
again each time; a fifth of the photos is put aside and never looked at. Simplified, each time in its favour: the
backbone has its whole width in place of 0.35 (both arms have torchvision's weights), its inputs are normalised as the
weights were trained, and what it trains is scored in float32, without the conversion to int8. Ours is scored by LiteRT
on the written ``model.tflite``, with photos as Frigate feeds them. Each arm is a process of its own.

``--quick``: one task, five epochs of the recipe, whose time counts ten times.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner.backends.torch.model.vision import torchvision
from tuner_frigate.layout import CACHE, DATASET, stretched

DATA = Path(os.environ.get("TUNER_DATA", "../shared/data"))
WEIGHTS = DATA / "models" / "mobilenet_v2_imagenet.pth"
#: Folder of a task's photos, and its classes; the first is called none.
TASKS = {
    "animals": ("more/objects/train", ("Faces", "dalmatian", "flamingo", "Leopards")),
    "street": ("more/objects/train", ("chair", "car_side", "airplanes")),
    "insects": ("more/objects/train", ("hawksbill", "butterfly", "dragonfly")),
    "house": ("more/objects/train", ("electric_guitar", "chair", "chandelier", "Faces")),
    "hands": ("more/sign/train", tuple("0123456789")),
}
EPOCHS, QUICK_EPOCHS, BATCH, RATE, HIDDEN, DROPOUT, HELD = 50, 5, 16, 0.001, 128, 0.3, 0.2
TEST, LOSS, FASTER, LEANER = 0.3, 0.5, 10, 3
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Pixels = npt.NDArray[np.uint8]


def divide(name: str, folder: Path) -> None:
    """Lay a task's photos out as Frigate keeps them, and put three tenths of each class aside for the test."""
    place, classes = TASKS[name]
    for row, own in enumerate(classes):
        paths = sorted((DATA / place / own).iterdir())
        order = np.random.default_rng(row).permutation(len(paths))
        for rank, number in enumerate(order):
            part = "test" if rank < TEST * len(paths) else f"clips/{name}/{DATASET}"
            target = folder / part / ("none" if row == 0 else own)
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(paths[number], target / f"{own}-{paths[number].name.lower()}")
    (folder / CACHE).mkdir()


def squares(photos: Path, folder: Path) -> tuple[Pixels, npt.NDArray[np.int64]]:
    """Return photos as Frigate feeds them, uint8 [n, height, width, 3], and the rows of their classes."""
    from PIL import Image

    classes = sorted(path.name for path in photos.iterdir())
    list(stretched({name: sorted((photos / name).iterdir()) for name in classes}, folder))
    found = [(row, path) for row, name in enumerate(classes) for path in sorted((folder / name).iterdir())]
    return np.stack([np.array(Image.open(path)) for _, path in found]), np.array([row for row, _ in found])


def theirs(folder: Path, name: str, epochs: int) -> float:
    """Train by the recipe, and return the accuracy on the test photos."""
    import torch
    from torch import nn

    def normal(pixels: Pixels) -> torch.Tensor:
        return ((torch.from_numpy(pixels) / 255 - torch.tensor(MEAN)) / torch.tensor(STD)).permute(0, 3, 1, 2)

    photos, labels = squares(folder / "clips" / name / DATASET, folder / "squares")
    order = np.random.default_rng(0).permutation(len(photos))[: round((1 - HELD) * len(photos))]
    torch.manual_seed(0)
    backbone = torchvision().models.mobilenet_v2()
    backbone.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    body = backbone.features.eval()
    head = nn.Sequential(
        nn.Linear(1280, HIDDEN), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(HIDDEN, int(labels.max()) + 1)
    )
    optimiser = torch.optim.Adam(head.parameters(), RATE)
    for _ in range(epochs):
        for rows in np.array_split(np.random.default_rng().permutation(order), -(-len(order) // BATCH)):
            with torch.no_grad():
                features = body(normal(photos[rows])).mean((2, 3))
            loss = nn.functional.cross_entropy(head(features), torch.from_numpy(labels[rows]))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # untyped in PyTorch
            optimiser.step()
    test, truth = squares(folder / "test", folder / "test-squares")
    head.eval()
    with torch.no_grad():
        answers = [head(body(normal(test[at : at + BATCH])).mean((2, 3))) for at in range(0, len(test), BATCH)]
    return float(np.mean(torch.cat(answers).argmax(1).numpy() == truth))


def tested(folder: Path, name: str) -> float:
    """Return the accuracy of the file that was written for Frigate."""
    from tuner_tflite.interpreter import Interpreter

    test, truth = squares(folder / "test", folder / "test-squares")
    labels = (folder / CACHE / name / "labelmap.txt").read_text(encoding="utf-8").split()
    rows = [sorted(labels).index(label) for label in labels]
    answers = Interpreter((folder / CACHE / name / "model.tflite").read_bytes()).answers(test.astype(np.float32))
    return float(np.mean(np.array(rows)[answers.argmax(1)] == truth))


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its seconds, and the most bytes of one of its processes."""
    begun = time.perf_counter()
    code = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode; "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - begun, 1024 * float(done.stdout.split()[-1])


def compared(name: str, folder: Path, epochs: int, limit: str) -> Row:
    """Train a task by both arms."""
    divide(name, folder)
    arm = [sys.executable, "-m", "benchmarks.models.frigate", "--arm", str(folder), name, str(epochs)]
    seconds, most = timed(arm)
    other = float(json.loads((folder / "theirs.json").read_text()))
    command = [sys.executable, "-m", "tuner", "frigate", "train", str(folder / "clips" / name)]
    command += ["--model-cache", str(folder / CACHE), "--work", str(folder / "work"), "--time", limit]
    own_seconds, own_most = timed([*command, "--weights", str(WEIGHTS.resolve())])
    return {
        "task": name, "theirs": other, "ours": tested(folder, name), "their seconds": seconds * EPOCHS / epochs,
        "our seconds": own_seconds, "their bytes": most, "our bytes": own_most,
    }  # fmt: skip


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return what is claimed of both arms."""

    def holds(claim: str, bound: Any) -> Claim:
        right = [row for row in rows if bound(row)]
        return Claim(claim, "the recipe", f"{len(right)} of {len(rows)} tasks", len(right) == len(rows))

    return [
        holds(f"accuracy at least theirs less {LOSS} points", lambda row: row["ours"] >= row["theirs"] - LOSS / 100),
        holds(f"a {FASTER}th of the time", lambda row: row["our seconds"] * FASTER <= row["their seconds"]),
        holds(f"a {LEANER}rd of the memory", lambda row: row["our bytes"] * LEANER <= row["their bytes"]),
    ]


def main() -> None:
    """Run the benchmark, or one arm of it."""
    if sys.argv[1:2] == ["--arm"]:
        own = argparse.ArgumentParser()
        own.add_argument("--arm", nargs=3)
        place, name, epochs = own.parse_args().arm
        (Path(place) / "theirs.json").write_text(json.dumps(theirs(Path(place), name, int(epochs))))
        return
    parser = benchmark_parser(__doc__, "one task, five epochs of the recipe")
    parser.add_argument("--time", default="2m", help="limit on our search")
    asked = parser.parse_args()
    rows: list[Row] = []
    for name in list(TASKS)[: 1 if asked.quick else None]:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(compared(name, Path(folder), QUICK_EPOCHS if asked.quick else EPOCHS, asked.time))
        print(rows[-1], flush=True)
    finish("frigate", rows, claims(rows), asked.json)


if __name__ == "__main__":
    main()
