"""The notebook runs from its top and shows what is committed; the systemd unit runs a command that exists."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pretrained import with_weights
from tuner.cli.app import add_commands, app

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def steady(notebook: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what each cell shows: its kind and its first line, without what another machine changes of it.

    Not what is on stderr: a run notes there what a slow machine had no time for, and a library that it builds a cache.
    """
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"] if output.get("name") != "stderr"]
    kinds = [" ".join(output.get("data", {output.get("name", "error"): None})) for output in outputs]
    texts = ["".join(output.get("text") or output["data"]["text/plain"]) for output in outputs]
    lines = [re.sub(r"\d+(\.\d+)?", "#", text.partition("\n")[0]) for text in texts]
    return list(zip(kinds, lines, strict=True))


def test_the_committed_outputs_name_no_machine_and_no_moment() -> None:
    notebook = read(NOTEBOOK)
    assert set(notebook["metadata"]) == {"kernelspec"}
    assert [cell["metadata"] for cell in notebook["cells"]] == [{}] * len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not re.search(r"(?<![\w.<])/(?:tmp|home|root|usr|work)/|Warning|Traceback|\\u001b", NOTEBOOK.read_text())
    assert sum(len(cell["outputs"]) for cell in code) >= 5


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_committed(tmp_path: Path) -> None:
    for library in ("nbclient", "ipykernel", "pandas", "matplotlib"):
        pytest.importorskip(library)
    cache = with_weights(tmp_path / "cache")
    environment = {**os.environ, "TUNER_CACHE": str(cache), "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, str(ROOT / "examples" / "execute.py"), str(NOTEBOOK), "out.ipynb"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    ours, made = read(NOTEBOOK), read(tmp_path / "out.ipynb")
    assert [cell["source"] for cell in made["cells"]] == [cell["source"] for cell in ours["cells"]]
    assert steady(made) == steady(ours)
    assert len(steady(made)) >= 5
    assert "".join(made["cells"][4]["outputs"][0]["data"]["text/html"]).count("<svg ") == 2
    assert sorted(path.name for path in tmp_path.glob("quickstart-bundle/*.onnx")) == ["model.onnx", "unknown.onnx"]


UNIT = Path(__file__).parent.parent / "examples" / "systemd" / "tuner-watch.service"


def test_the_unit_starts_a_command_with_its_options() -> None:
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart=")]
    program, *words = shlex.split(line.removeprefix("ExecStart="))
    assert program.endswith("/.venv/bin/tuner")
    add_commands()
    command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    assert command.__name__ == "watch"
    assert (bound.kwargs["samples"], bound.kwargs["window"]) == ("%h/inbox", "01:00-05:30")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_knows_every_setting(tmp_path: Path) -> None:
    unit, program = tmp_path / UNIT.name, "%h/tuner/.venv/bin/tuner"
    for text, complaint in ((UNIT.read_text(), ""), (UNIT.read_text() + "\n[Service]\nPrivatNetwork=yes\n", "Privat")):
        assert program in text
        unit.write_text(text.replace(program, sys.executable))
        command = ["systemd-analyze", "verify", "--user", "--man=no", str(unit)]
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (complaint in done.stderr) if complaint else (done.returncode, done.stderr) == (0, "")
