"""A regression from the command to a bundle that answers in degrees, and leaves early: slants of digits."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.printed import printed_json
from tests.slants import TASK, slants, write_task
from tuner.arrays import Floats
from tuner.cli.app import call
from tuner.commands.tune.run import run
from tuner.results.run import Run
from tuner.runtime import Bundle, ExitsTrainer, Personaliser
from tuner.runtime.infer.calibration import exits_taken
from tuner.runtime.infer.chain import Chain
from tuner.targets import Regression

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
    return run(
        str(task),
        space=str(folder / "space.toml"),
        trials=4,
        out=folder / "run",
        store=folder / "store",
        earlier="none",
    )


@pytest.fixture(scope="module")
def bundle(found: Run, folder: Path) -> Path:
    assert call(["export", "--no-refit", str(found.folder), str(folder / "bundle"), "--pick", "best"]) == 0
    return folder / "bundle"


def test_training_explains_more_of_the_users_targets(found: Run) -> None:
    before = found.info.untouched.values
    assert before["local_accuracy"] > 0.5  # the given model knows slants
    assert {record.state for record in found.records} <= {"done", "stopped"}
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


pytestmark = pytest.mark.slow

EXITS_SPACE = """
strategies = ["gdm", "freeze", "exits", "cache"]
objectives = ["local_accuracy", "mean_flops"]
[knobs]
gdm.alpha = 0.05
freeze.trainable_blocks = 1
cache.by = "cache"
cache.bits = 8
[knobs.exits]
mode = "MODE"
head = "HEAD"
count = 3
loss = "supervised+distilled"
tolerance = 0.03
confidence = 0.8
against = "original"
per_exit = true
INIT
[knobs.recipe]
epochs = 12
batch_size = 32
learning_rate = 1e-2
optimiser = "adamw"
schedule = "cosine"
"""


def searched(folder: Path, text: str, **knobs: str) -> Run:
    space = EXITS_SPACE
    for name, value in knobs.items():
        space = space.replace(name, value)
    folder.mkdir(exist_ok=True)
    (folder / "space.toml").write_text(space)
    task = write_task(folder, text)
    return run(
        str(task),
        space=str(folder / "space.toml"),
        trials=1,
        out=folder / "run",
        store=folder / "store",
        earlier="none",
        seed=0,  # with 3, calibration removes the exits on some processors
    )


@pytest.fixture(scope="module")
def early(folder: Path, own_cache: Path) -> Run:
    return searched(folder / "early", TASK, MODE="with-tail", HEAD="trained", INIT="joint = 0.3\nwidth = 16")


@pytest.fixture(scope="module")
def early_bundle(early: Run, folder: Path) -> Path:
    assert (
        call(["export", "--no-refit", str(early.folder), str(folder / "early-bundle"), "--pick", "0", "--trainable"])
        == 0
    )
    return folder / "early-bundle"


@pytest.fixture(scope="module")
def digits(folder: Path, early_bundle: Path) -> dict[str, Any]:
    """Return the user's digits and their slants in degrees, by partition."""
    with np.load(folder / "early" / "local.npz") as data:
        return {name: data[name] for name in ("x_val", "y_val", "x_test", "y_test")}


def test_what_is_reported_is_of_the_answers_that_samples_leave_with(early: Run, early_bundle: Path) -> None:
    values, whole = early.record(0).values, sum(block.flops for block in early.info.model.blocks)
    assert values["local_accuracy"] > 0.5
    assert values["local_mae"] < 3
    assert 0 < values["mean_flops"] < whole
    notes = [note for note in early.record(0).notes if note.startswith("exit before")]
    assert notes
    assert all("targets met: " in note and "calibration error" not in note for note in notes)
    scores = Bundle.open(early_bundle).info.scores.from_pixels
    assert scores["local_accuracy"] == pytest.approx(values["local_accuracy"], abs=0.02)
    assert 0 < scores["mean_flops"] < whole


