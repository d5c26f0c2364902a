"""The size of the input as a knob: measured, trained, exported and predicted at fewer pixels; refused with a reason."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner.commands.bundles.export import export
from tuner.commands.tune.run import run
from tuner.commands.tune.setup import further_sizes
from tuner.errors import KnobError, TunerError
from tuner.plan.text import describe
from tuner.plugin.core import load_task
from tuner.results.run import Run
from tuner.runtime import Bundle, Personaliser
from tuner_apply.adapt import adapted
from tuner_describe.description import describe_task
from tuner_resolution import Resolution
from tuner_testing import StrategyContract

NET = """
from torch import nn


def pooled(outputs=3):
    layers = (nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(12, outputs))


def flat(outputs=3):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 32 * 32, outputs))
"""
TASK = """
[model]
factory = "net.py:{network}"

[input]
size = 64
mean = [0.5]
std = [0.5]

[local]
kind = "images"
train = "train"
val = "val"
"""
SPACE = """
strategies = ["freeze", "cache", "resolution"]
[knobs]
freeze.trainable_blocks = 1
cache.by = "cache"
resolution.pixels = {pixels}
[knobs.recipe]
epochs = 4
micro_batches = 1
"""


class TestResolution(StrategyContract):
    strategy = Resolution()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of three colours, a network that takes any size, and one that does not."""
    made, draw = tmp_path_factory.mktemp("sizes"), np.random.default_rng(0)
    (made / "net.py").write_text(NET)
    for network in ("pooled", "flat"):
        (made / f"{network}.toml").write_text(TASK.format(network=network))
    for part, count in (("train", 8), ("val", 4)):
        for row, name in enumerate(("red", "green", "blue")):
            (made / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 120, (80, 70, 3), np.uint8)
                pixels[..., row] += 120
                Image.fromarray(pixels).save(made / part / name / f"{number}.png")
    return made


def space(folder: Path, pixels: object) -> str:
    path = folder / "space.toml"
    path.write_text(SPACE.format(pixels=pixels))
    return str(path)


@pytest.fixture(scope="module")
def found(folder: Path, own_cache: Path) -> Run:
    asked = {"space": space(folder, [64, 32]), "out": folder / "run", "store": folder / "store"}
    return run(str(folder / "pooled.toml"), trials=3, earlier="none", deterministic=True, **asked)


def test_a_smaller_input_costs_less_and_is_what_the_bundle_takes(found: Run, folder: Path) -> None:
    by_size = {record.plan.size: record for record in found.records if record.plan and record.state == "done"}
    assert {*by_size} == {0, 32}
    small, own = by_size[32], by_size[0]
    assert "at 32 px" in repr(small)
    assert "px" not in repr(own)
    assert small.plan is not None
    assert small.plan.model.blocks[0].in_shape == (3, 32, 32)
    assert small.values["mean_flops"] < 0.3 * own.values["mean_flops"]
    assert {"mean_flops"} <= {one.name for one in found.objectives}
    out = export(found, folder / "bundle", str(small.trial), refit=False, trainable=True)
    content = json.loads((out / "bundle.json").read_text())
    assert (content["input"]["size"], content["input_shape"]) == (32, [3, 32, 32])
    assert content["scores"]["from_pixels"]["largest_logit_difference"] < 1e-3  # PyTorch's and ONNX Runtime's
    again = adapted(load_task(folder / "pooled.toml"), out, starts_from_bundle=True)
    assert (again.input.size, again.input_shape) == (32, (3, 32, 32))  # as the bundle takes them
    described = describe_task(str(folder / "pooled.toml"), out / "plan.toml")
    assert described.plan is not None
    assert "at 32 px" in described.plan.sentence
    photos = sorted((folder / "val").rglob("*.png"))
    answers = [answer.label for answer in Personaliser(Bundle.open(out)).predict([*photos])]
    right = sum(answer == photo.parent.name for answer, photo in zip(answers, photos, strict=True))
    assert right / len(photos) == pytest.approx(content["scores"]["from_pixels"]["local_accuracy"])


def test_sizes_that_the_search_space_lists_take_the_place_of_the_shares() -> None:
    assert further_sizes([Resolution()], 160) == [128, 96]
    assert further_sizes([Resolution()], 160, {"resolution.pixels": (160, 224, 64), "freeze.size": 3}) == [224, 64]
    assert further_sizes([Resolution()], 160, {"resolution.pixels": 80}) == [80]


def test_a_network_of_one_size_is_refused_with_the_reason(folder: Path, own_cache: Path) -> None:
    with pytest.raises(KnobError, match=r"asks for 32, but this model allows 64 \(32 px: .*shapes cannot be multi"):
        run(str(folder / "flat.toml"), trials=1, earlier="none", space=space(folder, 32), out=folder / "refused")


EXIT = """
strategies = ["freeze", "cache", "exits"]
[knobs]
freeze.trainable_blocks = 1
cache.by = "cache"
exits.mode = "with-tail"
exits.count = 1
exits.head = "closed-form"
exits.loss = "supervised"
exits.tolerance = 0.03
exits.confidence = 0.5
exits.init = "none"
exits.joint = 0.0
exits.small = 32
[knobs.recipe]
epochs = 4
micro_batches = 1
"""


def test_a_smaller_input_is_an_exit_of_the_whole_network(folder: Path, own_cache: Path) -> None:
    (folder / "exit.toml").write_text(EXIT)
    asked = {"space": str(folder / "exit.toml"), "out": folder / "two", "store": folder / "store-two"}
    found = run(str(folder / "pooled.toml"), trials=1, earlier="none", deterministic=True, **asked)
    record = next(one for one in found.records if one.state == "done" and one.plan and one.plan.heads.small)
    assert record.plan is not None
    assert record.plan.heads.small == 32
    assert "the first of 32 px" in describe(record.plan)
    smaller = record.plan.smaller
    assert smaller is not None
    of_small = sum(block.flops for block in smaller.model.blocks[:-1])
    assert record.values["exit0_local_accuracy"] > 0.8
    assert of_small < record.values["mean_flops"] < record.values["flops"] + of_small
    out = export(Run.open(folder / "two"), folder / "small", str(record.trial), refit=False)
    content = json.loads((out / "bundle.json").read_text())
    assert content["exits"]["segments"] == ["segments/0.onnx", "segments/1.onnx"]
    assert content["scores"]["from_pixels"]["largest_logit_difference"] < 1e-3
    photos = sorted((folder / "val").rglob("*.png"))
    answers = [*Personaliser(Bundle.open(out)).predict([*photos])]
    right = sum(answer.label == photo.parent.name for answer, photo in zip(answers, photos, strict=True))
    assert right / len(photos) == pytest.approx(content["scores"]["from_pixels"]["local_accuracy"])
    assert {answer.exit for answer in answers} == {0}
    cut = export(found, folder / "cut", str(record.trial), refit=False, drop_unreached=True)
    assert json.loads((cut / "bundle.json").read_text())["exits"]["segments"] == ["segments/0.onnx"]
    assert [one.label for one in Personaliser(Bundle.open(cut)).predict([*photos])] == [one.label for one in answers]
    with pytest.raises(TunerError, match=r"the first is of 32 px: export without --trainable"):
        export(found, folder / "rounds", str(record.trial), refit=False, trainable=True)
