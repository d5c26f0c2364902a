"""Frigate's folders: what is read, how photos are seen, and what is kept of the files from before."""

import pickle
import struct
import tomllib
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tuner.errors import TaskError, UsageError
from tuner.search.listener import Listener
from tuner_frigate import train as training
from tuner_frigate.commands import train
from tuner_frigate.layout import BACKUP, LABELS, MODEL, SIDE, install, model_of, square, stretched
from tuner_frigate.network import MEAN, STD, mobilenet_v2, weights_of
from tuner_frigate.solve import Layer
from tuner_tflite.file import to_bytes
from tuner_tflite.graph import Graph, Node
from tuner_tflite.interpreter import Interpreter
from tuner_tflite.write import Interface, float_model


def photo(path: Path, color: tuple[int, ...], size: tuple[int, int] = (60, 20)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def test_classes_are_read_and_stretched_and_files_from_before_are_kept(tmp_path: Path) -> None:
    porch = tmp_path / "clips" / "porch"
    photo(porch / "dataset" / "none" / "a.webp", (255, 0, 0))
    photo(porch / "dataset" / "cat" / "b.JPG", (0, 0, 255))
    photo(porch / "dataset" / "temp" / "c.png", (0, 255, 0))
    (porch / "dataset" / "cat" / "broken.png").write_bytes(b"no photo")
    header = struct.pack(">I4sIIBBBBB", 13, b"IHDR", 60_000, 60_000, 8, 2, 0, 0, 0)
    (porch / "dataset" / "cat" / "huge.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", zlib.crc32(header[4:]))
    )
    (tmp_path / "model_cache").mkdir()
    model = model_of(porch, None)
    assert model == model_of(porch / "dataset", tmp_path / "model_cache")
    assert [*model.photos()] == ["cat", "none"]
    assert [path.name for path in stretched(model.photos(), tmp_path / "squares")] == ["broken.png", "huge.png"]
    pixels = np.array(Image.open(tmp_path / "squares" / "none" / "a.webp.png"))
    assert pixels.shape == (SIDE, SIDE, 3)
    assert np.ptp(pixels, axis=(0, 1)).max() < 4  # no edge is left black
    assert install({MODEL: b"first", LABELS: b"cat\nnone\n"}, model.target) == []
    (kept,) = install({MODEL: b"second"}, model.target)
    assert kept == tmp_path / "model_cache" / "porch" / f"{MODEL}{BACKUP}"
    assert (kept.read_bytes(), (model.target / MODEL).read_bytes()) == (b"first", b"second")
    assert install({MODEL: b"third"}, model.target) == []
    assert (kept.read_bytes(), (model.target / MODEL).read_bytes()) == (b"first", b"third")


