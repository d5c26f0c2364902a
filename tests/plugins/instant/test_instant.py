"""`tuner instant`: a bundle of an ONNX classifier and photos, with the base package alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tests.schemas import check
from tuner.bundle.format import Bundle
from tuner.cli.app import call
from tuner.commands.bundles.card import card_of
from tuner.errors import TunerError
from tuner.ort.session import Session
from tuner.runtime import Personaliser, SolvingTrainer
from tuner.runtime.train.solved import SolvedFile
from tuner.task import decode_image, normalise
from tuner_instant.classifier import Classifier
from tuner_instant.runs import Instant, instant
from tuner_labels.changes import add_label, remove_label

SIDE, FEATURES, KNOWN = 8, 48, 4
OWN = {"red": (200, 60, 60), "green": (60, 190, 70), "blue": (70, 60, 210)}
OLD = {"old0": (20, 20, 20), "old1": (240, 240, 240), "old2": (230, 230, 30), "old3": (120, 120, 120)}


def classifier(path: Path, *, gemm: bool = False, batch: int | str = 1, last: str = "Softmax") -> tuple[Any, Any]:
    """Write a network that pools, and a head that tells the old classes apart; return the head's weight and bias."""
    means = np.array([np.repeat([value / 255 for value in colour], FEATURES // 3) for colour in OLD.values()])
    means = (means - 0.45) / 0.225
    weight, bias = 0.2 * means, -0.1 * (means**2).sum(axis=1)
    inputs = [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)]
    held = [
        numpy_helper.from_array((weight if gemm else weight.T).astype(np.float32), "w"),
        numpy_helper.from_array(bias.astype(np.float32), "b"),
        numpy_helper.from_array(np.array([1, FEATURES], np.int64), "shape"),
    ]
    nodes = [
        helper.make_node("AveragePool", ["pixels"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["pooled", "shape"], ["flat"]),
    ]
    if gemm:
        nodes[1:] = [
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("Gemm", ["flat", "w", "b"], ["logits"], transB=1),
        ]
    else:
        nodes += [
            helper.make_node("MatMul", ["flat", "w"], ["product"]),
            helper.make_node("Add", ["b", "product"], ["logits"]),
        ]
    nodes.append(helper.make_node(last, ["logits"], ["scores"]))
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return weight, bias


def photos(folder: Path, classes: dict[str, tuple[int, int, int]], each: int, seed: int) -> Path:
    generator = np.random.default_rng(seed)
    for name, colour in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = np.clip(np.array(colour) + generator.normal(0, 25, (12, 12, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, photos of the user's, known ones, and a bundle of them."""
    folder = tmp_path_factory.mktemp("instant")
    classifier(folder / "model.onnx")
    photos(folder / "mine", OWN, 12, 1)
    (folder / "mine" / "red" / "broken.png").write_bytes(b"none")
    photos(folder / "known" / "train", OLD, 6, 2)
    photos(folder / "known" / "val", OLD, 6, 3)
    (folder / "known" / "classes.tsv").write_text("class\tindex\n" + "".join(f"{name}\t{name[3:]}\n" for name in OLD))
    return folder


@pytest.fixture(scope="module")
def made(place: Path) -> Instant:
    return instant(place / "mine", place / "bundle", place / "model.onnx", place / "known", trainable=True)


def test_a_bundle_predicts_what_was_solved_and_keeps_the_known_classes(place: Path, made: Instant) -> None:
    assert made.labels == (*OLD, *sorted(OWN))
    assert (made.known, len(made.heads)) == (KNOWN, 2)
    (line,) = made.left_out
    assert "broken.png: not an image" in line
    bundle = Bundle.open(place / "bundle")
    assert card_of(bundle.folder).local_samples == len(OWN) * 12
    session = Session(bundle.folder / "model.onnx", 1)
    files = sorted((place / "mine").rglob("[0-9].png")) + sorted((place / "known" / "val").rglob("*.png"))
    batch = normalise(np.stack([decode_image(file, bundle.input) for file in files]), bundle.input)
    pooled = batch.reshape(len(batch), 3, 4, 2, 4, 2).mean(axis=(3, 5)).reshape(len(batch), FEATURES)
    np.testing.assert_allclose(session.features(batch), pooled, atol=1e-5)
    trainer = SolvingTrainer(bundle, threads=1)
    trainer.train()  # the same solution once more
    np.testing.assert_allclose(session.logits(batch), trainer.logits(pooled), rtol=1e-3, atol=1e-3)
    answers = [Personaliser(bundle, threads=1).predict_file(file).label for file in files]
    assert np.mean([answer == file.parent.name for answer, file in zip(answers, files, strict=True)]) > 0.95
    assert bundle.info.scores.untouched["global_accuracy"] == 1.0
    assert made.heads[made.picked].values["global_accuracy"] > 0.95


def test_the_bundle_learns_and_forgets(place: Path, made: Instant, tmp_path: Path) -> None:
    trainer = SolvingTrainer(place / "bundle", threads=1)
    before = trainer.samples
    assert before == made.samples["local.train"] + made.samples["local.val"] == 36
    new = sorted(photos(tmp_path / "new", {"green": (90, 160, 90)}, 5, 9).rglob("*.png"))
    trainer.add(new, ["green"] * len(new))
    trainer.train()
    assert {answer.label for answer in trainer.answers(new)} == {"green"}
    saved = Bundle.open(trainer.save(tmp_path / "after"))
    again = SolvingTrainer(saved, threads=1)
    assert again.samples == before + len(new)
    assert again.forget(new) == len(new)


def test_its_labels_can_be_changed(place: Path, made: Instant, tmp_path: Path) -> None:
    without, again = tmp_path / "without", tmp_path / "again"
    remove_label(Path(made.bundle), "red", without)
    assert "red" not in Bundle.read(without).labels
    change = add_label(without, "red", [place / "mine" / "red" / f"{number}.png" for number in range(10)], again)
    assert (change.labels[-1], change.samples) == ("red", 10)
    photo = place / "mine" / "red" / "11.png"
    assert Personaliser(again).predict(photo).label == "red"


@pytest.mark.parametrize(("gemm", "batch"), [(True, "n"), (True, 1), (False, 1)])
def test_the_last_layer_is_found(tmp_path: Path, gemm: bool, batch: int | str) -> None:
    weight, bias = classifier(tmp_path / "model.onnx", gemm=gemm, batch=batch)
    found = Classifier.open(tmp_path / "model.onnx")
    assert (found.outputs, found.features) == weight.shape
    head = found.head(range(found.outputs))
    np.testing.assert_allclose(head.weight, weight, rtol=1e-6)
    np.testing.assert_allclose(head.bias, bias, rtol=1e-6)
    assert (found.reads, found.shape) == ("flat", (3, SIDE, SIDE))
    samples = np.random.default_rng(0).normal(size=(3, 3, SIDE, SIDE)).astype(np.float32)
    (cut,) = found.cuts((3, SIDE, SIDE))
    written = Session(found.write(tmp_path / "bundle.onnx", [cut], head), 1).logits(samples)
    alone = np.concatenate([Session(tmp_path / "model.onnx", 1).run(sample[None], "scores")[0] for sample in samples])
    powers = np.exp(written - written.max(axis=1, keepdims=True))
    np.testing.assert_allclose(powers / powers.sum(axis=1, keepdims=True), alone, rtol=1e-4, atol=1e-6)
    again = Classifier.open(tmp_path / "bundle.onnx")  # what was written is a classifier too
    np.testing.assert_allclose(again.head(range(again.outputs)).weight, weight, rtol=1e-6)


def test_the_command_needs_the_base_package_alone(place: Path, tmp_path: Path) -> None:
    """Importing anything of an extra raises."""
    extras = ("torch", "torchvision", "optuna", "scipy", "onnx", "onnxscript", "sklearn")
    command = ["instant", place / "mine", "--model", place / "model.onnx", "--out", tmp_path / "bundle"]
    code = f"""import sys; sys.modules.update(dict.fromkeys({extras}))
from tuner.cli.app import call
sys.exit(call({[*map(str, command)]}) or call(["show", {str(tmp_path / "bundle")!r}]))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "→ " in done.stdout
    assert "classes: 3 (blue, green, red)" in done.stdout


def test_a_task_file_may_name_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier(tmp_path / "net.onnx", gemm=True)
    y = np.repeat([0, 1, 2], 12)
    x = np.random.default_rng(0).normal(size=(len(y), 3, SIDE, SIDE)) + y[:, None, None, None]
    np.savez(tmp_path / "mine.npz", x_train=x.astype(np.float32), y_train=y)
    (tmp_path / "task.toml").write_text('[model]\nweights = "net.onnx"\n[local]\nkind = "arrays"\ntrain = "mine.npz"\n')
    assert call(["-q", "instant", str(tmp_path), "--out", str(tmp_path / "bundle"), "--trainable", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    check(printed)
    (head,) = printed["heads"]
    assert (printed["labels"], head["values"]["local_accuracy"]) == (["0", "1", "2"], 1.0)
    kept = SolvedFile.load(Bundle.open(tmp_path / "bundle"))
    pooled = x.reshape(len(x), 3, 4, 2, 4, 2).mean(axis=(3, 5)).reshape(len(x), FEATURES)
    codes = kept.codes * kept.step  # of those that judged the head too, which come last
    np.testing.assert_allclose(codes[codes[:, 0].argsort()], pooled[pooled[:, 0].argsort()], atol=1e-3)


def test_what_cannot_be_used_is_said(place: Path, tmp_path: Path) -> None:
    mine, model, out = place / "mine", place / "model.onnx", tmp_path / "out"
    classifier(tmp_path / "relu.onnx", last="Relu")
    (tmp_path / "flat").mkdir()
    for arguments, line in (
        ((mine, out, tmp_path / "none.onnx"), "no such file"),
        ((mine, out, tmp_path / "relu.onnx"), "last layer is the operator Relu, and not linear"),
        ((tmp_path / "flat", out, model), "no class folders in it"),
        ((tmp_path / "away", out, model), "no such folder"),
        ((mine, out), "the model is missing"),
        ((mine, place / "known", model), "is not empty"),
    ):
        with pytest.raises(TunerError, match=line):
            instant(*arguments)
    assert not out.exists()