def test_each_sample_leaves_where_calibration_says(early_bundle: Path, digits: dict[str, Any]) -> None:
    opened, model = Bundle.open(early_bundle), Personaliser(early_bundle, threads=1)
    assert opened.exits is not None
    batch = np.concatenate([digits["x_val"], digits["x_test"]])
    logits = Chain.of(opened, 1).every(batch)
    expected = exits_taken(Regression().confidences(logits), opened.exits.thresholds)
    assert len(set(expected.tolist())) > 1
    predictions = model.predict_batch(batch)
    assert [one.exit for one in predictions] == expected.tolist()
    assert opened.info.scale is not None
    said = logits[expected, np.arange(len(batch)), 0] * opened.info.scale.std[0] + opened.info.scale.mean[0]
    np.testing.assert_allclose([(one.values or ())[0][1] for one in predictions], said, atol=1e-4)
    for sample, together in zip(batch[:60], predictions, strict=False):
        alone = model.predict(sample)
        assert alone.exit == together.exit
        assert float(alone.label) == pytest.approx(float(together.label), abs=1e-3)


def test_what_all_exits_say_gives_their_losses(early_bundle: Path, digits: dict[str, Any]) -> None:
    prediction, every = Personaliser(early_bundle, threads=1).explored(digits["x_test"][0], explore=True)
    assert every is not None
    losses = Bundle.open(early_bundle).targets.exit_losses(every)
    assert len(losses) == len(every) - 1
    assert all(0 <= loss < 1 for loss in losses)
    assert prediction.values is not None
    assert prediction.values[0][1] == pytest.approx(float(every[prediction.exit, 0]), abs=1e-4)


def test_a_person_is_told_the_exit(
    early_bundle: Path, digits: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "new.npy", digits["x_test"][0])
    (answer,) = printed_json(capsys, "predict", str(early_bundle), str(tmp_path / "new.npy"))["predictions"]
    assert call(["predict", str(early_bundle), str(tmp_path / "new.npy")]) == 0
    value = answer["values"]["slant"]
    assert capsys.readouterr().out == f"{tmp_path}/new.npy: slant {value:.6g}, exit {answer['exit']}\n"


@pytest.mark.parametrize("labelled", [True, False])
def test_the_exits_learn_again(early_bundle: Path, digits: dict[str, Any], labelled: bool, tmp_path: Path) -> None:
    samples, truth = list(digits["x_val"]), digits["y_val"].tolist()
    others: list[Floats] = list(digits["x_test"])
    trainer = ExitsTrainer(early_bundle, threads=1)
    trainer.add(samples, truth if labelled else None)
    assert len(trainer.train(epochs=4)) == 4
    saved = trainer.save(tmp_path / "next")
    content = json.loads((saved / "bundle.json").read_text())
    assert content["exits"]["labelled"] is labelled
    assert content["exits"]["temperatures"] == [1.0] * len(content["exits"]["segments"])
    answers, model = trainer.answers(others), Personaliser(saved, threads=1)
    predictions = model.predict_batch(np.stack(others))
    assert [answer.exit for answer in answers] == [one.exit for one in predictions]
    np.testing.assert_allclose(
        [float(one.label) for one in answers], [float(one.label) for one in predictions], atol=0.01
    )
    reached = digits["y_test"].tolist() if labelled else None
    assert trainer.accuracy(others, reached) > 0.5


def test_without_targets_exits_learn_what_the_model_says(tmp_path: Path, own_cache: Path) -> None:
    text = TASK.replace("[local]\n", '[local]\nlabels = "none"\n')
    found = searched(tmp_path, text, MODE="exits-only", HEAD="closed-form", INIT='init = "global"')
    plan = found.record(0).plan
    assert plan is not None
    assert (plan.heads.supervised, plan.heads.global_weight) == (0.0, 1.0)
    assert found.info.untouched.values["local_accuracy"] == 1.0
    assert found.record(0).values["local_accuracy"] > 0.8  # agreement, as R²
    assert (
        call(["export", "--no-refit", str(found.folder), str(tmp_path / "bundle"), "--pick", "0", "--trainable"]) == 0
    )
    trainer = ExitsTrainer(tmp_path / "bundle", threads=1)
    with np.load(tmp_path / "local.npz") as data:
        trainer.add(list(data["x_val"]))
        assert trainer.train() == ()
        assert trainer.accuracy(list(data["x_test"])) > 0.8
