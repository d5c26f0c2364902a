"""A tiny task, and the command line called in this process."""

from pathlib import Path

import pytest

from tests.cli.tiny_task import Cli, write_all
from tests.pretrained import with_rates
from tuner.cli.app import call


@pytest.fixture
def cache(cache: Path) -> Path:
    """A test's own cache, which shares what others measure of the device."""
    return with_rates(cache)


@pytest.fixture
def task(tmp_path: Path, cache: Path) -> Path:
    """A task on tiny pictures: its model knows cat and dog, the user adds hat."""
    return write_all(tmp_path)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], cache: Path) -> Cli:
    """The command line; an error must be one line."""

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = call([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        assert "Traceback" not in error
        lines = error.splitlines()
        if code:
            assert lines[-1].startswith("tuner: ")
            assert sum(line.startswith("tuner: ") for line in lines) == 1
        return code, lines[-1] if lines else ""

    return run


@pytest.fixture
def tune(cli: Cli, tmp_path: Path) -> Cli:
    """Run a task in `tmp_path / "run"`."""

    def run(task: object, *arguments: object) -> tuple[int, str]:
        return cli("run", task, "--space", tmp_path / "space.toml", "--out", tmp_path / "run", *arguments)

    return run
