"""Images: decoded, cropped, scaled and normalised."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner.errors import TaskError
from tuner.task import InputSpec, decode_image, normalise
from tuner.task.data.images import check_image, fit_array
from tuner.task.inputs import input_kind

SPEC = InputSpec("images", 4, 4)


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_an_image_is_cut_from_the_centre_channels_first() -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = (1, 2, 3)
    decoded = decode_image(saved(Image.fromarray(wide)), SPEC)
    assert decoded.shape == (3, 4, 4)
    assert decoded.dtype == np.uint8
    assert [np.unique(plane).tolist() for plane in decoded] == [[1], [2], [3]]


def test_a_path_its_text_and_its_bytes_decode_to_the_same_pixels_resized_before_the_crop(tmp_path: Path) -> None:
    path = tmp_path / "noise.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8)
    path.write_bytes(saved(Image.fromarray(noise), "JPEG"))
    first = decode_image(path, InputSpec("images", 4, 6))
    assert first.shape == (3, 4, 4)
    for source in (str(path), path.read_bytes()):
        assert (first == decode_image(source, InputSpec("images", 4, 6))).all()


def test_exif_orientation_is_honoured() -> None:
    upright = np.zeros((4, 4, 3), np.uint8)
    upright[0] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    decoded = decode_image(saved(Image.fromarray(upright), exif=exif), SPEC)
    assert decoded[:, 3].min() == 255
    assert decoded[:, 0].max() == 0


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "LA", "CMYK"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = Image.new("RGB", (5, 5), (255, 255, 255)).convert(mode)
    decoded = decode_image(saved(image, "JPEG" if mode == "CMYK" else "PNG"), SPEC)
    assert decoded.shape == (3, 4, 4)
    assert decoded.min() > 250


def test_transparent_palettes_sixteen_bit_grey_and_pairs_of_pictures_decode() -> None:
    palette = Image.new("RGB", (4, 4), (9, 9, 9)).convert("P")
    assert decode_image(saved(palette, transparency=bytes([0, 255])), SPEC).shape == (3, 4, 4)  # without a warning
    grey = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    assert np.unique(decode_image(saved(grey), SPEC)).tolist() == [128]  # scaled, not clipped
    first, second = Image.new("RGB", (8, 8), (255, 0, 0)), Image.new("RGB", (8, 8))
    pair = saved(first, "MPO", save_all=True, append_images=[second])
    assert decode_image(pair, SPEC)[0].min() > 200


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_a_truncated_image_is_found_by_decoding_and_by_a_look(kind: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (60, 40, 3), np.uint8)
    path, whole = tmp_path / "noise.png", saved(Image.fromarray(noise), kind)
    path.write_bytes(whole)
    check_image(path, SPEC)
    for keep in (0.0, 0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * keep)])
        for use in (decode_image, check_image):
            with pytest.raises(TaskError, match=r"noise\.png: not an image that can be decoded") as caught:
                use(path, SPEC)
            assert "\n" not in str(caught.value)
    with pytest.raises(TaskError, match=r"^the given bytes: not an image"):
        decode_image(whole[:50], SPEC)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone.png", "no such file"),
        ("", r"cannot be read \(Is a directory\)"),
        ("fifo.png", r"cannot be read \(a FIFO, not a regular file\)"),
        ("endless.png", r"cannot be read \(a device, not a regular file\)"),
    ],
)
def test_what_is_no_file_is_refused_unread(name: str, reason: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "endless.png").symlink_to("/dev/zero")
    with pytest.raises(TaskError, match=rf"{name}: {reason}"):
        decode_image(tmp_path / name, SPEC)


def test_bytes_are_scaled_and_floats_are_not_and_each_channel_is_normalised() -> None:
    batch = np.full((2, 3, 1, 1), 255, np.uint8)
    out = normalise(batch, InputSpec("images", 1, 1, (0.5, 0.0, 1.0), (0.5, 2.0, 1.0)))
    assert out.dtype == np.float32
    assert out[0, :, 0, 0].tolist() == [1.0, 0.5, 0.0]
    assert normalise(np.array([[255, 0]], np.uint8), InputSpec("arrays")).tolist() == [[1, 0]]
    floats = np.full((1, 2, 3), 4, np.float32)
    assert np.unique(normalise(floats, InputSpec("arrays", mean=(1.0,), std=(2.0,)))).tolist() == [1.5]
    assert np.unique(floats).tolist() == [4]  # the batch itself is not changed
    with pytest.raises(TaskError, match=r"input\.mean must have 1 or 4 values, got 3: give one per channel"):
        normalise(np.zeros((1, 4, 2, 2), np.float32), InputSpec("arrays", mean=(0.0, 0.0, 0.0)))


def test_arrays_are_resized_channel_by_channel() -> None:
    assert fit_array(np.ones((5, 8, 8)), InputSpec("arrays", 4)).dtype == np.float32
    assert fit_array(np.ones((2, 8, 8), np.uint8), InputSpec("arrays", 4)).dtype == np.uint8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "images"}, "size is needed"),
        ({"kind": "arrays", "resize": 8}, "size is needed"),
        ({"kind": "images", "size": 0}, "from 1 to 8192 pixels, got 0"),
        ({"kind": "images", "size": 10**9}, "from 1 to 8192 pixels, got 1000000000"),
        ({"kind": "images", "size": 8, "resize": 4}, "resize must be at least input.size = 8, got 4"),
        ({"kind": "arrays", "std": (0.0,)}, r"std must be above 0 in every channel, got \[0.0\]"),
        (
            {"kind": "images", "size": 8, "window": 9},
            r"input\.window = 9 does not apply to kind 'images': leave it out",
        ),
        ({"kind": "signals", "window": 10, "hop": 0}, r"window and input\.hop must be at least 1 sample, got 10 and 0"),
    ],
)
def test_an_input_that_cannot_be_is_refused(values: dict[str, object], message: str) -> None:
    def make() -> None:
        spec = InputSpec(**values)  # type: ignore[arg-type]  # the mistakes are the point
        input_kind(spec.kind).check(spec)

    with pytest.raises(TaskError, match=message):
        make()


def header_of(kind: str, width: int, height: int) -> bytes:
    """Return an image of one pixel whose header says another size; the rest of it is as it was."""
    content = bytearray(saved(Image.new("RGB", (1, 1)), kind))
    at, order = {"PNG": (16, ">I"), "BMP": (18, "<i"), "GIF": (6, "<H")}[kind]
    struct.pack_into(order, content, at, width)
    struct.pack_into(order, content, at + struct.calcsize(order), height)
    if kind == "PNG":
        struct.pack_into(">I", content, 29, zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.parametrize(("width", "height"), [(13_500, 13_500), (100_000, 100_000), (1, 89_000_001)])
@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_too_many_pixels_are_refused_before_they_are_decoded(kind: str, width: int, height: int) -> None:
    with pytest.raises(TaskError, match=r"not an image that can be decoded \(.*more than 178 megapixels\)"):
        decode_image(header_of(kind, width, height), SPEC)


def test_an_image_that_resizing_would_make_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "thin.png"
    Image.new("L", (1, 100_000)).save(path)
    spec = InputSpec("images", 160, 160)
    for use in (decode_image, check_image):
        with pytest.raises(TaskError, match=r"thin\.png: .*160 × 16000000 pixels, more than 178 megapixels"):
            use(path, spec)


@pytest.mark.parametrize("kind", ["EPS", "PPM", "PDF", "ICO", "PCX", "TGA", "SGI"])
def test_other_formats_of_pillow_are_not_read_whatever_their_name_and_start_no_program(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(saved(Image.new("RGB", (20, 20)), kind))
    (tmp_path / "gs").write_text(f"#!/bin/sh\necho started >> {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for use in (decode_image, check_image):
        with pytest.raises(TaskError, match=r"photo\.jpg: not an image that can be decoded \(no known format\)"):
            use(path, SPEC)
    assert not (tmp_path / "started").exists()
    if kind == "EPS":  # which Pillow itself gives to Ghostscript
        with Image.open(path) as image, pytest.raises(OSError, match=r"cannot identify|exit status"):
            image.load()
        assert (tmp_path / "started").exists()
