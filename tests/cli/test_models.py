"""Models that people bring: described, tuned, exported and predicted with through the command line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.printed import printed_json
from tests.cli.tiny_task import write

pytestmark = pytest.mark.slow
NET = """
from torchvision.models import VisionTransformer

def vit():
    return VisionTransformer(32, 8, num_layers=3, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=3)
"""
SPACE = """
strategies = ["gdm", "freeze", "cache"]
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


@pytest.mark.parametrize(
    ("factory", "arguments", "least", "limit"),
    [
        ("torchvision.models:efficientnet_b0", "{ num_classes = 3 }", 10, ("--deterministic",)),
        ("net.py:vit", "{}", 5, ("--time", "4m")),  # for a busy machine; measuring takes 2.5 s of it
    ],
)
def test_models_that_people_bring_go_all_the_way(
    home: Path, factory: str, arguments: str, least: int, limit: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(home, factory, arguments)
    described = printed_json(capsys, "describe", task)
    assert len(described["blocks"]) >= least
    assert (described["outputs"], described["note"]) == (4, "")
    out, bundle = home / f"run-{task.stem}", home / f"bundle-{task.stem}"
    asked = ("--space", home / "space.toml", "--trials", 1, *limit, "--out", out)
    shown = printed_json(capsys, "run", task, *asked)
    assert shown["counts"]["done"] == 1
    exported = printed_json(capsys, "export", "--no-refit", out, bundle)
    assert exported["scores"]["from_pixels"]["largest_logit_difference"] <= 1e-3
    pictures = sorted((home / "local/val/grey").glob("*.png"))
    predictions = printed_json(capsys, "predict", bundle, *pictures)["predictions"]
    assert [prediction["file"] for prediction in predictions] == [str(path) for path in pictures]
    assert {prediction["label"] for prediction in predictions} <= {"red", "green", "blue", "grey"}
