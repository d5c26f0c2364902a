"""A worker that joins by the address alone trains what the study names, and runs no code that comes from elsewhere."""

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.search.conftest import SPACE
from tuner.cli.app import call
from tuner.errors import RunError
from tuner.results.records.config import RunConfig, RunRequest
from tuner.results.records.origin import mark_of
from tuner.results.run import Run
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.study.content import RUN
from tuner_fleet.worker import look_up

Join = Callable[..., Any]
Named = Callable[..., None]
TASK = """
import numpy as np
from tuner.task import Domain, InputSpec, ModelSpec, Task
from tuner.task.data.samples import ArraySamples

open({noted!r}, "a").close()

def samples(count, first, classes):
    pixels = np.random.default_rng(first + count).random((count, 1, 2, 2), np.float32)
    return ArraySamples(pixels, np.arange(count) % classes + first, InputSpec(kind="arrays"), "made up")

def task():
    return Task(
        name="made-up",
        model=ModelSpec("nowhere:build"),
        input=InputSpec(kind="arrays"),
        loss="single-label",
        local=Domain(samples(12, 2, 1), samples(4, 2, 1)),
        global_=Domain(samples(200, 0, 2), samples(8, 0, 2)),
        labels=("a", "b", "c"),
        head_rows=(0, 1),
        local_labels=(2,),
    )
"""


@pytest.fixture
def named(join: Join, address: str) -> Named:
    """Let the study at `address` name some code; as if it was begun on this device, or elsewhere."""
    join("one")

    def name(*, own: bool = False, marked: RunConfig | None = None, **changed: Any) -> None:
        config = RunConfig(**{"task": "digits", "space": "smoke", **changed})
        mark = mark_of(marked or config) if own or marked else "0" * 64
        with opened(read_address(address)) as storage:
            study = optuna.load_study(study_name="tuner", storage=storage)
            study.set_user_attr(RUN, {**study.user_attrs[RUN], "config": asdict(config), "mark": mark})

    return name


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (
            {"task": "/theirs/net.py:task", "space": "smoke"},
            r"its task /theirs/net.py:task may be .*, then give --task",
        ),
        (
            {"task": "digits", "space": "theirs.toml"},
            r"its search space theirs.toml may name code.*, then give --space",
        ),
        ({"plugins": ("/theirs/mine.py",)}, r"its plugin /theirs/mine.py is code: read it, then give --plugin"),
    ],
)
def test_code_that_a_study_from_elsewhere_names_is_refused(
    named: Named, address: str, changed: dict[str, Any], what: str
) -> None:
    named(**changed)
    with pytest.raises(RunError, match=f"was not begun on this device, and {what}$"):
        look_up(read_address(address), None, None, RunRequest())
    named(own=True, **changed)
    _, joined = look_up(read_address(address), None, None, RunRequest())
    assert joined.plugins == changed.get("plugins", ())


def test_a_worker_has_the_objectives_and_the_sampler_of_the_study_and_own_functions_are_plugins(
    named: Named, address: str
) -> None:
    named(own=True, objectives="local_accuracy,mine.py:worst", sampler="gp", plugins=("/my/mine.py:worst",))
    _, joined = look_up(read_address(address), None, None, RunRequest())
    assert (joined.objectives, joined.sampler) == ("local_accuracy,worst", "gp")
    assert joined.plugins == ("/my/mine.py:worst",)


def test_a_mark_is_of_the_code_that_it_was_made_for(named: Named, address: str) -> None:
    named(marked=RunConfig("digits", space="smoke"), plugins=("/theirs/mine.py",))
    with pytest.raises(RunError, match="was not begun on this device"):
        look_up(read_address(address), None, None, RunRequest())


def test_what_comes_with_tuner_and_what_the_user_names_is_taken(named: Named, address: str) -> None:
    named()
    task, joined = look_up(read_address(address), None, None, RunRequest())
    assert (task, joined.space, joined.plugins) == ("digits", "smoke", ())
    named(task="/theirs/net.py:task", space="theirs.toml", plugins=("/theirs/mine.py",))
    task, joined = look_up(read_address(address), "net.py:task", "space.toml", RunRequest(plugins=(Path("mine.py"),)))
    assert (task, joined.space, joined.plugins) == ("net.py:task", "space.toml", ("mine.py",))


def test_a_task_that_was_given_in_python_is_on_its_device_only(named: Named, address: str) -> None:
    named(own=True, task="<made-up>")
    with pytest.raises(RunError, match="is of a task given in Python: call"):
        look_up(read_address(address), None, None, RunRequest())


@pytest.mark.slow
def test_a_worker_needs_the_address_alone_where_the_study_was_begun(
    plugin: Path, moods: Callable[..., None], address: str, tmp_path: Path, cache: Path, capsys: Any
) -> None:
    assert plugin.is_dir()
    moods("well")
    task, space, noted = tmp_path / "mine.py", tmp_path / "space.toml", tmp_path / "loaded"
    task.write_text(TASK.format(noted=str(noted)))
    space.write_text(SPACE)
    begun = ["run", f"{task}:task", "--space", str(space), "--backend", "misbehaving", "--study", address]
    begun += ["--objectives", "local_accuracy,train_seconds", "--sampler", "random"]
    assert call([*begun, "--trials", "2", "--out", str(tmp_path / "one")]) == 0
    assert call(["worker", address, "--out", str(tmp_path / "two")]) == 0
    one, other = Run.open(tmp_path / "one"), Run.open(tmp_path / "two")
    assert [record.trial for record in other.records] == [record.trial for record in one.records] == [0, 1]
    assert other.info.worker != one.info.worker
    assert other.info.config.task == one.info.config.task
    noted.unlink()
    shutil.rmtree(cache)  # as on another device: the key is another one
    capsys.readouterr()
    assert call(["worker", address, "--out", str(tmp_path / "three")]) == 1
    assert "was not begun on this device, and its task" in capsys.readouterr().err
    assert not noted.exists()


def test_a_database_in_a_file_is_the_users_own_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with opened(read_address(f"sqlite:///{tmp_path / 'study.db'}")):
            assert not [path for path in tmp_path.iterdir() if path.stat().st_mode & 0o077]
    finally:
        os.umask(mask)
