"""The fences between rooms, computed from the imports; each test also says how many files it saw."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TENSOR_LIBRARIES = {"torch", "torchvision", "torchaudio", "onnxscript"}
FIRST_PARTY_PLUGINS = {path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py")}
#: The arrow: a room imports from the lines below its own only. The last line, the ground, imports nothing of ours.
ARROW = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("events",),
    ("search",),
    ("plugin",),
    ("backends",),
    ("runtime",),
    ("bundle", "results"),
    ("task", "ort", "models"),
    ("planner",),
    ("training", "ridge"),
    ("plan",),
    ("augment", "store"),
    ("untrusted",),
    ("files", "reading", "units", "targets"),
    ("arrays", "errors", "metrics", "printable"),
    ("distribution", "machine"),
)
#: A file that nears this is split by subject, not packed.
MOST_LINES = 400
#: Files of a room; one more is a subject of its own.
MOST_FILES = 12
#: Names of the first-party plugins with strategies or measures: as the first word of a string, one is knowledge of a
#: plugin.
STRATEGIES = {
    path.parent.name.removeprefix("tuner_")
    for path in (ROOT / "plugins").glob("*/__init__.py")
    if re.search(r"def tuner_(strategies|measures)\(", path.read_text("utf-8"))
}


def sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every module a file imports, wherever in the file it does; for ``from a import b`` both a and a.b."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
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


def loaded_by(code: str, tmp_path: Path) -> dict[str, str]:
    """Return the modules that a fresh interpreter holds after running some code, and their files."""
    shown = "print('LOADED', name, getattr(module, '__file__', None))"
    listing = f"{code}\nimport sys\nfor name, module in list(sys.modules.items()): {shown}"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith("LOADED ")]
    return {name: file for _, name, file in lines}


@cache
def graph() -> dict[str, frozenset[str]]:
    """Return, by module of ours, the modules of ours that it imports, wherever in the file it does."""
    modules = {module_of(path): path for path in sources("tuner", "plugins")}
    return {module: frozenset(imported(path) & modules.keys() - {module}) for module, path in modules.items()}


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "plugins" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(edges: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the strongly connected parts of a graph that have more than one member (Tarjan, 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in edges.get(node, frozenset()):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    for node in edges:
        if node not in order:
            visit(node)
    return found


def rooms_of(package: str) -> dict[str, frozenset[str]]:
    """Return the imports between the direct members of a package: modules, and packages as a whole."""
    depth = package.count(".") + 2

    def room(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    edges: dict[str, set[str]] = {}
    for module, targets in graph().items():
        if module.startswith(f"{package}."):
            own = edges.setdefault(room(module), set())
            own |= {room(target) for target in targets if target.startswith(f"{package}.")} - {room(module)}
    return {name: frozenset(targets) for name, targets in edges.items()}


def floors(edges: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """Return the floor of each room: one above the highest that it imports; the ground is 0."""

    @cache
    def floor(name: str) -> int:
        return 1 + max(map(floor, edges.get(name, frozenset())), default=-1)

    return {name: floor(name) for name in edges}


PACKAGES = tuple(
    sorted(
        module_of(path)
        for place in ("tuner", "plugins")
        for path in (ROOT / place).rglob("__init__.py")
        if sum(1 for _ in path.parent.glob("[!_]*")) > 1
    )
)


def test_no_circle_of_files() -> None:
    assert circles(graph()) == []
    print(f"no circle among {len(graph())} files")  # noqa: T201 - shown by pytest -s
    assert len(graph()) >= 200


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_rooms(package: str) -> None:
    edges = rooms_of(package)
    assert circles(edges) == []
    for name, floor in sorted(floors(edges).items(), key=lambda item: (-item[1], item[0])):
        print(f"{package}: floor {floor}: {name.removeprefix(f'{package}.')}")  # noqa: T201 - shown by pytest -s


def test_the_arrow() -> None:
    ranks = {room: rank for rank, line in enumerate(ARROW) for room in line}
    edges = rooms_of("tuner")
    assert {name.removeprefix("tuner.") for name in edges} == set(ranks)
    upwards = {
        (name, target)
        for name, targets in edges.items()
        for target in targets
        if ranks[target.removeprefix("tuner.")] <= ranks[name.removeprefix("tuner.")]
    }
    assert upwards == set()


def test_no_strategy_is_named_in_the_core() -> None:
    paths = sources("tuner")
    named = re.compile(rf"^({'|'.join(STRATEGIES)})(\.|$)")
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value!r}"
        for path in paths
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and named.match(node.value)
    }
    assert found == set()
    assert len(STRATEGIES) >= 13


def test_only_targets_know_what_a_label_is() -> None:
    strangers = ("tuner/targets/", "tuner/task/file/schema.py", "tuner/bundle/info.py")
    asks = {"has_classes", "one_class", "several"}
    # Only fewer: what a second file asks becomes a method of `Targets`, which answers without being asked for its kind.
    most = 5
    named: set[str] = set()
    makers: set[str] = set()
    asked: Counter[str] = Counter()
    for path in sources("tuner", "plugins"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(strangers) or "nntrainer" in name:  # where a network's type may be regression
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and node.value in {"regression", "multi-label"}:
                named.add(f"{name}:{node.lineno}: {node.value!r}")
            if isinstance(node, ast.Name) and node.id == "targets_of" and isinstance(node.ctx, ast.Load):
                makers.add(name)
            if isinstance(node, ast.Attribute):
                is_shape = node.attr == "ndim" and ast.unparse(node.value).endswith("labels")
                asked[name] += is_shape or node.attr in asks
    assert named == set()
    assert len(makers) <= 5, makers
    assert asked.total() <= most, asked
    print(f"{len(makers)} files make targets of a name; {asked.total()} places of {len(+asked)} files ask for a trait")  # noqa: T201 - shown by pytest -s
    print(+asked)  # noqa: T201 - shown by pytest -s


def test_only_the_search_and_what_shows_or_shares_its_studies_know_optuna() -> None:
    paths = sources("tuner", "plugins")
    users = importers("optuna", paths)
    rooms = ("tuner/search/", "plugins/tuner_fleet/", "plugins/tuner_dashboard/", "plugins/tuner_report/importance.py")
    assert {user for user in users if not user.startswith(rooms)} == set()
    assert users, "the search uses Optuna"
    assert len(paths) >= 70


def test_only_the_torch_backend_the_models_and_lowerings_know_torch() -> None:
    paths = sources("tuner", "plugins")
    users = set().union(*(importers(library, paths) for library in TENSOR_LIBRARIES))
    rooms = ("tuner/backends/torch/", "tuner/models/", "plugins/tuner_testing/", "plugins/tuner_audio/yamnet.py")
    strangers = {
        user
        for user in users
        if not user.startswith(rooms)
        and not (user.startswith("plugins/") and (user.endswith("/torch.py") or "/torch/" in user))
    }
    assert strangers == set()
    assert len(users) >= 6
    assert len(paths) >= 70


def test_the_runtime_needs_the_base_package_alone() -> None:
    pending = [name for name in graph() if name.startswith("tuner.runtime")]
    reached: set[str] = set()
    while pending:
        module = pending.pop()
        if module not in reached:
            reached.add(module)
            pending += graph()[module]
    paths = [path for path in sources("tuner") if module_of(path) in reached]
    for path in paths:
        libraries = {name.split(".")[0] for name in imported(path)}
        assert not libraries & (TENSOR_LIBRARIES | {"optuna", "scipy", "onnx"}), path
    assert not {module for module in reached if module.startswith(("tuner.backends", "tuner.search", "tuner.plugin"))}
    assert len(paths) >= 40


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
    paths = sources("tuner", "plugins", "tests", "tools", "benchmarks", "examples")
    lengths = {path.relative_to(ROOT): len(path.read_text("utf-8").splitlines()) for path in paths}
    assert {str(name): lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
    assert len(paths) >= 85


CALL = "from tuner.cli.app import call\nassert call({}) == 0"
PREDICT = [
    "predict",
    str(ROOT / "tests/fixtures/digits/bundle"),
    str(min((ROOT / "tests/fixtures/inputs").glob("digit-*.npy"))),
]


@pytest.mark.parametrize(
    ("code", "loaded", "others"),
    [
        ("import tuner", "tuner", {"onnxruntime", "numpy", "sklearn", "pydantic"}),
        ("import tuner.task", "tuner.task", {"sklearn", "pydantic"}),
        ("from tuner.plugin import *; assert Strategy", "tuner.plugin", set()),
        (
            "import tuner.runtime as runtime; runtime.SolvingTrainer",
            "onnxruntime",
            {"sklearn", "tuner.task.file", "tuner.planner", "tuner.plugin"},
        ),
        (CALL.format(["--help"]), "cyclopts", {"onnxruntime", "numpy", "sklearn", "importlib.metadata"}),
        (CALL.format(["plugins", "--json"]), "tuner_gdm", set()),
        (CALL.format(PREDICT), "onnxruntime", {"sklearn", "tuner.task.file", "tuner.planner"}),
    ],
    ids=["tuner", "task", "plugin", "runtime", "help", "plugins", "predict"],
)
def test_what_needs_no_tensor_library_loads_none(code: str, loaded: str, others: set[str], tmp_path: Path) -> None:
    found = loaded_by(code, tmp_path)
    assert loaded in found
    assert not found.keys() & (TENSOR_LIBRARIES | {"optuna", "onnx"} | others)
    if loaded == "tuner_gdm":
        assert found.keys() >= FIRST_PARTY_PLUGINS
    if code.endswith(f"call({PREDICT}) == 0"):
        files = {Path(file) for name, file in found.items() if name.startswith("tuner")}
        lines = sum(len(file.read_text("utf-8").splitlines()) for file in files)
        print(f"tuner predict loads {len(files)} files with {lines} lines")  # noqa: T201 - shown by pytest -s
        assert len(files) <= 55
        assert lines <= 6400


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


def test_rooms_are_small() -> None:
    """Print the largest rooms; the ground of `tuner` itself is a list of single files."""
    sizes = {
        folder.relative_to(ROOT).as_posix(): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for folder in {path.parent for path in sources("tuner", "plugins")}
    }
    for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:12]:
        print(f"{size} files: {name}")  # noqa: T201 - shown by pytest -s
    assert {name: size for name, size in sizes.items() if size > MOST_FILES} == {}
    assert len(sizes) >= 60
