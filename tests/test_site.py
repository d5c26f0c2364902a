"""The site: what its build adds to the documents, its pictures, and what it may load; and the browser's files."""

import hashlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.test_docs import ROOT, blocks, build, commands, program, text
from tuner.cli.app import add_commands, app

DOCS = ROOT / "docs"


def test_the_page_of_commands_has_every_command_with_the_options_that_its_help_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = program(DOCS / "conf.py").completed("cli", "")
    sections = dict(re.findall(r"^##+ tuner ([\w ]+)\n(.*?)(?=^##+ |\Z)", page, re.MULTILINE | re.DOTALL))
    compared = 0
    for command in commands():
        add_commands()
        app.help_print(command.split())
        printed = {
            word for word in re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out) if not word.startswith("--no-")
        }
        listed = set(re.findall(r"--[a-z][a-z-]*", sections[command]))
        assert printed <= listed | {"--color"}, command  # of every command: the page says so at its top
        compared += len(printed)
    assert compared >= 60
    assert "`--memory" in sections["run"]


def test_a_page_that_lists_others_is_their_table_of_contents() -> None:
    conf = program(DOCS / "conf.py")
    listed = set()
    for page in conf.LISTS:
        (path,) = DOCS.glob(f"{page}.*")
        tables = re.findall(r"^:::\{toctree\}\n(.*?)^:::$", conf.completed(page, text(path)), re.MULTILINE | re.DOTALL)
        entries = [line for table in tables for line in table.splitlines() if line and not line.startswith(":")]
        listed |= {(path.parent / entry).relative_to(DOCS).as_posix() for entry in entries}
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    pages |= {path.relative_to(DOCS).as_posix().removesuffix(".rst") for path in DOCS.rglob("*.rst")}
    assert pages - listed == {"index"}
    assert len(listed) >= 40


def test_other_files_are_added_to_the_pages_that_stand_for_them() -> None:
    conf = program(DOCS / "conf.py")
    assert "# Security" in conf.completed("security", "")
    changes = conf.completed("changelog", "")
    assert changes.index("## 0046 site") < changes.index("## 0001 main job")
    assert conf.completed("notes/trust", "[a](../../SECURITY.md)") == "[a](../security.md)"
    assert conf.completed("architecture", "[a](../README.md)") == "[a](index.md)"


def test_the_pictures_are_those_that_are_drawn_and_each_is_shown_once() -> None:
    draw = program(DOCS / "pictures/draw.py")
    names = [picture.__name__ for picture in draw.PICTURES]
    shown = re.findall(r"!\[([^\]]{40,})\]\(pictures/(\w+)\.svg\)", text(DOCS / "concepts.md"))
    assert [name for _, name in shown] == names
    assert {path.stem for path in (DOCS / "pictures").glob("*.svg")} == set(names)
    for picture in draw.PICTURES:
        file = text(DOCS / "pictures" / f"{picture.__name__}.svg")
        assert file == picture(), f"python docs/pictures/draw.py; {picture.__name__}.svg is an older one"
        ET.fromstring(file)  # noqa: S314 - our own
        assert "prefers-color-scheme" in file
        assert len(file) < 10_000
    assert len(names) >= 8


def test_the_figures_in_the_pictures_are_those_of_the_documents() -> None:
    draw = program(DOCS / "pictures/draw.py")
    example, adapters, concepts = (text(DOCS / name) for name in ("example.md", "notes/adapters.md", "concepts.md"))
    for trial, (local, everywhere) in draw.FRONT.items():
        low, high, bottom, top = draw.INTERVALS[trial]
        row = rf" {trial} +{local} % \({low}–{high}\) +{everywhere} % \({bottom}–{top}\)"
        assert re.search(row, example), row
    assert f"trials: {draw.TRIALS} done" in example
    assert f"computing features for all trials {draw.FILLING}" in example
    for name, local, everywhere in draw.FORGETTING:
        label = name.replace(",", "`,", 1).replace(" alone", "` alone") if name != "nothing" else name
        row = rf"^\| `?{label} \|.*\| {local / 100:.3f} \| {everywhere / 100:.3f} \|$"
        assert re.search(row, adapters, re.MULTILINE), row
    first = ", ".join(str(widths[0]) for _, _, widths in draw.WIDTHS)
    assert f"start at {first.replace(', 9', ' and 9')} channels" in concepts
    assert round(sum(draw.BLOCKS)) == 306


def test_the_quickstarts_commands_are_those_of_the_readme_which_are_run() -> None:
    lines = {
        name: [line.split("  ")[0] for own, content in blocks("sh") if own == name for line in content.splitlines()]
        for name in ("README.md", "quickstart.md")
    }
    commands_shown = [line for line in lines["quickstart.md"] if line.startswith(("tuner", "mkdir", "make"))]
    assert [line for line in commands_shown if line not in lines["README.md"]] == []
    assert len(commands_shown) >= 5


def test_a_page_that_loads_something_from_elsewhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<script src="https://cdn.example/x.js"></script><img src="a.svg"><a href="https://example.org">e</a>'
    )
    assert build().read_page(page).loaded == ["https://cdn.example/x.js", "a.svg"]


def test_the_list_for_assistants_is_made_from_the_pages_and_has_each_of_them() -> None:
    assert text(DOCS / "llms.txt") == build().llms_text(), "python docs/build.py"
    items = build().ITEM.findall(text(DOCS / "llms.txt"))
    listed = {target for _, target, _ in items}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == pages - build().STUBS - {"index.md"}
    assert all(line for _, _, line in items)
    title, _, summary, *_ = text(DOCS / "llms.txt").splitlines()
    assert title == "# tuner"
    assert summary.startswith("> `tuner` finds out")


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_every_link_in_it_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "build.py"), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "of which 0 are broken" in done.stdout
    elsewhere = {
        "tuner": {"Task", "hookimpl"},
        "tuner.plugin": {"Task", "ArraySamples", "Domain", "InputDefaults", "InputSpec", "ModelSpec", "ridge"},
    }  # what another page describes
    offering = 0
    for path in (DOCS / "reference").glob("*.rst"):
        name = path.name.removesuffix(".rst")
        page = text(tmp_path / "site" / "reference" / f"{name}.html")
        offered = set(getattr(importlib.import_module(name), "__all__", ())) - elsewhere.get(name, set())
        assert [one for one in offered if f'id="{name}.{one}"' not in page] == [], name
        offering += bool(offered)
    assert offering >= 5
    assert text(tmp_path / "site" / "llms.txt") == text(DOCS / "llms.txt")
    assert text(tmp_path / "site" / "commands" / "run.md") == text(DOCS / "commands" / "run.md")
    external = text(tmp_path / "site" / "external-links.txt").splitlines()
    assert "https://github.com/optuna/optuna/issues/3450" in external


WEB = Path(__file__).parent.parent / "web"


def test_the_page_was_built_from_these_sources() -> None:
    folders = [sorted((WEB / folder).iterdir()) for folder in ("page", "src")]
    files = [WEB / "build.mjs", WEB / "package-lock.json", *(path for folder in folders for path in folder)]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(WEB).as_posix()}\n".encode() + path.read_bytes())
    assert len(files) > 30
    assert (WEB / "built.sha256").read_text().strip() == digest.hexdigest(), "run `make web`"
