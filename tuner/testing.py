"""The contracts of strategies and backends as tests; a third party's whole test is a subclass.

    class TestLastLayer(StrategyContract):
        strategy = LastLayer()

pytest collects the checks from the subclass. This module needs pytest; nothing else in `tuner` imports it.
"""

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tuner.backends.base import Backend
from tuner.compose import Composed, compose
from tuner.example import example_model, example_task
from tuner.knobs import Draw, Knob, Source, corners, fixed
from tuner.plan import CachePlan, ModelInfo, RecipePlan, RuntimePlan, Stage, TrialPlan
from tuner.results.objectives import OBJECTIVES
from tuner.results.records import Outcome
from tuner.store.store import Store
from tuner.strategy import Strategy
from tuner.task import Task, normalise
from tuner.task.digits import digits

__all__ = ["BackendContract", "StrategyContract", "example_model", "example_task"]

SIZES = (1, 2, 50)
#: Runs through a strategy's corners, per model; the ends of every knob come first.
MOST_CORNERS = 48
TENSOR_LIBRARIES = ("torch", "torchvision", "tensorflow", "jax", "onnxruntime")
LOGITS_AGREE = 1e-3
LOSSES_AGREE = 1e-5
#: A trial is scored on stored 16-bit features, an export from the samples.
SCORES_AGREE = 0.02


