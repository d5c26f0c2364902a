"""Code that a run names is run on the user's own word, unless the run was made here."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.results.test_folder import INFO, record
from tuner.commands.bundles.export import export
from tuner.commands.tune.run import plugins_of_run
from tuner.errors import RunError
from tuner.results.folder import append_record, write_run
from tuner.results.records.config import RunConfig, task_file
from tuner.results.records.origin import KEY, is_own, mark_of
from tuner.results.run import Run

EVIL = "raise SystemExit('code of the run was run')"


pytestmark = pytest.mark.usefixtures("cache")


def run_with(folder: Path, config: RunConfig, mark: str = "") -> Run:
    """Return a run of one trial with weights, as its folder says."""
    folder.mkdir()
    info = replace(INFO, config=config, mark=mark, objectives=INFO.objectives[:1])
    write_run(folder, info)
    append_record(folder, record(0))
    (folder / "trials/0").mkdir(parents=True)
    (folder / "trials/0/weights.safetensors").write_bytes(b"")
    return Run.open(folder)


def test_a_mark_is_of_the_names_and_of_this_users_key(cache: Path) -> None:
    config = RunConfig("/srv/task.toml", plugins=("/srv/mine.py",))
    mark = mark_of(config)
    assert is_own(config, mark)
    assert not is_own(replace(config, task="/srv/other.toml"), mark)
    assert not is_own(replace(config, plugins=()), mark)
    assert not is_own(config, "")
    assert not is_own(config, "ü" * 64)
    assert (cache / KEY).stat().st_mode & 0o777 == 0o600
    (cache / KEY).unlink()
    assert not is_own(config, mark)


def test_a_function_in_a_file_is_found_where_it_was_and_after_a_move(tmp_path: Path) -> None:
    (tmp_path / "old/runs").mkdir(parents=True)
    (tmp_path / "old/mine.py").touch()
    config = RunConfig(f"{tmp_path}/old/mine.py:make", home=f"{tmp_path}/old/runs")
    assert config.found(config.task, tmp_path / "old/runs") == config.task
    (tmp_path / "old").rename(tmp_path / "new")
    assert config.found(config.task, tmp_path / "new/runs") == f"{tmp_path}/new/mine.py:make"
    assert task_file(config.task) == (f"{tmp_path}/old/mine.py", "make")


def test_a_cache_that_cannot_be_written_makes_nobodys_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tuner.results.records.origin.write_private", full)
    assert mark_of(RunConfig("digits")) == ""
    assert not is_own(RunConfig("digits"), "")


@pytest.mark.parametrize("ending", ["evil.py:task", "evil.toml"])
def test_the_task_of_a_run_from_elsewhere_is_not_opened(ending: str, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "evil.toml").write_text('[model]\nfactory = "evil.py:build"\n')
    run = run_with(tmp_path / "run", RunConfig(str(tmp_path / ending)), "0" * 64)
    with pytest.raises(RunError, match=r"has no mark of this device .*, and its task .* may be code: .* give --task"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_plugin_of_a_run_from_elsewhere_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(EVIL)
    config = RunConfig("digits", plugins=(str(tmp_path / "evil.py"),))
    run = run_with(tmp_path / "run", config)
    with pytest.raises(RunError, match=r"its plugin .*evil\.py is code: read it, then give it by --plugin"):
        export(run, tmp_path / "out")
    with pytest.raises(RunError, match="is code: read it"):
        plugins_of_run(run.info, run.folder, [])
    assert plugins_of_run(run.info, run.folder, [str(tmp_path / "evil.py")]) == []
    own = replace(run.info, mark=mark_of(config))
    assert plugins_of_run(own, run.folder, []) == list(config.plugins)
