"""Names from elsewhere steer no terminal: the bytes of both streams of every command that is given some."""

import json
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.app import call

FIXTURES = Path(__file__).parents[1] / "fixtures"
#: Sets a title, clears the screen, turns letters; as an 8-bit control too.
EVIL = "\x1b]0;title\x07\x1b[2J\u202eevil\u2066\x9b31m\r"
#: Values of these keys are for people, in bundles and runs.
NAMED = frozenset(
    {"task", "task_name", "labels", "name", "sentence", "notes", "reason", "space_name", "ended", "device"}
)


def _evil(content: Any, key: str = "") -> Any:
    """Return JSON with all that people read made hostile."""
    if isinstance(content, dict):
        return {name: _evil(value, name) for name, value in content.items()}
    if isinstance(content, list):
        return [_evil(value, key) for value in content]
    return content + EVIL if isinstance(content, str) and key in NAMED else content


def _rewritten(path: Path, lines: bool = False) -> None:
    parts = path.read_text().splitlines() if lines else [path.read_text()]
    path.write_text("\n".join(json.dumps(_evil(json.loads(part))) for part in parts) + "\n" * lines)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a bundle, runs, samples and files of text, all of which have hostile names."""
    for name in ("HOME", "TUNER_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)  # a report is written here
    place = tmp_path / f"place {EVIL}"
    shutil.copytree(FIXTURES / "digits" / "bundle", place / "bundle")
    _rewritten(place / "bundle" / "bundle.json")
    for name, of in (("run", "digits"), ("other", "exits")):
        shutil.copytree(FIXTURES / of / "run", place / name)
        _rewritten(place / name / "run.json")
        _rewritten(place / name / "trials.jsonl", lines=True)
    (place / "samples").mkdir()
    shutil.copy(min((FIXTURES / "inputs").glob("digit*.npy")), place / "samples" / f"one {EVIL}.npy")
    (place / "samples" / f"bad {EVIL}.npy").write_text(EVIL)
    (place / "samples" / f"other {EVIL}.txt").write_text(EVIL)
    (place / "task.toml").write_text(f"name = {json.dumps(EVIL)}\n[model]\nfactory = {json.dumps(EVIL)}\n")
    (place / "table.toml").write_text(f"[[plan]]\nx = {json.dumps(EVIL)}\n")
    return place


def _commands(place: Path) -> Iterator[list[str]]:
    at = {name: str(place / name) for name in ("bundle", "run", "other", "samples", "task.toml", "table.toml")}
    for bundle in (at["bundle"], at["samples"], at["task.toml"], f"{place}/none {EVIL}"):
        yield from (
            ["show", bundle],
            ["status", bundle],
            ["rollback", bundle],
            ["serve", bundle],
            ["bundle", "check", bundle],
        )
        yield from (["predict", bundle, at["samples"]], ["watch", bundle, "--samples", at["samples"], "--once"])
        yield ["labels", "rename", bundle, f"9{EVIL}", f"nine {EVIL}", "--out", f"{place}/renamed {bundle[-3:]}"]
        yield ["bundle", "conformance", bundle]
    for more in ([], ["--json"], ["--csv"]):
        yield ["predict", at["bundle"], at["samples"], *more]
    for run in (at["run"], at["task.toml"], f"{place}/none {EVIL}", f"sqlite:///{place}/none {EVIL}.db"):
        yield from (["show", run, *more] for more in ([], ["--all"], ["--trials"], ["--json"], ["0"], [EVIL]))
        yield from (
            ["report", run],
            ["diff", run, at["other"]],
            ["prior", "build", run, "--out", f"{place}/prior.toml"],
        )
        yield ["export", run, f"{place}/out", "--pick", EVIL]
    for task in (at["task.toml"], at["samples"], f"{EVIL}.py:task", EVIL):
        yield from (["describe", task], ["run", task, "--dry-run"], ["forget", task], ["labels", "check", task])
        yield from (["init", task, "--dry-run"], ["instant", task, "--out", f"{place}/x"], ["check", task])
    yield from (
        ["run", "digits", "--space", at["table.toml"]],
        ["run", "digits", "--prior", at["table.toml"], "--dry-run"],
    )
    yield from (["prior", "show", at["table.toml"]], ["plugins", "check", EVIL], ["plugins", "new", EVIL], [EVIL])
    yield from (["run", f"--{EVIL}"], ["store", "list"], ["worker", f"sqlite:///{EVIL}"])


def test_no_command_writes_what_steers_a_terminal(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    steering = dict[str, str]()
    count = 0
    for command in _commands(place):
        call(command)
        shown = "".join(capfd.readouterr())
        count += "\\x1b" in shown
        if found := {one for one in shown if one not in "\n\t" and unicodedata.category(one) in {"Cc", "Cf"}}:
            steering[ascii(" ".join(command))[:90]] = f"{found!a}: {ascii(shown)[:300]}"
    assert count > 50  # the names are shown, as text
    assert steering == {}
