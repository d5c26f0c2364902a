"""Make the bundles that the tests of web/ read: `python -m tools.web_bundles FOLDER`.

Each is in FOLDER/NAME/bundle with its conformance set; ``photos`` takes pictures, has a page, and comes with files of
pictures to ask about. Digits cover the ways a bundle trains. FOLDER/codes.safetensors has features in every width.
"""

import os
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from tests.runtime.bundles import known_digits, trainable_bundle, trainable_exits
from tuner.arrays import Array
from tuner.bundle.format import Bundle
from tuner.commands.page import Page
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import EditTraits, TailEdit
from tuner.ridge.union import UnionSettings
from tuner.runtime.conformance.files import FOLDER, write_set
from tuner.store.codec import Codec
from tuner.task import load_task
from tuner.task.task import Task

SIDE, SEED = 48, 3
COLOURS = {"red": (200, 40, 40), "green": (40, 170, 60), "blue": (40, 60, 200), "yellow": (220, 200, 40)}
NET = """
from torch import nn

def build(outputs=4):
    def unit(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
    return nn.Sequential(unit(3, 8), unit(8, 16), unit(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(32, outputs))
"""
TASK = """
name = "colours"
[model]
factory = "net.py:build"
pretrain = { epochs = 6, learning_rate = 0.01 }
[global]
kind = "images"
train = "global/train"
val = "global/val"
[local]
kind = "images"
train = "local/train"
val = "local/val"
[input]
size = 48
mean = [0.5]
std = [0.25]
[augment]
ops = ["flip"]
"""


def draw(path: Path, colour: tuple[int, int, int], generator: np.random.Generator, size: tuple[int, int]) -> None:
    """Write a picture of a disc of one colour on noise; as JPEG where the name says so."""
    width, height = size
    y, x = np.mgrid[:height, :width]
    centre = generator.uniform(0.35, 0.65, 2) * size
    disc = np.hypot(x - centre[0], y - centre[1]) < min(size) * generator.uniform(0.25, 0.4)
    noise = generator.normal(128, 25, (height, width, 3))
    pixels = np.where(disc[..., None], np.asarray(colour) + generator.normal(0, 15, 3), noise)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path, quality=92)


def photos_task(folder: Path) -> Task:
    """Write a task whose model knows red and green, and whose user adds blue and yellow."""
    generator = np.random.default_rng(SEED)
    for domain, names in (("global", ("red", "green")), ("local", ("blue", "yellow"))):
        for part, count in (("train", 30), ("val", 12)):
            for name in names:
                for number in range(count):
                    draw(folder / domain / part / name / f"{number}.png", COLOURS[name], generator, (SIDE, SIDE))
    for number in range(24):  # pictures of a user whose yellow is white: the bundle does not know it
        colour = ("yellow", (250, 250, 250)) if number % 2 else ("blue", COLOURS["blue"])
        size = (90 + 7 * number, 120) if number % 3 else (64, 61)
        suffix = "jpg" if number % 4 == 0 else "png"
        draw(folder / "new" / f"{number:02d}-{colour[0]}.{suffix}", colour[1], generator, size)
    (folder / "net.py").write_text(NET)
    (folder / "task.toml").write_text(TASK)
    return load_task(str(folder / "task.toml"))


def write_codes(path: Path) -> None:
    """Write features, and the codes that Python makes of them, in every width."""
    generator, shape = np.random.default_rng(SEED), (3, 5, 7)
    features = generator.normal(0, 2, (4, *shape)).astype(np.float32)
    low, high = np.array([-3, -1, 0], np.float32), np.array([3, 1, 0], np.float32)
    tensors: dict[str, Array] = {"features": features, "low": low, "high": high}
    for bits, per_sample in ((32, False), (16, False), (8, False), (4, False), (2, False), (1, False), (1, True)):
        codec = Codec(bits, shape, per_sample=per_sample) if bits > 8 else Codec(bits, shape, low, high, per_sample)  # noqa: PLR2004 - plain numbers
        codes = codec.encode(features)
        tensors[f"codes.{bits}.{int(per_sample)}"] = codes
        tensors[f"features.{bits}.{int(per_sample)}"] = codec.decode(codes)
    save_file(tensors, path)


def main(out: Path) -> None:
    """Make all bundles."""
    os.environ["TUNER_CACHE"] = str(out / "cache")
    solve = TailEdit.of("closed-form", EditTraits(solves=True), **asdict(UnionSettings()))
    adapt = TailEdit.of("low-rank", rank=2, scale=1.0)
    folders = {name: out / "bundles" / name for name in ("tail", "adapters", "solved", "exits", "photos")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    digits = known_digits()
    made = [
        trainable_bundle(digits, folders["tail"]),
        trainable_bundle(digits, folders["adapters"], 2, shape=(adapt,)),
        trainable_bundle(digits, folders["solved"], 3, shape=(solve,)),
        trainable_exits(digits, folders["exits"], HeadsPlan("exits-only", distilled=1.0)),
        trainable_bundle(photos_task(folders["photos"]), folders["photos"], 1, learning_rate=1e-2),
    ]
    write_codes(out / "codes.safetensors")
    for folder in made:
        write_set(Bundle.open(folder), folder / FOLDER)
    Page.find().add(made[-1], Bundle.open(made[-1]).info)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
