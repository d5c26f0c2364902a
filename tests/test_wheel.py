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
from pathlib import Path

import numpy as np
import pytest

from tests.schemas import FILES
from tests.test_other_systems import made_here

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
VERSION = "0.1.0"
EXTRAS_ONLY = ("torch", "torchvision", "optuna", "scipy", "onnx", "onnxscript", "sklearn")


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
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", programs / "python", "install"]
    ran([*pip, "--no-compile", "-qq", "--constraint", ROOT / "constraints.txt", wheel], folder)
    return programs


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
    schemas = {path.as_posix().rpartition("plugins/")[2].removeprefix(f"{ROOT.as_posix()}/") for path in FILES.values()}
    assert schemas <= set(names)
    pages = {f"tuner_mcp/docs/{path.relative_to(ROOT / 'docs').as_posix()}" for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"tuner_mcp/docs/reference/index.md"} | {"tuner_mcp/docs/llms.txt"} <= set(names)
    others = ("web/src", "web/page", "tests/", "benchmarks/", "docs/conf.py", "docs/build.py", ".ts", ".mjs")
    runtime = "tuner/commands/web/ort/"  # onnxruntime-web's own files, once `make web` has fetched them
    assert [name for name in names if any(part in name for part in others) and not name.startswith(runtime)] == []
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


def test_bundles_are_predicted_and_learn_in_the_base_package_which_brings_no_tensor_library(
    device: Path, tmp_path: Path
) -> None:
    names = ", ".join(f"{name!r}" for name in (*EXTRAS_ONLY, "plugins", "onnxruntime", "PIL"))
    code = f"from importlib.util import find_spec; print(*(name for name in ({names}) if find_spec(name)))"
    assert ran([device / "python", "-c", code], tmp_path).stdout.split() == ["onnxruntime", "PIL"]
    done = ran([device / "python", ROOT / "tools" / "portable.py", made_here(), "--json"], tmp_path)
    assert len(json.loads(done.stdout.splitlines()[-1])) >= 11


def test_the_programs_of_the_wheel_run_in_an_empty_environment(device: Path, tmp_path: Path) -> None:
    for name in ("tuner", "device-tuner"):  # the second is the distribution's own name: uvx device-tuner demo
        assert ran([device / name, "--version"], tmp_path).stdout == f"{VERSION}\n"
    assert (
        "Tune, export and predict on real handwritten digits"
        in ran([device / "device-tuner", "demo", "--help"], tmp_path).stdout
    )
    code = "import tuner; print(tuner.__version__)"
    assert ran([device / "python", "-c", code], tmp_path).stdout == f"{VERSION}\n"
    (line,) = ran([device / "tuner", "mcp", "."], tmp_path, code=1).stderr.splitlines()
    assert 'pip install "device-tuner[mcp]"' in line


def test_the_plugins_and_the_wheels_own_search_spaces_are_found_without_the_extras(
    device: Path, tmp_path: Path
) -> None:
    found = json.loads(ran([device / "tuner", "plugins", "--json"], tmp_path).stdout)
    assert {one["name"] for one in found["plugins"]} >= {"core", "gdm", "freeze", "cache"}
    assert [one for one in found["plugins"] if one["refused"]] == []
    code = "from tuner.search.space import load_space, shipped; print(*(load_space(name).name for name in shipped()))"
    spaces = ran([device / "python", "-c", code], tmp_path).stdout.split()
    assert set(spaces) == {path.stem for path in (ROOT / "search_spaces").glob("*.toml")}
    assert len(spaces) >= 3


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("task.toml", ()),
        ("task.toml", ("--dry-run",)),
        ("task.toml", ("--trials", "1", "--space", "smoke")),
        ("digits", ()),
    ],
)
def test_tuning_without_the_extras_says_in_one_line_what_to_install(
    device: Path, tmp_path: Path, task: str, more: tuple[str, ...]
) -> None:
    np.savez(tmp_path / "data.npz", x_train=np.zeros((8, 1, 8, 8), np.float32), y_train=np.arange(8) % 2)
    (tmp_path / "task.toml").write_text(
        '[model]\nfactory = "net.py:build"\n[local]\nkind = "arrays"\ntrain = "data.npz"\n', encoding="utf-8"
    )
    (tmp_path / "net.py").write_text("def build(): ...\n", encoding="utf-8")
    done = ran([device / "tuner", "run", task, *more], tmp_path, code=1)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("tuner: ")]
    assert line == done.stderr.splitlines()[-1], done.stderr
    assert 'pip install "device-tuner[tune]"' in line
    assert done.stdout == ""
