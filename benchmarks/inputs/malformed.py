"""Malformed inputs of every kind, from a seed: what `benchmarks.inputs` gives to the command line."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.inputs.malformed_files import bad_arrays, bad_images, bad_recordings, parent, write_data, write_task

NUL, LONG, HUGE_INTEGER = '"a\\u0000b"', f'"{"n" * 300}"', "9" * 5001
TEXTS = ("5", "true", '["a"]', "{ a = 1 }", "inf", NUL, LONG, HUGE_INTEGER)
WORDS = ('"mail"', "1", "[]", "true")
COUNTS = ("0", "-1", "1.5", '"x"', "true", "[1]", "inf", HUGE_INTEGER)
LISTS = ("1", '["a"]', "[inf]", "[nan]", "[[1]]", "[1, 2, 3, 4, 5]")
NUMBERS = ("inf", "nan", '"x"', "[]", "-1")
#: A task file by key, and what no such key may be.
TASK = {
    "name": ('"t"', (*TEXTS, '""', '"a/b"', '".."', '"a\\u001b[31mb"')),
    "model.factory": ('"net.py:build"', (*TEXTS, '"net"', '":build"', '"net.py:"', '"none.py:build"')),
    "model.weights": ('"weights.pth"', (*TEXTS[:5], '"none.pth"', '"fifo.pth"')),
    "model.arguments": ("{ outputs = 2 }", ("5", '"x"', "[1]")),
    "model.pretrain.epochs": ("1", COUNTS),
    "model.pretrain.learning_rate": ("0.1", NUMBERS),
    "local.kind": ('"images"', WORDS),
    "local.train": ('"l/train"', (*TEXTS, '"none"', '"/dev/zero"', '"fifo.csv"', '"~nobody-of-this-name/x"')),
    "local.val": ('"l/val"', (*TEXTS[:5], '"none.csv"', '"l/train"')),
    "local.labels": ('"given"', WORDS),
    "input.size": ("8", (*COUNTS, "1000000000")),
    "input.resize": ("8", (*COUNTS, "4", "1000000000")),
    "input.mean": ("[0.5]", LISTS),
    "input.std": ("[0.5]", (*LISTS, "[0.0]", "[-1]")),
    "input.skip_unreadable": ("false", ("1", '"yes"')),
    "augment.ops": ("[]", ('["melt"]', '"flip"', "[1]")),
    "loss.kind": ('"single-label"', WORDS),
}
SPACE = {
    "for": ('"me"', ("1", "[]")),
    "strategies": ('["freeze", "cache"]', ('"freeze"', "[1]", '["fridge"]', "{}")),
    "objectives": ('["local_accuracy"]', ("[]", "[1]", '["beauty"]', '"local_accuracy"')),
    "sampler": ('"tpe"', ('"oracle"', "1", "[]")),
    "rungs": ("true", ("1", '"yes"')),
    "plugins": ("[]", ('"a.py"', "[1]", '["none.py"]', f"[{NUL}]")),
    "limits.trials": ('"3"', ("inf", '"²"', '"-1"', '"1e3"', HUGE_INTEGER, f'"{HUGE_INTEGER}"', "[1]")),
    "limits.time": ('"1m"', ("inf", "nan", '"soon"', f'"{HUGE_INTEGER}s"', '"0s"', '"-1s"')),
    "limits.memory": ('"1GB"', ("inf", f'"{"9" * 400}GB"', '"1"', '"GB"')),
    "limits.forget-at-most": ('"3%"', ("inf", '"nan%"', '"300%"')),
    "knobs.recipe.epochs": (
        "[1, 2]",
        (
            *("inf", "nan", "[]", '[1, "two"]', "[1, true]", "[1, inf]", "[[1]]", "1979-05-27", HUGE_INTEGER),
            *("{ low = 1, high = inf }", "{ low = nan }", "{ low = 3, high = 1 }", "{ low = 1, hgih = 2 }"),
            "{ low = 1, high = 2, log = 3 }",
        ),
    ),
}
TEXT_FILES = {
    "nothing-but-zeros": bytes(1000),
    "utf-16": "name = 'x'".encode("utf-16"),
    "latin-1": b"name = 'T\xfcr'",
    "cut-string": b"name = 'x",
    "arrays-in-arrays": b"a = " + b"[" * 200_000,
    "tables-in-tables": b"a = " + b"{b=" * 200_000,
    "dotted-key": b"a" + b".a" * 200_000 + b" = 1",
    "dotted-header": b"[" + b"a." * 200_000 + b"a]",
    "huge": b"# \n" * 2_000_000,
    "twice": b"a = 1\na = 2\n",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One malformed input.

    Attributes:
        name: Kind, a colon, and what is wrong.
        argv: Arguments of the command line.
        environment: Variables that make it a process of its own, such as a locale's.
        is_harmless: Whether it may be accepted, as what is wrong about it is never used.
        must_say: Regular expression that the answer must match, accepted or not; empty for any answer.
    """

    name: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    is_harmless: bool = False
    must_say: str = ""


