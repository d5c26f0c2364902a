"""Frigate's folders: what is read, how photos are seen, and what is kept of the files from before."""

import struct
import tomllib
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner.errors import TaskError, UsageError
from tuner.search.listener import Listener
from tuner_frigate import train as training
from tuner_frigate.commands import train
from tuner_frigate.layout import BACKUP, LABELS, MODEL, SIDE, install, model_of, stretched


def photo(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (60, 20)) -> None:
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
