"""Hostile bundles: two bundles of the digits, with one thing changed in each by a seed."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.inputs.malformed import Case
from benchmarks.lib.places import FIXTURES
from benchmarks.limits.hostile.models import models
from tuner.bundle.format import file_hash

Edit = Callable[[Path], object]


def cases(folder: Path, seed: int) -> Iterator[Case]:
    """Yield hostile bundles, each written just before; `folder` also gets the canary that none may touch.

    Args:
        folder: An empty folder.
        seed: Decides what is cut and flipped.
    """
    canary = folder / "canary"
    shutil.copytree(FIXTURES / "digits" / "bundle", canary / "bundle")
    (canary / "secret").write_text("do not read")
    (canary / "empty").mkdir()
    sample = str(min((FIXTURES / "inputs").glob("digit*.npy")))
    draw = random.Random(seed)
    for number, (name, command, edit, is_harmless) in enumerate(_all(draw)):
        bundle = folder / f"case{number}" / "bundle"
        of = "exits" if name.startswith("exits") else "digits"
        shutil.copytree(FIXTURES / of / "bundle", bundle)
        edit(bundle)
        more = {"predict": (sample,), "watch": ("--samples", str(FIXTURES / "inputs"), "--once")}.get(command, ())
        yield Case(name, (command, str(bundle), *more), is_harmless=is_harmless)
        shutil.rmtree(bundle.parent, ignore_errors=True)


def _all(draw: random.Random) -> Iterator[tuple[str, str, Edit, bool]]:
    for name, packed in models("../canary/secret"):
        yield f"model: {name}", "predict", partial(_model, content=packed), False
    for number in range(20):
        yield f"model: bytes changed at random, {number}", "predict", partial(_noise, seed=draw.random()), True
    for name, key, value in FIELDS:
        yield f"{name}", "predict", partial(_field, key=key, value=value), False
    for name, text in TEXTS:
        yield f"bundle.json: {name}", "predict", partial(_text, text=text), False
    for name, path in NAMES:
        yield f"a file named {name}", "predict", partial(_named, name=path), False
    for name, command, edit in FILES:
        yield name, command, edit, False
    for name, content in STATES:
        yield (
            f"state.json: {name}", draw.choice(["status", "watch"]), partial(_device, "state.json", text=content),
            False,
        )  # fmt: skip
    for name, content in POINTERS:
        command = draw.choice(["predict", "status", "rollback", "watch"])
        yield f"device/current: {name}", command, partial(_device, "current", text=content), False
    yield "labels that steer a terminal", "predict", partial(_field, key="labels", value=["\x1b]0;x\x07"] * 10), True
    yield "a name that steers a terminal", "predict", partial(_field, key="name", value="\x1b[2J\n\u202e"), True
    yield "a file that is not named", "predict", lambda bundle: (bundle / "more.py").write_text("raise"), True


def _json(bundle: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((bundle / "bundle.json").read_text())
    return content


def _field(bundle: Path, key: str, value: object) -> None:
    content = _json(bundle)
    *tables, last = key.split(".")
    place = content
    for table in tables:
        place = place[table]
    place[last] = value
    (bundle / "bundle.json").write_text(json.dumps(content))


def _text(bundle: Path, text: bytes) -> None:
    (bundle / "bundle.json").write_bytes(text)


def _model(bundle: Path, content: bytes) -> None:
    (bundle / "model.onnx").write_bytes(content)
    _field(bundle, "files", _json(bundle)["files"] | {"model.onnx": file_hash(bundle / "model.onnx")})


def _noise(bundle: Path, seed: float) -> None:
    draw, content = random.Random(seed), bytearray((bundle / "model.onnx").read_bytes())
    for _ in range(draw.choice([1, 4, 64])):
        content[draw.randrange(len(content) if draw.random() < 0.3 else 3000)] = draw.randrange(256)
    _model(bundle, bytes(content))


def _named(bundle: Path, name: str) -> None:
    _field(bundle, "files", _json(bundle)["files"] | {name: file_hash(bundle / "plan.toml")})


def _replaced(bundle: Path, name: str, put: Edit) -> None:
    path = bundle / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path)


def _device(name: str, bundle: Path, text: str | bytes) -> None:
    (bundle / "device" / "rounds").mkdir(parents=True)
    path = bundle / "device" / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def _linked(name: str, target: str) -> Edit:
    return partial(_replaced, name=name, put=lambda path: path.symlink_to(path.parents[name.count("/")] / target))


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 * 10**12)


def _round(bundle: Path, target: str) -> None:
    _device("current", bundle, "0001 0000\n1\n")
    (bundle / "device/rounds/0001").symlink_to(bundle / target)


DEEP = "[" * 100_000
LONG = "9" * 5001
NAMES = (
    ("../../canary/secret", "../../canary/secret"),
    ("train/../../../canary/secret", "train/../../../canary/secret"), ("/etc/passwd", "/etc/passwd"),
    ("//etc/passwd", "//etc/passwd"), ("", ""), (".", "."), ("..", ".."),
    ("with a backslash", "..\\..\\canary\\secret"), ("with a NUL", "plan.toml\0"),
    ("with a line's end", "plan.toml\n"), ("with half a letter", "\ud800"), ("with 5,000 letters", "x" * 5000),
    ("of a folder", "train"), ("of a device", "/dev/zero"),
)  # fmt: skip
TEXTS = (
    ("empty", b""), ("cut", b'{"format": 1, "name": "dig'), ("binary", bytes(range(256))),
    ("UTF-16", '{"format": 1}'.encode("utf-16")), ("nested lists", DEEP.encode()),
    ("nested tables", b'{"a":' * 100_000), ("nested inside", b'{"format": 1, "files": ' + DEEP.encode()),
    ("20 MB", b'{"format": 1, "x": "' + b"x" * 20_000_000 + b'"}'), ("a list", b"[1, 2]"), ("a number", b"1"),
    ("an integer of 5,001 digits", f'{{"format": {LONG}}}'.encode()), ("nothing but its format", b'{"format": 1}'),
    ("no files", b'{"format": 1, "files": {}}'),
)  # fmt: skip
VALUES: Mapping[str, Sequence[object]] = {
    "format": (2, "1", None, [1], {"1": 1}, 1.5),
    "files": ([], "x", None, {}, {"model.onnx": 3}, {"a": None}),
    "labels": (3, None, [1, 2], [["a"]], {}, "abc", []),
    "name": (3, ["x"], {}, "x" * 10**6),
    "loss": (3, []),
    "input_shape": ([], [0], [-1, 8, 8], [10**9, 10**9], ["8"], [True], [1.5], None, 3, [2**62] * 9),
    "input.kind": ("video", 3, None, []),
    "input.size": (10**9, -1, "8", 1.5, True),
    "input.mean": ([float("nan")], ["x"], 3, [1e400]),
    "input.std": ([0], [float("nan")], [-1], [float("inf")]),
    "scores": (3, [], {"trial": 3}, {"trial": {"a": "b"}}),
    "train": (3, [], {}, {"format": "1"}, {"format": -1}, {"format": 1, "kind": 3}),
    "run": (3, {}, {"trial": "x", "seed": 0}),
    "plugins": (3, ["x"], {"x": 3}),
}
FIELDS: Sequence[tuple[str, str, object]] = (
    *((f"{key} is {value!r:.30}", key, value) for key, values in VALUES.items() for value in values),
    ("100,001 labels", "labels", ["x"] * 100_001), ("a label of 1 MB", "labels", ["x" * 10**6]),
    ("an unknown key of input", "input.factory", "os:system"), ("a hop for arrays", "input.hop", 1),
    ("exits without a number in thresholds", "exits.thresholds", [float("nan")]),
    ("exits with a threshold of 2", "exits.thresholds", [2.0]),
    ("exits with a threshold as text", "exits.thresholds", ["0.5"]),
    ("exits with too few thresholds", "exits.thresholds", []),
    ("exits with a temperature of 0", "exits.temperatures", [0, 1]),
    ("exits with an infinite temperature", "exits.temperatures", [float("inf"), 1]),
    ("exits with a temperature as text", "exits.temperatures", "hot"),
    ("exits with negative shares", "exits.shares", [-1, 1]),
    ("exits in a circle of segments", "exits.segments", ["segments/0.onnx", "segments/0.onnx"]),
    ("exits with 5,000 segments", "exits.segments", ["segments/0.onnx"] * 5000),
    ("exits outside the folder", "exits.segments", ["../../canary/bundle/model.onnx", "segments/1.onnx"]),
    ("exits by an absolute path", "exits.segments", ["/etc/passwd", "segments/1.onnx"]),
    ("exits in the wrong order", "exits.segments", ["segments/1.onnx", "segments/0.onnx"]),
    ("exits without a front's numbers", "exits.front", [{"threshold": "a"}]),
    ("exits with times of one exit only", "exits.seconds", [1.0]),
)  # fmt: skip
FILES: tuple[tuple[str, str, Edit], ...] = (
    ("bundle.json is a link", "predict", _linked("bundle.json", "../canary/bundle/bundle.json")),
    ("bundle.json is a pipe", "predict", partial(_replaced, name="bundle.json", put=os.mkfifo)),
    ("bundle.json is a folder", "predict", partial(_replaced, name="bundle.json", put=Path.mkdir)),
    (
        "bundle.json is /dev/zero",
        "predict",
        partial(_replaced, name="bundle.json", put=lambda p: p.symlink_to("/dev/zero")),
    ),
    ("bundle.json has 3 TB", "predict", partial(_replaced, name="bundle.json", put=_sparse)),
    ("the model is a link", "predict", _linked("model.onnx", "../canary/bundle/model.onnx")),
    ("the model is a pipe", "predict", partial(_replaced, name="model.onnx", put=os.mkfifo)),
    ("the model is a folder", "predict", partial(_replaced, name="model.onnx", put=Path.mkdir)),
    ("the model is missing", "predict", partial(_replaced, name="model.onnx", put=lambda _: None)),
    ("the model has 3 TB", "predict", partial(_replaced, name="model.onnx", put=_sparse)),
    (
        "the model is of another export",
        "predict",
        partial(_replaced, name="model.onnx", put=lambda p: p.write_bytes(b"x")),
    ),
    ("train/ is a link", "predict", _linked("train", "../canary/bundle/train")),
    ("train/ is a file", "predict", partial(_replaced, name="train", put=Path.touch)),
    ("weights are a pipe", "predict", partial(_replaced, name="weights.safetensors", put=os.mkfifo)),
    *(
        (f"device/ is a link, {command}", command, _linked("device", "../canary/empty"))
        for command in ("watch", "status", "rollback")
    ),
    *(
        (f"device/rounds is a link, {command}", command, _linked("device/rounds", "../canary/empty"))
        for command in ("watch", "rollback")
    ),
    ("device/lock is a link", "rollback", _linked("device/lock", "../canary/secret")),
    ("device/watching.lock is a link", "watch", _linked("device/watching.lock", "../canary/secret")),
    ("device/state.json is a link", "status", _linked("device/state.json", "../canary/secret")),
    ("device/current is a link", "predict", _linked("device/current", "../canary/secret")),
    ("device/current is a pipe", "predict", partial(_replaced, name="device/current", put=os.mkfifo)),
    ("device/current has 3 TB", "predict", partial(_replaced, name="device/current", put=_sparse)),
    ("device/made is a link", "watch", _linked("device/made", "../canary/empty")),
    *(
        (f"a round is a link, {command}", command, partial(_round, target="../../canary/bundle"))
        for command in ("predict", "status")
    ),
)
STATES: Sequence[tuple[str, str | bytes]] = (
    ("nested", DEEP), ("empty", ""), ("a list", "[]"), ("no keys", '{"format": 1}'),
    ("an unknown format", '{"format": 2}'), ("a format of 5,001 digits", f'{{"format": {LONG}}}'),
    ("binary", bytes(range(256))), ("20 MB", '{"format": 1, "x": "' + "x" * 20_000_000 + '"}'),
)  # fmt: skip
POINTERS: Sequence[tuple[str, str | bytes]] = (
    ("above the folder", "../../../canary/bundle 0000\n1\n"), ("absolute", "/etc 0000\n1\n"),
    ("digits that are not ASCII", "٠٠٠١ 0000\n1\n"), ("a count of 5,001 digits", f"0001 0000\n{LONG}\n"),
    ("a negative count", "0001 0000\n-5\n"), ("empty", ""), ("binary", bytes(range(256))),
    ("a round that is not there", "0007 0000\n9\n"), ("a million rounds", "0001 " * 10**6 + "0000\n1\n"),
)  # fmt: skip