def cases(folder: Path, seed: int) -> Iterator[Case]:
    """Write malformed inputs into a folder, and yield the command that is given each."""
    draw = random.Random(seed)
    write_data(folder)
    yield from _tables(folder, "task", TASK, lambda file: ("forget", file))
    yield from _tables(folder, "space", SPACE, lambda file: ("run", "task.toml", "--space", file, "--dry-run"))
    for kind, argv in (
        ("task", ("forget", "{}.toml")),
        ("space", ("run", "task.toml", "--space", "{}.toml")),
        ("plan", ("describe", "task.toml", "--plan", "{}.toml")),
        ("model file", ("describe", "{}.ini")),
    ):
        for name, content in (*TEXT_FILES.items(), ("noise", draw.randbytes(5000))):
            path = folder / f"{kind.split()[0]}-{name}{Path(argv[-1]).suffix}"
            path.write_bytes(content)
            yield Case(f"{kind}: {name}", tuple(part.replace("{}", path.stem) for part in argv))
        for name in ("fifo", "zero", "folder", "loop", "none", "n" * 300):
            yield Case(f"{kind}: {name[:20]}", tuple(part.replace("{}", name) for part in argv))
    yield from _plans(folder)
    yield from _model_files(folder)
    yield from _data(folder, draw)
    yield from _samples(folder, draw)
    yield from _options()
    yield from _code(folder)


def _tables(folder: Path, kind: str, keys: dict[str, tuple[str, tuple[str, ...]]], argv: Any) -> Iterator[Case]:
    """Yield a file for each value that one of its keys may not have."""
    good = {key: value for key, (value, _) in keys.items()}
    for key, (_, wrong) in keys.items():
        for number, value in enumerate(wrong):
            path = folder / f"{kind}-{key}-{number}.toml"
            path.write_text("\n".join(f"{name} = {text}" for name, text in (good | {key: value}).items()))
            yield Case(f"{kind}: {key} = {value[:20]}", argv(path.name))


def _plans(folder: Path) -> Iterator[Case]:
    from tuner.plan.example import example_model, example_task
    from tuner.plan.toml import to_toml
    from tuner.plan.trial import TrialPlan

    text = to_toml(TrialPlan(example_model(3), example_task(), split=1))
    for old, new in (
        *(("epochs = 10", f"epochs = {value}") for value in (*COUNTS, str(2**62))),
        *(("batch_size = 32", f"batch_size = {value}") for value in ("0", str(2**40), '"x"')),
        *(("learning_rate = 0.001", f"learning_rate = {value}") for value in NUMBERS),
        *(("split = 1", f"split = {value}") for value in ("4", "-1", "inf", HUGE_INTEGER)),
        *(("bits = 32", f"bits = {value}") for value in ("31", "1e9", "[32]")),
        *(("threads = 1", f"threads = {value}") for value in ("0", str(2**31))),
        *(("format = 1", f"format = {value}") for value in ("2", '"1"', "{}")),
        *(("alpha = 0.0", f"alpha = {value}") for value in ("2", "nan", "-0.1")),
    ):
        path = folder / f"plan-{len(list(folder.glob('plan-*')))}.toml"
        path.write_text(text.replace(old, new, 1))
        yield Case(f"plan: {new[:30]}", ("describe", "task.toml", "--plan", path.name))


