"""Studies that plugins open, by the scheme of their address."""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.cli.app import call
from tuner.commands.runs import source as reading
from tuner.commands.runs.source import open_run, run_to_export, shown_place
from tuner.errors import UsageError
from tuner.plugin import StudyOpener, StudyReader, hookimpl
from tuner.plugin.core import build_host
from tuner.results.run import Run

RUN = Path(__file__).parent.parent / "fixtures" / "digits" / "run"
ADDRESS = "postgresql://me:s3cret@127.0.0.1:1/db"


class Copied(StudyOpener):
    """Opens one study, which is a run's folder in truth."""

    def check(self, address: str, artifacts: str | Path | None = None) -> str:
        if artifacts == "nowhere":
            raise UsageError("artifacts are somewhere")
        return address.replace("secret", "***")

    def open(self, *_: Any) -> AbstractContextManager[Any]:
        raise NotImplementedError

    @contextmanager
    def read(self, address: str) -> Iterator[StudyReader]:
        assert address == "copied://secret"
        yield self

    def finished(self) -> int:
        return 0

    def write(self, folder: Path) -> None:
        for name in ("run.json", "trials.jsonl"):
            shutil.copy(RUN / name, folder)

    def fetch(self, trial: int, artifacts: str | Path, folder: Path) -> None:
        target = folder / "trials" / str(trial)
        target.mkdir(parents=True)
        shutil.copy(Path(artifacts) / str(trial) / "weights.safetensors", target)


@pytest.fixture
def _copied(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = SimpleNamespace(tuner_studies=hookimpl(lambda: {"copied": Copied()}))
    monkeypatch.setattr(reading, "build_host", lambda: build_host({"copied": plugin}, installed=False))


@pytest.mark.usefixtures("_copied")
def test_a_study_of_a_plugin_is_read_as_a_run() -> None:
    assert open_run("copied://secret").records == Run.open(RUN).records
    assert shown_place("copied://secret") == "copied://***"
    assert shown_place("runs/secret") == "runs/secret"
    with run_to_export("copied://secret", "best", RUN / "trials") as run:
        assert (run.folder / "trials" / str(run.best) / "weights.safetensors").is_file()


@pytest.mark.usefixtures("_copied")
def test_what_cannot_be_there_is_refused_before_a_study_is_opened() -> None:
    with pytest.raises(UsageError, match="artifacts are somewhere"), run_to_export("copied://s", "best", "nowhere"):
        pass
    with pytest.raises(UsageError, match="must begin with copied://, got other://: correct it, or give the fol"):
        open_run("other://me:secret@host")


@pytest.mark.parametrize("command", [("show", ADDRESS), ("run", "digits", "--study", ADDRESS)], ids=lambda one: one[0])
def test_where_no_plugin_opens_studies_one_line_says_so(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_PLUGINS", "-fleet")
    assert call([*command]) == 2
    errors = capsys.readouterr().err
    assert "needs a plugin that opens studies, and none is loaded: see `tuner plugins`, and TUNER_PLUGINS" in " ".join(
        errors.split()
    )
    assert "s3cret" not in errors


def test_a_study_without_a_scheme_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "digits", "--study", "me:s3cret@host/db"]) == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert "--study must begin with" in errors
    assert "got none: a study in a run folder needs no address, give --out" in errors
    assert "s3cret" not in errors
