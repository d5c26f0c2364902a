"""What every backend and its sessions obey."""

import pickle
import sys
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from tuner.backends.base import Backend, Exported, Session, Trial, export, silent
from tuner.backends.extensions import Extensions
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome
from tuner.results.scores.objectives import OBJECTIVES
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_testing.models.libraries import loaded_by

LOGITS_AGREE = 1e-3
LOSSES_AGREE = 1e-5
#: A trial is scored on stored 16-bit features, an export from the samples.
SCORES_AGREE = 0.02


class Trained(NamedTuple):
    """A plan that was carried out, what was measured, and the trained tail."""

    plan: TrialPlan
    outcome: Outcome
    weights: Path


class BackendContract:
    """What every backend obeys, shown on a task that trains in seconds.

    Attributes:
        backend: The one under test; can be pickled.
    """

    backend: ClassVar[Backend]

    def task(self) -> Task:
        """Return what to train on: by default the built-in digits."""
        return digits()

    def extensions(self) -> Extensions:
        """Return what plugins add to the backend: by default nothing, as `plan` needs nothing."""
        return Extensions()

    def plan(self, model: ModelInfo, task: Task) -> TrialPlan:
        """Return what to train: by default the last block for two epochs, from a cache where there is a prefix."""
        return TrialPlan(
            model,
            task_info(task),
            split=model.num_blocks - 1,
            cache=CachePlan("contract", 16) if model.num_blocks > 1 else CachePlan(),
            recipe=RecipePlan(epochs=2, learning_rate=1e-2),
            runtime=RuntimePlan(self.backend.name),
        )

    def test_the_model_is_described_as_a_chain_of_blocks(self) -> None:
        """At least one block; cuts differ, so that a block can be told by its cut."""
        model = self._opened().model
        cuts = [block.cut for block in model.blocks]
        if not cuts:
            pytest.fail(f"{self._who} must describe at least one block, but describes none")
        if len(set(cuts)) != len(cuts) or not all(block.name and block.cut for block in model.blocks):
            pytest.fail(f"{self._who} must give every block a name and a cut of its own, got {model.blocks}")
        for block in model.blocks:
            if min(block.flops, block.parameters, block.saved_bytes) < 0 or not block.in_shape:
                pytest.fail(f"{self._who} must describe blocks with numbers of at least 0, got {block}")
        if model.outputs != len(self.task().labels):
            pytest.fail(f"{self._who} must give one output per label, {len(self.task().labels)}, got {model.outputs}")
        if self._opened().model != model:
            pytest.fail(f"{self._who} must describe a task the same way each time, but two descriptions differ")

    def test_asking_for_support_loads_no_tensor_library(self) -> None:
        """The parent process asks for every plan, and must stay small."""
        plan = self.plan(self._opened().model, self.task())
        question = pickle.dumps((self.backend, plan))
        own = sys.modules[type(self.backend).__module__]
        file = Path(own.__file__ or "x")
        root = str(file.parents[own.__name__.count(".") + (file.name == "__init__.py")])  # it may not be installed
        code = f"import pickle, sys\nsys.path.insert(0, {root!r})\nbackend, plan = pickle.loads({question!r})"
        code += "\nreason = backend.supports(plan)"
        loaded = loaded_by(f"{code}\nif reason:\n    raise SystemExit(f'supports: {{reason}}')")
        if loaded:
            pytest.fail(f"{self._who}: supports() must load no tensor library, but it loads {loaded}")

    def test_a_filled_store_lacks_nothing(self, tmp_path: Path) -> None:
        """What `missing` announces is what `fill` runs the prefix on; after it, nothing is missing."""
        session, store = self._opened(), Store(tmp_path / "store")
        plan = self.plan(session.model, self.task())
        if not plan.cached:
            pytest.skip("the model has no prefix to cache")
        before = session.missing([plan], store)
        filling = session.fill([plan], store)
        after = session.missing([plan], store)
        if before <= 0 or filling.records != before or after != 0 or filling.stopped:
            pytest.fail(
                f"{self._who}: fill must store what is missing, but of {before} samples it computed {filling.records}, "
                f"and {after} are missing after it"
            )

    def test_training_measures_the_default_objectives_and_writes_weights(self, tmp_path: Path) -> None:
        """An outcome has every default measure, one entry an epoch, and the trained tail on disk."""
        trained = self._trained(tmp_path)
        values = trained.outcome.values
        for objective in OBJECTIVES:
            if objective.needs_global and self.task().global_ is None:
                continue
            value = values.get(objective.name, np.nan)
            if not 0 <= value <= (1 if objective.unit == "%" else np.inf):
                pytest.fail(
                    f"{self._who} must measure {objective.name}, a fraction or a cost, but the outcome has {value}"
                )
        epochs = len(trained.outcome.epochs)
        if epochs != trained.plan.recipe.epochs:
            pytest.fail(f"{self._who} must report {trained.plan.recipe.epochs} epochs, got {epochs}")
        if not trained.weights.is_file():
            pytest.fail(f"{self._who} must write the trained tail to `weights`, but there is no such file")

    def test_the_same_plan_and_seed_train_the_same(self, tmp_path: Path) -> None:
        """Equal accuracies, and losses equal to 1e-5 relative."""
        first, second = (self._trained(tmp_path / name).outcome for name in ("first", "second"))
        for name in ("local_accuracy", "global_accuracy"):
            if first.values.get(name) != second.values.get(name):
                pytest.fail(f"{self._who}: {name} was {first.values.get(name)}, then {second.values.get(name)}")
        losses = [[epoch["loss"] for epoch in outcome.epochs] for outcome in (first, second)]
        if not np.allclose(losses[0], losses[1], rtol=LOSSES_AGREE, atol=0):
            pytest.fail(
                f"{self._who}: the losses of two equal trials must agree to {LOSSES_AGREE:g}, but they are "
                f"{losses[0]}, then {losses[1]}"
            )

    def test_the_frozen_prefix_stays_as_it_was(self, tmp_path: Path) -> None:
        """Two seeds give models that differ in no more scalars than the tail has."""
        from safetensors.numpy import load_file

        states = []
        for seed in (1, 2):
            trained = self._trained(tmp_path / str(seed), seed)
            self._exported(trained, tmp_path / str(seed) / "out")
            states.append(load_file(tmp_path / str(seed) / "out" / "weights.safetensors"))
        differ = sum(int((value != states[1][name]).sum()) for name, value in states[0].items())
        tail = sum(block.parameters for block in trained.plan.model.blocks[trained.plan.split :])
        if not 0 < differ <= tail:
            pytest.fail(f"{self._who} must train the tail's {tail} scalars only, but {differ} differ between two seeds")

    def test_the_export_computes_what_was_trained(self, tmp_path: Path) -> None:
        """``model.onnx`` takes any batch, has one output a label, and scores what the trial scored."""
        from tuner.ort.session import Session as OrtSession

        task, trained, folder = self.task(), self._trained(tmp_path), tmp_path / "out"
        difference = self._exported(trained, folder).checks.get("largest_logit_difference")
        if difference is None or not difference <= LOGITS_AGREE:
            pytest.fail(
                f"{self._who}: the export's logits must agree to {LOGITS_AGREE:g}, but they differ by {difference}"
            )
        session = OrtSession(folder / "model.onnx")
        samples = task.local.val
        batch = task.batch(samples, range(len(samples)))
        logits = session.logits(batch)
        alone = session.logits(batch[:1])
        if logits.shape != (len(samples), len(task.labels)) or not np.allclose(logits[:1], alone, atol=LOGITS_AGREE):
            pytest.fail(f"{self._who}: model.onnx must take any batch, but {len(samples)} samples gave {logits.shape}")
        exported = task.targets.score(logits, samples.labels)
        scored = trained.outcome.values["local_accuracy"]
        if abs(exported - scored) > SCORES_AGREE:
            pytest.fail(f"{self._who}: the trial scored {scored:.3f}, but model.onnx scores {exported:.3f}")

    @property
    def _who(self) -> str:
        return f"backend {self.backend.name!r}"

    def _opened(self) -> Session:
        """Open the task anew: a session trains one plan at most, and exports what another one trained."""
        return self.backend.open(self.task(), self.extensions())

    def _trained(self, folder: Path, seed: int = 1) -> Trained:
        """Fill and train, in a folder of its own."""
        session, store = self._opened(), Store(folder / "store")
        plan = self.plan(session.model, self.task())
        if plan.cached:
            session.fill([plan], store)
        weights = folder / "trial" / "weights.safetensors"
        return Trained(plan, session.train(Trial(plan, seed, store, weights)), weights)

    def _exported(self, trained: Trained, folder: Path) -> Exported:
        folder.mkdir()
        asked: dict[str, Any] = {"trainable": False, "test": True, "report": silent}
        return export(self._opened(), plan=trained.plan, weights=trained.weights, folder=folder, **asked)
