"""Code that a run names is run on the user's own word, unless the run was made here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.results.test_folder import INFO, PLAN, record
from tuner.commands.bundles.export import export
from tuner.commands.tune.run import plugins_of_run
from tuner.errors import RunError
from tuner.results.folder import FILE, TRIALS, append_record, read_records, read_run, write_run
from tuner.results.records.config import RunConfig
from tuner.results.records.origin import KEY, is_own, mark_of
from tuner.results.run import Run

EVIL = "raise SystemExit('code of the run was run')"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"trial": 0}', "the record of trial 0 cannot be read"),
        ('{"state": "done"}', "the record cannot be read"),
        ('{"trial": "x"}', "the record cannot be read"),
        ('{"trial": 0, "state": "won", "plan": null}', "the record of trial 0 cannot be read"),
        ('{"trial": 0, "state": "done", "plan": 3}', "the record of trial 0 cannot be read"),
        ('{"trial": 0, "state": "done", "plan": null, "values": {"a": "b"}}', "the record of trial 0 cannot be read"),
    ],
)
def test_a_line_that_is_no_record_is_reported(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / TRIALS).write_text(line + "\n")
    with pytest.raises(RunError, match=says):
        read_records(tmp_path, INFO.template)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("values", "global_accuracy"), 9e18, "global_accuracy must be between 0 and 1"),
        (("plan", "data", "alpha"), 1e308, r"data.alpha must be in \[0, 1\]"),
        (("plan", "recipe", "learning_rate"), float("nan"), "recipe.learning_rate must be above 0"),
        (("trial",), float("inf"), "cannot convert float infinity"),
    ],
)
def test_values_that_no_trial_has_are_reported(place: tuple[str, ...], value: float, says: str, tmp_path: Path) -> None:
    content = replace(record(0), plan=PLAN).to_dict()
    inner = content
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    (tmp_path / TRIALS).write_text(json.dumps(content) + "\n")
    with pytest.raises(RunError, match=says):
        read_records(tmp_path, INFO.template)


def test_records_nested_too_deeply_are_left_out(tmp_path: Path) -> None:
    append_record(tmp_path, record(0))
    with (tmp_path / TRIALS).open("a") as file:
        file.write("[" * 100_000 + "\n")
    assert len(read_records(tmp_path, INFO.template)) == 1


@pytest.mark.parametrize("name", [FILE, TRIALS])
def test_links_and_pipes_of_a_run_are_not_read(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, INFO)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / "other").write_bytes(content)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("other")
    with pytest.raises(RunError, match="is a link, which may lead out of the folder"):
        Run.open(tmp_path)


def test_a_front_without_an_objectives_value_is_reported(tmp_path: Path) -> None:
    write_run(tmp_path, INFO)
    append_record(tmp_path, replace(record(0), plan=PLAN, values={"local_accuracy": float("nan")}))
    with pytest.raises(RunError, match="trial 0 has no value of local_accuracy"):
        Run.open(tmp_path)


def test_objectives_that_steer_a_terminal_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, INFO)
    content = json.loads((tmp_path / FILE).read_text())
    content["objectives"][0]["name"] = "\x1b[2J"
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(RunError, match="a name or unit is no text"):
        read_run(tmp_path)
