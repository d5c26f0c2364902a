"""Names in documents and docstrings: each exists, and the architecture page says what the code does."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_architecture import ARROW
from tests.test_docs import DOCUMENTS, FENCE, ROOT, text


@cache
def sources() -> dict[Path, ast.Module]:
    """Return the parsed source of every file of ours, by its path."""
    folders = ("tuner", "plugins", "benchmarks")
    return {path: ast.parse(text(path)) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))}


@cache
def names_defined() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the names bound in every module, and the members of every class by the class's name, from the source."""
    modules: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = {}
    for path, tree in sources().items():
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[1:] if parts[0] == "plugins" else parts
        name = ".".join(parts[:-1] if parts[-1] in {"__init__", "__main__"} else parts)
        modules.setdefault(name, set()).update(_bound(tree.body))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                parents = {f"<{getattr(base, 'attr', getattr(base, 'id', ''))}>" for base in node.bases}
                classes.setdefault(node.name, set()).update(_bound(node.body), _instance_names(node), parents)
    return modules, classes


def _bound(body: list[ast.stmt]) -> list[str]:
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        elif isinstance(node, ast.If | ast.Try | ast.With):
            names += _bound(node.body)
    return names


def _instance_names(tree: ast.ClassDef) -> list[str]:
    return [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, something in a module, or a member of a class."""
    modules, classes = names_defined()
    if name in modules:
        return True
    parts = name.split(".")
    module = next((".".join(parts[:at]) for at in range(len(parts) - 1, 0, -1) if ".".join(parts[:at]) in modules), "")
    rest = parts[len(module.split(".")) :] if module else parts
    if module and (rest[0] not in modules[module] or len(rest) == 1):
        return rest[0] in modules[module]
    owner, *members = rest
    return len(members) == 1 and _has(owner, members[0], classes)


def _has(owner: str, member: str, classes: dict[str, set[str]]) -> bool:
    known = classes.get(owner, set())
    parents = {name[1:-1] for name in known if name.startswith("<")}
    return member in known or any(_has(parent, member, classes) for parent in parents - {owner})


def docstrings() -> list[tuple[str, str]]:
    """Return (file, docstring) of every module, class and function."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    return [
        (path.relative_to(ROOT).as_posix(), ast.get_docstring(node) or "")
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, documented)
    ]


def names_in(content: str) -> list[str]:
    """Return every dotted name of ours in single backticks: ``tuner.a.b``, ``tuner_a.b``, ``Class.member``."""
    _, classes = names_defined()
    spans = re.findall(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`(?!`)", content)
    ours = re.compile(r"(tuner|tuner_\w+|benchmarks)\.")
    return [span for span in spans if ours.match(span) or span.partition(".")[0] in classes]


@pytest.mark.slow
def test_every_name_in_the_documents_and_docstrings_exists() -> None:
    documents = [(path.name, FENCE.sub("", text(path))) for path in DOCUMENTS]
    files = re.compile(r"\.(toml|py|md|ini|sh)$")
    named = [(where, name) for where, content in [*documents, *docstrings()] for name in names_in(content)]
    # an entry of an ONNX file, and groups of entry points
    metadata = {
        "tuner.step",
        "tuner.baselines",
        "tuner.exporters",
        "tuner.forgetters",
        "tuner.heads",
        "tuner.step_writers",
        "tuner.trainers",
        "tuner.networks",
        "tuner.findings",
        "tuner.published",
        "tuner.questions",
        "tuner.steps",
        "tuner.input_kinds",
        "tuner.kinds",
        "tuner.model_files",
        "tuner.options",
        "tuner.run_html",
        "tuner.run_letters",
        "tuner.run_pages",
        "tuner.solved_heads",
        "tuner.sources",
        "tuner.without_torch",
    }
    named = [(where, name) for where, name in named if not files.search(name) and name not in metadata]
    assert [(where, name) for where, name in named if not exists(name)] == []
    assert len(named) >= 100
    assert exists("tuner.plan.trial.TrialPlan.key")
    assert not exists("tuner.plan.trial.TrialPlan.kez")
    assert not exists("tuner.plan.trials")


def test_every_file_named_in_the_documents_exists() -> None:
    path_like = re.compile(r"`((?:tuner|plugins|tests|benchmarks|examples|docs|search_spaces)/[\w./*-]*)`")
    seen = 0
    for document in DOCUMENTS:
        for name in path_like.findall(text(document)):
            assert list(ROOT.glob(name.rstrip("/"))) or name == "tuner/search_spaces", f"{document.name}: {name}"
            seen += 1
    assert seen >= 30


@pytest.mark.slow
def test_a_plan_has_at_most_ten_stops_each_in_a_room_of_its_own() -> None:
    content = text(ROOT / "docs" / "architecture.md")
    stops = re.findall(r"^\d+\. `([\w.]+)`", content, re.MULTILINE)
    assert 8 <= len(stops) <= 10
    assert [stop for stop in stops if not exists(stop)] == []
    modules, _ = names_defined()
    rooms = [max((name for name in modules if stop.startswith(f"{name}.")), key=len) for stop in stops]
    assert len(set(rooms)) == len(rooms)


def test_the_arrow_is_the_one_that_is_checked() -> None:
    (arrow,) = re.findall(r"^`(cli → .*?)`$", text(ROOT / "docs" / "architecture.md"), re.MULTILINE | re.DOTALL)
    rooms = [tuple(sorted(line.split(", "))) for line in " ".join(arrow.split()).split(" → ")]
    assert rooms == [tuple(sorted(line)) for line in dict.fromkeys(ARROW[1:])]
