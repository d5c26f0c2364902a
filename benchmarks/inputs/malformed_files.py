"""Files that are malformed, and the task, model and bundles that they stand next to."""

import io
import json
import os
import random
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NET = """
from torch import nn

def build(outputs=2):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, outputs))
"""


def bad_images() -> dict[str, bytes]:
    """Return files that are named ``.jpg`` and are no image, or not whole, or too large."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8))
    whole = {kind: saved(noise, kind) for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP")}
    bomb = bytearray(whole["PNG"])
    struct.pack_into(">II", bomb, 16, 10**5, 10**5)
    struct.pack_into(">I", bomb, 29, zlib.crc32(bomb[12:29]))
    thin = saved(Image.new("L", (1, 2 * 10**7)), "PNG")
    return {
        **{f"half-a-{kind.lower()}": content[: len(content) // 2] for kind, content in whole.items()},
        **{f"an-{kind.lower()}": saved(noise, kind) for kind in ("EPS", "PPM", "PDF", "ICO", "PCX")}, "empty": b"",
        "text": b"not pixels", "a-bomb": bytes(bomb), "thin": thin,
    }  # fmt: skip


def bad_arrays(draw: random.Random) -> dict[str, bytes]:
    """Return files named ``.npz`` that hold no samples and labels."""
    x, y = np.zeros((6, 1, 8, 8), np.float32), np.arange(6) % 2
    good = zipped(x=npy(x), y=npy(y))
    return {
        "a-header-that-lies": zipped(x=header((10**11,)) + bytes(99), y=npy(y)),
        "objects": zipped(x=npy(np.array([{}] * 6)), y=npy(y)),
        "zero-bytes-wide": zipped(x=npy(x), y=npy(y), classes=header((10**12,), "<U0")),
        "no-labels": zipped(x=npy(x)), "fewer-labels": zipped(x=npy(x), y=npy(y[:4])),
        "negative-labels": zipped(x=npy(x), y=npy(y - 1)),
        "labels-of-nan": zipped(x=npy(x), y=npy(np.full(6, np.nan))),
        "labels-of-2-to-60": zipped(x=npy(x), y=npy(y * 2**60)),
        "text": zipped(x=npy(np.array(["a"] * 6)), y=npy(y)), "no-samples": zipped(x=npy(x[:0]), y=npy(y[:0])),
        "one-number": zipped(x=npy(np.array(1.0)), y=npy(y)), "half-a-file": good[: len(good) // 2],
        "noise": draw.randbytes(3000), "not-zipped": npy(x),
    }  # fmt: skip


def bad_recordings() -> dict[str, bytes]:
    """Return files named ``.npy`` that hold no recording [2, time]."""
    signal = np.random.default_rng(0).normal(size=(2, 20))
    return {
        "nan": npy(np.full((2, 20), np.nan)), "short": npy(signal[:, :5]), "three-axes": npy(signal[None]),
        "three-channels": npy(np.concatenate([signal, signal[:1]])), "cut": npy(signal)[:-9],
        "a-header-that-lies": header((2, 10**12)), "a-nested-header": b"\x93NUMPY\x01\x00\xff\x00" + b"(" * 255,
        "text": b"1 2 3", "zipped": zipped(x=npy(signal)), "empty": b"",
    }  # fmt: skip


def write_task(path: Path, train: str, kind: str = "images") -> None:
    """Write a task file over one entry of data."""
    more = {"images": "size = 8\nmean = [0.5]\nstd = [0.5]", "arrays": "", "signals": "window = 10"}[kind]
    path.write_text(
        f'name = "t"\n[model]\nfactory = "net.py:build"\n[local]\nkind = "{kind}"\ntrain = "{train}"\n[input]\n{more}\n'
    )


def write_data(folder: Path) -> None:
    """Write what the malformed inputs stand next to: a task, a model, and bundles."""
    for part in ("train", "val"):
        for number, label in enumerate("ab" * 4):
            picture = np.random.default_rng(number).integers(0, 255, (9, 9, 3), np.uint8)
            Image.fromarray(picture).save(parent(folder / "l" / part / label / f"{part}{number}.png"))
    (folder / "net.py").write_text(NET)
    (folder / "weights.pth").write_bytes(b"none")
    write_task(folder / "task.toml", "l/train")
    for name in (*("fifo.toml", "fifo.csv", "fifo.ini", "fifo.pth", "fifo.png", "fifo.jpg", "fifo.py", "fifo"),):
        os.mkfifo(folder / name)
    for suffix in (".toml", ".ini", ".png", ".jpg"):
        (folder / f"zero{suffix}").symlink_to("/dev/zero")
        (folder / f"loop{suffix}").symlink_to(folder / f"loop{suffix}")
        (folder / f"folder{suffix}").mkdir()
    _bundle(
        folder / "bundle-images", {"kind": "images", "size": 8, "resize": 8, "mean": [0.5], "std": [0.5]}, [3, 8, 8]
    )
    _bundle(folder / "bundle-arrays", {"kind": "arrays", "size": None, "resize": None, "mean": [], "std": []}, [2, 21])


def _bundle(folder: Path, spec: dict[str, Any], shape: list[int]) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from tuner.bundle.format import file_hash

    rows = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", *shape])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])
    nodes = [helper.make_node("Flatten", ["input"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["logits"])]
    weights = numpy_helper.from_array(np.ones((int(np.prod(shape)), 2), np.float32), "w")
    graph = helper.make_graph(nodes, "model", [rows], [logits], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9),
        parent(folder / "model.onnx"),
    )
    content = {"format": 1, "name": "t", "labels": ["a", "b"], "input": spec, "input_shape": shape}
    content |= {"loss": "single-label", "files": {"model.onnx": file_hash(folder / "model.onnx")}}
    (folder / "bundle.json").write_text(json.dumps(content))


def header(shape: object, dtype: object = "<f4", order: object = False) -> bytes:
    """Return the header of an array file, which may hold anything."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': {order!r}, 'shape': {shape!r}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def npy(array: Any) -> bytes:
    """Return an array file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def zipped(**members: bytes) -> bytes:
    """Return a zip file of array files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return stream.getvalue()


def saved(image: Image.Image, kind: str) -> bytes:
    """Return an image file."""
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def parent(path: Path) -> Path:
    """Return a path whose folder there is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
