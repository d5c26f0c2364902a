"""The wheel as a device gets it: without extras, in an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.pretrained import with_weights
from tests.runtime.bundles import known_digits, trainable_bundle, trainable_exits
from tuner.plan.heads import HeadsPlan
from tuner.task import Domain, Samples, Subset, open_task
from tuner.task.builtin import digits

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("TUNER_DATA") or ROOT.parent / "shared" / "data")
EXTRAS_ONLY = ("torch", "torchvision", "optuna", "scipy", "onnx", "onnxscript", "sklearn")
SHOWN = 20


def ran(command: Sequence[str | Path], folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, with a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**kept, "TUNER_CACHE": str(folder / "cache"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == code, f"{command} gave {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("wheel")
    ran([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def device(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment that holds the base package only."""
    folder = tmp_path_factory.mktemp("device")
    venv.create(folder / "venv")  # our pip installs into it: one of its own would take longer than the package
    programs = folder / "venv" / "bin"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        programs / "python",
        "install",
        "--no-compile",
        "-qq",
        "--constraint",
        ROOT / "constraints.txt",
    ]
    ran([*pip, wheel], folder)
    return programs


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    with_weights(folder / "cache")
    tuner = Path(sys.executable).with_name("tuner")
    run: list[str | Path] = [
        tuner,
        "run",
        "digits",
        "--space",
        "smoke",
        "--time",
        "3m",
        "--trials",
        "2",
        "--out",
        folder / "run",
    ]
    ran([*run, "--store", folder / "store", "--json"], folder)
    ran([tuner, "export", folder / "run", folder / "bundle"], folder)
    return folder / "bundle"


def test_the_wheel_holds_the_packages_and_the_search_spaces(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    plugins = {path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py")}
    assert tops == {"tuner", *plugins}
    spaces = {f"tuner/search_spaces/{path.name}" for path in (ROOT / "search_spaces").glob("*.toml")}
    assert spaces | {"tuner/search_spaces/priors/shipped.toml"} <= set(names)
    assert len(spaces) >= 3
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "plugins"))]
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tuner").rglob("*.py")}
    assert modules <= set(names)
    assert len(modules) >= 65
    assert {f"{name}/py.typed" for name in ("tuner", *plugins)} <= set(names)
    templates = {path.relative_to(ROOT / "plugins").as_posix() for path in ROOT.glob("plugins/*/templates/*.txt")}
    assert templates <= set(names)
    assert len(templates) >= 4


