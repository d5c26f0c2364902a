"""A regression from the command's own entry to a bundle that answers in the targets' unit: slants of digits."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.printed import printed_json
from tests.slants import slants, write_task
from tuner.cli.app import call
from tuner.commands.tune.run import run
from tuner.results.run import Run
from tuner.runtime import Bundle

pytestmark = pytest.mark.slow

SPACE = """
strategies = ["gdm", "freeze", "closed_form", "exits", "cache"]
[knobs]
gdm.alpha = 0.05
freeze.trainable_blocks = 1
exits.count = 2
cache.by = "cache"
cache.bits = 8
[knobs.recipe]
epochs = 8
learning_rate = 3e-3
optimiser = "adamw"
micro_batches = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slant")


@pytest.fixture(scope="module")
def found(folder: Path, own_cache: Path) -> Run:
    (folder / "space.toml").write_text(SPACE)
    task = write_task(folder)
    return run(str(task), space=str(folder / "space.toml"), trials=4, out=folder / "run", store=folder / "store")


@pytest.fixture(scope="module")
def bundle(found: Run, folder: Path) -> Path:
    assert call(["export", "--no-refit", str(found.folder), str(folder / "bundle"), "--pick", "best"]) == 0
    return folder / "bundle"


def test_training_explains_more_of_the_users_targets(found: Run) -> None:
    before = found.info.untouched.values
    assert before["local_accuracy"] > 0.5  # the given model knows slants
    assert {record.state for record in found.records} == {"done"}
    plans = {record.trial: record.plan for record in found.records if record.plan is not None}
    training = [record for record in found.records if plans[record.trial].heads.mode != "exits-only"]
    for record in training:
        assert record.values["local_accuracy"] > before["local_accuracy"]
        assert record.values["local_mae"] < before["local_mae"]
    assert {plans[record.trial].traits.solves for record in training} == {True, False}
    assert not any(plans[trial].heads.exits for trial in (0, 1))  # the anchors


def test_a_person_reads_of_r_squared_and_of_the_error(found: Run, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(found.folder)
    shown = ""
    for arguments in (["show", folder], ["show", folder, "1"], ["show", folder, "--trials"]):
        capsys.readouterr()
        assert call(arguments) == 0
        text = capsys.readouterr().out
        assert "accuracy" not in text
        assert "R²" in text
        shown += text
    value = found.record(1).values
    assert f"local R²: {value['local_accuracy']:.3f}" in shown
    assert f"local mean absolute error: {value['local_mae']:,.4g}" in shown
    assert "95 %" not in shown


def test_the_bundle_answers_in_degrees(bundle: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(folder / "local.npz") as data:
        images, truth = data["x_test"][:20], data["y_test"][:20]
    for number, image in enumerate(images):
        np.save(folder / f"{number}.npy", image)
    files = [str(folder / f"{number}.npy") for number in range(20)]
    answers = printed_json(capsys, "predict", str(bundle), *files)["predictions"]
    values = np.array([answer["values"]["slant"] for answer in answers])
    assert np.abs(values - truth).mean() < 3  # degrees; they reach from -18 to 19
    np.testing.assert_allclose(slants(images[:, 0]), truth, atol=1e-4)
    capsys.readouterr()
    assert call(["predict", str(bundle), files[0]]) == 0
    assert capsys.readouterr().out == f"{files[0]}: slant {values[0]:.6g}\n"
    assert call(["predict", str(bundle), files[0], "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{files[0]},{values[0]:.6g},,0,")


def test_the_card_says_what_the_bundle_is(bundle: Path, found: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", str(bundle)]) == 0
    text = capsys.readouterr().out
    assert "outputs: 1 (slant)" in text
    assert f"local R²: {Bundle.open(bundle).info.scores.from_pixels['local_accuracy']:.3g}, untouched model" in text
    assert "test mean absolute error: " in text
    assert "accuracy" not in text


def test_a_bundle_without_its_scale_is_refused(bundle: Path, tmp_path: Path) -> None:
    content = json.loads((bundle / "bundle.json").read_text())
    del content["targets"]
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in content["files"]:
        (copy / name).write_bytes((bundle / name).read_bytes())
    (copy / "bundle.json").write_text(json.dumps(content))
    assert call(["predict", str(copy), str(bundle)]) == 1


def test_what_comes_to_a_watched_bundle_is_answered_with_its_value(
    bundle: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(folder / "local.npz") as data:
        np.save(tmp_path / "new.npy", data["x_test"][0])
    assert call(["watch", str(bundle), "--samples", str(tmp_path), "--once"]) == 0
    assert re.match(rf"{tmp_path}/new\.npy: slant -?[\d.]+\n", capsys.readouterr().out)
