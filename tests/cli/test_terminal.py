"""What a terminal shows at 80 and 120 columns: lines that fit, broken between words; colours, -v and -q."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

OLD = Path(__file__).parents[1] / "fixtures"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: Calls each command in one process, and marks where its output begins.
SCRIPT = """
import sys
from dataclasses import replace
from tuner.cli.app import call
from tuner_store import store
from tuner.commands.tune import dry_run
from tuner.commands.tune.dry_run import Depth, DryRun
from tuner_store.store import StoreFile
from tuner.results.records.config import Budget

depth = Depth(20, "train all", 123.4, 456.7, 10**10, 10**9, ("train-time", "memory", "storage"))
knobs = {"recipe.optimiser": "recipe.optimiser: one of sgd, adamw and more that make this line longer " * 3}
names = tuple(f"strategy{number}" for number in range(30))
depths = (depth, replace(depth, over=()))
preview = DryRun("photos", "board-10min", Budget(), names, names, knobs, 3600.0, 123456, depths)
dry_run.dry_run = lambda *_, **__: preview
cut = "features.18.conv of a long name " * 3
store.store_files = lambda _: [StoreFile("one", cut, 8, "torch", 10**6, 10**9, 0.1, 1.7e9)]
for command in sys.argv[1].split("\\n"):
    print(f"@@{command}", flush=True)
    call(command.split())
"""
COMMANDS = (
    "--help",
    "run --help",
    "export --help",
    f"show {OLD}/exits/run --all",
    f"show {OLD}/digits/run 3",
    f"show {OLD}/digits/run --trials",
    f"show {OLD}/exits/bundle",
    f"diff {OLD}/digits/run {OLD}/exits/run",
    "plugins",
    "store list",
    "run digits --dry-run",
    "rnu digits",
    "run digits --memory much",
    f"-q export {OLD}/digits/run out --pick bset",
    f"show {OLD}/digits/run --color never",
)


def on_terminal(width: int, *command: str) -> tuple[int, str]:
    """Run a command with its output on a terminal of so many columns; return its exit code and what it showed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}
    with subprocess.Popen(
        command, stdout=slave, stderr=slave, env={**environment, "TERM": "xterm-256color"}
    ) as process:
        os.close(slave)
        pieces = list[bytes]()
        while True:
            try:
                piece = os.read(master, 2**16)
            except OSError:  # the other end was closed
                break
            if not piece:
                break
            pieces.append(piece)
    os.close(master)
    return process.returncode, b"".join(pieces).decode().replace("\r\n", "\n")


def words(text: str) -> set[str]:
    """Return the words, without points: where a narrow table has no intervals, nothing is said of these after it."""
    return {word.rstrip(".;") for word in re.sub("[│╭╮╰╯─]", " ", text).split()}


def by_command(text: str) -> dict[str, str]:
    parts = re.split(r"^@@(.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def whole() -> dict[str, str]:
    """What the commands print where no line need be broken."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "\n".join(COMMANDS)],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "1000"},
    )
    return by_command(done.stdout)


@pytest.mark.parametrize("width", [80, 120])
def test_lines_fit_the_terminal_and_are_broken_between_words(width: int, whole: dict[str, str]) -> None:
    code, output = on_terminal(width, sys.executable, "-c", SCRIPT, "\n".join(COMMANDS))
    assert code == 0, output
    raw = by_command(output)
    assert "\x1b[" in raw[f"show {OLD}/exits/run --all"]
    assert "\x1b[" not in re.sub(r"\x1b\[[012]?m", "", raw[COMMANDS[-1]])  # bold is no colour
    shown = {command: ESCAPES.sub("", text) for command, text in raw.items()}
    assert list(shown) == list(whole) == list(COMMANDS)
    longest = 0
    for command, text in shown.items():
        assert text.strip(), command
        assert words(text) <= words(whole[command]), command
        for line in text.splitlines():
            is_one_word = len(line.split()) == 1  # a path may be longer than the terminal
            assert len(line) <= width or is_one_word, (command, line)
            longest = max(longest, min(len(line), width))
    assert longest > width - 10
