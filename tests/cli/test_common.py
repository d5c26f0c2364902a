"""Options of every command: where they may stand, what they show and hide, and that nothing of them stays."""

import logging
import os
import re
from pathlib import Path

import pytest

from tuner.cli.app import call
from tuner.cli.common import applied, split
from tuner.cli.options import note, progress
from tuner.errors import UsageError
from tuner.results.records.trial import TrialRecord

RUN = Path(__file__).parents[1] / "fixtures" / "digits" / "run"


@pytest.mark.parametrize(
    ("arguments", "rest", "verbosity", "color"),
    [
        (["show", "RUN"], ("show", "RUN"), 0, "auto"),
        (["-v", "show", "RUN", "-vv"], ("show", "RUN"), 3, "auto"),
        (["show", "--verbose", "RUN", "--quiet", "-q"], ("show", "RUN"), -1, "auto"),
        (["show", "--color", "never", "RUN"], ("show", "RUN"), 0, "never"),
        (["--color=always", "show"], ("show",), 0, "always"),
        (["predict", "B", "--", "-v", "--color"], ("predict", "B", "--", "-v", "--color"), 0, "auto"),
        (["watch", "B", "--samples", "-"], ("watch", "B", "--samples", "-"), 0, "auto"),
    ],
)
def test_the_common_options_stand_anywhere_before_two_hyphens(
    arguments: list[str], rest: tuple[str, ...], verbosity: int, color: str
) -> None:
    common = split(arguments)
    assert (common.rest, common.verbosity, common.color) == (rest, verbosity, color)


@pytest.mark.parametrize("arguments", [["--color"], ["--color", "nevr", "show"], ["show", "--color="]])
def test_a_colour_that_is_none_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--color must be one of auto, always, never, got"):
        split(arguments)
    assert call(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("-q", []),
        ("--color=auto", ["warning: slow", "a line", "a note"]),
        ("-v", ["warning: slow", "info: found", "a line", "trial 3 rejected: too large", "a note"]),
        ("-vv", ["warning: slow", "KeyError: 'block'", "info: found", "debug: detail", "a line", "trial 3", "a note"]),
    ],
)
def test_more_or_fewer_messages(option: str, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("tuner.plugin.host")
    with applied(split([option])):
        log.warning("slow", exc_info=KeyError("block"))
        log.info("found")
        log.debug("detail")
        logging.getLogger("tuner.run").warning("what progress shows itself")
        listener = progress()
        listener.say("a line")
        listener.trial(TrialRecord(3, "rejected", None, reason="too large"))
        note("a note")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(shown)
    assert [line for line, start in zip(lines, shown, strict=True) if not line.startswith(start)] == []


def test_colours_are_of_one_command_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    before = dict(os.environ), logging.getLogger("tuner").level, list(logging.getLogger("tuner").handlers)
    assert call(["show", str(RUN), "--color", "always"]) == 0
    assert "\x1b[" in capsys.readouterr().out
    assert (dict(os.environ), logging.getLogger("tuner").level, list(logging.getLogger("tuner").handlers)) == before
    assert call(["show", str(RUN)]) == 0
    assert "\x1b[" not in capsys.readouterr().out
    assert call(["show", str(RUN), "--json", "--color", "always"]) == 0
    assert re.fullmatch(r"\{[^\x1b\n]*\n", capsys.readouterr().out)  # one line whatever the colour


def test_help_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["store", "list", "--help"]):
        assert call(arguments) == 0
        output = capsys.readouterr().out
        assert [option for option in ("-v ", "-vv", "-q ", "--color", "NO_COLOR") if option not in output] == []
