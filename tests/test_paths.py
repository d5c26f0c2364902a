"""The paths of the README, each with the five commands of its page: photos, a sensor, texts, a plugin of one's own.

The limits of the pages are minutes. The environment, which every command reads, makes them two trials.
"""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.tiny_task import NET, SPACE, draw
from tests.plugins.text.subjects import write_folders, write_table
from tests.pretrained import with_weights
from tests.test_docs import ROOT, blocks, text
from tuner.cli.app import call
from tuner.runtime import Bundle
from tuner.task import open_task

#: Words of a sentence in the README.
MOST_WORDS = 25


def lines_of(page: str) -> list[str]:
    """Return the commands of a page's first block for the shell."""
    first = next(content for name, content in blocks("sh") if name == page)
    return first.splitlines()


def photos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort photos of two classes, and have a small network of one's own instead of torchvision's, with its weights."""
    for at, name in enumerate(("hat", "shirt")):
        for number in range(12):
            draw(Path("photos", "train", name, f"{number}.png"), 100 * at + number)
        draw(Path("photos", "test", name, "1.png"), 100 * at + 50)
    Path("net.py").write_text(NET, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(NET, names)  # noqa: S102 - the network above
    torch.save(names["build"]().state_dict(), "IMAGENET1K_V1")
    Path("space.toml").write_text(SPACE, encoding="utf-8")
    monkeypatch.setenv("TUNER_INIT_MODEL", "net.py:build")
    monkeypatch.setenv("TUNER_RUN_SPACE", "space.toml")


def sensor(_: pytest.MonkeyPatch) -> None:
    """Record seven gestures of others and of the user; the page's own task file opens, too."""
    random = np.random.default_rng(0)
    for gesture in range(7):
        wave = np.sin(np.arange(250) * (0.1 + 0.2 * gesture))
        for folder, number in (("others", 1), ("others", 2), ("mine", 1), ("mine", 2)):
            Path(folder, f"g{gesture}").mkdir(parents=True, exist_ok=True)
            signal = (wave + random.normal(0, 0.3, (8, 250))).astype(np.float32)
            np.save(Path(folder, f"g{gesture}", f"{number}.npy"), signal)
            np.save("recording.npy", signal)
    (task,) = [content for name, content in blocks("toml") if name == "your-sensor.md"]
    lines = [line.removeprefix("   ") for line in task.splitlines()]
    Path("hand.toml").write_text("\n".join(lines), encoding="utf-8")
    assert len(open_task("hand.toml").labels) == 7


def texts(_: pytest.MonkeyPatch) -> None:
    """Collect what Python's documentation says of two subjects, and of two that the model is to know."""
    write_folders(Path("texts"), ("numbers", "words"), 40)
    write_folders(Path("known-texts"), ("network", "files"), 40)
    write_folders(Path("inbox"), ("numbers", "words"), 5)
    Path("new.txt").write_text("Return the square root of a number, rounded to an integer.", encoding="utf-8")
    (table,) = [content for name, content in blocks("toml") if name == "your-texts.md"]
    write_table(Path("reviews.csv"), ("numbers", "words", "files"), 10)
    Path("hand.toml").write_text(table, encoding="utf-8")
    assert open_task("hand.toml").labels == ("files", "numbers", "words")


def plugin(_: pytest.MonkeyPatch) -> None:
    """Begin with nothing."""


def keeps_learning(capsys: pytest.CaptureFixture[str]) -> None:
    """Predict texts whose class their folder says, as the page's next command does, and train on them."""
    assert Bundle.open("texts-bundle").info.needs == "device-tuner 0.1.0"
    command = ["watch", "texts-bundle", "--samples", "inbox", "--once", "--json", "--enough", "10", "--any-time"]
    assert call(command) == 0
    *events, end = map(json.loads, capsys.readouterr().out.splitlines())
    labels = [event["label"] for event in events if "label" in event]
    assert {*labels} <= {"numbers", "words", "files", "network"}
    assert (len(labels), end["predicted"], end["kept"]) == (10, 10, 10)
    assert [event["round"] in {"accepted", "refused"} for event in events if "round" in event] == [True]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "prepare", "last"),
    [
        ("your-photos.md", photos, "photos/test/shirt/1.png"),
        ("your-sensor.md", sensor, "recording.npy"),
        ("your-texts.md", texts, "new.txt"),
        ("your-plugin.md", plugin, "dim"),
    ],
)
def test_the_five_commands_of_the_page_run(
    page: str,
    prepare: Callable[[pytest.MonkeyPatch], None],
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(tmp_path / "cache")))
    monkeypatch.setenv("TUNER_RUN_TRIALS", "2")
    prepare(monkeypatch)
    commands = [shlex.split(line, comments=True) for line in lines_of(page)]
    assert len(commands) == 5
    for program, *arguments in commands:
        assert program == "tuner"
        assert call(arguments) == 0, f"{arguments}: {capsys.readouterr().err}"
    assert last in capsys.readouterr().out.splitlines()[-1]
    if page == "your-texts.md":
        keeps_learning(capsys)
    assert f"(docs/{page})" in text(ROOT / "README.md").partition("\n## ")[0]


def test_a_sentence_of_the_readme_is_short() -> None:
    prose = re.sub(r"```.*?```", "", text(ROOT / "README.md"), flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    parts = [part for part in re.split(r"\n\n|\n- |\n\|| \| ", prose) if part.strip()]
    sentences = [" ".join(one.split()) for part in parts for one in re.split(r"(?<=[.!?:;])\s+", part)]
    assert [one for one in sentences if len(one.split()) > MOST_WORDS] == []
    assert len(sentences) >= 50
