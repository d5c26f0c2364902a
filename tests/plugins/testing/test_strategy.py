"""The contract of strategies: each of its checks fails for a bad one; `test_seeded_faults` has a good one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner.plan.info import ModelInfo
from tuner.plan.parts import DataPlan, Stage, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import StrategyError
from tuner.plugin.knobs import Draw
from tuner.plugin.strategy import Strategy
from tuner_testing import StrategyContract

FAILS = pytest.fail.Exception


class Good(Strategy[int]):
    name, stage = "good", Stage.SHAPE

    def sample(self, draw: Draw, model: ModelInfo) -> int:
        return draw.integer("n", 1, model.num_blocks)

    def apply(self, plan: TrialPlan, knobs: int) -> TrialPlan:
        return replace(plan, shape=(*plan.shape, TailEdit("good", (("n", knobs),))))


class NeedsTwoBlocks(Good):
    def sample(self, draw: Draw, model: ModelInfo) -> int:
        return draw.integer("n", 1, model.num_blocks - 1)


class DependentRange(Good):
    def sample(self, draw: Draw, model: ModelInfo) -> int:
        return draw.integer("n", 1, draw.integer("most", 2, 1 + model.num_blocks))


@dataclass(frozen=True)
class Bad(Good):
    """Does something else to the plan."""

    change: Callable[[TrialPlan, int], TrialPlan]

    def apply(self, plan: TrialPlan, knobs: int) -> TrialPlan:
        return self.change(plan, knobs)


@dataclass(frozen=True)
class BadSplit(Bad):
    stage = Stage.SPLIT


def setting(value: Any) -> Strategy[int]:
    return Bad(lambda plan, _: replace(plan, shape=(TailEdit("good", (("n", value),)),)))


def with_tensors(plan: TrialPlan, knobs: int) -> TrialPlan:
    import torch

    return replace(plan, shape=(TailEdit("good", (("n", float(torch.tensor(knobs))),)),))


NOTHING = Bad(lambda _plan, _: None)  # type: ignore[arg-type, return-value]  # the mistake
FREEZES_ALL = BadSplit(lambda plan, n: replace(plan, split=n))
WRITES_ELSEWHERE = Bad(lambda plan, _: replace(plan, data=DataPlan(0.1)))
CHANGES_THE_MODEL = Bad(lambda plan, n: replace(plan, model=replace(plan.model, outputs=n + 90)))
KEEPS_LISTS = Bad(lambda plan, _: replace(plan, shape=[TailEdit("good")]))  # type: ignore[arg-type]  # the mistake

LEGAL = "test_plans_are_legal_at_both_ends_of_every_knob"
STAGE = "test_only_its_own_stage_is_written"
PURE = "test_the_same_knobs_give_the_same_plan"
RANGES = "test_no_range_depends_on_another_knob"
FROZEN = "test_plans_hash_and_read_back_equal"
TENSORS = "test_sampling_and_applying_need_no_tensor_library"
IMPORT = "test_importing_the_plugin_loads_no_tensor_library"
HOST = "test_the_host_accepts_it"
OTHERS = "test_what_others_wrote_stays"


def checked(strategy: Strategy[Any], check: str, *arguments: object) -> None:
    contract = type("Contract", (StrategyContract,), {"strategy": strategy})()
    getattr(contract, check)(*arguments)


@pytest.mark.parametrize(
    ("strategy", "check", "blocks", "error", "message"),
    [
        (FREEZES_ALL, LEGAL, 50, StrategyError, "a tail block or an exit must train"),
        (NeedsTwoBlocks(), LEGAL, 1, StrategyError, r"good\.n must have low ≤ high, but its range is \[1, 0\]"),
        (WRITES_ELSEWHERE, STAGE, 2, FAILS, "strategy 'good' may write 'shape' only, but it wrote 'data'"),
        (NOTHING, STAGE, 2, FAILS, "strategy 'good': apply must return a TrialPlan, but it returned None"),
        (CHANGES_THE_MODEL, STAGE, 2, FAILS, "strategy 'good' may write 'shape' only, but it wrote 'model'"),
        (DependentRange(), RANGES, 2, FAILS, r"must draw good\.n from one range, .* draw a fraction and scale it"),
        (KEEPS_LISTS, FROZEN, 2, StrategyError, r"shape must be of type tuple, got \["),
        (setting(None), FROZEN, 2, StrategyError, "settings must be pairs of a name and a number, .*None"),
        (setting(float("nan")), FROZEN, 2, FAILS, "same after being saved and read, but they differ: plan.shape"),
    ],
)
def test_a_bad_strategy_fails_the_contract(
    strategy: Strategy[Any], check: str, blocks: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        checked(strategy, check, blocks)


class Taken(Good):
    name = "recipe"


def test_a_strategy_that_the_host_refuses_fails_the_contract() -> None:
    with pytest.raises(FAILS, match=r"is refused: strategy 'recipe' .* has a name that is taken"):
        checked(Taken(), HOST)


def test_a_strategy_that_computes_with_tensors_fails_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        FAILS, match=r"must compose plans without a tensor library, but .*torch.*: import it in the lowering"
    ):
        checked(Bad(with_tensors), TENSORS, monkeypatch)


def test_a_plugin_that_imports_a_tensor_library_fails_the_contract(jax: Callable[[str, str], ModuleType]) -> None:
    source = "from tuner_freeze import Freeze\nclass Heavy(Freeze):\n    pass\n"
    checked(jax("light_plugin", source).Heavy(), IMPORT)
    with pytest.raises(FAILS, match="importing heavy_plugin must load no tensor library, but it loads jax"):
        checked(jax("heavy_plugin", "import jax\n" + source).Heavy(), IMPORT)


def test_a_plugin_that_cannot_be_imported_fails_the_contract(
    jax: Callable[[str, str], ModuleType], tmp_path: Path
) -> None:
    strategy = jax("lost_plugin", "from tuner_freeze import Freeze\nclass Lost(Freeze):\n    pass\n").Lost()
    (tmp_path / "lost_plugin.py").write_text("raise OSError('gone')")
    with pytest.raises(AssertionError, match="OSError: gone"):
        checked(strategy, IMPORT)


def test_every_check_of_the_strategy_contract_has_been_seen_to_fail() -> None:
    """Those of purity and of what others wrote, among the faults of `test_seeded_faults`."""
    checks = {name for name in vars(StrategyContract) if name.startswith("test_")}
    assert checks == {HOST, LEGAL, STAGE, PURE, OTHERS, RANGES, FROZEN, TENSORS, IMPORT}
    assert len(checks) == 9
