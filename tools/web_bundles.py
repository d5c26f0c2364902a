"""Make the bundles that the tests of web/ read: `python -m tools.web_bundles FOLDER`.

Each is in FOLDER/NAME/bundle with its conformance set. Those of pictures have a page, and come with files to ask about:
``photos`` and ``solved-photos``; ``tags`` and ``solved-tags``, where a picture may have several labels; and ``sizes``,
where it has numbers. ``sounds`` has a page too, and clips of a sound that it does not know, at two rates; and
``microphone.wav``, a recording of what it knows and what it does not.
Digits cover the ways a bundle trains, and ``int8`` frozen blocks in 8 bits; ``values`` is a regression with exits.
``tail`` and ``adapters`` come with samples of a label that they do not have, and what `tuner labels add` makes of them.
FOLDER/codes.safetensors has features in every width.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from tests.runtime.bundles import known_digits, trainable_bundle, trainable_exits
from tests.sessions import opened
from tests.slants import write_task
from tuner.arrays import Array
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.format import CONFORMANCE, FILE, PLAN, Bundle, new_folder, seal
from tuner.commands.bundles.page import add_page, page_files
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import EditTraits, TailEdit
from tuner.plan.toml import to_toml
from tuner.plan.trial import in_int8
from tuner.plugin.core import load_task
from tuner.store.codec import Codec
from tuner.task.task import Task
from tuner_conformance.files import write_set
from tuner_labels.changes import add_label

SIDE, SEED, DAY, NIGHT = 48, 3, 128, 90
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


def draw_both(path: Path, names: tuple[str, ...], generator: np.random.Generator, *, white: bool = False) -> None:
    """Write a picture of a disc of each colour, one next to the other, on noise."""
    pixels = generator.normal(128, 25, (SIDE, SIDE, 3))
    y, x = np.mgrid[:SIDE, :SIDE]
    for name, middle in zip(names, generator.permutation([0.25, 0.75]), strict=False):
        height, radius = generator.uniform(0.3, 0.7), generator.uniform(0.16, 0.22)
        disc = np.hypot(x - middle * SIDE, y - height * SIDE) < SIDE * radius
        colour = (250, 250, 250) if white and name == "yellow" else COLOURS[name]
        pixels[disc] = np.asarray(colour) + generator.normal(0, 15, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)


def tags_task(folder: Path) -> Task:
    """Write a task of one or two colours a picture: the model knows red and green, the user adds blue and yellow."""
    generator = np.random.default_rng(SEED)
    for domain, (one, other) in (("global", ("red", "green")), ("local", ("blue", "yellow"))):
        for part, count in (("train", 30), ("val", 12)):
            rows = ["path,label"]
            for number in range(3 * count):
                names = ((one,), (other,), (one, other))[number % 3]
                draw_both(folder / domain / part / f"{number}.png", names, generator)
                rows.append(f"{part}/{number}.png,{'|'.join(names)}")
            (folder / domain / f"{part}.csv").write_text("\n".join(rows) + "\n")
    for number in range(24):  # this user's yellow is white
        names = (("blue",), ("yellow",), ("yellow",), ("blue", "yellow"))[number % 4]
        draw_both(folder / "new" / f"{number:02d}-{'+'.join(names)}.png", names, generator, white=True)
    (folder / "net.py").write_text(NET)
    task = TASK.replace('"colours"', '"tags"').replace('/train"', '/train.csv"').replace('/val"', '/val.csv"')
    (folder / "task.toml").write_text(task + '[loss]\nkind = "multi-label"\n')
    return load_task(str(folder / "task.toml"))


def sounds_task(folder: Path) -> Task:
    """Write a task of tones: the model knows low and middle ones, the user adds high ones, and chirps."""
    import soundfile  # the extra audio

    generator, time = np.random.default_rng(SEED), np.arange(8_000) / 16_000
    pitches = {"low": (300, 0), "middle": (900, 0), "high": (2500, 0), "chirp": (600, 4000)}

    def tone(path: Path, pitch: float, rise: float) -> None:
        wave = np.sin(2 * np.pi * (pitch * generator.uniform(0.8, 1.25) + rise * time) * time)
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = generator.uniform(0.2, 0.9) * wave + generator.normal(0, 0.02, len(time))
        soundfile.write(path, sound.astype(np.float32), 16_000)

    def siren(seconds: float, rate: int) -> Array:
        at = np.arange(int(seconds * rate)) / rate
        wave = np.sin(2 * np.pi * generator.uniform(1100, 1300) * at + 40 * np.sin(2 * np.pi * 7 * at))
        return np.asarray(0.5 * wave + generator.normal(0, 0.02, len(at)), np.float32)

    (folder / "new").mkdir()
    for number in range(12):
        rate, channels = (48_000, 2) if number % 3 == 0 else (16_000, 1)
        sound = np.repeat(siren(1.5, rate)[:, None], channels, 1)
        soundfile.write(folder / "new" / f"{number:02d}-siren.wav", sound, rate, subtype="FLOAT")
    at = np.arange(4 * 48_000) / 48_000
    known = [0.5 * np.sin(2 * np.pi * pitch * at) for pitch in (300, 2500)]
    soundfile.write(folder / "microphone.wav", np.concatenate([*known, siren(4, 48_000)]), 48_000)

    for domain, names in (("global", ("low", "middle")), ("local", ("high", "chirp"))):
        for part, count in (("train", 20), ("val", 8)):
            for name in names:
                for number in range(count):
                    tone(folder / domain / part / name / f"{number}.wav", *pitches[name])
    (folder / "net.py").write_text(NET.replace("unit(3, 8)", "unit(1, 8)"))
    task = TASK.replace('"colours"', '"sounds"').replace('kind = "images"', 'kind = "audio"')
    task = task.replace("size = 48", "window = 20\nhop = 10")
    task = task.replace("mean = [0.5]\nstd = [0.25]", "mean = [-4]\nstd = [3]")
    (folder / "task.toml").write_text(task.replace('ops = ["flip"]', 'ops = ["time-shift"]'))
    return load_task(str(folder / "task.toml"))


def sizes_task(folder: Path) -> Task:
    """Write a regression: the size and the brightness of a disc. The user's new pictures are dark."""
    generator = np.random.default_rng(SEED)

    def disc(path: Path, size: float, grey: float, around: float = DAY) -> None:
        pixels = generator.normal(around, 25, (SIDE, SIDE, 3))
        y, x = np.mgrid[:SIDE, :SIDE]
        across, down = generator.uniform(0.4, 0.6, 2) * SIDE
        pixels[np.hypot(x - across, y - down) < SIDE * size / 100] = grey
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path)

    for domain, count in (("global", 180), ("local", 60)):
        for part, samples in (("train", count), ("val", count // 3)):
            rows = ["path,label"]
            for number in range(samples):
                size, grey = generator.uniform(15, 35), generator.uniform(150, 250)
                disc(folder / domain / part / f"{number}.png", size, grey)
                rows.append(f"{part}/{number}.png,{size:.2f}|{grey:.1f}")
            (folder / domain / f"{part}.csv").write_text("\n".join(rows) + "\n")
    for number in range(24):
        size, grey = generator.uniform(15, 35), generator.uniform(150, 250)
        disc(folder / "new" / f"{number:02d}-{size:.2f}+{grey:.1f}.png", size, grey, NIGHT)
    (folder / "net.py").write_text(NET.replace("outputs=4", "outputs=2"))
    task = TASK.replace('"colours"', '"sizes"').replace('/train"', '/train.csv"').replace('/val"', '/val.csv"')
    task = task.replace("epochs = 6", "epochs = 40")
    (folder / "task.toml").write_text(task + '[loss]\nkind = "regression"\n')
    return load_task(str(folder / "task.toml"))


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


def in_8_bits(task: Task, trained: Path, folder: Path) -> Path:
    """Export a tail that `trainable_bundle` has trained, its frozen blocks in int8."""
    origin, out = Bundle.open(trained), folder / "bundle"
    plan = in_int8(origin.plan(), 0.1)
    content = json.loads((trained / FILE).read_bytes())
    with new_folder(out) as part:
        exported = opened(TorchBackend(), task).export(
            plan, trained.parent / "trained.safetensors", part, trainable=True
        )
        (part / PLAN).write_text(to_toml(plan), encoding="utf-8")
        seal(part, {**content, **exported.sections})
    return out


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


def write_taught(folder: Path) -> None:
    """Write samples of stripes, which no digit has, and the bundle that has learned the label from them."""
    generator, shape = np.random.default_rng(SEED), Bundle.open(folder / "bundle").input_shape
    (folder / "stripes").mkdir()
    for number in range(12):
        stripes = np.arange(np.prod(shape)).reshape(shape) // 2 % 2 + generator.uniform(0, 0.1, shape)
        np.save(folder / "stripes" / f"{number:02d}.npy", stripes.astype(np.float32))
    add_label(folder / "bundle", "stripes", [folder / "stripes"], folder / "taught")


def main(out: Path) -> None:
    """Make all bundles."""
    os.environ["TUNER_CACHE"] = str(out / "cache")
    solve = TailEdit.of("closed-form", EditTraits(solves=True))
    joint = TailEdit.of("closed-form", EditTraits(solves=True), joint=True)
    adapt = TailEdit.of("low-rank", rank=2, scale=1.0)
    names = "tail", "int8", "adapters", "solved", "joint", "exits", "values"
    pages = "sounds", "photos", "solved-photos", "tags", "solved-tags", "sizes"
    folders = {name: out / "bundles" / name for name in names + pages}
    for folder in folders.values():
        folder.mkdir(parents=True)
    digits = known_digits()
    tail = trainable_bundle(digits, folders["tail"])
    made = [
        tail,
        in_8_bits(digits, tail, folders["int8"]),
        trainable_bundle(digits, folders["adapters"], 2, shape=(adapt,)),
        trainable_bundle(digits, folders["solved"], 3, shape=(solve,)),
        trainable_bundle(digits, folders["joint"], 3, shape=(joint,)),
        trainable_exits(digits, folders["exits"], HeadsPlan("exits-only", supervised=1.0, distilled=1.0)),
        trainable_exits(
            load_task(str(write_task(folders["values"]))), folders["values"], HeadsPlan("exits-only", distilled=1.0)
        ),
        trainable_bundle(sounds_task(folders["sounds"]), folders["sounds"], 3, shape=(solve,)),
        trainable_bundle(photos_task(folders["photos"]), folders["photos"], 1, learning_rate=1e-2),
        trainable_bundle(photos_task(folders["solved-photos"]), folders["solved-photos"], 3, shape=(solve,)),
        trainable_bundle(tags_task(folders["tags"]), folders["tags"], 1, learning_rate=1e-2),
        trainable_bundle(tags_task(folders["solved-tags"]), folders["solved-tags"], 3, shape=(solve,)),
        trainable_bundle(sizes_task(folders["sizes"]), folders["sizes"], 1, epochs=20, learning_rate=1e-2),
    ]
    write_codes(out / "codes.safetensors")
    for folder in made:
        write_set(Bundle.open(folder), folder / CONFORMANCE)
    for name in ("tail", "adapters"):
        write_taught(folders[name])
    for folder in made[-len(pages) :]:
        add_page(page_files(), folder, Bundle.open(folder).info)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
