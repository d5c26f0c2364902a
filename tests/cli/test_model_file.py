"""NNTrainer's model files as tasks: the examples are tuned, exported and predicted with through the command line."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.printed import printed_json
from tests.cli.tiny_task import Cli

EXAMPLES = Path(__file__).parents[2] / "examples" / "nntrainer"
NAMES = ("handmoji", "drawings")


def lines_of(name: str) -> int:
    lines = (EXAMPLES / f"{name}.ini").read_text(encoding="utf-8").splitlines()
    return len([line for line in lines if line and not line.startswith("#")])


def test_the_applications_of_the_paper_take_fewer_than_30_lines() -> None:
    assert lines_of("handmoji") < 30


@pytest.mark.slow
def test_handmoji_trains_as_its_file_says_and_is_exported(
    cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        shutil.copy(EXAMPLES / f"{name}.ini", tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # quicker for so small a network
    try:
        runpy.run_path(str(EXAMPLES / "data.py"))["main"](tmp_path)
    finally:
        torch.set_num_threads(threads)
    run, bundle = tmp_path / "run", tmp_path / "bundle"
    arguments = ("run", tmp_path / "handmoji.ini", "--space", "smoke", "--trials", "2", "--out", run)
    assert cli(*arguments)[0] == 0
    shown = printed_json(capsys, "show", run)
    first = shown["trials"][0]
    assert first["state"] == "done"
    assert first["plan"]["split"] == 2  # of three blocks: the backbone is frozen
    recipe = {name: first["plan"]["recipe"][name] for name in ("epochs", "batch_size", "optimiser", "learning_rate")}
    assert recipe == {"epochs": 40, "batch_size": 8, "optimiser": "adam", "learning_rate": 0.01}
    assert first["plan"]["recipe"]["epsilon"] == 1e-7
    assert first["values"]["local_accuracy"] > 0.8  # of three symbols, learned from 15 drawings each
    assert cli("export", run, bundle, "--pick", "0")[0] == 0
    drawings = np.fromfile(tmp_path / "handmoji_valid.dat", "<f4").reshape(-1, 64 + 3)
    np.save(tmp_path / "new.npy", drawings[0, :64].reshape(1, 8, 8))
    (answer,) = printed_json(capsys, "predict", bundle, tmp_path / "new.npy")["predictions"]
    assert answer["label"] in {"0", "1", "2"}
