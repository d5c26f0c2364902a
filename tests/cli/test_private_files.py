"""What commands write is their user's own, whatever the mask; runs, stores and exports are in `test_privacy`.

`tuner plugins new` writes code to publish, and is left out.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fuzz.rooms import TASK
from tests.cli.tiny_task import draw
from tuner.cli.app import call

FIXTURES = Path(__file__).parents[1] / "fixtures"
DIGIT = min((FIXTURES / "inputs").glob("digit*.npy"))


@pytest.mark.parametrize("mask", [0o000, 0o022], ids=oct)
def test_what_commands_write_is_the_users_own(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, made = tmp_path / "given", tmp_path / "made"
    for folder in (given, made, made / "home"):
        folder.mkdir(mode=0o700)
    for place in ("HOME", "TUNER_CACHE", "TMPDIR"):
        monkeypatch.setenv(place, str(made / "home"))
    monkeypatch.chdir(made)
    for library in ("MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"):  # what these keep is theirs
        monkeypatch.setenv(library, str(given))
    shutil.copytree(FIXTURES / "digits" / "run", made / "run", copy_function=shutil.copyfile)
    shutil.copytree(FIXTURES / "digits" / "bundle", made / "bundle", copy_function=shutil.copyfile)
    for path in (*made.rglob("*"),):
        path.chmod(0o700 if path.is_dir() else 0o600)  # as they were made: not what is asked here
    for name in ("cat", "dog"):
        for number in range(4):
            draw(given / "photos" / name / f"{number}.png", number)
    rng = np.random.default_rng(0)
    for name in ("local", "global"):
        x_train, x_val = rng.random((2, 8, 1, 8, 8), np.float32)
        y = np.arange(8) % 2
        np.savez(given / f"{name}.npz", x_train=x_train, x_val=x_val, y_train=y, y_val=y)
    (given / "task.toml").write_text(TASK)
    model = (FIXTURES / "digits" / "bundle" / "model.onnx").read_bytes()
    (given / "model.onnx").write_bytes(model.replace(b"features", b"deepones"))  # a name that instant gives itself
    samples = ["--samples", str(FIXTURES / "inputs"), "--once", "--any-time", "--enough", "1000"]
    commands = (
        ["init", str(given / "photos"), "--out", str(made / "task.toml")],
        ["predict", str(made / "bundle"), str(DIGIT)],
        ["watch", str(made / "bundle"), *samples],
        ["status", str(made / "bundle")],
        ["labels", "rename", str(made / "bundle"), "9", "nine", "--out", str(made / "renamed")],
        ["instant", str(given / "task.toml"), "--model", str(given / "model.onnx"), "--out",
         str(made / "instant"), "--trainable"],
        ["bundle", "conformance", str(made / "bundle")],
        ["bundle", "check", str(made / "bundle")],
        ["report", str(made / "run")],
        ["prior", "build", str(made / "run"), "--out", str(made / "prior.toml")],
        ["show", str(made / "run"), "--json"],
        ["store", "list"],
    )  # fmt: skip
    before = os.umask(mask)
    try:
        codes = {" ".join(command[:2]): call(command) for command in commands}
    finally:
        os.umask(before)
    said = capsys.readouterr().err
    assert not {name for name, code in codes.items() if code}, said
    written = [made, *made.rglob("*")]
    assert len(written) > 40
    assert not [str(path) for path in written if not path.is_symlink() and path.stat().st_mode & 0o077]
