"""The fences between rooms, kept by reading imports; each test also says how many files it saw."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TENSOR_LIBRARIES = {"torch", "torchvision", "torchaudio", "onnxscript"}
FIRST_PARTY_PLUGINS = {path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py")}
MOST_LINES = 400
LIGHT = ("tuner.backends.memory", "tuner.backends.port", "tuner.backends.scores")  # what the base package can run


def sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every module a file imports, wherever in the file it does; for ``from a import b`` both a and a.b."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which room a name comes from"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(library: str, paths: list[Path]) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if any(name.split(".")[0] == library for name in imported(path))
    }


def loaded_by(code: str, tmp_path: Path) -> set[str]:
    """Return the top-level modules a fresh interpreter holds after running some code."""
    listing = f"{code}\nimport sys\nprint('LOADED', *sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    return set(done.stdout.rpartition("LOADED ")[2].split())


def test_only_the_search_knows_optuna() -> None:
    paths = sources("tuner", "plugins")
    users = importers("optuna", paths)
    assert {user for user in users if not user.startswith("tuner/search/")} == set()
    assert users, "the search uses Optuna"
    assert len(paths) >= 70


def test_only_the_torch_backend_the_models_and_lowerings_know_torch() -> None:
    paths = sources("tuner", "plugins")
    users = set().union(*(importers(library, paths) for library in TENSOR_LIBRARIES))
    rooms = ("tuner/backends/torch/", "tuner/models/")
    strangers = {
        user
        for user in users
        if not user.startswith(rooms)
        and not (user.startswith("plugins/") and (user.endswith("/torch.py") or "/torch/" in user))
        and user != "tuner/testing.py"
    }
    assert strangers == set()
    assert len(users) >= 6
    assert len(paths) >= 70


def test_the_runtime_stands_on_the_base_package() -> None:
    paths = sources("tuner/runtime")
    rooms = {"errors", "heads", "store", "task", "runtime", "plan", "units"}
    for path in paths:
        names = imported(path)
        named = {name for name in names if name.startswith("tuner.") and not name.startswith(LIGHT)}
        ours = {name.split(".")[1] for name in named - {"tuner.backends"}}
        assert ours <= rooms, f"{path.name} imports {sorted(ours - rooms)}"
        assert "tuner" not in names, f"{path.name} imports tuner as a whole"
        assert not {name.split(".")[0] for name in names} & (TENSOR_LIBRARIES | {"optuna", "scipy", "onnx"})
    assert len(paths) >= 4


def test_the_host_knows_no_plugin() -> None:
    paths = sources("tuner")
    assert len(FIRST_PARTY_PLUGINS) >= 3
    assert {name: users for name in FIRST_PARTY_PLUGINS if (users := importers(name, paths))} == {}
    assert len(paths) >= 65


def test_plugins_do_not_know_each_other() -> None:
    paths = sources("plugins")
    for path in paths:
        own = path.relative_to(ROOT / "plugins").parts[0]
        known = {name.split(".")[0] for name in imported(path)}
        assert known & FIRST_PARTY_PLUGINS <= {own}, path
        assert "plugins" not in known, path
    assert len(paths) >= 3


def test_no_file_is_longer_than_it_can_be_read() -> None:
    paths = sources("tuner", "plugins", "tests", "benchmarks", "examples")
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines()) for path in paths}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
    assert len(paths) >= 85


def test_importing_tuner_loads_no_tensor_library(tmp_path: Path) -> None:
    loaded = loaded_by("import tuner", tmp_path)
    assert not loaded & (TENSOR_LIBRARIES | {"optuna", "onnxruntime", "numpy", "sklearn", "scipy"})
    assert "tuner" in loaded


def test_help_loads_no_tensor_library(tmp_path: Path) -> None:
    loaded = loaded_by("from tuner.cli import call\nassert call(['--help']) == 0", tmp_path)
    assert not loaded & (TENSOR_LIBRARIES | {"optuna", "onnxruntime", "numpy", "sklearn", "scipy"})
    assert "cyclopts" in loaded


def test_running_a_bundle_loads_no_tensor_library(tmp_path: Path) -> None:
    loaded = loaded_by("import tuner.runtime", tmp_path)
    assert not loaded & (TENSOR_LIBRARIES | {"optuna", "scipy", "sklearn"})
    assert "onnxruntime" in loaded


def test_listing_plugins_loads_no_tensor_library(tmp_path: Path) -> None:
    loaded = loaded_by("from tuner.cli import call\nassert call(['plugins', '--json']) == 0", tmp_path)
    assert not loaded & (TENSOR_LIBRARIES | {"optuna"})
    assert loaded >= FIRST_PARTY_PLUGINS


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git is where the user has it
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    absolute = re.compile(rb"(?<![\w.$}~])/(?:work|root|home)/")
    found = {name for name in names if absolute.search((ROOT / name).read_bytes())}
    assert found == set()
    assert len(names) >= 100
