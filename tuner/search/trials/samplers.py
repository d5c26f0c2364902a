"""Samplers: what suggests the values of knobs, of Optuna, of OptunaHub, or a user's own object."""

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.samplers import BaseSampler

from tuner.errors import UsageError, first_line
from tuner.search.space import HUB

#: Trials before a sampler learns from them; trials of a generation of NSGA-II: Optuna's 50 are more than a study has.
STARTUP_TRIALS, POPULATION = 8, 20
#: Classes of Optuna by the names of samplers, with their settings.
MADE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tpe": ("TPESampler", {"multivariate": True, "group": True, "n_startup_trials": STARTUP_TRIALS}),
    "gp": ("GPSampler", {"n_startup_trials": STARTUP_TRIALS}),
    "nsga2": ("NSGAIISampler", {"population_size": POPULATION}),
    "cmaes": ("CmaEsSampler", {"warn_independent_sampling": False}),
    "random": ("RandomSampler", {}),
}
#: Where OptunaHub keeps what it has fetched, in its cache.
KEPT = "github.com/optuna/optunahub-registry/main/package"


def sampler_of(kind: str | BaseSampler, seed: int) -> BaseSampler:
    """Return the sampler of a name, with a seed; an object as it is."""
    if isinstance(kind, BaseSampler):
        return kind
    if kind.startswith(HUB):
        return _of_hub(kind.removeprefix(HUB), seed)
    name, settings = MADE[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made: BaseSampler = getattr(optuna.samplers, name)(seed=seed, **settings)
        return made


def check_sampler(kind: Any, directions: Sequence[Literal["minimize", "maximize"]]) -> None:
    """Try a sampler on knobs that no trial has, some of them conditional, so that the study does not find out.

    Raises:
        UsageError: It is none, a library of its is missing, or it cannot search for so many objectives or such knobs.
    """
    name = kind if isinstance(kind, str) else type(kind).__name__
    if not isinstance(kind, str | BaseSampler):
        raise UsageError(f"sampler: must be a name or an object of optuna.samplers.BaseSampler, got {name}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(directions=directions, sampler=copy.deepcopy(sampler_of(kind, 0)))
        for number in range(4):
            trial = study.ask()
            trial.suggest_categorical("kind", ["one", "other"])
            trial.suggest_float(f"only {number % 2}", 0.1, 1.0, log=True)
            study.tell(trial, [float(number)] * len(directions))
    except UsageError:
        raise
    except ImportError as error:
        library = (error.name or name).partition(".")[0]
        raise UsageError(f"sampler {name} needs {library}, which is not installed: pip install {library}") from None
    except Exception as error:  # noqa: BLE001 - a sampler may raise anything
        why, most = first_line(error).rstrip("."), f"the study has {len(directions)} objectives"
        way_out = f"{most} (--objectives local_accuracy names one), and knobs that not every plan has: use tpe or gp"
        raise UsageError(f"sampler {name} cannot be used: {why}; {way_out}") from None


def _of_hub(name: str, seed: int) -> BaseSampler:
    """Return a sampler of OptunaHub that is on this disk: nothing is fetched."""
    try:
        import optunahub
    except ImportError:
        raise UsageError(f"sampler {HUB}{name} needs optunahub: pip install optunahub") from None
    cache = os.environ.get("OPTUNAHUB_CACHE_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "optunahub"
    root = Path(cache).expanduser() / KEPT
    if not (root / "samplers" / name).is_dir():
        way_out = f"optunahub.load_module('samplers/{name}') fetches it once"
        raise UsageError(f"sampler {HUB}{name} is not on this disk ({root}), and nothing is fetched: {way_out}")
    module = optunahub.load_local_module(f"samplers/{name}", registry_root=str(root))
    own: list[Any] = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, BaseSampler)]
    found: BaseSampler = next(one for one in own if one.__module__.startswith(module.__name__))(seed=seed)
    return found
