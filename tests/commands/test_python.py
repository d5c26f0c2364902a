"""Calls as somebody who knows Optuna types them: each is understood, or names the argument and the way out."""

import logging
import shutil
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.plan.plans import PLAN
from tuner.commands.bundles.export import own_bytes
from tuner.commands.python import _as_text
from tuner.errors import TunerError, UsageError
from tuner.results.records.config import named_objectives
from tuner.results.run import Run

RUN = Path(__file__).parents[1] / "fixtures" / "digits" / "run"
DURATION = r"must be a duration such as 90s, 5m or 1h30m, got "

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("time", 180, "180s"),
        ("time", 0.5, "0.5s"),
        ("time", np.float32(2.5), "2.5s"),
        ("time", 100_000_000, "100000000s"),
        ("time", timedelta(minutes=2), "120s"),
        ("time", "2m", "2m"),
        ("train_time", 7, "7s"),
        ("stop_when_flat", timedelta(seconds=1.5), "1.5s"),
        ("memory", 10**9, "1000000000B"),
        ("memory", 1e9, "1000000000B"),
        ("memory", np.int64(5), "5B"),
        ("memory", "1GB", "1GB"),
        ("storage", 2**30, "1073741824B"),
        ("forget_at_most", 0.03, "0.03"),
        ("forget_at_most", "3%", "3%"),
        ("trials", 3, 3),
        ("trials", np.int64(3), 3),
        ("web", Path("dist"), Path("dist")),
        ("space", {"recipe.epochs": np.array([1, 2])}, '{"recipe.epochs": [1, 2]}'),
        ("out", Path("runs/a"), "runs/a"),
        ("store", Path("store"), "store"),
        ("space", Path("space.toml"), "space.toml"),
        ("space", {"recipe.epochs": (1, np.int64(2))}, '{"recipe.epochs": [1, 2]}'),
        ("space", {"plugins": [Path("a.py")]}, '{"plugins": ["a.py"]}'),
        ("resume", True, True),
        ("time", None, None),
    ],
)
def test_a_value_is_what_it_is_on_the_command_line(name: str, given: object, text: object) -> None:
    assert _as_text(name, given) == text


def worst(predictions: np.ndarray, labels: np.ndarray) -> float:
    """An objective of one's own."""
    return float(min((predictions[labels == one] == one).mean() for one in np.unique(labels)))


def test_a_function_is_named_by_its_file_and_one_without_a_name_is_refused() -> None:
    assert _as_text("objectives", ["local_accuracy", worst]) == f"local_accuracy,{__file__}:worst"
    assert _as_text("objectives", worst) == f"{__file__}:worst"
    for function in (lambda: 1.0, len):
        with pytest.raises(TunerError, match=r"^objectives: .* must be a function at the top level of a \.py file"):
            tuner.run("digits", objectives=["local_accuracy", function])
    with pytest.raises(TunerError, match=r"^there is no objective 'makro_f1' \(did you mean 'macro_f1'\?\)"):
        tuner.run("digits", objectives=["makro_f1"], out="none")


def test_a_path_with_a_comma_is_one_objective() -> None:
    named = named_objectives("local_accuracy, /a,b/mine.py:worst,macro_f1")
    assert named == [("local_accuracy", ""), ("worst", "/a,b/mine.py:worst"), ("macro_f1", "")]


