"""Which files count, by their kinds and places: each row's answer comes from Pillow, numpy, or the row itself."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from tuner.errors import TaskError
from tuner.reading import files_below, kinds_of
from tuner.targets import SINGLE_LABEL
from tuner.task import InputSpec, Task
from tuner.task.data.entry import EntrySource
from tuner.task.data.images import check_image, decode_image, short_side
from tuner.task.data.listing import IMAGE_SUFFIXES
from tuner.task.data.readable import FileCheck
from tuner.task.inputs.images import Images
from tuner.task.inputs.signals import Signals

Load = Callable[..., Task]
SPEC = InputSpec("images", size=12, resize=12, mean=(0.5,), std=(0.5,))
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (12, 18, 3), np.uint8)
TURNED = 6  # EXIF: the top of what is seen is on the right of what is stored
HEIC = ("heic", "HEIC", "heif", "hif")


def image(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(RNG.integers(0, 65536, (12, 18), np.uint16))
    return Image.fromarray(PIXELS).convert(mode)


def opener_of(ending: str) -> None:
    if ending.lower() in HEIC:
        pytest.importorskip("pillow_heif", reason="the extra heic is not installed").register_heif_opener()


ROWS: list[tuple[str, str, str, dict[str, Any]]] = [
    *((ending, "JPEG", "RGB", {}) for ending in ("jpg", "JPG", "jpeg", "jpe", "jfif", "JFIF")),
    ("jpg", "JPEG", "L", {}),
    ("jpg", "JPEG", "CMYK", {}),
    ("jpg", "JPEG", "RGB", {"progressive": True}),
    *(("png", "PNG", mode, {}) for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16")),
    ("apng", "PNG", "RGB", {"save_all": True}),
    ("gif", "GIF", "P", {}),
    ("bmp", "BMP", "RGB", {}),
    ("dib", "BMP", "L", {}),
    ("webp", "WEBP", "RGB", {"lossless": True}),
    ("webp", "WEBP", "RGBA", {"quality": 80}),
    *(("tif", "TIFF", "RGB", {"compression": kind}) for kind in ("raw", "tiff_lzw", "tiff_deflate", "packbits")),
    ("TIFF", "TIFF", "RGB", {"compression": "jpeg"}),
    *(("tiff", "TIFF", mode, {}) for mode in ("L", "RGBA", "CMYK", "I;16", "1")),
    ("tiff", "TIFF", "RGB", {"save_all": True, "append_images": [Image.new("RGB", (18, 12))]}),
    ("avif", "AVIF", "RGB", {}),
    ("avif", "AVIF", "RGBA", {}),
    *((ending, "JPEG2000", "RGB", {}) for ending in ("jp2", "j2k", "jpx")),
    *((ending, "HEIF", "RGB", {}) for ending in HEIC),
]


@pytest.mark.parametrize(("ending", "kind", "mode", "options"), ROWS, ids=lambda value: str(value)[:24])
def test_an_image_is_what_pillow_sees(
    tmp_path: Path, ending: str, kind: str, mode: str, options: dict[str, Any]
) -> None:
    opener_of(ending)
    path = tmp_path / f"photo.{ending}"
    image(mode).save(path, kind, **options)
    assert path.suffix.lower() in IMAGE_SUFFIXES
    check_image(path, SPEC)
    with Image.open(path) as opened:
        assert short_side(path) == min(opened.size)
        if opened.mode == "I;16":
            grey = (np.asarray(opened) // 256).astype(np.uint8)
            expected = np.stack([grey] * 3, axis=-1)
        else:
            whole = opened.convert("RGBA") if opened.mode == "P" and "transparency" in opened.info else opened
            expected = np.asarray(whole.convert("RGB"))
    assert np.array_equal(decode_image(path, SPEC).transpose(1, 2, 0), expected[:, 3:15])


@pytest.mark.parametrize(
    ("ending", "kind", "options"),
    [
        ("jpg", "JPEG", {"quality": 100, "subsampling": 0}),
        ("png", "PNG", {}),
        ("webp", "WEBP", {"lossless": True}),
        ("tiff", "TIFF", {}),
        ("avif", "AVIF", {"quality": 100}),
        ("heic", "HEIF", {"quality": 100}),
    ],
    ids=str,
)
def test_a_photo_that_was_taken_upright_is_turned(
    tmp_path: Path, ending: str, kind: str, options: dict[str, Any]
) -> None:
    opener_of(ending)
    path, exif = tmp_path / f"photo.{ending}", Image.Exif()
    exif[0x0112] = TURNED
    smooth = np.linspace(0, 255, 12 * 18).reshape(12, 18).astype(np.uint8)
    Image.fromarray(np.stack([smooth] * 3, axis=-1)).save(path, kind, exif=exif, **options)
    seen = decode_image(path, SPEC)[0].astype(int)
    assert abs(seen - np.rot90(smooth, -1)[3:15]).max() <= 12  # what is lost by compression


def test_values_beyond_a_byte_are_refused(tmp_path: Path) -> None:
    for mode in ("I", "F"):
        path = tmp_path / f"{mode}.tif"
        Image.fromarray(PIXELS[..., 0]).convert(mode).save(path)
        with pytest.raises(TaskError, match=rf"{mode}\.tif: not an image that can be decoded \(pixels of 32 bits"):
            check_image(path, SPEC)


def photo() -> bytes:
    content = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (8, 8, 3), np.uint8)).save(content, "PNG")
    return content.getvalue()


PLACES = {
    "1.png": "counts",
    "2.PNG": "counts",
    "album/1.png": "counts",
    "album/2023/May/1.png": "counts",
    "album/with space/é.png": "counts",
    "raw.cr2": "left out",
    "film.MOV": "left out",
    "album/notes.txt": "left out",
    "edit.psd": "left out",
    "IMG_1.xmp": "left out",
    "no ending": "left out",
    "gone.png -> nowhere.png": "left out",
    "linked.png -> 1.png": "counts",
    "linked album -> ../elsewhere": "counts",
    "circle -> .": "hidden",
    ".1.png": "hidden",
    "._1.png": "hidden",
    "album/.2.png": "hidden",
    ".thumbnails/1.png": "hidden",
    ".AppleDouble/1.png": "hidden",
    "album/.git/1.png": "hidden",
    "@eaDir/1.png": "hidden",
    "@eaDir/1.png/SYNOPHOTO_THUMB_M.png": "hidden",
    "__MACOSX/1.png": "hidden",
    "lost+found/1.png": "hidden",
    "#recycle/1.png": "hidden",
    "$RECYCLE.BIN/1.png": "hidden",
    "Thumbs.db": "hidden",
    "desktop.ini": "hidden",
}


@pytest.mark.parametrize("labelled", [True, False], ids=["class folders", "without labels"])
@pytest.mark.parametrize(("place", "fate"), PLACES.items(), ids=str)
def test_what_counts_is_decided_by_place_and_kind(tmp_path: Path, place: str, fate: str, labelled: bool) -> None:
    folder = tmp_path / "photos"
    for name in ("cat/1.png", "dog/1.png"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(photo())
    name, _, link = place.partition(" -> ")
    path = folder / "cat" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if link.startswith("../"):
        (tmp_path / "other").mkdir()
        (tmp_path / "other/3.png").write_bytes(photo())
        path.symlink_to(tmp_path / "other")
    elif link:
        path.symlink_to(path.parent / link)
    else:
        path.write_bytes(photo())
    check = FileCheck(skip=False, settings="", looks=True)
    entry = Images().entry(EntrySource(folder, "train", SPEC, SINGLE_LABEL, labelled=labelled, check=check))
    assert len(entry.targets) == 2 + (fate == "counts" and name != "1.png")
    warnings = [line for line in check.findings if line.startswith("warning")]
    assert len(warnings) == (fate == "left out")
    if warnings:
        kind = "broken link" if link else Path(name).suffix.lower() or "without an ending"
        assert warnings[0].endswith(
            f"photos: 1 file is left out, of no kind that is read or in no class folder: 1 {kind}"
        )


def test_photos_beside_the_class_folders_are_left_out(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/1.png", "beside.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(photo())
    check = FileCheck(skip=False, settings="", looks=True)
    assert len(Images().entry(EntrySource(tmp_path, "train", SPEC, SINGLE_LABEL, check=check)).targets) == 2
    assert [line.rpartition(": ")[2] for line in check.findings] == ["1 .png"]


def test_recordings_count_at_any_depth(tmp_path: Path) -> None:
    spec = InputSpec("signals", window=5)
    for name in ("walk/1.npy", "walk/monday/2.npy", "run/@eaDir/1.npy", "run/deep/er/3.npy"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / name, RNG.normal(size=(2, 10)))
    (tmp_path / "run/1.txt").write_text("")
    check = FileCheck(skip=False, settings="", looks=True)
    entry = Signals().entry(EntrySource(tmp_path, "train", spec, SINGLE_LABEL, check=check))
    assert entry.names == ("run", "walk")
    assert np.bincount(entry.targets).tolist() == [2, 4]
    assert [line.rpartition(": ")[2] for line in check.findings] == ["1 .txt"]


def test_kinds_are_counted_and_what_would_read_them_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.HEIC", "2.heic", "3.txt"):
        (tmp_path / name).write_bytes(b"")
    os.mkfifo(tmp_path / "4.png")
    for reads, hint in ((True, ""), (False, ' (to read HEIC: pip install "device-tuner[heic]"')):
        monkeypatch.setattr("tuner.reading.READS_HEIC", reads)
        text = kinds_of(files_below(tmp_path))
        assert text.startswith(f"2 .heic, 1 .txt, 1 special file{hint}")


def test_a_class_of_unread_photos_names_their_kinds(images: Path, load: Load) -> None:
    for file in (images / "l/train/hat").iterdir():
        file.rename(file.with_suffix(".cr2"))
    with pytest.raises(TaskError, match=r"l/train/hat: no images .* in it; it holds 4 \.cr2: add some or remove it"):
        load()


def test_orientation_is_pillows(tmp_path: Path) -> None:
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        path = tmp_path / f"{turn}.png"
        Image.fromarray(PIXELS).save(path, exif=exif)
        with Image.open(path) as opened:
            upright = np.asarray(ImageOps.exif_transpose(opened))
        top, left = ((upright.shape[axis] - 12) // 2 for axis in (0, 1))
        expected = upright[top : top + 12, left : left + 12]
        assert np.array_equal(decode_image(path, SPEC).transpose(1, 2, 0), expected), turn