class StrategyContract:
    """What every strategy keeps to.

    Attributes:
        strategy: The one under test.
    """

    strategy: ClassVar[Strategy[Any]]

    @pytest.mark.parametrize("blocks", SIZES)
    def test_plans_are_legal_at_both_ends_of_every_knob(self, blocks: int) -> None:
        """Every corner of the knobs' ranges is a plan that keeps the rules."""
        seen = sum(1 for _ in self._composed(blocks))
        if not seen:
            pytest.fail(f"{self._who} wants at least one plan for {blocks} blocks, but there is none")

    @pytest.mark.parametrize("blocks", SIZES)
    def test_only_its_own_stage_is_written(self, blocks: int) -> None:
        """All other parts of the plan come back as they were given."""
        for before, knobs in self._sampled(blocks):
            after = self.strategy.apply(before, knobs)
            for part in ("model", "task", *Stage):
                if part != self.strategy.stage and getattr(before, part) != getattr(after, part):
                    pytest.fail(f"{self._who} writes {self.strategy.stage.value!r} only, but it wrote {str(part)!r}")

    @pytest.mark.parametrize("blocks", SIZES)
    def test_the_same_knobs_give_the_same_plan(self, blocks: int) -> None:
        """A recorded trial is replayed from its values, in this process or another."""
        for composed in self._composed(blocks):
            again = self._compose(fixed(composed.values), blocks)
            if again.plan != composed.plan or again.plan.key() != composed.plan.key():
                pytest.fail(
                    f"{self._who} gives one plan for the values {composed.values}, but it gave two: "
                    f"{composed.plan.settings()} and {again.plan.settings()}"
                )

    @pytest.mark.parametrize("blocks", SIZES)
    def test_no_range_depends_on_another_knob(self, blocks: int) -> None:
        """Whether a knob is drawn may depend on another; its range may not: draw a fraction and scale in `apply`."""
        seen: dict[str, Knob] = {}
        for composed in self._composed(blocks):
            for name, knob in composed.knobs.items():
                if seen.setdefault(name, knob) != knob:
                    pytest.fail(
                        f"{self._who} draws {name} from one range whatever other knobs are, but from two: "
                        f"{seen[name]}, and {knob} for {composed.values}: draw a fraction and scale it in `apply`"
                    )

    @pytest.mark.parametrize("blocks", SIZES)
    def test_plans_hash_and_read_back_equal(self, blocks: int) -> None:
        """A plan is a key of dictionaries, and TOML on disk."""
        for composed in self._composed(blocks):
            plan = composed.plan
            try:
                number, text = hash(plan), plan.to_toml()
            except TypeError as error:
                pytest.fail(f"{self._who} writes frozen, plain values, but {error}: {plan.settings()}")
            back = TrialPlan.from_toml(text)
            if back != plan or hash(back) != number or back.key() != plan.key():
                pytest.fail(
                    f"{self._who} gives plans that read back equal, but {plan.settings()} became {back.settings()}"
                )

    def test_sampling_and_applying_need_no_tensor_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Composing plans is arithmetic; a lowering is the place to import a tensor library."""
        for name in TENSOR_LIBRARIES:
            monkeypatch.setitem(sys.modules, name, None)
        try:
            for _ in self._composed(SIZES[-1]):
                pass
        except ImportError as error:
            pytest.fail(f"{self._who} composes plans without a tensor library, but {error}: import it in the lowering")

    def test_importing_the_plugin_loads_no_tensor_library(self) -> None:
        """``tuner plugins`` and ``tuner show`` import every plugin, on devices that have no tensor library."""
        module = type(self.strategy).__module__
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            found = None
        if found is None:
            pytest.skip(f"{module} is not importable by name")
        loaded = _loaded_by(f"import {module}")
        if loaded:
            pytest.fail(f"importing {module} loads no tensor library, but it loads {loaded}: import it in the lowering")

    @property
    def _who(self) -> str:
        return f"strategy {self.strategy.name!r}"

    def _compose(self, source: Source, blocks: int) -> Composed:
        others = [] if self.strategy.stage is Stage.SPLIT else [_Halved()]
        return compose([*others, self.strategy], source, example_model(blocks), example_task())

    def _composed(self, blocks: int) -> Iterator[Composed]:
        """Yield the plans at the corners of the knobs, for a model of which the first half is frozen."""
        made: list[Composed] = []
        for _ in corners(lambda source: made.append(self._compose(source, blocks)), most=MOST_CORNERS):
            yield made[-1]

    def _sampled(self, blocks: int) -> Iterator[tuple[TrialPlan, Any]]:
        """Yield the knobs at the corners, and a plan to apply them to in which every other part is set."""
        model = example_model(blocks)
        plan = TrialPlan(
            model,
            example_task(),
            split=blocks // 2,
            cache=CachePlan("other", 8),
            recipe=RecipePlan(epochs=3, batch_size=7),
            runtime=RuntimePlan("other", 3),
        )
        if self.strategy.stage is Stage.CACHE:
            plan = replace(plan, cache=CachePlan())
        drawn: list[Any] = []

        def sample(source: Source) -> None:
            drawn.append(self.strategy.sample(Draw(source, self.strategy.name), model))

        for _ in corners(sample, most=MOST_CORNERS):
            yield plan, drawn[-1]


class _Halved(Strategy[None]):
    """Freezes the first half, so that what depends on a frozen prefix is seen."""

    name, stage = "halved", Stage.SPLIT

    def sample(self, draw: Draw, model: ModelInfo) -> None:
        """Draw nothing."""

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        return replace(plan, split=plan.model.num_blocks // 2)


@dataclass(frozen=True, slots=True)
class Trained:
    """A plan that was carried out and exported.

    Attributes:
        plan: What was asked.
        outcome: What was measured.
        weights: The trained tail.
        folder: The export.
        checked: What the export's own check measured.
    """

    plan: TrialPlan
    outcome: Outcome
    weights: Path
    folder: Path
    checked: Mapping[str, Any]


class BackendContract:
    """What every backend keeps to, shown on a task that trains in seconds.

    Attributes:
        backend: The one under test; can be pickled.
    """

    backend: ClassVar[Backend]

    def task(self) -> Task:
        """Return what to train on: by default the built-in digits."""
        return digits()

    def plan(self, model: ModelInfo, task: Task) -> TrialPlan:
        """Return what to train: by default the last block for two epochs, from a cache where there is a prefix."""
        from tuner.tune import task_info

        return TrialPlan(
            model,
            task_info(task),
            split=model.num_blocks - 1,
            cache=CachePlan("cache", 16) if model.num_blocks > 1 else CachePlan(),
            recipe=RecipePlan(epochs=2, learning_rate=1e-2),
            runtime=RuntimePlan(self.backend.name),
        )

    def test_the_model_is_described_as_a_chain_of_blocks(self) -> None:
        """At least one block; cuts differ, so that a block can be told by its cut."""
        model = self.backend.describe(self.task())
        cuts = [block.cut for block in model.blocks]
        if not cuts:
            pytest.fail(f"{self._who} describes at least one block, but none")
        if len(set(cuts)) != len(cuts) or not all(block.name and block.cut for block in model.blocks):
            pytest.fail(f"{self._who} gives every block a name and a cut of its own, but {model.blocks}")
        for block in model.blocks:
            if min(block.flops, block.parameters, block.saved_bytes) < 0 or not block.in_shape:
                pytest.fail(f"{self._who} describes blocks in numbers of at least 0, but {block}")
        if model.outputs != len(self.task().labels):
            pytest.fail(f"{self._who} gives one output a label, {len(self.task().labels)}, but {model.outputs}")
        if self.backend.describe(self.task()) != model:
            pytest.fail(f"{self._who} describes a task the same way each time, but two descriptions differ")

    def test_asking_for_support_loads_no_tensor_library(self) -> None:
        """The parent process asks for every plan, and must stay small."""
        model = self.backend.describe(self.task())
        asked = pickle.dumps((self.backend, self.plan(model, self.task())))
        code = f"import pickle\nbackend, plan = pickle.loads({asked!r})\nreason = backend.supports(plan)\n"
        loaded = _loaded_by(f"{code}if reason:\n    raise SystemExit(f'supports: {{reason}}')")
        if loaded:
            pytest.fail(f"{self._who}: supports() loads no tensor library, but it loads {loaded}")

    def test_a_filled_store_lacks_nothing(self, tmp_path: Path) -> None:
        """What `missing` announces is what `fill` runs the prefix on; after it, nothing is missing."""
        task, store = self.task(), Store(tmp_path / "store")
        plan = self.plan(self.backend.describe(task), task)
        if not plan.cached:
            pytest.skip("the model has no prefix to cache")
        before = self.backend.missing(task, [plan], store)
        filling = self.backend.fill(task, [plan], store)
        after = self.backend.missing(task, [plan], store)
        if before <= 0 or filling.records != before or after != 0 or filling.stopped:
            pytest.fail(
                f"{self._who}: fill stores what is missing, but of {before} samples it ran {filling.records} and "
                f"{after} are missing after it"
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
                pytest.fail(f"{self._who} measures {objective.name}, a fraction or a cost, but the outcome has {value}")
        epochs = len(trained.outcome.epochs)
        if epochs != trained.plan.recipe.epochs:
            pytest.fail(f"{self._who} reports {trained.plan.recipe.epochs} epochs, but {epochs}")
        if not trained.weights.is_file():
            pytest.fail(f"{self._who} writes the trained tail to `weights`, but there is no file")

    def test_the_same_plan_and_seed_train_the_same(self, tmp_path: Path) -> None:
        """Equal accuracies, and losses equal to 1e-5 relative."""
        one, two = (self._trained(tmp_path / name).outcome for name in ("one", "two"))
        for name in ("local_accuracy", "global_accuracy"):
            if one.values.get(name) != two.values.get(name):
                pytest.fail(f"{self._who}: {name} was {one.values.get(name)}, then {two.values.get(name)}")
        losses = [[epoch["loss"] for epoch in outcome.epochs] for outcome in (one, two)]
        if not np.allclose(losses[0], losses[1], rtol=LOSSES_AGREE, atol=0):
            pytest.fail(f"{self._who}: losses agree to {LOSSES_AGREE:g}, but they are {losses[0]}, then {losses[1]}")

    def test_the_frozen_prefix_stays_as_it_was(self, tmp_path: Path) -> None:
        """Two seeds give models that differ in no more scalars than the tail has."""
        from safetensors.numpy import load_file

        one, two = (self._trained(tmp_path / str(seed), seed=seed, exported=True) for seed in (1, 2))
        states = [load_file(trained.folder / "weights.safetensors") for trained in (one, two)]
        differ = sum(int((value != states[1][name]).sum()) for name, value in states[0].items())
        tail = sum(block.parameters for block in one.plan.model.blocks[one.plan.split :])
        if not 0 < differ <= tail:
            pytest.fail(f"{self._who} trains the tail's {tail} scalars only, but {differ} differ between two seeds")

    def test_the_export_computes_what_was_trained(self, tmp_path: Path) -> None:
        """``model.onnx`` takes any batch, has one output a label, and scores what the trial scored."""
        from tuner.runtime.session import Session

        task, trained = self.task(), self._trained(tmp_path, exported=True)
        difference = trained.checked.get("largest_logit_difference")
        if difference is None or not difference <= LOGITS_AGREE:
            pytest.fail(f"{self._who}: the export's logits agree to {LOGITS_AGREE:g}, but they differ by {difference}")
        session = Session(trained.folder / "model.onnx")
        samples = task.local.val
        batch = normalise(np.stack([samples.load(index) for index in range(len(samples))]), task.input)
        logits = session.logits(batch)
        alone = session.logits(batch[:1])
        if logits.shape != (len(samples), len(task.labels)) or not np.allclose(logits[:1], alone, atol=LOGITS_AGREE):
            pytest.fail(f"{self._who}: model.onnx takes any batch, but {len(samples)} samples gave {logits.shape}")
        if task.loss == "single-label":
            exported = float((logits.argmax(axis=1) == samples.labels).mean())
            scored = trained.outcome.values["local_accuracy"]
            if abs(exported - scored) > SCORES_AGREE:
                pytest.fail(f"{self._who}: the trial scored {scored:.3f}, but model.onnx scores {exported:.3f}")

    @property
    def _who(self) -> str:
        return f"backend {self.backend.name!r}"

    def _trained(self, folder: Path, seed: int = 1, *, exported: bool = False) -> Trained:
        """Fill, train and, where asked for, export, in a folder of its own."""
        task, store = self.task(), Store(folder / "store")
        plan = self.plan(self.backend.describe(task), task)
        if plan.cached:
            self.backend.fill(task, [plan], store)
        weights, out = folder / "trial" / "weights.safetensors", folder / "out"
        outcome = self.backend.train(task, plan, seed, store, weights)
        checked: dict[str, Any] = {}
        if exported:
            out.mkdir()
            checked = self.backend.export(task, plan, weights, out)
        return Trained(plan, outcome, weights, out, checked)


def _loaded_by(code: str) -> str:
    """Return which tensor libraries a fresh interpreter has loaded after running `code`.

    Raises:
        AssertionError: The code failed.
    """
    script = f"{code}\nimport sys\nprint('loaded:', *(name for name in {TENSOR_LIBRARIES!r} if name in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    if ended.returncode != 0:
        raise AssertionError(f"a fresh interpreter fails: {ended.stderr.strip()}")
    return ", ".join(ended.stdout.splitlines()[-1].removeprefix("loaded:").split())
