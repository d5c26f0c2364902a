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
NAMES = ("handmoji", "drawings", "product_rating")


def lines_of(name: str) -> int:
    lines = (EXAMPLES / f"{name}.ini").read_text(encoding="utf-8").splitlines()
    return len([line for line in lines if line and not line.startswith("#")])


@pytest.mark.parametrize("name", ["handmoji", "product_rating"])
def test_the_applications_of_the_paper_take_fewer_than_30_lines(name: str) -> None:
    assert lines_of(name) < 30


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples and their data."""
    folder = tmp_path_factory.mktemp("examples")
    for name in NAMES:
        shutil.copy(EXAMPLES / f"{name}.ini", folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # quicker for so small a network
    try:
        runpy.run_path(str(EXAMPLES / "data.py"))["main"](folder)
    finally:
        torch.set_num_threads(threads)
    return folder


@pytest.mark.slow
def test_handmoji_trains_as_its_file_says_and_is_exported(
    cli: Cli, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, bundle = tmp_path / "run", tmp_path / "bundle"
    limits = ("--space", "smoke", "--time", "10m", "--trials", "1")
    assert cli("run", files / "handmoji.ini", *limits, "--out", run)[0] == 0
    first = printed_json(capsys, "show", run)["trials"][0]
    assert (first["state"], first["plan"]["split"]) == ("done", 2)  # of three blocks: the backbone is frozen
    recipe = {name: first["plan"]["recipe"][name] for name in ("epochs", "batch_size", "optimiser", "learning_rate")}
    assert recipe == {"epochs": 40, "batch_size": 8, "optimiser": "adam", "learning_rate": 0.01}
    assert first["plan"]["recipe"]["epsilon"] == 1e-7
    assert first["values"]["local_accuracy"] > 0.8  # of three symbols, learned from 15 drawings each
    assert cli("export", "--no-refit", run, bundle, "--pick", "0")[0] == 0
    drawings = np.fromfile(files / "handmoji_valid.dat", "<f4").reshape(-1, 64 + 3)
    np.save(tmp_path / "new.npy", drawings[0, :64].reshape(1, 8, 8))
    (answer,) = printed_json(capsys, "predict", bundle, tmp_path / "new.npy")["predictions"]
    assert answer["label"] in {"0", "1", "2"}


@pytest.mark.slow
def test_ratings_are_learned_from_the_numbers_of_users_and_products(
    cli: Cli, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    # on a busy machine the file's own settings would be too long for the space's 90 s
    limits = ("--space", "smoke", "--time", "10m", "--trials", "1")
    assert cli("run", files / "product_rating.ini", *limits, "--out", run)[0] == 0
    (first,) = printed_json(capsys, "show", run)["trials"]
    assert first["values"]["local_accuracy"] > 0.7  # R²
