"""The systemd unit in `examples/` runs a command that exists, under settings that systemd knows."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.cli.app import add_commands, app

UNIT = Path(__file__).parent.parent / "examples" / "systemd" / "tuner-watch.service"


def test_the_unit_starts_a_command_with_its_options() -> None:
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart=")]
    program, *words = shlex.split(line.removeprefix("ExecStart="))
    assert program.endswith("/.venv/bin/tuner")
    add_commands()
    command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    assert command.__name__ == "watch"
    assert (bound.kwargs["samples"], bound.kwargs["window"]) == ("%h/inbox", "01:00-05:30")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_knows_every_setting(tmp_path: Path) -> None:
    unit, program = tmp_path / UNIT.name, "%h/tuner/.venv/bin/tuner"
    for text, complaint in ((UNIT.read_text(), ""), (UNIT.read_text() + "\n[Service]\nPrivatNetwork=yes\n", "Privat")):
        assert program in text
        unit.write_text(text.replace(program, sys.executable))
        command = ["systemd-analyze", "verify", "--user", "--man=no", str(unit)]
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (complaint in done.stderr) if complaint else (done.returncode, done.stderr) == (0, "")
