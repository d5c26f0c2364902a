"""A task on tiny pictures, in files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

NET = """
import torch
from torch import nn

def build(outputs=2):
    def unit(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU())
    return nn.Sequential(unit(3, 8), unit(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, outputs))

class Tangled(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.gate = nn.Linear(1, 1)
        self.head = nn.Linear(3 * 16 * 16, outputs)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x.mean((1, 2, 3)).unsqueeze(1)))
        return self.head(x.flatten(1)) * gate

def tangled(outputs=2):
    return Tangled(outputs)
"""
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[limits]
time = "4m"
[knobs.recipe]
epochs = [1, 2]
batch_size = 8
micro_batches = 1
"""
#: Calls the command line; returns its exit code and its last line on stderr.
Cli = Callable[..., tuple[int, str]]


def draw(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (16, 16, 3), np.uint8)).save(path)


def write(
    folder: Path,
    more: str,
    factory: str = "net.py:build",
    local: str = "local/train",
    *,
    name: str = "task",
    size: int = 16,
) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(
        f"""
        [model]
        factory = "{factory}"
        {more}
        [global]
        kind = "images"
        train = "global/train"
        val = "global/val"
        [local]
        kind = "images"
        train = "{local}"
        val = "local/val"
        [input]
        size = {size}
        mean = [0.5]
        std = [0.5]
        """
    )
    return path


def write_all(folder: Path) -> Path:
    """Write a whole task: its model knows cat and dog, the user adds hat."""
    for part in ("global/train", "global/val", "local/train", "local/val"):
        for index, name in enumerate(("cat", "dog") if part.startswith("global") else ("hat",)):
            for number in range(6):
                draw(folder / part / name / f"{number}.png", index * 6 + number + len(part) * 12)
    (folder / "net.py").write_text(NET)
    (folder / "space.toml").write_text(SPACE)
    return write(folder, "")