def _model_files(folder: Path) -> Iterator[Case]:
    head = "[Model]\nloss = mse\nbatch_size = 4\n[in]\ntype = input\ninput_shape = 1:8:8\n"
    layer = "[f]\ntype = fully_connected\nunit = "
    for name, text in {
        "5001-digits": head + layer + HUGE_INTEGER,
        "no-layer": "[Model]\nloss = mse\n",
        "unknown-type": head + "[f]\ntype = oracle\n",
        "a-nul": head + "[b]\nbackbone = a\0b.ini\n",
        "itself": head + "[b]\nbackbone = ini-itself.ini\n",
        "long-line": head + layer + "1" * 10**6,
        "spaces": head + layer + "3\ninput_layers = a" + " " * 10**5 + "b(\n",
        "minus": head + layer + "-3",
        "twice": head + head,
        "no-section": "type = input\n",
    }.items():
        (folder / f"ini-{name}.ini").write_text(text)
        yield Case(f"model file: {name}", ("describe", f"ini-{name}.ini"))
    for number in range(60):
        (folder / f"chain-{number}.ini").write_text(f"[b]\nbackbone = chain-{number + 1}.ini\n")
    yield Case("model file: a chain of backbones", ("describe", "chain-0.ini"))


def _data(folder: Path, draw: random.Random) -> Iterator[Case]:
    """Yield tasks over manifests, folders and arrays that are malformed."""
    for name, content in {
        "no-header": b"l/train/a/0.png,a\n",
        "three-cells": b"path,label\nl/train/a/0.png,a,b\n",
        "no-file": b"path,label\nnone.png,a\n",
        "a-nul": b"path,label\na\0b.png,a\n",
        "long-name": b"path,label\n" + b"n" * 300 + b".png,a\n",
        "long-cell": b"path,label\n" + b"n" * 200_000 + b",a\n",
        "a-fifo": b"path,label\nfifo.png,a\n",
        "a-device": b"path,label\nzero.png,a\n",
        "no-label": b"path,label\nl/train/a/0.png,\n",
        "an-open-quote": b'path,label\n"l/train/a/0.png,a\n',
        "noise": draw.randbytes(2000),
        "nothing": b"",
    }.items():
        (folder / f"{name}.csv").write_bytes(content)
        yield _task(folder, "manifest", name, train=f"{name}.csv")
    for name, picture in bad_images().items():
        place = folder / f"images-{name}"
        for label in ("a", "b"):
            Image.new("RGB", (9, 9)).save(parent(place / label / "0.png"))
            Image.new("RGB", (9, 9), (9, 9, 9)).save(place / label / "1.png")
        (place / "a" / "2.jpg").write_bytes(picture)
        yield _task(folder, "image", name, train=place.name)
    for name, content in bad_arrays(draw).items():
        (folder / f"{name}.npz").write_bytes(content)
        yield _task(folder, "arrays", name, train=f"{name}.npz", of="arrays")
    for name, content in bad_recordings().items():
        for label in ("a", "b"):
            np.save(parent(folder / f"rec-{name}" / label / "0.npy"), np.eye(2, 20))
        (folder / f"rec-{name}" / "a" / "1.npy").write_bytes(content)
        yield _task(folder, "recording", name, train=f"rec-{name}", of="signals")


def _task(folder: Path, kind: str, name: str, *, train: str, of: str = "images") -> Case:
    path = folder / f"{kind}-{name}.toml"
    write_task(path, train, of)
    return Case(f"{kind}: {name}", ("describe", path.name))


def _samples(folder: Path, draw: random.Random) -> Iterator[Case]:
    """Yield files that `tuner predict` is given."""
    for kind, files in (("images", bad_images()), ("arrays", bad_recordings())):
        for name, content in files.items():
            suffix = {"images": ".jpg", "arrays": ".npy"}[kind]
            (folder / f"sample-{name}{suffix}").write_bytes(content)
            if (kind, name) not in {("arrays", "nan"), ("arrays", "short")}:
                yield Case(f"predict: {kind} {name}", ("predict", f"bundle-{kind}", f"sample-{name}{suffix}"))
        for name in ("fifo", "zero", "folder", "loop", "none", "n" * 300):
            yield Case(f"predict: {kind} {name[:20]}", ("predict", f"bundle-{kind}", f"{name}.jpg"))
    for name, content in (*bad_arrays(draw).items(), ("bytes", b"\xff" * 99)):
        (folder / f"{name}.npy").write_bytes(content)
        yield Case(f"predict: arrays {name}", ("predict", "bundle-arrays", f"{name}.npy"))


