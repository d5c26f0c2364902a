"""What the documents say is so: configuration loads, commands and options exist, examples run, links and names hold."""

import ast
import importlib.util
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cyclopts import App

import tuner
import tuner.runtime
from tests.pretrained import with_weights
from tuner.cli.app import add_commands, app
from tuner.cli.settings import FROM_FILE
from tuner.distribution import offered
from tuner.plan.example import example_model, example_task
from tuner.plugin.core import build_host
from tuner.plugin.load.finding import select
from tuner.results.records.config import OWN_OPTIONS, RunRequest, option_name
from tuner.search.space import check_knobs, load_space, shipped
from tuner.task import Task
from tuner.task.file import schema

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(tuner [^`]+)`")
META = {"--help", "--version", "-h", "--install-completion", "-v", "-vv", "-q", "--color"}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(*languages: str) -> list[tuple[str, str]]:
    """Return (document, content) of every fenced block in one of the languages."""
    matches = ((path.name, match) for path in DOCUMENTS for match in FENCE.finditer(text(path)))
    return [(name, match[3]) for name, match in matches if match[2] in languages]


def command_lines() -> list[tuple[str, str]]:
    """Return (document, line) of every ``tuner ...`` in a shell block or in running text."""
    lines = [
        (name, line.strip().removeprefix("$ ").removeprefix(".venv/bin/"))
        for name, content in blocks("sh", "bash", "console")
        for line in content.replace("\\\n", " ").splitlines()
    ]
    lines += [(path.name, match[1]) for path in DOCUMENTS for match in INLINE.finditer(FENCE.sub("", text(path)))]
    return [(name, line) for name, line in lines if line.split()[:1] == ["tuner"]]


def commands() -> dict[str, set[str]]:
    """Return every command and its options, as the command line itself knows them, but for those that plugins add."""
    options: dict[str, set[str]] = {}
    added = {f"--{name.rpartition(' ')[2]}" for name in offered("tuner.options")}  # where one was asked for help

    def walk(parent: Any, path: str) -> None:
        for name in parent:
            if name.startswith("-"):
                continue
            command = parent[name]
            full = f"{path} {name}".strip()
            walk(command, full)
            if command.default_command is not None:
                arguments = command.assemble_argument_collection(default_parameter=app.default_parameter)
                words = {word for argument in arguments if argument.parse for word in argument.names}
                options.setdefault(full, set()).update(word for word in words - added if word.startswith("--"))

    add_commands()
    walk(app, "")
    base = App(default_parameter=app.default_parameter)
    for name, point in offered("tuner.without_torch").items():
        base.command(point.load(), name=name)
    walk(base, "")
    return options


def test_every_block_is_in_a_language_that_is_checked() -> None:
    languages = [match[2] for path in DOCUMENTS for match in FENCE.finditer(text(path))]
    assert set(languages) == {"sh", "python", "toml", "json", "text", ""}
    assert all(isinstance(json.loads(content), dict) for _, content in blocks("json"))
    counts = {language: languages.count(language) for language in ("sh", "python", "toml")}
    assert counts["sh"] >= 10
    assert counts["toml"] >= 5
    checked = {"README.md": 1, "export.md": 2, "tasks.md": 2, "python.md": 5}  # by this file
    checked |= {"plugins.md": 7, "cookbook.md": 13}  # by test_plugins_doc and test_cookbook
    checked |= {"runtimes.md": 2}  # by benchmarks.models.runtimes, which needs what is not installed for the tests
    assert {name: [own for own, _ in blocks("python")].count(name) for name in checked} == checked
    assert counts["python"] == sum(checked.values())
    assert len(text(ROOT / "README.md").splitlines()) < 150


def test_every_toml_block_is_read() -> None:
    tasks = 0
    for name, content in blocks("toml"):
        values = tomllib.loads(content)
        if "model" in values and "local" in values:
            schema.parse(values, Path(name))
            tasks += 1
        elif "tool" in values:
            assert {option for table in values["tool"]["tuner"].values() for option in table} <= FROM_FILE
        else:
            kinds = {"knobs", "strategies", "project", "build-system"}
            assert kinds & set(values), f"{name}: what is this block?\n{content}"
    assert tasks >= 2


@pytest.mark.parametrize("number", range(sum("[knobs" in content for _, content in blocks("toml"))))
def test_every_search_space_block_is_loaded_and_composed(number: int, tmp_path: Path) -> None:
    name, content = [(name, content) for name, content in blocks("toml") if "[knobs" in content][number]
    file = tmp_path / "space.toml"
    file.write_text(content, encoding="utf-8")
    space = load_space(str(file))
    host = build_host()
    asked = (*(space.strategies or host.strategies), "recipe", "none", "runtime")
    names = [strategy for strategy in host.strategies if strategy in asked]
    knobs = check_knobs(space, select("strategy", names, host.strategies), example_model(20), example_task())
    assert knobs, name


def test_every_command_line_names_a_command_and_its_options() -> None:
    known = commands()
    lines = command_lines()
    for name, line in lines:
        words = shlex.split(line.split(" # ")[0].replace("[", " ").replace("]", " ").replace("...", " "))[1:]
        options = {word.split("=")[0] for word in words if word.startswith("-") and len(word) > 1}
        if not words or words[0].startswith("-"):
            assert options <= META, f"{name}: {line}"
            continue
        if words[0] == "COMMAND":
            continue
        both = " ".join(words[:2]).rstrip(",;")
        command = both if both in known else words[0].rstrip(",;")
        assert command in known, f"{name}: {line}: there is no command {command!r}"
        assert options <= known[command] | META, f"{name}: {line}: {sorted(options - known[command])}"
    assert len(lines) >= 30
    assert {path.name for path in DOCUMENTS} >= {"README.md", "architecture.md", "commands.md", "tasks.md"}


def command_sections() -> dict[str, str]:
    """Return what the pages of ``docs/commands`` say of each command."""
    sections: dict[str, str] = {}
    for path in (ROOT / "docs" / "commands").glob("*.md"):
        _, *parts = re.split(r"^#{1,2} (tuner .+)$", text(path), flags=re.MULTILINE)
        for title, section in zip(parts[::2], parts[1::2], strict=True):
            for command in re.findall(r"tuner ([a-z ]*[a-z])\b", title):
                sections[command] = sections.get(command, "") + section
    return sections


def test_every_command_has_a_page_with_its_options_and_no_others() -> None:
    known, sections = commands(), command_sections()
    assert {command: [] for command in known} == {
        command: sorted(option for option in options if f"`{option}`" not in sections.get(command, ""))
        for command, options in known.items()
    }
    for command, section in sections.items():
        cells = re.findall(r"^\| (`--[^|]*)", section, re.MULTILINE)
        assert set(re.findall(r"`(--[a-z-]+)`", " ".join(cells))) <= known.get(command, set()), command
    linked = re.findall(r"^- \[.*\]\(commands/(\w+)\.md\)", text(ROOT / "docs" / "commands.md"), re.MULTILINE)
    assert sorted(linked) == sorted(path.stem for path in (ROOT / "docs" / "commands").glob("*.md"))
    assert len(known) >= 11


def test_the_table_of_a_run_has_the_options_of_its_request_in_their_order() -> None:
    section = command_sections()["run"]
    options = [option_name(field.name) for field in fields(RunRequest)]
    assert re.findall(r"^\| `--([a-z-]+)`", section, re.MULTILINE) == [*options, "details", "dry-run", "json"]
    known = commands()
    without_torch = ("model", "global", "classes")
    assert known["run"] == {f"--{option}" for option in [*options, "details", "dry-run", "json", *without_torch]}
    assert known["worker"] == {f"--{option_name(name)}" for name in (*OWN_OPTIONS, "task", "space", "json")}


def test_every_key_of_a_task_file_is_described() -> None:
    described = text(ROOT / "docs" / "tasks.md")
    keys = []
    for name, field in schema.TaskFile.model_fields.items():
        section = schema._section((field.alias or name,))
        inner = section.model_fields if section is not None else {}
        keys += [f"{field.alias or name}.{key}" for key in inner] or [field.alias or name]
    assert [key for key in keys if f"`{key}`" not in described] == []
    assert len(keys) >= 20


def test_every_search_space_that_is_shipped_is_described() -> None:
    names = shipped()
    described = text(ROOT / "docs" / "tasks.md")
    assert [name for name in names if f"`{name}`" not in described] == []
    assert len(names) >= 3


def test_every_benchmark_is_described() -> None:
    files = (ROOT / "benchmarks").rglob("*.py")
    modules = (path.relative_to(ROOT).with_suffix("") for path in files if "benchmark_parser(__doc__" in text(path))
    programs = {".".join(module.parts).removesuffix(".__main__") for module in modules}
    listed = set(re.findall(r"^\| `python -m (benchmarks[\w.]+)`", text(ROOT / "docs/notes/README.md"), re.MULTILINE))
    assert listed == programs
    for path in (ROOT / "docs/notes").glob("*.md"):
        assert path.name == "README.md" or path.name in text(ROOT / "docs/notes/README.md")
        shown = "python -m benchmarks." in text(path) or "tuner describe" in text(path)
        assert shown, f"{path.name} says of nothing what shows it"
    assert len(listed) >= 15


def program(path: Path) -> ModuleType:
    """Return a Python file that is in no package."""
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def build() -> ModuleType:
    """Return ``docs/build.py``."""
    return program(ROOT / "docs" / "build.py")


def test_every_link_between_documents_leads_somewhere() -> None:
    links = [link for link in build().markdown_links(build().markdown_files()) if "://" not in link[1]]
    assert [link for link in links if not build().leads_somewhere(*link)] == []
    assert len(links) >= 30
    assert {source.name for source, _ in links} >= {"README.md", "architecture.md", "plugins.md", "exits.md"}


def test_a_broken_link_and_a_broken_anchor_are_found(tmp_path: Path) -> None:
    document, page = tmp_path / "one.md", tmp_path / "page.html"
    document.write_text("# A heading, and `code`\n\n## Twice\n\n## Twice\n")
    page.write_text('<a href="one.md">one</a><h1 id="first">first</h1>')
    for target in ("one.md", "#a-heading-and-code", "one.md#twice-1", "page.html#first"):
        assert build().leads_somewhere(document, target), target
    for target in ("two.md", "#twice-2", "one.md#heading", "page.html#second"):
        assert not build().leads_somewhere(document, target), target


def test_the_pythons_imports_and_calls_are_what_is_offered() -> None:
    programs = blocks("python")
    offered = {"tuner": tuner, "tuner.runtime": tuner.runtime}
    imports = 0
    for document, content in programs:
        tree = ast.parse(content, document)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tuner."):
                module = importlib.import_module(node.module or "")
                assert {alias.name for alias in node.names} <= set(getattr(module, "__all__", dir(module))), content
                imports += 1
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tuner":
                assert node.attr in offered["tuner"].__all__, f"{document}: tuner.{node.attr}"
    assert imports >= 6
    for document, content in programs:
        for name, made in re.findall(r"^(trainer) = (\w+)\(", content, re.MULTILINE):
            methods = set(re.findall(rf"\b{name}\.(\w+)\(", content))
            assert methods >= {"add", "train", "save"}
            assert methods <= set(dir(getattr(tuner.runtime, made))), document


def test_the_trainers_table_has_its_signatures() -> None:
    table = text(ROOT / "docs" / "commands" / "export.md")
    (constructor,) = re.findall(r"`tuner\.runtime\.Trainer\((.*?)\)`", table)
    assert constructor == _arguments(tuner.runtime.Trainer.__init__)
    rows = re.findall(r"`((?:add|train|accuracy|global_accuracy|save))\((.*?)\)`", table)
    for name, arguments in rows:
        assert arguments == _arguments(getattr(tuner.runtime.Trainer, name)).removesuffix(", watch=…"), name
    assert len(rows) >= 5


def _arguments(function: Any) -> str:
    """Return a function's arguments without types; a default that is a function is an ellipsis."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    defaults = {parameter.name: "…" if callable(parameter.default) else parameter.default for parameter in parameters}
    empty = inspect.Parameter.empty
    return ", ".join(
        parameter.name if parameter.default is empty else f"{parameter.name}={defaults[parameter.name]}"
        for parameter in parameters
    )


def test_the_task_function_makes_a_task() -> None:
    programs = [content for name, content in blocks("python") if name == "tasks.md"]
    module = ModuleType("mine")
    for program in programs:
        exec(compile(program, "tasks.md", "exec"), module.__dict__)  # noqa: S102 - as a reader would
    for task in (module.regression, module.task()):
        assert isinstance(task, Task)
        assert task.input_shape == (1, 8, 8)
    assert module.regression.scale.mean[0] == pytest.approx(20, abs=0.5)


def printed(command: list[str], folder: Path) -> str:
    """Return what a command prints in a clean environment: no variable of whoever tests, and a home of its own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    wide = {"COLUMNS": "200"}  # paragraphs are broken elsewhere where they have other figures
    environment = {"PATH": path, "HOME": str(folder / "home"), "LANG": "C.UTF-8", **wide}
    with_weights(folder / "home" / ".cache" / "tuner")
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def without_numbers(line: str) -> str:
    """Return a printed line without what differs from run to run: numbers, and what the knee trains or solves for."""
    line = re.sub(r"^Solving for (.+) in ([\d.]+ s takes )", r"Training \1 for \2", line.strip())
    line = re.sub(r"; a linear probe [^;]*", "", line)  # it is fitted where there is time
    line = re.sub(r"the last (?:block|\d+ (?:of \d+ )?blocks)|the whole model", "the last N blocks", line)
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*", "N", line))


@pytest.mark.slow
def test_the_readmes_lines_for_the_shell_run(tmp_path: Path) -> None:
    (script,) = [content for name, content in blocks("sh") if name == "README.md" and "tuner show" in content]
    output = printed(["bash", "-euo", "pipefail", "-c", script], tmp_path)
    (shown,) = [content for name, content in blocks("text") if name == "README.md"]
    lines = {without_numbers(line) for line in output.splitlines()}
    assert [line for line in shown.splitlines() if without_numbers(line) not in lines] == []
    assert len(shown.splitlines()) >= 6
    assert "as it came" in output
    assert output.count("new/1.npy: ") == 2  # predicted, and predicted in service
    assert "1 kept samples" in output
    assert json.loads((tmp_path / "run.json").read_text())["counts"]["done"] >= 1
    assert script.count("tuner ") >= 10
    assert sorted(path.name for path in tmp_path.glob("digits-*")) == ["digits-bundle"]


@pytest.mark.slow
def test_the_lines_of_python_run_one_after_the_other(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (program,) = [content for name, content in blocks("python") if name == "README.md"]
    following = [content for name, content in blocks("python") if name == "python.md"]
    (own,) = [content for content in following if "__main__" in content]  # the one that must be a file
    following.remove(own)
    (tmp_path / "own.py").write_text(own.replace("time=60", 'trials=1, space={"recipe.epochs": 1}'), encoding="utf-8")
    printed([sys.executable, "own.py"], tmp_path)
    assert [one.name for one in tuner.Run.open(tmp_path / "runs/own").objectives] == ["local_accuracy", "worst", "cost"]
    output = printed([sys.executable, "-c", "\n".join([program, *following])], tmp_path)
    assert "Prediction(label=" in output
    assert "<Run 'runs/digits-python' of digits: 2 done" in output
    assert "… opening the task\n" in output
    assert "trial 2 " in output
    assert "local_accuracy  train_seconds" in output
    assert len(following) >= 4