def test_weights_are_fetched_only_if_they_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--weights must be given: .* IMAGENET1K_V1, which is fetched"):
        train(tmp_path)
    with pytest.raises(UsageError, match="--work is for a search: give --time too"):
        train(tmp_path, weights="weights.pth", work=tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no folder dataset"):
        model_of(tmp_path, None)
    photo(tmp_path / "clips" / "porch" / "dataset" / "none" / "a.png", (1, 2, 3))
    with pytest.raises(UsageError, match="name it by --model-cache"):
        model_of(tmp_path / "clips" / "porch", None)
    porch = model_of(tmp_path / "clips" / "porch", tmp_path)
    with pytest.raises(TaskError, match="two classes or more, got none"):
        porch.photos()
    (porch.dataset / "cat").mkdir()
    (porch.dataset / "cat" / "b.png").write_bytes(b"")
    with pytest.raises(TaskError, match=r"no such file: give MobileNetV2's state_dict"):
        training.train(porch, tmp_path / "work", None, None, "weights.pth", Listener())
    assert not (tmp_path / "work").exists(), "the next call may take it"
    with pytest.raises(TaskError, match=r"none of the photos in .*cat can be read"):
        stretched(porch.photos(), tmp_path / "squares")


@pytest.mark.parametrize("name", ["porch", 'the "cat"', "Tür 😀", "a\\b"])
def test_any_name_of_a_model_gives_a_task(name: str) -> None:
    assert tomllib.loads(training.task_text(name, name))["name"] == f"frigate-{name}"


@pytest.fixture(scope="module")
def torch_model() -> Any:
    """MobileNetV2 with random weights, and norms of random photos of one color each."""
    torch, vision = pytest.importorskip("torch"), pytest.importorskip("tuner.backends.torch.model.vision")
    torch.manual_seed(0)
    model = vision.torchvision().models.mobilenet_v2(num_classes=3)
    for norm in (one for one in model.modules() if isinstance(one, torch.nn.BatchNorm2d)):
        norm.momentum = None
    with torch.no_grad():
        model(4 * torch.rand(16, 3, 1, 1).expand(-1, -1, 64, 64) - 2)
    return model.eval()


@pytest.mark.parametrize("zipped", [True, False])
def test_the_network_computes_what_torchvision_s_does(torch_model: Any, zipped: bool, tmp_path: Path) -> None:
    torch, path, side = pytest.importorskip("torch"), tmp_path / "weights.pth", 64
    torch.save(torch_model.state_dict(), path, _use_new_zipfile_serialization=zipped)
    network = mobilenet_v2(weights_of(str(path)), side, 2)
    until = [Node(*node) for node in network.nodes[:-1]]
    graph = Graph(tuple(until), network.constants, network.shapes, "input", until[-1].outputs[0])
    pixels = np.random.default_rng(0).integers(0, 256, (2, side, side, 3)).astype(np.float32)
    found = Interpreter(to_bytes(float_model(graph, Interface(MEAN, STD, "")), "")).answers(pixels)
    normal = ((pixels / 255 - MEAN) / STD).transpose(0, 3, 1, 2).astype(np.float32)
    with torch.no_grad():
        expected = torch_model.features(torch.from_numpy(normal)).mean((2, 3)).numpy()
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def test_photos_give_a_file_that_knows_them(
    torch_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch").save(torch_model.state_dict(), tmp_path / "weights.pth")
    porch, colors = tmp_path / "clips" / "porch", {"cat": (200, 60, 20), "none": (20, 60, 200)}
    for name, color in colors.items():
        for number in range(5):
            photo(porch / "dataset" / name / f"{number}.png", tuple(max(0, own - 4 * number) for own in color))
    (porch / "dataset" / "cat" / "broken.png").write_bytes(b"no photo")
    (tmp_path / "model_cache").mkdir()
    train(porch, weights=str(tmp_path / "weights.pth"))
    said, target = capsys.readouterr().out, tmp_path / "model_cache" / "porch"
    assert "100.0 % (72–100) of 10 photos are right" in said
    assert "broken.png cannot be read" in said
    assert "cat: 5 samples, 100 % found" in said
    assert (target / LABELS).read_text() == "cat\nnone\n"
    written = Interpreter((target / MODEL).read_bytes())
    for row, name in enumerate(colors):
        seen = square(porch / "dataset" / name / "2.png")
        assert written.answers(np.asarray(seen, np.float32)[None]).argmax() == row


def test_mirrored_photos_are_learned_unless_the_classes_are_left_and_right() -> None:
    rows, draw = np.repeat([0, 1], 20), np.random.default_rng(0)
    features = draw.random((40, 64)).astype(np.float32)
    features[:, 0] += 3 * rows
    turned = features.copy()
    turned[:, 0] = 4 - features[:, 0]
    alike, others = Layer(features, features + np.float32(0.01), rows, 2), Layer(features, turned, rows, 2)
    assert alike.right == others.right == 1
    assert alike.head is not alike.plain.head
    assert others.head is others.plain.head


def test_a_file_that_runs_code_is_no_file_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(Path.cwd))
    with pytest.raises(TaskError, match=r"no weights of PyTorch .* is no part of weights"):
        weights_of(str(path))
    with pytest.raises(TaskError, match="no weights of MobileNetV2"):
        mobilenet_v2({}, SIDE, 2)


def test_grey_photos_of_16_bits_are_as_bright_as_they_are(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 64 * 64).astype(np.uint16).reshape(64, 64)
    Image.fromarray(ramp).save(tmp_path / "grey.png")
    photo = square(tmp_path / "grey.png")
    assert photo is not None
    assert np.asarray(photo).mean() == pytest.approx(127.5, abs=1)
