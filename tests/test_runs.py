"""Whole runs through the command line: tune, show, export, predict, apply; and the models that people bring."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tuner.cli import call
from tuner.runtime import Bundle, Personaliser
from tuner.task.digits import digits
from tuner.tune import Run

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
time = "5m"
trials = "3"
[knobs]
freeze.trainable_blocks = [1, 2]
runtime.threads = 1
[knobs.recipe]
epochs = [1, 2]
batch_size = 8
"""
COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "grey": (120, 120, 120)}
RUN_KEYS = {"task", "space", "seed", "limits", "untouched", "spent", "objectives", "counts", "front", "trials"}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with a cache of its own, a task of 32-pixel pictures, and networks for it."""
    folder = tmp_path_factory.mktemp("runs")
    for split, names, count in (
        ("global/train", ("red", "green", "blue"), 8),
        ("global/val", ("red", "green", "blue"), 4),
        ("local/train", ("grey",), 8),
        ("local/val", ("grey",), 4),
    ):
        for name in names:
            for number in range(count):
                path = folder / split / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                noise = np.random.default_rng(number + len(split)).integers(-30, 30, (32, 32, 3))
                Image.fromarray((np.array(COLOURS[name]) + noise).astype(np.uint8)).save(path)
    (folder / "net.py").write_text(NET)
    (folder / "space.toml").write_text(SPACE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(folder / "cache"))
        patch.setattr("tuner.tune.process_started", time.monotonic)  # --time counts from the call, not from pytest's
        yield folder


def write_task(home: Path, factory: str, arguments: str = "{ num_classes = 3 }", size: int = 32) -> Path:
    path = home / f"{factory.rpartition(':')[2]}.toml"
    path.write_text(
        f"""
        [model]
        factory = "{factory}"
        arguments = {arguments}
        [global]
        kind = "images"
        train = "global/train"
        val = "global/val"
        [local]
        kind = "images"
        train = "local/train"
        val = "local/val"
        [input]
        size = {size}
        mean = [0.5]
        std = [0.5]
        """
    )
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Call the command line with ``--json`` and return the one object it prints."""
    capsys.readouterr()
    code = call([*map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    found: dict[str, Any] = json.loads(captured.out)
    return found


@pytest.fixture(scope="module")
def run(home: Path) -> Path:
    """Three trials on digits."""
    assert call(["run", "digits", "--space", "smoke", "--time", "5m", "--trials", "3", "--out", str(home / "run")]) == 0
    return home / "run"


@pytest.fixture(scope="module")
def bundle(run: Path, home: Path) -> Path:
    assert call(["export", str(run), str(home / "bundle")]) == 0
    return home / "bundle"


def test_show_says_what_the_design_promises(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "show", run)
    assert set(shown) >= RUN_KEYS
    assert set(shown["spent"]) >= {"seconds", "peak_bytes", "storage_bytes"}
    assert set(shown["counts"]) == {"done", "rejected", "stopped", "killed", "failed"}
    assert shown["counts"]["done"] == 3
    assert {one["name"]: one["direction"] for one in shown["objectives"]} == {
        "local_accuracy": "maximise",
        "global_accuracy": "maximise",
        "train_seconds": "minimise",
        "peak_bytes": "minimise",
    }
    assert sum(one["knee"] for one in shown["front"]) == 1
    for one in shown["front"]:
        assert set(one) == {"trial", "values", "plan", "sentence", "knee"}
        assert set(one["values"]) == {objective["name"] for objective in shown["objectives"]}
        assert one["sentence"].startswith("train last ") or one["sentence"].startswith("train the whole ")
    for one in shown["trials"]:
        assert set(one) >= {"trial", "state", "values", "estimate", "measured", "reason", "plan"}
    assert shown["untouched"]["global_accuracy"] > 0.9
    assert call(["show", str(run)]) == 0
    assert "untouched: the given model, scored on the classes it knows" in " ".join(capsys.readouterr().out.split())


def test_a_bundle_predicts_as_its_trial_did(run: Path, bundle: Path) -> None:
    found, task, opened = Run.open(run), digits(), Bundle.open(bundle)
    assert found.knee is not None
    values = found.record(found.knee).values
    personaliser = Personaliser(opened)
    for name, domain in (("local_accuracy", task.local), ("global_accuracy", task.global_)):
        assert domain is not None
        said = [personaliser.predict(domain.val.load(index)).label for index in range(len(domain.val))]
        truth = [task.labels[int(label)] for label in domain.val.labels]
        right = sum(a == b for a, b in zip(said, truth, strict=True)) / len(said)
        assert right == pytest.approx(opened.info["scores"]["from_pixels"][name])
        assert right == pytest.approx(values[name], abs=1.5 / len(said))
    assert opened.info["scores"]["from_pixels"]["largest_logit_difference"] <= 1e-3
    assert "test_accuracy" in opened.info["scores"]["from_pixels"]


def test_predict_names_file_label_and_probability(bundle: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(home / "digit.npy", digits().local.val.load(0))
    found = said(capsys, "predict", bundle, home / "digit.npy")["predictions"]
    assert len(found) == 1
    assert set(found[0]) == {"file", "label", "probability", "exit", "seconds"}
    assert 0 < found[0]["probability"] <= 1


def test_a_bundle_is_not_written_over_anything(
    run: Path, bundle: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    assert call(["export", str(run), str(bundle)]) == 1
    assert f"tuner: {bundle} is not empty: give another folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    assert not list(home.glob(".bundle.*"))


@pytest.mark.parametrize("name", ["model.onnx", "weights.safetensors", "plan.toml"])
def test_a_tampered_bundle_is_refused_by_the_files_name(
    bundle: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bundle / name
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)
    try:
        assert call(["predict", str(bundle), "digit.npy"]) == 1
    finally:
        path.write_bytes(whole)
    assert f"{path} is not what was exported (its hash differs): export again" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["bundle", "original"])
def test_apply_carries_the_plan_out_and_names_the_parent(
    bundle: Path, home: Path, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = home / f"applied-{source}"
    found = said(capsys, "apply", bundle, "digits", made, "--from", source)
    opened, parent = Bundle.open(made), Bundle.open(bundle)
    assert opened.info["parent"] == parent.identity
    assert opened.labels == parent.labels
    assert opened.info["sentence"] == parent.info["sentence"] == found["sentence"]
    assert found["scores"]["from_pixels"]["local_accuracy"] > 0.5


def test_apply_looks_at_its_folder_before_it_trains(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.apply.Supervisor", None)  # training would call it
    capsys.readouterr()
    assert call(["apply", str(bundle), "digits", str(bundle)]) == 1
    assert capsys.readouterr().err == f"tuner: {bundle} is not empty: give another folder\n"


@pytest.mark.parametrize(
    ("pick", "says"),
    [
        ("99", "has no trial 99"),
        ("max(local_acuracy)", "did you mean 'local_accuracy'?"),
        ("best", "--pick cannot read 'best'"),
        ("local_accuracy > 2", "no member of the front meets"),
    ],
)
def test_picks_that_mean_nothing_are_told(
    run: Path, home: Path, pick: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = call(["export", str(run), str(home / "nothing"), "--pick", pick])
    error = capsys.readouterr().err
    assert code == 1, error
    assert says in error
    assert not (home / "nothing").exists()


def test_a_dry_run_trains_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look = ("run", "digits", "--space", "smoke", "--out", home / "dry", "--store", home / "none", "--dry-run")
    found = said(capsys, *look)
    assert not (home / "dry").exists()
    assert not (home / "none").exists()
    assert found["fill_samples"] > 0
    cached = [one for one in found["depths"] if "cache" in one["sentence"]]
    assert all(one["spend_seconds"] > found["fill_seconds"] / 2 for one in cached[-1:])
    late = said(capsys, *look, "--time", "1s")["depths"]  # loading takes longer
    assert all("time" in one["over"] for one in late)
    exact = said(capsys, *look, "--deterministic")
    assert exact["limits"]["time_seconds"] is None
    assert exact["depths"] == said(capsys, *look, "--deterministic")["depths"]


def test_a_dry_run_counts_what_is_stored_already(run: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.is_dir()
    empty = said(capsys, "run", "digits", "--space", "smoke", "--dry-run", "--store", home / "none")
    filled = said(capsys, "run", "digits", "--space", "smoke", "--dry-run")
    assert filled["fill_samples"] < empty["fill_samples"]
    assert filled["fill_seconds"] < empty["fill_seconds"]


def test_describe_with_a_plan_estimates_it(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = bundle.parent / "step.svg"
    found = said(capsys, "describe", "digits", "--plan", bundle / "plan.toml", "--picture", drawing)
    step = found["plan"]["step"]
    assert step["executor"] == "eager"
    assert step["flops"] > 0
    assert 0 < len(step["memory"]["largest"]) <= 10
    assert step["memory"]["max_live_bytes"] == max(one["live_bytes"] for one in step["memory"]["steps"])
    assert drawing.read_text().startswith("<svg")
    assert call(["describe", "digits", "--plan", str(bundle / "plan.toml")]) == 0
    assert "planned peak: " in capsys.readouterr().out
    assert [block["name"] for block in found["blocks"]][-1]
    assert found["plan"]["supported"] == "yes"
    assert found["plan"]["train_seconds"] > 0


@pytest.mark.parametrize(
    ("name", "cuts", "blocks"),
    [
        ("mobilenet_v2", 74, 20),
        ("resnet18", 24, None),
        ("efficientnet_b0", 80, None),
        ("densenet121", 26, None),
        ("vit_b_16", 33, 14),
        ("vgg11", None, 11),
    ],
)
def test_cut_points_and_blocks_are_those_of_the_architecture(name: str, cuts: int | None, blocks: int | None) -> None:
    import torch

    from tuner.backends.torch.graph import chain
    from tuner.backends.torch.vision import torchvision

    model = getattr(torchvision().models, name)()
    found = chain(model, torch.zeros(1, 3, 224, 224))
    if cuts is not None:
        assert len(found.cuts) == cuts
    if blocks is not None:
        assert len(found.blocks) == blocks
    if name == "mobilenet_v2":
        names = [".".join(block.name.split(".")[:2]) for block in found.blocks]
        assert names == [*(f"features.{at}" for at in range(19)), "classifier.1"]
        names = [found.blocks[-count - 1].name for count in (3, 6, 9)]  # the papers' last 1, 4 and 7 cut after these
        assert names == ["features.16", "features.13", "features.10"]


def test_describe_takes_a_vision_transformer(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = write_task(home, "torchvision.models:vit_b_16", "{ num_classes = 3, image_size = 32 }")
    found = said(capsys, "describe", task)
    assert len(found["blocks"]) == 14
    assert found["outputs"] == 4
    assert found["note"] == ""


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        ("torchvision.models:resnet18", "{ num_classes = 3 }"),
        ("torchvision.models:efficientnet_b0", "{ num_classes = 3 }"),
        ("net.py:vit", "{}"),
        ("net.py:small", "{ outputs = 3 }"),
    ],
)
def test_models_that_people_bring_go_all_the_way(
    home: Path, factory: str, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(home, factory, arguments)
    described = said(capsys, "describe", task)
    assert len(described["blocks"]) > 3
    out, bundle = home / f"run-{task.stem}", home / f"bundle-{task.stem}"
    shown = said(capsys, "run", task, "--space", home / "space.toml", "--out", out)
    assert shown["counts"]["done"] == 3
    exported = said(capsys, "export", out, bundle)
    assert exported["scores"]["from_pixels"]["largest_logit_difference"] <= 1e-3
    pictures = sorted((home / "local/val/grey").glob("*.png"))
    found = said(capsys, "predict", bundle, *pictures)["predictions"]
    assert [one["file"] for one in found] == [str(path) for path in pictures]
    assert {one["label"] for one in found} <= {"red", "green", "blue", "grey"}
