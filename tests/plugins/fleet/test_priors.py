"""Shared studies where runs' folders are taken: in a prior, to be compared, and in the dashboard."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.servers import Server
from tests.cli.printed import printed_json
from tests.plugins.fleet.conftest import BOARD, PHONE
from tuner.cli.app import call
from tuner.commands.runs.source import open_run
from tuner.errors import RunError
from tuner.results.prior.file import read_prior
from tuner.results.records.config import Budget
from tuner_dashboard.server import followed
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.study.reader import Reader
from tuner_priors.portfolio import build_prior
from tuner_report.diff import diff

Join = Callable[..., Any]
RECORDED = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the database of a study is kept for the next test that asks for it."""
    return tmp_path_factory.mktemp("full") / "study.db"


@pytest.fixture
def full(join: Join, address: str, kept: Path) -> str:
    """A study with four trials each of a board and of a telephone that is ten times slower."""
    file = Path(address.removeprefix("sqlite:///"))
    if kept.exists():
        shutil.copy(kept, file)
        return address
    board, phone = join("board", Budget(trials=8)), join("phone", Budget(trials=8), device=PHONE, slower=10.0)
    for _ in range(4):
        board.step()
        phone.step()
    shutil.copy(file, kept)
    return address


def test_a_prior_is_built_from_studies_and_folders_together(
    full: str, join: Join, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = f"{server.url}#prior"
    one = join("one", at=elsewhere)
    for _ in range(4):
        one.step()
    out = tmp_path / "prior.toml"
    made = printed_json(capsys, "prior", "build", full, RECORDED / "digits" / "run", elsewhere, "--out", out)
    prior = read_prior(out)
    assert made == {"schema": "prior-build-1", "prior": str(out), "plans": len(prior.plan), "tasks": 3}
    assert [source.trials for source in prior.task] == [8, len(open_run(RECORDED / "digits" / "run").records), 4]
    assert [source.kind.samples for source in prior.task] == ["samples"] * 3
    assert [source.kind.classes for source in prior.task] == [3, 10, 3]
    assert {each.task for plan in prior.plan for each in plan.expected} == {1, 2, 3}
    assert "sqlite" not in out.read_text()


def test_a_prior_takes_accuracies_of_all_kinds_and_seconds_of_the_kind_shown(full: str, join: Join) -> None:
    join("board again", Budget(trials=9)).step()  # the board has scored most trials now
    run = open_run(full)
    assert (run.info.kind, run.device) == (BOARD.name, "aarch64, 4 cores")
    (source,) = build_prior([full], print).task
    assert (source.trials, source.kind.device) == (9, "aarch64, 4 cores")
    assert open_run(full, PHONE.name).device == "aarch64, 1 core"


def test_trials_that_two_places_hold_count_once(full: str, tmp_path: Path, heard: Any) -> None:
    copied = tmp_path / "copy"
    copied.mkdir()
    with opened(read_address(full)) as storage:
        Reader(read_address(full), storage).write(copied)
    lines = copied / "trials.jsonl"
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:5]))
    prior = build_prior([str(copied), str(RECORDED / "digits" / "run"), full], heard.say)
    assert [source.trials for source in prior.task] == [4, 8]
    assert len(heard.lines) == 1
    assert heard.lines[0].endswith(f"holds trials of {full}: it is left out")


def test_a_study_without_a_finished_trial_is_named(join: Join, address: str, heard: Any) -> None:
    join("one")
    with pytest.raises(RunError, match=f"a prior needs finished trials, and {address} has none: wait for some"):
        build_prior([address], heard.say)
    build_prior([address, str(RECORDED / "digits" / "run")], heard.say)
    assert heard.lines[1:] == [f"warning: {address} has no finished trial yet: it is left out"]


@pytest.mark.parametrize("command", [["prior", "build"], ["diff", str(RECORDED / "digits" / "run")]])
def test_a_study_that_there_is_not_is_one_line(
    command: list[str], address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*command, f"{address}#other"]) == 1
    assert f"there is no study 'other' at {address}#other" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["report"],
        ["export", "bundle", "--artifacts", "weights"],
        ["worker"],
        ["prior", "build"],
        ["prior", "build", RECORDED / "digits" / "run"],
        ["diff", RECORDED / "digits" / "run"],
    ],
    ids=str,
)
def test_an_address_of_no_study_is_one_line_and_makes_no_file(
    command: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = 2 if command[0] in {"prior", "diff"} else 1

    def line_of(address: str, code: int) -> str:
        assert call([*map(str, [*command[:before], address, *command[before:]])]) == code
        (line,) = capsys.readouterr().err.splitlines()
        return line

    missing = f"sqlite:///{tmp_path / 'missing.db'}"
    assert line_of(missing, 1) == (
        f"tuner: there is no study at {missing}, as there is no such file: correct the address"
    )
    for address in ("s3://a", "foo://bar"):
        line = line_of(address, 2)
        assert line.startswith("tuner: the address of a study must begin with postgresql://, ")
        assert "--" not in line
    assert list(tmp_path.iterdir()) == []


def test_an_option_with_an_address_of_no_study_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "digits", "--time", "9h", "--study", "foo://bar"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tuner: --study must begin with postgresql://")
    assert line.endswith("got foo://: a study in a run folder needs no address, give --out")


def test_the_dashboard_follows_a_study(join: Join, address: str) -> None:
    one = join("one")
    with followed(address) as source:
        before = source.stamp()
        one.step()
        assert source.stamp() != before
        assert len(source.open().records) == 1


@pytest.mark.parametrize("out", ["nowhere/prior.toml", ".", "file/prior.toml"])
def test_a_prior_that_cannot_be_written_is_one_line(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert call(["prior", "build", str(RECORDED / "digits" / "run"), "-o", out]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tuner: the prior cannot be written to {out} (")
    assert line.endswith("): give another --out")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_two_studies_are_compared(full: str, join: Join, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = f"{full}#other"
    two = join("two", at=other, device=PHONE, slower=10.0, seed=4)
    for _ in range(3):
        two.step()
    content = printed_json(capsys, "diff", full, other)
    assert content["runs"] == [full, other]
    assert content["results"]["trials_done"] == [8, 3]
    assert content["notes"] == []  # both are shown as on the telephone, which both ran on
    assert "device" not in content["asked"]
    assert content["beaten"] is not None


def test_runs_of_different_devices_are_not_compared_in_costs() -> None:
    run = open_run(RECORDED / "digits" / "run")
    run = replace(run, info=replace(run.info, config=replace(run.info.config, deterministic=False)))
    named = [replace(run, info=replace(run.info, device=device)) for device in ("aarch64, 4 cores", "x86_64, 2 cores")]
    assert diff(*named).notes == ("costs are of different kinds of devices: aarch64, 4 cores and x86_64, 2 cores",)
    config = replace(run.info.config, deterministic=True)
    repeatable = [replace(one, info=replace(one.info, config=config)) for one in named]
    assert diff(*repeatable).notes == ()  # costs are of FLOPs
    assert (
        diff(named[0], replace(run, info=replace(run.info, device=""))).notes == ()
    )  # the folder of one that does not say it
