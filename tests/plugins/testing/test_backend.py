"""The contract of backends: PyTorch's obeys it, and each of its checks fails for a bad one."""

import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.lib.delegate import Delegate
from tests.sessions import barely_pretrained
from tuner.backends.base import Exported, Session, Trial
from tuner.backends.extensions import Extensions
from tuner.backends.torch.backend import TorchBackend
from tuner.plan.info import ModelInfo
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner_testing import BackendContract

FAILS = pytest.fail.Exception


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
class TestTorchBackend(BackendContract):
    backend = TorchBackend()

    def task(self) -> Task:
        return barely_pretrained()


@dataclass(frozen=True)
class LikeTorch(TorchBackend):
    """PyTorch's backend, in sessions that differ."""

    name = "like"
    differing: Callable[[Session], Session]

    def open(self, task: Task, extensions: Extensions) -> Session:
        return self.differing(super().open(task, extensions))


class SameCuts(Delegate):
    @property
    def model(self) -> ModelInfo:
        model = super().model
        return replace(model, blocks=tuple(replace(block, cut="x") for block in model.blocks))


class FillsNothing(Delegate):
    def missing(self, plans: Any, store: Store) -> int:  # noqa: ARG002 - it looks at nothing
        return 5


class Changed(Delegate):
    """Trains, then changes what came out."""

    def __init__(self, session: Session, change: Callable[[Outcome], Outcome]) -> None:
        super().__init__(session)
        self._change = change

    def train(self, trial: Trial) -> Outcome:
        return self._change(super().train(trial))


class WritesNothing(Delegate):
    def train(self, trial: Trial) -> Outcome:
        outcome = super().train(trial)
        trial.weights.unlink()
        return outcome


class IgnoresTheSeed(Delegate):
    numbers = itertools.count()

    def train(self, trial: Trial) -> Outcome:
        return super().train(replace(trial, seed=trial.seed + next(self.numbers)))


class TrainsMore(Delegate):
    """Says that only the head trains, and trains one block more."""

    def train(self, trial: Trial) -> Outcome:
        return super().train(replace(trial, plan=deeper(trial.plan)))

    def export(self, plan: TrialPlan, weights: Path, folder: Path, **options: Any) -> Exported:
        return super().export(deeper(plan), weights, folder, **options)


def deeper(plan: TrialPlan) -> TrialPlan:
    return replace(plan, split=plan.split - 1)


class ExportsUnchecked(Delegate):
    def export(self, plan: TrialPlan, weights: Path, folder: Path, **options: Any) -> Exported:
        return replace(super().export(plan, weights, folder, **options), checks={})


class ExportsAnother(Delegate):
    """Exports a model of untrained weights."""

    def export(self, plan: TrialPlan, weights: Path, folder: Path, **options: Any) -> Exported:
        from safetensors.numpy import load_file, save_file

        save_file({name: 0 * value for name, value in load_file(weights).items()}, weights)
        return super().export(plan, weights, folder, **options)


def without(name: str) -> Callable[[Outcome], Outcome]:
    def change(outcome: Outcome) -> Outcome:
        values: Mapping[str, float] = outcome.values
        return replace(outcome, values={key: value for key, value in values.items() if key != name})

    return change


CHAIN = "test_the_model_is_described_as_a_chain_of_blocks"
SUPPORT = "test_asking_for_support_loads_no_tensor_library"
FILLING = "test_a_filled_store_lacks_nothing"
MEASURES = "test_training_measures_the_default_objectives_and_writes_weights"
REPEATS = "test_the_same_plan_and_seed_train_the_same"
PREFIX = "test_the_frozen_prefix_stays_as_it_was"
EXPORT = "test_the_export_computes_what_was_trained"


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("differing", "check", "message"),
    [
        (SameCuts, CHAIN, "must give every block a name and a cut of its own"),
        (FillsNothing, FILLING, "of 5 samples it computed .*, and 5 are missing after it"),
        (
            lambda session: Changed(session, without("peak_bytes")),
            MEASURES,
            "must measure peak_bytes, a fraction or a cost, but the outcome has nan",
        ),
        (
            lambda session: Changed(session, lambda outcome: replace(outcome, epochs=())),
            MEASURES,
            "must report 2 epochs, got 0",
        ),
        (WritesNothing, MEASURES, "must write the trained tail to `weights`, but there is no such file"),
        (IgnoresTheSeed, REPEATS, "losses of two equal trials must agree to 1e-05|accuracy was"),
        (TrainsMore, PREFIX, "must train the tail's 2570 scalars only, but"),
        (ExportsUnchecked, EXPORT, "logits must agree to 0.001, but they differ by None"),
        (ExportsAnother, EXPORT, "the trial scored .*, but model.onnx scores"),
    ],
)
def test_a_bad_backend_fails_the_contract(
    differing: Callable[[Session], Session], check: str, message: str, tmp_path: Path
) -> None:
    contract = type("Contract", (TestTorchBackend,), {"backend": LikeTorch(differing)})()
    arguments = () if check == CHAIN else (tmp_path,)
    with pytest.raises(FAILS, match=message):
        getattr(contract, check)(*arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_backend_that_loads_a_library_to_answer_fails_the_contract(
    jax: Callable[[str, str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from tuner.backends.torch.backend import TorchBackend\n"
        "class Eager(TorchBackend):\n"
        "    def supports(self, plan):\n"
        "        import jax\n"
    )
    eager = jax("eager_backend", source)
    monkeypatch.setitem(sys.modules, "eager_backend", eager)  # pickle asks for it by name
    contract = type("Contract", (TestTorchBackend,), {"backend": eager.Eager()})()
    with pytest.raises(FAILS, match=r"supports\(\) must load no tensor library, but it loads jax"):
        getattr(contract, SUPPORT)()


def test_every_check_of_the_backend_contract_has_been_seen_to_fail() -> None:
    checks = {name for name in vars(BackendContract) if name.startswith("test_")}
    assert checks == {CHAIN, SUPPORT, FILLING, MEASURES, REPEATS, PREFIX, EXPORT}
    assert len(checks) == 7
