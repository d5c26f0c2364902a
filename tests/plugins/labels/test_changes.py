"""Labels of a bundle are added, renamed, removed and merged where it runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.runtime.bundles import solved_bundle
from tuner.arrays import Array
from tuner.bundle.format import FILE, WEIGHTS, Bundle
from tuner.bundle.info import TrainKind
from tuner.cli.app import call
from tuner.ridge.solve import LinearHead
from tuner.ridge.union import UnionHead
from tuner.runtime import DeviceTrainer, Personaliser, SolvingTrainer, Trainer
from tuner.task.builtin import digits
from tuner_labels.changes import add_label, merge_labels, remove_label, rename_label
from tuner_labels.draft import Draft
from tuner_labels.tails import _held_back
from tuner_watch.round import trainer_of

TAIL = Path("tests/fixtures/digits/bundle")
NEW = "nine"


@pytest.fixture(scope="module")
def solved(own_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export a bundle of ten digits whose head is solved for."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    return solved_bundle(tmp_path_factory.mktemp("labels"))


@pytest.fixture(params=[TrainKind.CLOSED_FORM, pytest.param(TrainKind.TAIL)])
def bundle(request: pytest.FixtureRequest) -> Path:
    """Return a bundle of each kind of training that labels can be changed of."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    return request.getfixturevalue("solved") if request.param == TrainKind.CLOSED_FORM else TAIL


@pytest.fixture
def photos(tmp_path: Path) -> Callable[..., list[Path]]:
    """Return a function that writes samples of a digit, which the bundle has not learned, as files."""

    def write(digit: int, count: int) -> list[Path]:
        files, (samples, _) = [], held_out()
        rows = [row for row, label in enumerate(held_out()[1]) if label == str(digit)]
        for row in rows[-count:]:
            files.append(tmp_path / f"{digit}-{row}.npy")
            np.save(files[-1], samples[row])
        return files

    return write


def held_out() -> tuple[list[Array], list[str]]:
    """Return test samples of the user, and of the model's own classes, with their labels."""
    task, samples, labels = digits(), list[Array](), list[str]()
    for domain in (task.local, task.global_):
        part = None if domain is None else domain.test or domain.val
        assert part is not None
        samples += [part.load(row) for row in range(len(part))]
        labels += [str(label) for label in part.labels]
    return samples, labels


def answers(bundle: Path) -> tuple[Array, Array]:
    """Return what a bundle answers to what is held out, which its trainer does too, and the truth."""
    samples, labels = held_out()
    said = [one.label for one in Personaliser(bundle, threads=1).predict_batch(np.stack(samples))]
    trainer: DeviceTrainer = trainer_of(Bundle.open(bundle), threads=1)
    assert [one.label for one in trainer.answers(samples[:100])] == said[:100]
    return np.array(said), np.array(labels)


def test_a_label_is_removed_and_learned_again_from_ten_photos(
    bundle: Path, tmp_path: Path, photos: Callable[..., list[Path]]
) -> None:
    less = remove_label(bundle, "9", tmp_path / "less-2")
    assert less.labels == Bundle.open(less.bundle).labels == tuple("012345678")
    assert less.found is None
    said, truth = answers(Path(less.bundle))
    others = truth != "9"
    before = (said == truth)[others].mean()
    more = add_label(Path(less.bundle), NEW, photos(9, 10))
    assert Path(more.bundle) == tmp_path / "less-3"
    made = Bundle.open(more.bundle)
    assert made.labels == (*less.labels, NEW)
    assert made.info.parent == Bundle.open(less.bundle).identity
    assert more.samples == 10
    assert more.found is not None
    said, truth = answers(made.folder)
    assert (said[~others] == NEW).mean() >= 0.43
    assert (said == truth)[others].mean() >= before - 0.02
    trainer = trainer_of(made, threads=1)
    trainer.add([np.load(file) for file in photos(9, 10)], [NEW] * 10)
    assert np.isfinite(trainer.train()).all()
    assert trainer_of(Bundle.open(trainer.save(tmp_path / "round")), threads=1).bundle.labels == made.labels


