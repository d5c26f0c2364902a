"""A plugin in a file takes part in a whole run: in the processes of trials, when it continues, and at export."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tuner
from tests.plugin.installed import STRATEGY, install
from tests.pretrained import with_weights
from tests.search.conftest import Heard, Moods, Tune
from tuner.cli.app import call
from tuner.errors import PluginError
from tuner.files import import_file
from tuner.results.folder import read_run, write_run
from tuner.results.run import Run
from tuner.runtime import Bundle

pytestmark = pytest.mark.slow
SPACE = """
strategies = ["gdm", "freeze", "cache", "mine"]
[knobs]
mine.used = true
[knobs.recipe]
epochs = { low = 1, high = 20 }
"""
ON_DIGITS = """
plugins = ["mine.py"]
strategies = ["freeze", "mine"]
rungs = false
[knobs]
mine.used = true
freeze.trainable_blocks = [1, 2]
recipe.batch_size = 32
recipe.epochs = 2
"""
SOURCE = STRATEGY.replace("NAME", "mine")


@pytest.fixture
def mine(tmp_path: Path, moods: Moods) -> Path:
    """A local plugin that notes in which processes it was loaded."""
    moods("well")
    path = tmp_path / "mine.py"
    noted = f"with open({str(tmp_path / 'loaded')!r}, 'a') as file: print(os.getpid(), file=file)"
    path.write_text(f"import os\n{noted}\n{SOURCE}")
    return path


@pytest.fixture
def digits(tmp_path: Path, cache: Path) -> Callable[[str, int], Run]:
    """Run the digits with PyTorch and the local plugin."""
    with_weights(cache)

    def go(source: str, trials: int) -> Run:
        (tmp_path / "mine.py").write_text(source)
        space = tmp_path / "digits.toml"
        space.write_text(ON_DIGITS)
        return tuner.run("digits", space=str(space), backend="torch", out=tmp_path / "run", trials=trials)

    return go


def kinds(run: Run) -> set[str]:
    return {edit.kind for record in run.records if record.plan for edit in record.plan.shape}


def test_trials_resuming_and_export_load_it(tune: Tune, mine: Path, tmp_path: Path) -> None:
    run = tune(SPACE, trials=2, plugins=[import_file(mine, "test")])
    assert [record.state for record in run.records] == ["done", "done"]
    assert kinds(run) == {"mine"}
    assert len(set((tmp_path / "loaded").read_text().split())) == 2  # this process, and that of the trials
    assert run.info.config.plugins == (str(mine),)
    assert run.info.plugins.keys() == {"gdm", "freeze", "cache", "mine", "misbehaving"}
    assert len(tune(SPACE, trials=3, resume=True).records) == 3
    recorded = Bundle.open(tuner.export(run, tmp_path / "bundle", refit=False)).info.plugins
    assert recorded["mine"].startswith("mine.py ")
    assert recorded.items() >= {("freeze", "device-tuner 0.1.0"), ("misbehaving", "misbehaving 1.0")}
    mine.write_text(f"{mine.read_text()}\n# changed")
    said = list[str]()
    tuner.export(run, tmp_path / "changed", refit=False, warn=said.append)
    (line,) = said
    assert re.fullmatch(
        r"the run was made with other plugins: plugin mine was mine\.py \w+, and is mine\.py \w+ now", line
    )


def test_one_that_a_space_names_relative_to_its_file_may_be_missing_later(
    tune: Tune, mine: Path, tmp_path: Path
) -> None:
    run = tune(f'plugins = ["./mine.py"]\n{SPACE}', trials=1)
    assert kinds(run) == {"mine"}
    mine.rename(tmp_path / "gone.txt")
    missing = r"^plugin 'mine' cannot be used: there is no file .*mine\.py: check the path, or put the file back$"
    with pytest.raises(PluginError, match=missing):
        tune(SPACE, trials=2, resume=True)
    with pytest.raises(PluginError, match=missing):
        tuner.export(run, tmp_path / "bundle")
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "mine.py"
    moved.write_text(SOURCE)
    assert len(tune(SPACE, trials=2, resume=True, plugins=[moved]).records) == 2


def test_a_refused_plugin_and_other_versions_are_said_by_a_run(
    tune: Tune, moods: Moods, heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moods("well")
    install(tmp_path / "site", "bias", "raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    run = tune(trials=1, listener=heard)
    assert "plugin bias takes no part: RuntimeError: no licence" in heard.lines
    write_run(run.folder, replace(read_run(run.folder), plugins={"freeze": "device-tuner 0.0.9"}))
    tune(trials=2, resume=True, listener=heard)
    assert "warning: plugin freeze was device-tuner 0.0.9, and is device-tuner 0.1.0 now" in heard.lines


def test_a_lowering_that_raises_is_named_with_its_plugin(digits: Callable[[str, int], Run]) -> None:
    source = SOURCE.replace("return tail.module", "raise KeyError('block')")
    line = source.splitlines().index("    raise KeyError('block')") + 1
    run = digits(source, 4)
    named = f"plugin 'mine', lowering 'mine': KeyError: 'block' (mine.py, line {line})"
    assert [record.reason for record in run.records[:3]] == [named] * 3
    assert "in lower" in run.records[0].notes[0]
    assert [record.plan.shape for record in run.records[3:] if record.plan] == [()]


def test_a_bundle_is_applied_with_the_plugin_that_made_it(
    digits: Callable[[str, int], Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tuner.export(digits(SOURCE, 1), tmp_path / "bundle", pick="0", refit=False)
    mine = tmp_path / "mine.py"
    assert call(["apply", str(made), "digits", str(tmp_path / "again"), "--plugin", str(mine)]) == 0
    assert "warning" not in capsys.readouterr().err
    assert Bundle.open(tmp_path / "again").info.plugins == Bundle.open(made).info.plugins
    assert call(["apply", str(made), "digits", str(tmp_path / "other")]) == 1
    printed = capsys.readouterr().err
    assert re.search(r"trained with other plugins: plugin mine was mine\.py \w+, and is not installed now", printed)
    assert "no installed plugin realises tail edit 'mine' on torch" in printed
    assert re.search(r"; install mine\.py \w+, or give its file by --plugin", printed)
    assert "scoring" not in printed