def test_the_metadata_is_what_the_index_takes_and_has_the_licences(built: Path, wheel: Path, tmp_path: Path) -> None:
    files = sorted(built.iterdir())
    assert [file.name.partition("-0")[0] for file in files] == ["device_tuner", "device_tuner"]
    checked = ran([sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files], tmp_path).stdout
    assert checked.count("PASSED") == len(files) == 2
    with zipfile.ZipFile(wheel) as archive:
        (about,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(about).decode()
        assert {name.rpartition("/")[2] for name in archive.namelist() if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    assert "Name: device-tuner\n" in text
    for line in ("Requires-Dist: torch", "Requires-Dist: optuna", "Requires-Dist: scikit-learn"):
        assert all("; extra ==" in row for row in text.splitlines() if row.startswith(line)), line
    assert "/opt/" not in text


def test_the_source_distribution_holds_what_git_does(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        names = {member.name.partition("/")[2] for member in content.getmembers() if member.isfile()}
    tracked = ran(["git", "ls-files"], ROOT).stdout.splitlines() if (ROOT / ".git").exists() else []
    assert {name for name in tracked if not name.startswith(".ci/") and (ROOT / name).exists()} <= names
    made = ("build/", "dist/", ".venv/", "runs/", "tuner-demo", "tests/__pycache__")
    assert [name for name in names if name.startswith(made) or name.endswith((".pyc", ".log.gz"))] == []
    assert {"NOTICE", "LICENSE", "README.md", "pyproject.toml", "constraints.txt", "Makefile"} <= names


def test_the_dockerfile_builds_the_same_wheel_from_what_it_copies(wheel: Path, tmp_path: Path) -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    wanted = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    copied = {
        name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]
    }
    assert copied == wanted
    for name in copied:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path)
    ran([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "out", tmp_path], tmp_path)
    (same,) = (tmp_path / "out").glob("*.whl")
    assert sorted(zipfile.ZipFile(same).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())
    assert {line.split()[-1] for line in lines if line.startswith("FROM ")} == {"wheel", "base", "demo", "runtime"}
    torch = next(line for line in lines if "--index-url" in line)
    assert "--index-url https://download.pytorch.org/whl/cpu torch torchvision" in torch


def test_the_base_package_brings_no_tensor_library(device: Path, tmp_path: Path) -> None:
    names = ", ".join(f"{name!r}" for name in (*EXTRAS_ONLY, "plugins", "onnxruntime"))
    code = f"from importlib.util import find_spec; print([name for name in ({names}) if find_spec(name)])"
    assert ran([device / "python", "-c", code], tmp_path).stdout.split() == ["['onnxruntime']"]


def test_a_bundle_predicts_without_the_extras(device: Path, bundle: Path, tmp_path: Path) -> None:
    samples = digits().local.val
    files = [tmp_path / f"{index}.npy" for index in range(SHOWN)]
    for index, file in enumerate(files):
        np.save(file, samples.load(index))
    found = json.loads(ran([device / "tuner", "predict", bundle, *files, "--json"], tmp_path).stdout)["predictions"]
    assert [one["file"] for one in found] == [str(file) for file in files]
    right = sum(one["label"] == str(int(samples.labels[index])) for index, one in enumerate(found))
    assert right >= SHOWN * 0.7
    assert all(0 < one["probability"] <= 1 and one["exit"] == 0 and one["seconds"] > 0 for one in found)


LEARN = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
from tuner.runtime import Personaliser, Trainer
files = sorted(Path("photos").glob("*/*"))
labels = [file.parent.name for file in files]
trainer = Trainer(sys.argv[1])
trainer.add(files[::2], labels[::2])
scores = [trainer.accuracy(files[1::2], labels[1::2]), trainer.global_accuracy()]
trainer.train(epochs=3)
scores += [trainer.accuracy(files[1::2], labels[1::2]), trainer.global_accuracy()]
personaliser = Personaliser(trainer.save("next"))
right = [personaliser.predict_file(file).label == label for file, label in zip(files[1::2], labels[1::2])]
there = [name for name in ("torch", "torchvision", "optuna") if find_spec(name)]
print(json.dumps({"scores": scores, "right": sum(right) / len(right), "there": there}))
"""


def learned(device: Path, made: Path, folder: Path) -> None:
    """Train a bundle for three epochs on half of ``photos/``, without PyTorch; hold it to what it knew and learned."""
    found = json.loads(ran([device / "python", "-c", LEARN, made], folder).stdout)
    local, known, after, kept = found["scores"]
    assert found["there"] == []
    assert after > local
    assert kept >= known - 0.03
    assert abs(found["right"] - after) < 0.03


def test_a_bundle_trains_again_without_the_extras(
    device: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("trainable")
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(home / "cache")))
    made = trainable_bundle(digits(), home)
    samples = digits().local.test
    assert samples is not None
    for index, label in enumerate(samples.labels):
        file = tmp_path / "photos" / str(label) / f"{index}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, np.roll(samples.load(index), 1, axis=1))  # a user who writes a pixel further down
    learned(device, made, tmp_path)
    watch: list[str | Path] = [device / "tuner", "watch", made, "--samples", "photos", "--enough", "100"]
    events = [
        json.loads(line) for line in ran([*watch, "--once", "--any-time", "--json"], tmp_path).stdout.splitlines()
    ]
    assert sum("label" in one for one in events) == len(samples)
    assert [one["round"] for one in events if "round" in one] == ["accepted"], events
    assert json.loads(ran([device / "tuner", "status", made, "--json"], tmp_path).stdout)["round"] == "0001"


def test_exits_train_again_without_labels_and_without_the_extras(
    device: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("exits")
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(home / "cache")))
    task = known_digits()
    made = trainable_exits(task, home, HeadsPlan("exits-only"))
    (tmp_path / "photos").mkdir()
    for index in range(300):
        np.save(tmp_path / "photos" / f"{index:03}.npy", np.roll(task.local.train.load(index), 1, axis=1))
    watch: list[str | Path] = [device / "tuner", "watch", made, "--samples", "photos", "--enough", "250"]
    watch += ["--once", "--any-time", "--exploration", "0", "--json"]
    events = [json.loads(line) for line in ran(watch, tmp_path).stdout.splitlines()]
    assert 0 in {one["exit"] for one in events if "exit" in one}
    rounds = [one for one in events if "round" in one]
    assert [one["round"] for one in rounds] == ["accepted"], rounds
    assert "in agreement with the last exit, as there are no labels" in rounds[0]["reason"]


def some(samples: Samples, count: int) -> Subset:
    return Subset(samples, np.sort(np.random.default_rng(0).permutation(len(samples))[:count]))


@pytest.mark.data
def test_a_bundle_of_real_photos_trains_again_without_the_extras(
    device: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (DATA / "README.md").is_file():
        pytest.skip(f"the real data is not at {DATA}: set TUNER_DATA to its folder")
    home = tmp_path_factory.mktemp("clothing")
    monkeypatch.setenv("TUNER_CACHE", str(home / "cache"))
    monkeypatch.setenv("TUNER_DATA", str(DATA))
    text = (ROOT / "examples" / "clothing" / "task.toml").read_text(encoding="utf-8")
    (home / "task.toml").write_text(text.replace("= 160", "= 96"), encoding="utf-8")
    task = open_task(str(home / "task.toml"))
    assert task.global_ is not None
    known = Domain(some(task.global_.train, 500), some(task.global_.val, 200))
    task = replace(task, local=Domain(some(task.local.train, 100), some(task.local.val, 50)), global_=known)
    made = trainable_bundle(task, home, split=19, epochs=8, batch_size=32, learning_rate=1e-3)
    given = {Path(task.local.train.name(index)) for index in range(len(task.local.train))}
    for folder in (DATA / "images" / "local" / "train").iterdir():
        new = [file for file in sorted(folder.iterdir()) if file not in given]
        (tmp_path / "photos" / folder.name).mkdir(parents=True)
        for file in new[:40]:
            shutil.copy(file, tmp_path / "photos" / folder.name)
    learned(device, made, tmp_path)


def test_the_plugins_are_found_without_the_extras(device: Path, tmp_path: Path) -> None:
    found = json.loads(ran([device / "tuner", "plugins", "--json"], tmp_path).stdout)
    assert {one["name"] for one in found["plugins"]} >= {"core", "gdm", "freeze", "cache"}
    assert [one for one in found["plugins"] if one["refused"]] == []


@pytest.mark.parametrize("more", [["--trials", "1"], ["--dry-run"]])
def test_tuning_without_the_extras_says_in_one_line_what_to_install(
    device: Path, tmp_path: Path, more: list[str]
) -> None:
    inputs, labels = np.zeros((8, 1, 8, 8), np.float32), np.arange(8) % 2
    np.savez(tmp_path / "data.npz", x_train=inputs, y_train=labels)
    task = tmp_path / "task.toml"
    task.write_text(
        '[model]\nfactory = "net.py:build"\n[local]\nkind = "arrays"\ntrain = "data.npz"\n', encoding="utf-8"
    )
    (tmp_path / "net.py").write_text("def build(): ...\n", encoding="utf-8")
    done = ran([device / "tuner", "run", task, "--space", "smoke", *more], tmp_path, code=1)
    errors = [line for line in done.stderr.splitlines() if line.startswith("tuner: ")]
    assert errors == done.stderr.splitlines()[-1:], done.stderr
    assert 'pip install "device-tuner[tune]"' in errors[0]
    assert done.stdout == ""


def test_the_digits_without_the_extras_say_in_one_line_what_to_install(device: Path, tmp_path: Path) -> None:
    done = ran([device / "tuner", "run", "digits", "--trials", "1", "--space", "smoke"], tmp_path, code=1)
    assert done.stderr.splitlines()[:-1] in ([], ["opening the task"])
    assert 'pip install "device-tuner[demo]"' in done.stderr.splitlines()[-1]


def test_the_wheels_own_search_spaces_are_read(device: Path, tmp_path: Path) -> None:
    code = "from tuner.search.space import load_space, shipped; print(*(load_space(name).name for name in shipped()))"
    said = ran([device / "python", "-c", code], tmp_path).stdout.split()
    assert set(said) == {path.stem for path in (ROOT / "search_spaces").glob("*.toml")}
    assert len(said) >= 3
