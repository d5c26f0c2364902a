"""What the documents say is so: configuration loads, commands and options exist, nothing is left out."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tuner.cli import app
from tuner.example import example_model, example_task
from tuner.host import Host, chosen
from tuner.space import check_knobs, load_space, shipped
from tuner.task import schema

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(tuner [^`]+)`")
META = {"--help", "--version", "-h"}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(*languages: str) -> list[tuple[str, str]]:
    """Return (document, content) of every fenced block in one of the languages."""
    found = ((path.name, match) for path in DOCUMENTS for match in FENCE.finditer(text(path)))
    return [(name, match[2]) for name, match in found if match[1] in languages]


def command_lines() -> list[tuple[str, str]]:
    """Return (document, line) of every ``tuner ...`` in a shell block or in running text."""
    found = [
        (name, line.strip().removeprefix("$ ").removeprefix(".venv/bin/"))
        for name, content in blocks("sh", "bash", "console")
        for line in content.replace("\\\n", " ").splitlines()
    ]
    found += [(path.name, match[1]) for path in DOCUMENTS for match in INLINE.finditer(FENCE.sub("", text(path)))]
    return [(name, line) for name, line in found if line.split()[:1] == ["tuner"]]


def commands() -> dict[str, set[str]]:
    """Return every command and its options, as the command line itself knows them."""
    found: dict[str, set[str]] = {}

    def walk(one: Any, path: str) -> None:
        for name in one:
            if name.startswith("-"):
                continue
            sub = one[name]
            full = f"{path} {name}".strip()
            if sub.default_command is None:
                walk(sub, full)
            else:
                options = {word for argument in sub.assemble_argument_collection() for word in argument.names}
                found[full] = {word for word in options if word.startswith("--")}

    walk(app, "")
    return found


def test_every_toml_block_is_read() -> None:
    tasks = spaces = 0
    for name, content in blocks("toml"):
        values = tomllib.loads(content)
        if "model" in values and "local" in values:
            schema.parse(values, Path(name))
            tasks += 1
        elif {"knobs", "strategies"} & set(values):
            spaces += 1
        else:
            assert {"project", "build-system"} & set(values), f"{name}: what is this block?\n{content}"
    assert tasks >= 2
    assert spaces >= 1


@pytest.mark.parametrize("number", range(sum("[knobs" in content for _, content in blocks("toml"))))
def test_every_search_space_block_is_loaded_and_composed(number: int, tmp_path: Path) -> None:
    name, content = [(name, content) for name, content in blocks("toml") if "[knobs" in content][number]
    file = tmp_path / "space.toml"
    file.write_text(content, encoding="utf-8")
    space = load_space(str(file))
    host = Host()
    names = [one for one in host.strategies if space.strategies is None or one in (*space.strategies, "recipe", "none")]
    found = check_knobs(
        space, chosen("strategy", [*names, "runtime"], host.strategies), example_model(20), example_task()
    )
    assert found, name


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
        command = " ".join(words[:2]) if words[0] in {path.split()[0] for path in known if " " in path} else words[0]
        command = command.rstrip(",;")
        assert command in known, f"{name}: {line}: there is no command {command!r}"
        assert options <= known[command] | META, f"{name}: {line}: {sorted(options - known[command])}"
    assert len(lines) >= 30
    assert {path.name for path in DOCUMENTS} >= {"README.md", "architecture.md", "commands.md", "tasks.md"}


def test_every_command_and_option_is_described() -> None:
    described = text(ROOT / "docs" / "commands.md")
    known = commands()
    for command, options in known.items():
        assert f"tuner {command}" in described, f"docs/commands.md lacks tuner {command}"
        assert {option for option in options if f"`{option}`" not in described} == set(), command
    assert len(known) >= 11


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


def test_every_link_between_documents_leads_somewhere() -> None:
    seen = 0
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", FENCE.sub("", text(path))):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
            seen += 1
    assert seen >= 8


def test_the_readmes_python_names_what_tuner_offers() -> None:
    import tuner

    programs = [content for name, content in blocks("python") if name == "README.md"]
    import tuner.runtime

    names = {name for content in programs for name in re.findall(r"\btuner\.([a-z_]+)\(", content)}
    assert names <= set(tuner.__all__)
    offered = {
        name for content in programs for name in re.findall(r"^from tuner.runtime import (.*)$", content, re.MULTILINE)
    }
    assert {name for line in offered for name in line.split(", ")} <= set(tuner.runtime.__all__)
    assert names
    assert offered
    for name, content in blocks("python"):
        compile(content, name, "exec")


def ran(command: list[str], folder: Path) -> str:
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TUNER_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_readmes_lines_for_the_shell_run(tmp_path: Path) -> None:
    (script,) = [
        content for name, content in blocks("sh") if name == "README.md" and "tuner show runs/digits" in content
    ]
    said = ran(["bash", "-euo", "pipefail", "-c", script], tmp_path)
    assert "untouched" in said
    assert script.count("tuner ") >= 10
    assert sorted(path.name for path in tmp_path.glob("digits-*")) == ["digits-again", "digits-bundle", "digits-fast"]


@pytest.mark.slow
def test_the_readmes_lines_of_python_run(tmp_path: Path) -> None:
    (program,) = [content for name, content in blocks("python") if name == "README.md" and "tuner.run(" in content]
    assert "Prediction(label=" in ran([sys.executable, "-c", program], tmp_path)
