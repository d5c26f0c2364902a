"""Array files: a header is believed as far as its bytes go, and nothing is allocated for more."""

import io
import os
import resource
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks.inputs.malformed_files import header, npy
from tests.task.conftest import Load
from tuner.errors import TaskError
from tuner.task import read_npy
from tuner.task.data.npy import read_array
from tuner.task.data.npz import open_npz


@pytest.mark.parametrize("array", [np.eye(3, dtype=np.float32), np.array(5), np.zeros((0, 4)), np.array(["a", "bc"])])
def test_an_array_reads_back(array: Any) -> None:
    content = npy(array)
    back = read_array(io.BytesIO(content), len(content))
    assert (back == array).all()
    assert (back.shape, back.dtype) == (array.shape, array.dtype)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (header((10**12,)) + bytes(64), r"its header says float32 \[1000000000000\], 4000\.0 GB, but only 64 B follow"),
        (header((2**62, 2**62)) + bytes(64), "but only 64 B follow"),
        (header((-1, -16)) + bytes(64), "it must hold plain values"),
        (header((10**12,), "<U0"), "it must hold plain values"),
        (header((10**12,), "|V0"), "it must hold plain values"),
        (header((4,), "|O") + bytes(64), "it must hold plain values"),
        (header((1,), "|V1000000000") + bytes(64), "1.0 GB, but only 64 B follow"),
        (header((16, "x")) + bytes(64), "its header cannot be read"),
        (header("(" * 5000), "its header cannot be read"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 200, "its header cannot be read"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"{'descr': '<f4', ", "its header cannot be read"),
        (b"\x93NUMPY\x09\x00\x10\x00" + bytes(64), "version 9.0 of the format"),
        (b"not an array at all", "magic string is not correct"),
        (b"", "EOF"),
        (b"\x80\x04cos\nsystem\n(S'true'\ntR.", "magic string is not correct"),
        (npy(np.eye(8))[:-9], "but only"),
    ],
)
def test_a_header_that_lies_is_refused_before_anything_is_allocated(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(TaskError, match=rf"x\.npy: cannot be read as \.npy \(.*{reason}.*\): write it with"):
            read_npy(path)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_an_array_that_does_not_fit_into_memory_is_refused(tmp_path: Path) -> None:
    values = psutil.virtual_memory().total
    with (tmp_path / "x.npy").open("wb") as file:
        file.write(header((values,)))
        file.truncate(5 * values)
    with pytest.raises(TaskError, match=r"more than the .*B of free memory"):
        read_npy(tmp_path / "x.npy")


def test_a_member_of_a_zip_file_that_lies_is_refused(tmp_path: Path, load: Load) -> None:
    with zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", header((10**11,)) + bytes(10**6))
        file.writestr("y.npy", npy(np.zeros(4, np.int64)))
    base = {"model.factory": "m:build", "local.kind": "arrays", "local.train": "data.npz"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TaskError, match=r"data\.npz: cannot be read as \.npz \(its header says float32"):
        load({}, base)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


@pytest.mark.parametrize("damage", ["directory", "data", "text", "fifo"])
def test_a_damaged_zip_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=1000))
    content = path.read_bytes()
    path.unlink()
    if damage == "fifo":
        os.mkfifo(path)
    else:
        half = content[: len(content) // 2]
        path.write_bytes(
            {"directory": half, "data": half + bytes(99) + content[len(half) + 99 :], "text": b"x"}[damage]
        )
    with pytest.raises(TaskError, match=r"data\.npz: cannot be read as \.npz"), open_npz(path) as file:
        _ = file["x"]


def test_names_and_arrays_of_a_zip_file_are_those_that_numpy_reads(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    arrays: dict[str, Any] = {"a/signal": np.eye(2), "classes": np.array(["x", "ü"])}
    np.savez(path, **arrays)
    with open_npz(path) as file, np.load(path) as theirs:
        assert list(file) == theirs.files
        assert all((file[name] == theirs[name]).all() for name in file)
        assert ("a/signal" in file, "a/signal.npy" in file, len(file)) == (True, False, 2)
