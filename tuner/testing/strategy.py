"""What every strategy obeys."""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan, Stage
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, StrategyError, compose
from tuner.plugin.knobs import Draw, Knob, ValueSource
from tuner.plugin.sources import corners, fixed_values
from tuner.plugin.strategy import Strategy
from tuner.testing.libraries import TENSOR_LIBRARIES, loaded_by

SIZES = (1, 2, 50)
#: Runs through a strategy's corners, per model; the ends of every knob come first.
MOST_CORNERS = 48


class StrategyContract:
    """What every strategy obeys.

    Attributes:
        strategy: The one under test.
    """

    strategy: ClassVar[Strategy[Any]]

    @pytest.mark.parametrize("blocks", SIZES)
    def test_plans_are_legal_at_both_ends_of_every_knob(self, blocks: int) -> None:
        """Every corner of the knobs' ranges is a plan that obeys the rules."""
        seen = sum(1 for _ in self._composed(blocks))
        if not seen:
            pytest.fail(f"{self._who} must allow at least one plan for {blocks} blocks, but there is none")

    @pytest.mark.parametrize("blocks", SIZES)
    def test_only_its_own_stage_is_written(self, blocks: int) -> None:
        """All other parts of the plan come back as they were given."""
        for before, knobs in self._sampled(blocks):
            after = self.strategy.apply(before, knobs)
            for part in ("model", "task", *Stage):
                allowed = {self.strategy.stage, *self.strategy.writes}
                if part not in allowed and getattr(before, part) != getattr(after, part):
                    pytest.fail(f"{self._who} may write {self.strategy.stage.value!r} only, but it wrote {str(part)!r}")

    @pytest.mark.parametrize("blocks", SIZES)
    def test_the_same_knobs_give_the_same_plan(self, blocks: int) -> None:
        """A recorded trial is replayed from its values, in this process or another."""
        for composed in self._composed(blocks):
            again = self._compose(fixed_values(composed.values), blocks)
            if again.plan != composed.plan or again.plan.key() != composed.plan.key():
                pytest.fail(
                    f"{self._who} must give one plan for the values {composed.values}, but it gave two: "
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
                        f"{self._who} must draw {name} from one range, whatever other knobs are, but it used two: "
                        f"{seen[name]}, and {knob} for {composed.values}: draw a fraction and scale it in `apply`"
                    )

    @pytest.mark.parametrize("blocks", SIZES)
    def test_plans_hash_and_read_back_equal(self, blocks: int) -> None:
        """A plan is a key of dictionaries, and TOML on disk."""
        for composed in self._composed(blocks):
            plan = composed.plan
            try:
                number, text = hash(plan), to_toml(plan)
            except TypeError as error:
                pytest.fail(f"{self._who} must write frozen, plain values, but {error}: {plan.settings()}")
            back = from_toml(text)
            if back != plan or hash(back) != number or back.key() != plan.key():
                pytest.fail(
                    f"{self._who} must give plans that are the same after being saved and read, but "
                    f"{plan.settings()} became {back.settings()}"
                )

    def test_sampling_and_applying_need_no_tensor_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Composing plans is arithmetic; a lowering is the place to import a tensor library."""
        for name in TENSOR_LIBRARIES:
            monkeypatch.setitem(sys.modules, name, None)
        try:
            for _ in self._composed(SIZES[-1]):
                pass
        except StrategyError as error:
            cause = error.__cause__
            if not isinstance(cause, ImportError):
                raise
            pytest.fail(
                f"{self._who} must compose plans without a tensor library, but {cause}: import it in the lowering"
            )

    def test_importing_the_plugin_loads_no_tensor_library(self) -> None:
        """``tuner plugins`` and ``tuner show`` import every plugin, on devices that have no tensor library."""
        module = type(self.strategy).__module__
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            pytest.skip(f"{module} is not importable by name")
        loaded = loaded_by(f"import {module}")
        if loaded:
            pytest.fail(
                f"importing {module} must load no tensor library, but it loads {loaded}: import it in the lowering"
            )

    @property
    def _who(self) -> str:
        return f"strategy {self.strategy.name!r}"

    def _compose(self, source: ValueSource, blocks: int) -> Composed:
        others = [] if self.strategy.stage is Stage.SPLIT else [_Halved()]
        return compose([*others, self.strategy], source, example_model(blocks), example_task())

    def _composed(self, blocks: int) -> Iterator[Composed]:
        """Yield the plans at the corners of the knobs, for a model of which the first half is frozen."""
        plans: list[Composed] = []
        for _ in corners(lambda source: plans.append(self._compose(source, blocks)), most=MOST_CORNERS):
            yield plans[-1]

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

        def sample(source: ValueSource) -> None:
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
