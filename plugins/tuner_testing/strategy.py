"""What every strategy obeys."""

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan, Stage
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import Composed, StrategyError
from tuner.plugin.core import build_host
from tuner.plugin.knobs import Draw, Knob, ValueSource
from tuner.plugin.sources import corners, fixed_values, preferred_values
from tuner.plugin.strategy import Strategy
from tuner_testing.hosting import require_hosted
from tuner_testing.models.composing import MOST_CORNERS, Another, composed_by, corners_of
from tuner_testing.models.libraries import TENSOR_LIBRARIES, require_light_import

SIZES = (1, 2, 50)


class StrategyContract:
    """What every strategy obeys.

    Attributes:
        strategy: The one under test.
    """

    strategy: ClassVar[Strategy[Any]]

    def test_the_host_accepts_it(self) -> None:
        """Its name is an identifier that is not taken, and its stage is one."""
        core = build_host(installed=False).strategies.get(getattr(self.strategy, "name", ""))
        if type(core) is not type(self.strategy):
            require_hosted("tuner_strategies", self.strategy, type(self.strategy).__module__)

    @pytest.mark.parametrize("blocks", SIZES)
    def test_plans_are_legal_at_both_ends_of_every_knob(self, blocks: int) -> None:
        """Every corner of the knobs' ranges is a plan that obeys the rules, and so are the start values."""
        self._compose(preferred_values({}), blocks)
        seen = sum(1 for _ in self._composed(blocks))
        if not seen:
            pytest.fail(f"{self._who} must allow at least one plan for {blocks} blocks, but there is none")

    @pytest.mark.parametrize("blocks", SIZES)
    def test_only_its_own_stage_is_written(self, blocks: int) -> None:
        """All other parts of the plan come back as they were given."""
        for before, knobs in self._sampled(blocks):
            after = self.strategy.apply(before, knobs)
            if not isinstance(after, TrialPlan):
                pytest.fail(f"{self._who}: apply must return a TrialPlan, but it returned {after!r}: end it with one")
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
                    f"{_difference(composed.plan, again.plan)}: use nothing but the plan and the knobs"
                )

    @pytest.mark.parametrize("blocks", SIZES)
    def test_what_others_wrote_stays(self, blocks: int) -> None:
        """Tail edits and loss terms that other strategies added are still there."""
        shared = {Stage.SHAPE, Stage.LOSS} & {self.strategy.stage, *self.strategy.writes}
        others = [Another(stage) for stage in shared]
        for _ in corners_of(self.strategy, example_model(blocks), example_task(), others=others):
            pass

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
                    f"{self._who} must give plans that are the same after being saved and read, but they differ: "
                    f"{_difference(plan, back)}"
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
        require_light_import(self.strategy)

    @property
    def _who(self) -> str:
        return f"strategy {self.strategy.name!r}"

    def _compose(self, source: ValueSource, blocks: int) -> Composed:
        return composed_by(self.strategy, source, example_model(blocks), example_task())

    def _composed(self, blocks: int) -> Iterator[Composed]:
        """Yield the plans at the corners of the knobs, for a model of which the first half is frozen."""
        return corners_of(self.strategy, example_model(blocks), example_task())

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


def _difference(one: Any, other: Any, where: str = "plan") -> str:
    """Return the first value in which two plans differ, as ``plan.shape[0].settings: ... and then ...``."""
    if is_dataclass(one) and type(one) is type(other):
        parts = [(f"{where}.{part.name}", getattr(one, part.name), getattr(other, part.name)) for part in fields(one)]
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        parts = [(f"{where}[{place}]", *pair) for place, pair in enumerate(zip(one, other, strict=True))]
    else:
        return f"{where} is {one!r}, then {other!r}"
    inner = (_difference(*(first, second, name)) for name, first, second in parts if not first == second)  # noqa: SIM201 - NaN
    return next(inner, f"{where} is {one!r}, then {other!r}")