def test_no_seed_is_any_seed() -> None:
    assert len({_as_text("seed", None) for _ in range(8)}) > 1


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"n_trials": 5}, TypeError, "'n_trials' (here it is 'trials')"),
        ({"timeout": 60}, TypeError, "'timeout' (here it is 'time')"),
        ({"callbacks": []}, TypeError, "'callbacks' (here it is 'on_event')"),
        ({"load_if_exists": True}, TypeError, "'load_if_exists' (here it is 'resume')"),
        ({"sampler": "gb"}, TunerError, "sampler: one of tpe, gp, nsga2, random, cmaes or hub:NAME, but it is 'gb'"),
        ({"pruner": None}, TypeError, "space={'rungs': False} leaves that out"),
        ({"n_jobs": 2}, TypeError, "start several runs with one study="),
        ({"direction": "maximize"}, TypeError, "unexpected keyword argument 'direction'"),
        ({"tiem": "5m"}, TypeError, "(did you mean 'time'?)"),
        ({"time": -5}, TunerError, f"time {DURATION}'-5s'"),
        ({"time": float("nan")}, TunerError, f"time {DURATION}'nans'"),
        ({"time": 0}, TunerError, "time must be above zero, got '0s'"),
        ({"time": "5 parsecs"}, TunerError, f"time {DURATION}'5 parsecs'"),
        ({"memory": "much"}, TunerError, "memory must be a size such as 512MB, 1GiB or 1G, got 'much'"),
        ({"forget_at_most": 3}, TunerError, "forget_at_most must be a share above 0 and at most 100%, such as 3%"),
        ({"trials": 0}, TunerError, "trials must be a whole number from 1"),
        ({"seed": -1}, TunerError, "seed must be a whole number from 0"),
        ({"folds": 1, "trials": 1}, TunerError, "folds must be a whole number from 2, got 1"),
        ({"deterministic": True, "time": 10}, TunerError, "remove time or deterministic=True"),
        ({"earlier": RUN, "prior": RUN, "trials": 1}, TunerError, "earlier and prior both name what to start from"),
        ({"space": "bord-10min"}, TunerError, "did you mean 'board-10min'"),
        ({"space": {"objectives": []}}, TunerError, "given: objectives: at least one name, but the list is empty"),
        ({"space": {"sampler": "cmae"}}, TunerError, "given: sampler: one of tpe, gp, nsga2, random, cmaes or"),
        (
            {"space": {"recipe.epochs": {"low": 5, "high": 1}}},
            TunerError,
            "given: knobs.recipe.epochs: a value, ",
        ),
    ],
    ids=str,
)
def test_an_error_names_the_argument_and_the_way_out(
    options: Mapping[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        tuner.run("digits", **options)
    assert said in str(raised.value)
    assert "--" not in str(raised.value)


def test_a_folder_in_use_names_the_arguments(tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "run")
    with pytest.raises(TunerError, match="add resume=True to continue it, or give another out"):
        tuner.run("digits", trials=1, out=tmp_path / "run")
    with pytest.raises(TunerError, match="is not empty and is not a run: give another out"):
        tuner.run("digits", trials=1, out=tmp_path)


@pytest.mark.slow
def test_a_run_of_numbers_warns_of_an_empty_front_and_its_progress_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tuner"), "propagate", False)  # pytest configures the root logger
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # a test of a notebook looks whether it is installed
    with pytest.warns(UserWarning, match=r"the front of .*run is empty: .*forget_at_most"):
        run = tuner.run(
            "digits",
            space={"gdm.alpha": 0.0, "gdm.weight": 1.0},
            trials=1,
            time=timedelta(minutes=5),
            memory=10**9,
            forget_at_most=0.0001,
            seed=None,
            out=tmp_path / "run",
        )
    assert run.front == ()
    assert "trial 0 " in capsys.readouterr().err
    with pytest.raises(TunerError, match=r"do not count because of forget_at_most; nearest miss: trial 0"):
        tuner.export(run, tmp_path / "out", 99)


def test_dir_and_version_are_those_of_a_package() -> None:
    assert {"run", "Run", "export", "load_task", "__version__"} <= {*dir(tuner)}
    assert tuner.__version__
    assert isinstance(tuner.Run.open(RUN), Run)


def test_no_sample_is_kept_by_a_zero_of_any_unit() -> None:
    sizes = {"0": 0, "0B": 0, "0 MB": 0, "10MB": 10**7}  # a number from Python is in bytes
    assert {text: own_bytes(text, PLAN, 0, trainable=True) for text in sizes} == sizes
    with pytest.raises(UsageError, match="--replay must be"):
        own_bytes("GiB", PLAN, 0, trainable=True)
