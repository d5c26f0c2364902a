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
NOTEBOOK, PHOTOS = (ROOT / "examples" / f"{name}.ipynb" for name in ("quickstart", "clothing"))


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


@pytest.mark.parametrize("path", [NOTEBOOK, PHOTOS], ids=lambda path: path.stem)
def test_the_committed_outputs_name_no_machine_and_no_moment(path: Path) -> None:
    notebook = read(path)
    assert set(notebook["metadata"]) == {"kernelspec"}
    assert [cell["metadata"] for cell in notebook["cells"]] == [{}] * len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not re.search(r"(?<![\w.<])/(?:tmp|home|root|usr|work)/|Warning|Traceback|\\u001b", path.read_text())
    assert sum(len(cell["outputs"]) for cell in code) >= 5


def executed(notebook: Path, folder: Path) -> dict[str, Any]:
    """Return a notebook as it is after its cells ran in a folder."""
    for library in ("nbclient", "ipykernel", "pandas", "matplotlib"):
        pytest.importorskip(library)
    cache = with_weights(folder / "cache")
    environment = {**os.environ, "TUNER_CACHE": str(cache), "IPYTHONDIR": str(folder / "ipython")}
    command = [sys.executable, str(ROOT / "examples" / "execute.py"), str(notebook), "out.ipynb"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return read(folder / "out.ipynb")


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_committed(tmp_path: Path) -> None:
    ours, made = read(NOTEBOOK), executed(NOTEBOOK, tmp_path)
    assert [cell["source"] for cell in made["cells"]] == [cell["source"] for cell in ours["cells"]]
    assert steady(made) == steady(ours)
    assert len(steady(made)) >= 5
    assert "".join(made["cells"][4]["outputs"][0]["data"]["text/html"]).count("<svg ") == 2
    assert sorted(path.name for path in tmp_path.glob("quickstart-bundle/*.onnx")) == ["model.onnx", "unknown.onnx"]


def few_photos(data: Path, folder: Path) -> Path:
    """Return a folder like the data's, with a few photos of each class."""
    for part, count in (("local/train", 6), ("local/val", 3), ("global/train", 1), ("global/val", 1)):
        for kind in (data / "images" / part).iterdir():
            (folder / "images" / part / kind.name).mkdir(parents=True)
            for photo in sorted(kind.iterdir())[:count]:
                (folder / "images" / part / kind.name / photo.name).symlink_to(photo)
    (folder / "images" / "global" / "classes.tsv").symlink_to(data / "images" / "global" / "classes.tsv")
    (folder / "models").symlink_to(data / "models")
    return folder


@pytest.mark.slow
@pytest.mark.data
def test_the_notebook_on_photos_runs_with_few_photos_and_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples" / "clothing", tmp_path / "examples" / "clothing")
    text, limit = PHOTOS.read_text(encoding="utf-8"), 'time=\\"4m\\"'
    assert limit in text
    (tmp_path / "short.ipynb").write_text(text.replace(limit, "trials=2"), encoding="utf-8")
    monkeypatch.setenv("TUNER_DATA", str(few_photos(Path(os.environ["TUNER_DATA"]).resolve(), tmp_path / "data")))
    made = executed(tmp_path / "short.ipynb", tmp_path)
    assert [kind for kind, _ in steady(made)] == [kind for kind, _ in steady(read(PHOTOS))]
    kinds = ("dress", "hat", "longsleeve", "outwear", "pants")
    predicted = "".join(made["cells"][-1]["outputs"][0]["text"]).splitlines()
    assert tuple(line.partition(":")[0] for line in predicted) == kinds
    assert all(line.count("%") == 3 for line in predicted), "the three likeliest, with their probabilities"


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