def test_a_new_label_takes_nothing_from_labels_that_nobody_can_speak_for(
    tmp_path: Path, photos: Callable[..., list[Path]]
) -> None:
    """The bundle has no samples of 7 to 9, which are like a 3: without care, it took 40 % of those that were right."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    less = remove_label(TAIL, "3", tmp_path / "less")
    before, truth = answers(Path(less.bundle))
    change = add_label(Path(less.bundle), "3", photos(3, 10))
    assert change.unseen == ("7", "8", "9")
    said, others = answers(Path(change.bundle))[0], truth != "3"
    assert (said == truth)[others].mean() >= (before == truth)[others].mean() - 0.01
    assert (said == truth)[~others].mean() >= 0.43


def test_known_samples_bound_what_a_new_label_takes() -> None:
    head = LinearHead(np.zeros((3, 1)), np.zeros(3))
    labels = np.repeat([0, 1], 100)
    known = np.column_stack([4.0 * (labels == 0), 4.0 * (labels == 1), np.linspace(0, 8, 200)])
    held = _held_back(UnionHead(head, (1, 1, 1, 0), np.tile([0.0, 0.0, 6.0], (10, 1)), known), labels)
    assert (held.known_left_out.argmax(axis=1) != labels).sum() == 2  # a hundredth
    assert (held.head.bias[:2] == 0).all()
    assert held.head.bias[2] == held.left_out[0, 2] - 6.0 < -3.9


def test_two_labels_become_one_and_have_the_samples_of_both(bundle: Path, tmp_path: Path) -> None:
    made = merge_labels(bundle, "7", "1", "stroke", tmp_path / "made")
    assert made.labels == (*"023456", "stroke", "8", "9")
    said, truth = answers(Path(made.bundle))
    truth = np.where(np.isin(truth, ["1", "7"]), "stroke", truth)
    assert (said == truth)[truth == "stroke"].mean() > 0.8
    assert (said == truth).mean() > 0.75


def test_of_a_removed_label_no_sample_is_left(solved: Path, tmp_path: Path) -> None:
    before, change = SolvingTrainer(solved, threads=1), remove_label(solved, "8", tmp_path / "made")
    after = SolvingTrainer(change.bundle, threads=1)
    assert change.samples == before.samples - after.samples == (before.labels == 8).sum()
    assert (after.labels == 8).sum() == (before.labels == 9).sum()
    assert change.before is not None
    assert change.after == pytest.approx(change.before, abs=0.05)
    assert Personaliser(change.bundle, threads=1, unknown=True).predict(held_out()[0][0]).unknown is not None


def test_the_rows_of_other_labels_of_a_trained_tail_stay_as_they_are(
    tmp_path: Path, photos: Callable[..., list[Path]]
) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    made = add_label(TAIL, "four", photos(4, 10), tmp_path / "made")
    before, after = (load_file(folder / WEIGHTS) for folder in (TAIL, Path(made.bundle)))
    for name, value in before.items():
        np.testing.assert_array_equal(after[name][: len(value)] if value.ndim else after[name], value)
    trainer = Trainer(made.bundle, threads=1)
    trainer.add([np.load(file) for file in photos(4, 10)], ["four"] * 10)
    losses = trainer.train(epochs=3)
    assert losses[-1] < losses[0]


def test_a_label_gets_another_name_and_nothing_else_changes(tmp_path: Path) -> None:
    made = rename_label(TAIL, "0", "zero", tmp_path / "made")
    before, after = json.loads((TAIL / FILE).read_text()), json.loads((Path(made.bundle) / FILE).read_text())
    assert after["labels"] == ["zero", *before["labels"][1:]]
    assert (after["files"], after["scores"]) == (before["files"], before["scores"])


def test_maps_thresholds_and_samples_of_several_labels_follow() -> None:
    draft = Draft(("pet", "bird"), ((0, 1), (2,)), 4)  # cat and dog become one, the car goes
    rows, labels = draft.moved(np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]], np.float32))
    assert rows.tolist() == [0, 1, 3]
    assert labels.tolist() == [[1, 0], [1, 0], [0, 0]]
    given = {"tabby": ("cat",), "dog": ("dog", "bird"), "van": ("car",)}
    assert draft.label_map(given, ("cat", "dog", "bird", "car")) == {"tabby": ("pet",), "pet": ("pet", "bird")}
    assert draft.thresholds((0.2, 0.4, 0.7, 0.1)) == pytest.approx((0.3, 0.7))


def test_labels_change_where_only_the_base_package_is() -> None:
    code = (
        "import sys, tuner_labels.changes; sys.exit(not {'torch', 'onnx', 'optuna', 'scipy'}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["remove", "TAIL", "00"], "digits has no label '00' (did you mean '0'?): give one of 0, 1, 2, 3, 4, 5"),
        (["rename", "TAIL", "0", "1"], "digits has a label '1' already"),
        (["rename", "TAIL", "0", " | "], "a label must be printable text without |, got '|'"),
        (["merge", "TAIL", "0", "0", "1"], "two labels are merged, but '0' was given twice"),
        (["add", "TAIL", "x", "."], ".: no file of the model's kind (.csv, .npy) in it, but 1 without an ending"),
        (["add", "TAIL", "x", "none.npy"], "none.npy"),
        (["rename", "TAIL", "0", "x", "--out", "."], " is not empty: give another folder"),
        (["add", "EXITS", "x", "."], "has early exits, each with a head of its own"),
        (["remove", "SIGNALS", "x"], "cannot learn here: export it with `tuner export RUN OUT --trainable`"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    names = {name.upper(): str((TAIL.parent.parent / name / "bundle").absolute()) for name in ("exits", "signals")}
    names["TAIL"] = str(TAIL.absolute())
    monkeypatch.chdir(tmp_path)
    assert call(["labels", *(names.get(word, word) for word in arguments)]) == 1
    line = capsys.readouterr().err
    assert says in line
    assert line.count("\n") == 1


def test_one_line_says_what_changed(solved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: list[Any] = ["labels", "merge", solved, "7", "8", "7"]
    assert call([*map(str, arguments), "--out", str(tmp_path / "made")]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"wrote {tmp_path / 'made'} in ")
    assert ": '7' and '8' are '7' now (" in line
    assert "samples of the other labels: " in line