def _options() -> Iterator[Case]:
    """Yield options and arguments that no command takes, and names that no locale or terminal does."""
    run = ("run", "task.toml")
    for argv in (
        *((*run, "--time", value) for value in ("soon", "0s", "-1s", "9" * 400 + "s", "", "1e9s")),
        *((*run, "--memory", value) for value in ("1", "inf", "9" * 5001 + "GB")),
        *((*run, "--trials", value) for value in ("0", "-1", "x", "9" * 5001, "1.5")),
        *((*run, "--trials", "1", "--seed", value) for value in ("x", "-1", "9" * 30, "9" * 5001)),
        *((*run, "--forget-at-most", value) for value in ("nan", "101%", "x")),
        *((*run, "--trials", "1", option, "n" * 300) for option in ("--out", "--store", "--from", "--plugin")),
        *((*run, "--trials", "1", "--plugin", value) for value in ("fifo.py", "/", "none.py", "noise.npz")),
        *((*run, "--backend", "none", "--trials", "1"), (*run, "--space", "smok"), (*run, "--none")),
        *(("run", name) for name in ("", "n" * 300, "/", "net.py:none", "fifo.py:task", "digit", "a\x1b[31mb")),
        *(("watch", "bundle-images", "--samples", value) for value in ("none", "n" * 300, "bundle-images/bundle.json")),
        *(
            ("watch", "bundle-images", "--samples", "l", "--once", "--enough", value)
            for value in ("0", "x", "9" * 5001)
        ),
        *(
            ("watch", "bundle-images", "--samples", "l", "--once", "--exploration", value)
            for value in ("nan", "2", "x")
        ),
        *(("watch", "bundle-images", "--samples", "l", "--window", value) for value in ("25:00-26:00", "x", "01:00")),
        *(("watch", "bundle-images", "--samples", "l", "--keep", value) for value in ("0MB", "inf", "9" * 400 + "GB")),
        *((command, name) for command in ("show", "status", "rollback") for name in ("none", "l", "n" * 300, "fifo")),
        *(("export", name, "out") for name in ("none", "l", "n" * 300)),
        *(("apply", name, "task.toml", "out") for name in ("none", "l", "fifo")),
        *(("prior", "build", *names) for names in ((), ("none",), ("l",))),
        *(("plugins", "why", "nothing"), ("plugins", "check", "none"), ("plugins", "check", "none.py")),
        *(("plugins", "new", name) for name in ("", "a/b", "n" * 300, "ü", "1")),
        *(
            ("plugins", "new", "mine", "--kind", "none"),
            ("store", "none"),
            ("none",),
            ("store", "list", "--store", "task.toml"),
        ),
    ):
        shown = " ".join(argv).encode("unicode_escape").decode()
        yield Case(f"option: {shown[:40]}", argv)
    ascii_only = (("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0"))
    for argv in (("run", "ü.toml"), ("predict", "bundle-images", "ü.jpg"), ("describe", "\udcff.toml"), ("run", "ü")):
        yield Case(f"locale: {' '.join(argv)!a}", argv, ascii_only)


def _code(folder: Path) -> Iterator[Case]:
    """Yield tasks whose own code, or whose model, cannot be used."""
    for name, code in {
        "raises": "def build(): raise ValueError('no\\nsuch luck')",
        "leaves": "import sys\ndef build(): sys.exit(0)",
        "leaves-at-import": "import sys\nsys.exit(0)",
        "raises-at-import": "1 / 0",
        "a-number": "def build(): return 5",
        "takes-more": "def build(outputs): return None",
        "no-python": "def build(:",
    }.items():
        (folder / f"net_{name}.py").write_text(code)
        text = (folder / "task.toml").read_text().replace("net.py", f"net_{name}.py")
        (folder / f"code-{name}.toml").write_text(text)
        yield Case(f"code: factory {name}", ("describe", f"code-{name}.toml"))
        yield Case(f"code: task {name}", ("describe", f"net_{name}.py:build"))
    for name, content in {"noise": bytes(999), "text": b"x", "pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR."}.items():
        for suffix in (".pth", ".safetensors"):
            (folder / f"w-{name}{suffix}").write_bytes(content)
            text = (folder / "task.toml").read_text().replace("[local]", f'weights = "w-{name}{suffix}"\n[local]', 1)
            (folder / f"code-w-{name}{suffix}.toml").write_text(text)
            yield Case(f"code: weights {name}{suffix}", ("describe", f"code-w-{name}{suffix}.toml"))
