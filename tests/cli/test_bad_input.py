"""Bad input: one line with the rule, the value and the way out, exit 1, before any process starts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.tiny_task import SPACE, Cli, write
from tuner.bundle.format import new_folder
from tuner.errors import BudgetError, BundleError
from tuner.plan.example import example_model, example_task
from tuner.results.folder import Identity, RunInfo, write_run
from tuner.results.records.config import RunConfig
from tuner.store.store import open_store


def test_a_task_that_is_not_there(tune: Cli, task: Path, tmp_path: Path) -> None:
    code, line = tune(tmp_path / "none.toml")
    assert code == 1
    assert "none.toml: cannot be read (No such file" in line
    assert tune("digit")[1].startswith("tuner: no task 'digit' (did you mean 'digits'?): give a task.toml")
    assert not (tmp_path / "run").exists()


def no_data(task: Path) -> Path:
    return write(task.parent, "", local="local/nowhere")


def no_text(task: Path) -> Path:
    (task.parent / "broken.csv").write_bytes(b"path,label\n\xff\xfe")
    return write(task.parent, "", local="broken.csv")


def no_images(task: Path) -> Path:
    (task.parent / "local/train/scarf").mkdir()
    return task


def no_key(task: Path) -> Path:
    return write(task.parent, 'wieghts = "x.pth"')


def in_space(old: str, new: str) -> Callable[[Path], Path]:
    def edit(task: Path) -> Path:
        (task.parent / "space.toml").write_text(SPACE.replace(old, new))
        return task

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (no_data, "local/nowhere: no such file or folder for the train data: check the path in the task file"),
        (no_text, "broken.csv: cannot be read (it is not UTF-8 text"),
        (no_images, "local/train/scarf: no images ("),
        (no_key, "unknown key 'model.wieghts' (did you mean 'weights'?)"),
        (in_space("[limits]", "[limit]"), "limit: unknown key (did you mean 'limits'?)"),
        (in_space('time = "4m"', 'tme = "4m"'), "limits.tme: unknown limit (did you mean 'time'?)"),
        (in_space('"cache"]', '"cahce"]'), "there is no strategy 'cahce' (did you mean 'cache'?)"),
    ],
)
def test_a_task_or_a_space_that_cannot_be_used_is_named(
    tune: Cli, task: Path, edit: Callable[[Path], Path], message: str
) -> None:
    code, line = tune(edit(task))
    assert code == 1
    assert message in line
    assert not (task.parent / "run").exists()


def test_a_run_without_an_end_is_wrong_usage(tune: Cli, task: Path) -> None:
    code, line = tune(in_space('time = "4m"', "")(task))
    assert (code, "a run ends by --time or by --trials, but neither is given: add one" in line) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("--time", "soon"), 2, "--time must be a duration such as 90s, 5m or 1h30m, got 'soon'"),
        (("--time", "0s"), 2, "--time must be above zero, got '0s'"),
        (("--memory", "12"), 2, "--memory must be a size such as 512MB, 1GiB or 1G, got '12'"),
        (("--trials", "0"), 2, "--trials must be a whole number from 1 to 999999999, got '0'"),
        (("--memory", "9" * 400 + "GB"), 2, "--memory must be at most 1e+18, got '999"),
        (("--forget-at-most", "7"), 2, "--forget-at-most must be a share above 0"),
        (("--deterministic", "--time", "1s"), 2, "not after --time 1s: remove --time or --deterministic"),
        (("--folds", "1"), 2, "--folds must be a whole number from 2, got 1: leave it out"),
        (("--folds", "2.5"), 2, "whole number, got '2.5'"),
        (("--backend", "torhc"), 1, "there is no backend 'torhc' (did you mean 'torch'?)"),
    ],
)
def test_an_option_that_cannot_be_so_is_named(
    tune: Cli, task: Path, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    code, line = tune(task, *arguments)
    assert code == exit_code
    assert message in line
    assert not (task.parent / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "{}"), "is not a run: it has no run.json; `tuner run TASK --out "),
        (("export", "{}", "{}/out"), "is not a run: it has no run.json"),
        (("predict", "{}", "x.png"), "is not a bundle: it has no bundle.json; `tuner export RUN OUT` makes one"),
        (("describe", "{}/none.toml"), "none.toml: cannot be read"),
        (("run", "digits", "--space", "smok"), "there is no search space 'smok' (did you mean 'smoke'?): give a file"),
    ],
)
def test_names_of_something_else(cli: Cli, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    code, line = cli(*(argument.format(tmp_path) for argument in arguments))
    assert code == 1
    assert message in line


@pytest.mark.parametrize("under", ["", "/below"])  # a file is where a folder should be, or where its parent should be
@pytest.mark.parametrize("option", ["--out", "--store"])
def test_files_where_folders_should_be(cli: Cli, task: Path, option: str, under: str) -> None:
    (task.parent / "file").write_text("mine")
    where = f"{task.parent}/file{under}"
    rest = () if option == "--out" else ("--out", task.parent / "run")
    code, line = cli("run", task, "--space", task.parent / "space.toml", *rest, option, where)
    assert code == 1
    assert f"tuner cannot use the folder {where} (" in line
    assert (task.parent / "file").read_text() == "mine"


def test_a_file_where_the_cache_should_be(tune: Cli, cli: Cli, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (task.parent / "file").write_text("mine")
    monkeypatch.setenv("TUNER_CACHE", str(task.parent / "file"))
    for code, line in (tune(task), cli("store", "list"), cli("forget", "digits")):
        assert code == 1
        assert f"tuner cannot use the folder {task.parent}/file (File exists): give another one" in line


def test_a_bundle_where_something_else_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    for out, message in (
        ("file", "file is not a folder: give another folder"),
        ("full", "full is not empty: give another folder"),
        ("file/below", r"file/below cannot be made \(Not a directory\): give another folder"),
    ):
        with pytest.raises(BundleError, match=message), new_folder(tmp_path / out):
            pytest.fail("this would train")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "full"}


def test_a_cap_that_the_store_cannot_keep_is_named(tmp_path: Path) -> None:
    (tmp_path / "store" / "kinds").mkdir(parents=True)
    (tmp_path / "store" / "kinds" / "model-1").write_text("torch-fp32")
    with pytest.raises(
        BudgetError, match=r"^--storage 1\.0 MB is less than the files in .*store that are not features: give more$"
    ):
        open_store(tmp_path / "store", 0, "--storage 1.0 MB")


def test_a_run_that_exists_is_left_alone_without_resume_and_other_folders_always(tune: Cli, task: Path) -> None:
    run = task.parent / "run"
    run.mkdir()
    for name in ("journal.log", "letter.txt"):
        (run / name).write_text("dear")
        for more in ((), ("--resume",)):
            code, line = tune(task, *more)
            assert code == 1
            assert "is not empty and is not a run: give another --out" in line
    (run / "run.json").write_text("{}")
    code, line = tune(task)
    assert code == 1
    assert "holds a run already: add --resume to continue it, or give another --out" in line
    left = {path.name: path.read_text() for path in run.iterdir() if path.name != "lock"}
    assert left == {"journal.log": "dear", "letter.txt": "dear", "run.json": "{}"}


def test_a_resumed_run_whose_task_has_changed_is_refused(tune: Cli, task: Path) -> None:
    run = task.parent / "run"
    run.mkdir()
    identity = Identity(task="another", space="another", seed=0, deterministic=False)
    names, threads = ("task", "space"), 1
    write_run(run, RunInfo(identity, RunConfig("task.toml"), *names, threads, example_model(2), example_task(), ()))
    code, line = tune(task, "--resume")
    assert code == 1
    assert "was made with another task and space (now " in line
    assert "which --resume cannot change: give the same, or begin a new run from its front" in line
    (run / "run.json").write_text(json.dumps({"format": 99}))
    assert "has run format 99, this version reads 1: update tuner" in tune(task, "--resume")[1]
