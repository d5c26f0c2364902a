"""Models that people bring: described, tuned, exported and predicted with through the command line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.printed import printed_json
from tests.cli.tiny_task import write

pytestmark = pytest.mark.slow
NET = """
import torch
from torch import nn
from torchvision.models import VisionTransformer

def small(outputs=3):
    def unit(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, outputs))
    return nn.Sequential(unit(3, 8), unit(8, 16), unit(16, 16), *head)

def vit():
    return VisionTransformer(32, 8, num_layers=3, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=3)
"""
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[limits]
time = "4m"  # for a busy machine; measuring takes 2.5 s of it
[knobs]
freeze.trainable_blocks = [1, 2]
runtime.threads = 1
[knobs.recipe]
epochs = [1, 2]
batch_size = 8
"""
COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "grey": (120, 120, 120)}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """Return a folder with a task of 32-pixel pictures, and networks for it."""
    folder = tmp_path_factory.mktemp("runs")
    for part, names, count in (
        ("global/train", ("red", "green", "blue"), 8),
        ("global/val", ("red", "green", "blue"), 4),
        ("local/train", ("grey",), 8),
        ("local/val", ("grey",), 4),
    ):
        for name in names:
            for number in range(count):
                path = folder / part / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                noise = np.random.default_rng(number + len(part)).integers(-30, 30, (32, 32, 3))
                Image.fromarray((np.array(COLOURS[name]) + noise).astype(np.uint8)).save(path)
    (folder / "net.py").write_text(NET)
    (folder / "space.toml").write_text(SPACE)
    return folder


def write_task(home: Path, factory: str, arguments: str) -> Path:
    return write(home, f"arguments = {arguments}", factory, name=factory.rpartition(":")[2], size=32)


def test_describe_takes_a_vision_transformer(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = write_task(home, "torchvision.models:vit_b_16", "{ num_classes = 3, image_size = 32 }")
    description = printed_json(capsys, "describe", task)
    assert len(description["blocks"]) == 14
    assert description["outputs"] == 4
    assert description["note"] == ""


@pytest.mark.parametrize(
    ("factory", "arguments", "trials"),
    [
        ("torchvision.models:resnet18", "{ num_classes = 3 }", 1),
        ("torchvision.models:efficientnet_b0", "{ num_classes = 3 }", 1),
        ("net.py:vit", "{}", 1),
        ("net.py:small", "{ outputs = 3 }", 3),
    ],
)
def test_models_that_people_bring_go_all_the_way(
    home: Path, factory: str, arguments: str, trials: int, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(home, factory, arguments)
    described = printed_json(capsys, "describe", task)
    assert len(described["blocks"]) > 2
    out, bundle = home / f"run-{task.stem}", home / f"bundle-{task.stem}"
    asked = ("--space", home / "space.toml", "--trials", trials, "--out", out)
    shown = printed_json(capsys, "run", task, *asked)
    assert shown["counts"]["done"] == trials
    exported = printed_json(capsys, "export", "--no-refit", out, bundle)
    assert exported["scores"]["from_pixels"]["largest_logit_difference"] <= 1e-3
    pictures = sorted((home / "local/val/grey").glob("*.png"))
    predictions = printed_json(capsys, "predict", bundle, *pictures)["predictions"]
    assert [prediction["file"] for prediction in predictions] == [str(path) for path in pictures]
    assert {prediction["label"] for prediction in predictions} <= {"red", "green", "blue", "grey"}
