"""The store as a user meets it: its cap, what is kept between runs, listing, clearing, forgetting."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disk import standing_bytes
from tests.pretrained import with_weights
from tuner.cli.app import call

DATA = Path(os.environ["TUNER_DATA"])
CLOTHING = Path(__file__).parents[2] / "examples" / "clothing" / "task.toml"


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call the command line in a folder with a cache of its own; return what it prints."""
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(tmp_path / "cache")))
    monkeypatch.chdir(tmp_path)

    def printed(*arguments: str) -> str:
        capsys.readouterr()
        code, said = call(list(arguments)), capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return printed


@pytest.mark.slow
def test_a_second_run_starts_its_first_trial_without_a_prefix_forward(tuner: Callable[..., str]) -> None:
    for name in ("one", "two"):
        tuner("run", "digits", "--space", "smoke", "--trials", "2", "--out", name)
    one, two = (json.loads(tuner("show", name, "--json"))["spent"]["prefix_samples"] for name in ("one", "two"))
    assert one > 0
    assert two == 0
    listed = json.loads(tuner("store", "list", "--json"))["files"]
    assert sum(file["records"] for file in listed) > 0
    forgotten = json.loads(tuner("forget", "digits", "--json"))
    assert forgotten["records"] == sum(file["records"] for file in listed)
    again = json.loads(tuner("store", "list", "--json"))["files"]
    assert sum(file["records"] for file in again) == 0
    assert json.loads(tuner("store", "clear", "--json"))["freed_bytes"] > 0
    assert tuner("store", "list").strip() == "the store is empty"


#: Fills exact and coded features: together they take more than the cap leaves.
SHORT = """
strategies = ["gdm", "freeze", "cache"]
[knobs]
gdm.alpha = 0.05
freeze.trainable_blocks = 1
cache.by = "cache"
cache.bits = [16, 8]
recipe.epochs = [1, 2]
"""


def few_classes(folder: Path) -> Path:
    """Return a task of three kinds of clothes, on a model that knows 200 classes and is judged on twenty of them."""
    for part, count in (("local/train", 3), ("local/val", 3), ("global/train", 20), ("global/val", 20)):
        for classes in sorted((DATA / "images" / part).iterdir())[:count]:
            shutil.copytree(classes, folder / part / classes.name)
    text = CLOTHING.read_text(encoding="utf-8").replace("${TUNER_DATA}/images/", "").replace("${TUNER_DATA}", str(DATA))
    task = folder / "task.toml"
    task.write_text(text.replace("global/classes.tsv", str(DATA / "images" / "global" / "classes.tsv")))
    return task


@pytest.mark.slow
@pytest.mark.data
def test_the_storage_cap_holds_at_every_moment(tuner: Callable[..., str], tmp_path: Path) -> None:
    cap, most, over = 3_500_000, 0, threading.Event()
    watched = [tmp_path / "cache" / "store", tmp_path / "run"]
    (tmp_path / "short.toml").write_text(SHORT)

    def watch() -> None:
        nonlocal most
        while not over.is_set():
            most = max(most, standing_bytes(*watched))
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    asked = ["--space", "short.toml", "--storage", "3.5MB", "--trials", "3", "--time", "1m", "--out", "run"]
    try:
        tuner("run", str(few_classes(tmp_path)), *asked)
    finally:
        over.set()
        watcher.join()
    assert 0.4 * cap < most <= cap, f"{most} bytes of {cap}"
