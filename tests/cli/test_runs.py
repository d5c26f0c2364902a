"""Whole runs on digits through the command line: run, show, export, predict, apply, describe."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.printed import printed_json
from tuner.cli.app import call
from tuner.plan.toml import to_toml
from tuner.results.run import Run
from tuner.runtime import Bundle, Personaliser
from tuner.task.builtin import digits

pytestmark = pytest.mark.slow
RUN_KEYS = {
    *("task", "space", "seed", "limits", "untouched", "baselines"),
    *("spent", "objectives", "counts", "cuts", "front", "trials"),
}
CUT_KEYS = {"blocks", "of", "tried", "trial", "local_accuracy", "global_accuracy", "seconds", "reason", "exits"}
DRY_RUN_KEYS = [
    *("schema", "task", "space", "limits", "strategies", "objectives", "knobs"),
    *("fill_seconds", "fill_samples", "depths", "notes", "candidates", "choosing_seconds"),
]
DEPTH_KEYS = ["trainable", "sentence", "train_seconds", "spend_seconds", "peak_bytes", "storage_bytes", "over"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(home: Path) -> Path:
    """Three trials on digits."""
    assert call(["run", "digits", "--space", "smoke", "--time", "5m", "--trials", "3", "--out", str(home / "run")]) == 0
    return home / "run"


@pytest.fixture(scope="module")
def bundle(run: Path, home: Path) -> Path:
    assert call(["export", "--no-refit", str(run), str(home / "bundle")]) == 0
    return home / "bundle"


def test_show_prints_what_the_documents_promise(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed_json(capsys, "show", run)
    assert set(shown) >= RUN_KEYS
    assert set(shown["spent"]) >= {"seconds", "peak_bytes", "storage_bytes"}
    assert set(shown["counts"]) == {"done", "rejected", "stopped", "killed", "failed"}
    assert shown["counts"]["done"] == 3
    assert {objective["name"]: objective["direction"] for objective in shown["objectives"]} == {
        "local_accuracy": "maximise",
        "global_accuracy": "maximise",
        "train_seconds": "minimise",
        "peak_bytes": "minimise",
    }
    assert [sum(member[name] for member in shown["front"]) for name in ("best", "knee")] == [1, 1]
    for member in shown["front"]:
        assert set(member) == {"trial", "values", "plan", "sentence", "best", "knee", "not_better_than"}
        assert set(member["values"]) == {objective["name"] for objective in shown["objectives"]}
        assert member["sentence"].startswith(("train last ", "train the whole ", "solve the head in closed form for "))
    for trial in shown["trials"]:
        assert set(trial) >= {"trial", "state", "values", "estimate", "measured", "reason", "plan"}
    assert shown["untouched"]["global_accuracy"] > 0.9
    assert "local_loss" not in shown["untouched"]  # it is infinite of classes that the model does not know
    for cut in shown["cuts"]:
        assert set(cut) == CUT_KEYS
    assert sum(cut["tried"] for cut in shown["cuts"]) == 3
    assert call(["show", str(run), "--details"]) == 0
    assert "untouched: the given model, scored on the classes it knows; the model has no output" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_bundle_predicts_as_its_trial_did(
    run: Path, bundle: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, task, opened = Run.open(run), digits(), Bundle.open(bundle)
    assert result.best is not None
    values = result.record(result.best).values
    personaliser = Personaliser(opened)
    for name, domain in (("local_accuracy", task.local), ("global_accuracy", task.global_)):
        assert domain is not None
        labels = [personaliser.predict(domain.val.load(index)).label for index in range(len(domain.val))]
        truth = [task.labels[int(label)] for label in domain.val.labels]
        right = sum(a == b for a, b in zip(labels, truth, strict=True)) / len(labels)
        assert right == pytest.approx(opened.info.scores.from_pixels[name])
        assert right == pytest.approx(values[name], abs=1.5 / len(labels))
    assert opened.info.scores.from_pixels["largest_logit_difference"] <= 1e-3
    score = opened.info.scores.from_pixels["test_accuracy"]
    (noted,) = printed_json(capsys, "show", run)["exports"]
    assert (noted["bundle"], noted["trial"], noted["refit"]) == ("bundle", result.best, False)
    assert noted["scores"]["test_accuracy"] == score
    told = f"exported as bundle (trial {result.best}): {100 * score:.1f} % ("
    assert call(["show", str(run)]) == 0
    assert task.local.test is not None
    screen = " ".join(capsys.readouterr().out.split())
    assert told in screen
    assert f") right, of {len(task.local.test)} test samples" in screen
    np.save(home / "digit.npy", task.local.val.load(0))
    (prediction,) = printed_json(capsys, "predict", bundle, home / "digit.npy")["predictions"]
    assert set(prediction) == {"file", "label", "probability", "exit", "seconds"}
    assert 0 < prediction["probability"] <= 1


def test_a_bundle_is_not_written_over_anything_and_apply_looks_before_it_trains(
    run: Path, bundle: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner_apply.apply.open_remote", None)  # training would call it
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    for command in (["export", "--no-refit", str(run), str(bundle)], ["apply", str(bundle), "digits", str(bundle)]):
        assert call(command) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"tuner: {bundle} is not empty: give another folder"
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
    out = home / f"applied-{source}"
    applied = printed_json(capsys, "apply", bundle, "digits", out, "--from", source)
    opened, parent = Bundle.open(out), Bundle.open(bundle)
    assert opened.info.parent == parent.identity
    assert opened.labels == parent.labels
    assert opened.info.sentence == parent.info.sentence == applied["sentence"]
    assert applied["scores"]["from_pixels"]["local_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("pick", "code", "message"),
    [
        ("99", 1, "has no trial 99"),
        ("max(local_acuracy)", 2, "did you mean 'local_accuracy'?"),
        ("bset", 2, "must be one of best, knee, fastest, smallest, safest"),
        ("local_accuracy > 99.99 % and local_accuracy < 0.1", 1, "no member of the front meets"),
    ],
)
def test_picks_that_mean_nothing_are_refused(
    run: Path, home: Path, pick: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["export", "--no-refit", str(run), str(home / "nothing"), "--pick", pick]) == code
    error = capsys.readouterr().err
    assert message in error
    assert not (home / "nothing").exists()


def test_a_dry_run_trains_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    look = ("run", "digits", "--space", "smoke", "--out", home / "dry", "--store", home / "none", "--dry-run")
    preview = printed_json(capsys, *look)
    assert not (home / "dry").exists()
    assert not (home / "none").exists()
    assert list(preview) == DRY_RUN_KEYS
    assert list(preview["depths"][0]) == DEPTH_KEYS
    assert preview["fill_samples"] > 0
    cached = [depth for depth in preview["depths"] if "cache" in depth["sentence"]]
    assert all(depth["spend_seconds"] > preview["fill_seconds"] / 2 for depth in cached[-1:])
    late = printed_json(capsys, *look, "--time", "1s")["depths"]  # loading takes longer
    assert all("time" in depth["over"] for depth in late)
    ladder = ("run", "digits", "--space", "board-10min", "--store", home / "none", "--dry-run", "--deterministic")
    exact = printed_json(capsys, *ladder)
    assert exact["limits"]["time_seconds"] is None
    assert exact["depths"] == printed_json(capsys, *ladder)["depths"]
    tails = [depth["sentence"] for depth in exact["depths"][1:]]
    assert all(", 5 epochs" in one for one in tails), "the least training, not the start value of 8"


def test_a_dry_run_counts_what_is_stored_already(run: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.is_dir()
    empty = printed_json(capsys, "run", "digits", "--space", "smoke", "--dry-run", "--store", home / "none")
    filled = printed_json(capsys, "run", "digits", "--space", "smoke", "--dry-run")
    assert filled["fill_samples"] < empty["fill_samples"]
    assert filled["fill_seconds"] < empty["fill_seconds"]


def test_describe_with_a_plan_estimates_it(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans = [record.plan for record in Run.open(run).records if record.plan is not None]
    drawing, file = tmp_path / "step.svg", tmp_path / "plan.toml"
    trained = next(plan for plan in plans if not plan.traits.solves)  # a head that is solved for has no step
    file.write_text(to_toml(trained))
    description = printed_json(capsys, "describe", "digits", "--plan", file, "--picture", drawing)
    step = description["plan"]["step"]
    assert step["executor"] == "eager"
    assert step["flops"] > 0
    assert 0 < len(step["memory"]["largest"]) <= 10
    assert step["memory"]["max_live_bytes"] == max(event["live_bytes"] for event in step["memory"]["steps"])
    assert drawing.read_text().startswith("<svg")
    assert call(["describe", "digits", "--plan", str(file)]) == 0
    assert "planned peak: " in capsys.readouterr().out
    assert description["blocks"][-1]["name"]
    assert description["plan"]["supported"] == "yes"
    assert description["plan"]["train_seconds"] > 0
