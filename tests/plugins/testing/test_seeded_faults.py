"""Faults that authors of plugins make: the host, the kit or the trial names each, and the study continues."""

import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.mark.structures import ParameterSet

import tuner_growth
from tests.plugins.testing.faults import FAULTS
from tests.plugins.testing.good import GOOD, OWN, RETURN, SAME, TRAITS, Fault, around
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.errors import TunerError
from tuner.plan.parts import RecipePlan, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.store.store import Store
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner_testing import lowering
from tuner_testing.lowering import LoweringContract
from tuner_testing.rules import rules_of
from tuner_testing.strategy import StrategyContract


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Write `GOOD` with something replaced, and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def imported(edits: dict[str, str]) -> ModuleType:
        source = GOOD
        for old, new in edits.items():
            assert old in source
            source = source.replace(old, new)
        path = tmp_path / "tuner_seeded.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
        return module

    return imported


def named_by(who: str) -> list[ParameterSet]:
    return [pytest.param(fault, id=name) for name, fault in FAULTS.items() if getattr(fault, who)]


@pytest.mark.parametrize("fault", named_by("host"))
def test_the_host_refuses(fault: Fault, module: Callable[..., ModuleType]) -> None:
    host = build_host({"seeded": module(fault.edits)}, installed=False)
    (plugin,) = host.refused
    assert re.search(fault.host, plugin.refused), plugin.refused
    assert "seeded" not in host.strategies


@pytest.mark.slow
@pytest.mark.parametrize("fault", [named_by("host")[0], *named_by("kit")])
def test_the_kit_names(fault: Fault, module: Callable[..., ModuleType]) -> None:
    wanted = fault.kit or {
        "the host loads it": f"plugin 'tuner_seeded' must be loaded, but it is refused: .*{fault.host}"
    }
    rules = rules_of(module(fault.edits))
    for text, message in wanted.items():
        broken = next(reason for rule in rules if rule.text == text and (reason := rule.broken()))
        assert re.search(message, broken), broken


@pytest.mark.slow
@pytest.mark.parametrize("fault", named_by("trial"))
def test_the_trial_fails_and_the_study_goes_on(fault: Fault, module: Callable[..., ModuleType], tmp_path: Path) -> None:
    task = replace(digits(), model=replace(digits().model, pretrain=None))
    seeded = module(fault.edits)
    session = TorchBackend().open(task, build_host({"seeded": seeded}, installed=False).extensions("torch"))
    plan = TrialPlan(
        session.model,
        task_info(task),
        split=2,
        shape=(TailEdit.of("bias", seeded.TRAITS, full=1),),
        recipe=RecipePlan(epochs=1, batch_size=64),
    )
    with pytest.raises(TunerError, match=fault.trial):  # told in one line, and the record is `failed`
        session.train(Trial(plan, 1, Store(tmp_path / "store"), tmp_path / "trial" / "w"))


@pytest.mark.slow
def test_a_contract_of_its_own_tries_given_edits_and_may_start_elsewhere(module: Callable[..., ModuleType]) -> None:
    plugin = module(FAULTS["starts elsewhere"].edits)
    own = {"plugin": plugin, "kind": "bias", "edits": (TailEdit.of("bias", full=3),)}
    contract = type("Contract", (LoweringContract,), own)()
    assert [(plan.split, dict(plan.shape[0].settings)) for plan in contract._plans] == [
        (1, {"full": 3}),
        (0, {"full": 3}),
    ]
    with pytest.raises(pytest.fail.Exception, match=r"lowering 'bias' \(from block 1, full 3\): before training"):
        contract.test_it_starts_as_the_given_model()
    type("Contract", (LoweringContract,), {**own, "starts_as_given": False})().test_it_starts_as_the_given_model()


@pytest.mark.slow
def test_an_edit_is_tried_as_its_strategys_anchors_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Growth grows where its anchors begin, and at no corner of its knobs."""
    monkeypatch.setattr(tuner_growth, "GROWS", replace(tuner_growth.GROWS, changes_shapes=False))
    contract = type("Contract", (LoweringContract,), {"plugin": tuner_growth, "kind": "grow-tail"})()
    with pytest.raises(pytest.fail.Exception, match="shapes change while it trains: give it EditTraits"):
        contract.test_its_traits_are_true()


@pytest.mark.slow
def test_a_setting_may_be_read_while_it_trains(module: Callable[..., ModuleType]) -> None:
    late = around(f"self.calls < 2 or settings['full']\n            {SAME}")
    lowered = '    for block in tail.blocks[: -settings["full"]]:\n'
    plugin = module({TRAITS: OWN, RETURN: late, lowered: "    for block in tail.blocks[:-1]:\n"})
    assert next(rule for rule in rules_of(plugin) if rule.text == "every setting is read").broken() == ""


@pytest.mark.slow
def test_a_tail_with_layers_of_its_own_may_be_larger(
    module: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exported(plugin: ModuleType) -> str | None:
        return next(rule for rule in rules_of(plugin) if rule.text == "its export computes the same").broken()

    much = around(f"{SAME} + self.much.sum()", "self.register_buffer('much', torch.zeros(10000))")
    assert exported(module({TRAITS: OWN, RETURN: much})) == ""
    monkeypatch.setattr(lowering, "GRAPH_BYTES", -(10**6))
    assert "must take at most 1.2 × the given tail's" in (exported(module({})) or "")


def test_a_strategy_alone_is_held_to_its_name_and_to_a_light_import(
    jax: Callable[[str, str], ModuleType], tmp_path: Path
) -> None:
    source = "from tuner_freeze import Freeze\nclass Mine(Freeze):\n    name = 'recipe'\n"

    def contract(name: str, source: str) -> StrategyContract:
        own = {"strategy": jax(name, source).Mine()}
        made: StrategyContract = type("Contract", (StrategyContract,), own)()
        return made

    light = contract("light_plugin", source)
    light.test_importing_the_plugin_loads_no_tensor_library()
    with pytest.raises(pytest.fail.Exception, match=r"is refused: strategy 'recipe' .* has a name that is taken"):
        light.test_the_host_accepts_it()
    heavy = contract("heavy_plugin", "import jax\n" + source)
    with pytest.raises(pytest.fail.Exception, match="importing heavy_plugin must load no tensor library, but it loads"):
        heavy.test_importing_the_plugin_loads_no_tensor_library()
    lost = contract("lost_plugin", source)
    (tmp_path / "lost_plugin.py").write_text("raise OSError('gone')")
    with pytest.raises(AssertionError, match="OSError: gone"):
        lost.test_importing_the_plugin_loads_no_tensor_library()


def test_every_rule_of_strategies_and_lowerings_has_a_fault() -> None:
    """The rules of other parts are in `test_parts`."""
    checked = {text for fault in FAULTS.values() for text in fault.kit}
    rules = {
        name.removeprefix("test_").replace("_", " ")
        for contract in (LoweringContract, StrategyContract)
        for name in vars(contract)
        if name.startswith("test_")
    }
    assert rules - checked == {"importing the plugin loads no tensor library", "the host accepts it"}
    assert len(rules) == 16 + 13 - 1  # both have that of the import
