"""Samplers by name and as objects: those of Optuna, those of OptunaHub on this disk, and what they cannot do."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Literal

import optuna
import pytest

from tuner.errors import TunerError
from tuner.search.space import SAMPLERS, checked_sampler
from tuner.search.trials.samplers import check_sampler, sampler_of

ONE: list[Literal["minimize", "maximize"]] = ["maximize"]
TWO: list[Literal["minimize", "maximize"]] = ["maximize", "minimize"]


def test_a_name_is_a_class_of_optuna_and_an_object_stays() -> None:
    made = [type(sampler_of(name, 3)).__name__ for name in SAMPLERS]
    assert made == ["TPESampler", "GPSampler", "NSGAIISampler", "RandomSampler", "CmaEsSampler"]
    own = optuna.samplers.RandomSampler(seed=1)
    assert sampler_of(own, 3) is own
    check_sampler(own, ONE)
    assert checked_sampler(own) == "RandomSampler"


@pytest.mark.parametrize(
    ("sampler", "directions", "said"),
    [
        ("cmaes", TWO, r"^sampler cmaes cannot be used: .*; the study has 2 objectives \(--objectives local_accuracy "),
        ("cmaes", ONE, "^sampler cmaes needs cmaes, which is not installed: pip install cmaes$"),
        (optuna.samplers.GridSampler({"other": [1, 2]}), ONE, "^sampler GridSampler cannot be used: "),
        (3, ONE, "^sampler: must be a name or an object of optuna.samplers.BaseSampler, got int$"),
        ("hub:none", ONE, "^sampler hub:none needs optunahub: pip install optunahub$"),
    ],
)
def test_what_a_sampler_cannot_do_is_one_line(
    monkeypatch: pytest.MonkeyPatch, sampler: object, directions: list[Literal["minimize", "maximize"]], said: str
) -> None:
    for library in ("optunahub", "cmaes"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TunerError, match=said):
        check_sampler(sampler, directions)


def test_a_sampler_of_optunahub_is_loaded_from_this_disk_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, own = ModuleType("optunahub"), ModuleType("own")

    class OwnSampler(optuna.samplers.RandomSampler):
        pass

    OwnSampler.__module__, own.OwnSampler = "own", OwnSampler  # type: ignore[attr-defined]
    hub.load_local_module = lambda _package, **_: own  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "optunahub", hub)
    monkeypatch.setenv("OPTUNAHUB_CACHE_HOME", str(tmp_path))
    with pytest.raises(TunerError, match=r"^sampler hub:own is not on this disk \(.*\), and nothing is fetched: "):
        sampler_of("hub:own", 1)
    (tmp_path / "github.com/optuna/optunahub-registry/main/package/samplers/own").mkdir(parents=True)
    assert isinstance(sampler_of("hub:own", 1), OwnSampler)
