"""Whatever a name or a file is: one printable line, at once; in any locale."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.inputs.__main__ import answer_to
from benchmarks.inputs.malformed import Case, cases
from tests.cli.tiny_task import NET, Cli, draw, write
from tuner.printable import MOST_LETTERS, one_line, printable
from tuner.task import open_task

LOCALES = ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"})
NAMES = ("fifo", "zero", "folder", "loop", "none", "n" * 300)


@pytest.fixture
def special(tmp_path: Path) -> Path:
    for suffix in (".toml", ".ini"):
        os.mkfifo(tmp_path / f"fifo{suffix}")
        (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
        (tmp_path / f"loop{suffix}").symlink_to(tmp_path / f"loop{suffix}")
        (tmp_path / f"folder{suffix}").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "{}.toml"),
        ("forget", "{}.toml"),
        ("run", "TASK", "--space", "{}.toml"),
        ("describe", "TASK", "--plan", "{}.toml"),
        ("describe", "{}.ini"),
        ("run", "{}.py:task"),
        ("run", "TASK", "--plugin", "{}.py", "--trials", "1"),
    ],
)
def test_no_name_hangs_or_raises(cli: Cli, task: Path, special: Path, arguments: tuple[str, ...]) -> None:
    for name in NAMES:
        paths = (str(task) if part == "TASK" else part.replace("{}", f"{special}/{name}") for part in arguments)
        code, line = cli(*paths)
        assert (code, line[:7]) == (1, "tuner: ")


def test_an_empty_name_is_not_the_current_folder(cli: Cli, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(task.parent)
    for name in ("", " "):
        code, line = cli("run", name, "--space", "space.toml", "--trials", "1")
        assert code == 1
        assert line.startswith(f"tuner: the name of the task is empty, got {name!r}: give a task.toml, or . for the")


def test_first_plans_that_cannot_be_read_are_named_before_anything_is_loaded(cli: Cli, task: Path) -> None:
    space, prior = task.parent / "space.toml", task.parent / "prior.toml"
    run_of_digits = Path(__file__).parents[1] / "fixtures" / "digits" / "run"
    code, line = cli("run", task, "--space", space, "--from", "n" * 300)
    assert code == 1
    assert "File name too long" in line
    space.write_text(f'prior = "prior.toml"\n{space.read_text()}')
    for text, reason in (
        ("plan = 3", "plan: Input should be a valid array"),
        ("plan = [", "not valid TOML"),
        (None, "No such"),
    ):
        prior.unlink(missing_ok=True) if text is None else prior.write_text(text)
        for named in ((), ("--prior", prior)):
            code, line = cli("run", task, "--space", space, *named)
            assert code == 1
            assert reason in line
    code, line = cli("run", task, "--space", space, "--from", run_of_digits, "--prior", prior)
    assert (code, line) == (2, "tuner: --from and --prior both name what to start from: give one of them")


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--seed", "-1", "must be a whole number from 0 to 4294967295, got -1"),
        ("--seed", str(2**32), "must be a whole number from 0 to 4294967295, got 4294967296"),
        *(
            (option, value, f"must be a whole number, got '{value[:40]}'.")
            for option in ("--trials", "--seed")
            for value in ("1.5", "1e3", "x", "0x10", "9" * 5001, "")
        ),
    ],
)
def test_a_count_that_is_none_is_named(cli: Cli, task: Path, option: str, value: str, rule: str) -> None:
    code, line = cli("run", task, "--space", task.parent / "space.toml", option, value)
    assert code == 2
    assert f"{option} {rule}" in line


@pytest.mark.parametrize("name", ["", "a/b", "..", "n" * 201, "ü" * 101, "a\x1b[31mb", "a\nb", "a\0b"])
def test_a_task_has_a_name_that_a_folder_and_a_terminal_can_have(cli: Cli, task: Path, name: str) -> None:
    import tomli_w

    task.write_text(tomli_w.dumps({"name": name}) + task.read_text())
    code, line = cli("forget", task)
    assert code == 1
    assert "the name of a task must be printable, without / and of 1 to 200 bytes, got " in line
    assert line.isprintable()


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert printable("ü → 5 %") == "ü → 5 %"
    assert printable("a\x1b[2Jb\r\x07c\u202ed\x9be\udcff") == "a\\x1b[2Jb\\r\\x07c\\u202ed\\x9be\\udcff"
    assert printable("a\nb", keep="\n") == "a\nb"
    assert one_line("a\nb\x1b") == "a b\\x1b"
    assert len(one_line("x" * 10**6)) < MOST_LETTERS + 5


def test_an_error_that_names_a_hostile_file_is_one_printable_line(cli: Cli, task: Path) -> None:
    hostile = task.parent / "local" / "train" / "hat" / "\x1b]0;owned\x07\n\udcff.png"
    hostile.write_text("not pixels")
    code, line = cli("describe", task)
    assert code == 1
    assert "1 file cannot be used" in line
    assert "hat/\\x1b]0;owned\\x07 \\xff.png: not an image" in line
    assert cli("forget", task) == (0, "")  # all the same


@pytest.fixture
def named(tmp_path: Path, cache: Path) -> Path:
    """A task whose paths, classes and manifest have letters that are not ASCII, and bytes that are not UTF-8."""
    for number in range(4):
        draw(tmp_path / "tür" / "grün" / f"{number}.png", number)
        draw(tmp_path / "tür" / "blau" / f"{number}.png", number + 4)
    (tmp_path / "tür" / "blau" / "0.png").rename(tmp_path / "tür" / "blau" / os.fsdecode(b"\xff\xfe.png"))
    (tmp_path / "prüf.csv").write_text("path,label\ntür/grün/1.png,grün\ntür/blau/1.png,blau\n", encoding="utf-8")
    path = write(tmp_path, "", local="tür")
    text = path.read_text().partition("[global]")[0] + "[local]" + path.read_text().partition("[local]")[2]
    (tmp_path / "net.py").write_text(NET)
    path = tmp_path / "tür.toml"
    path.write_text('name = "tür"\n' + text.replace('"local/val"', '"prüf.csv"'), encoding="utf-8")
    return path


def test_any_name_is_read_in_any_locale_and_the_task_stays_the_same(named: Path) -> None:
    code = (
        "import sys; from tuner.task import open_task; task = open_task(sys.argv[1]); "
        "print(ascii(task.labels), task.fingerprint(), len(task.local.train), ascii(task.name))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, os.fsencode(named)],
            env={**os.environ, **locale},
            capture_output=True,
            check=True,
        ).stdout
        for locale in LOCALES
    }
    task = open_task(str(named))
    assert task.labels == ("blau", "grün")
    assert found == {f"{task.labels!a} {task.fingerprint()} 8 {'tür'!a}\n".encode()}


def test_a_line_is_printed_in_a_locale_of_ascii(named: Path) -> None:
    os.truncate(named.parent / "tür" / "grün" / "0.png", 30)
    answer = answer_to(Case("locale", ("describe", str(named)), tuple(LOCALES[0].items())))
    assert answer.kind == "one line", answer
    assert "1 file cannot be used" in answer.line


def test_a_few_of_the_benchmarks_inputs_are_answered_in_one_line(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inputs").mkdir()
    monkeypatch.chdir(tmp_path / "inputs")
    every = list(cases(tmp_path / "inputs", seed=0))
    assert len(every) >= 250
    assert len({case.name for case in every}) >= 250
    quick = [case for case in every if case.argv[0] == "forget" and not case.environment]
    chosen = np.random.default_rng(0).choice(len(quick), 5, replace=False)
    answers = [answer_to(quick[index]) for index in chosen]
    assert [answer for answer in answers if answer.kind != "one line"] == []


def test_names_that_no_file_can_have_are_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    code, line = cli("run", "digits", "--trials", "1", "--out", tmp_path / ("n" * 300))
    assert (code, len(line.splitlines())) == (1, 1)
    assert "File name too long" in line
    space = tmp_path / "nul.toml"
    space.write_text('plugins = ["a\\u0000b"]')
    code, line = cli("run", "digits", "--trials", "1", "--space", space, "--out", tmp_path / "run")
    assert code == 1
    assert "there is no file " in line
