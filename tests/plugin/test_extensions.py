"""What plugins add to a backend: collected by backend, offered to the recipe, and refused where two clash."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plan.plans import mixed
from tuner.backends.extensions import HOOKS
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.info import ModelInfo
from tuner.plan.parts import DataEdit, LossTerm, RuntimePlan, Stage, TailEdit
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin import Draw, Strategy, TorchBackend, hookimpl
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.sources import preferred_values

PLAIN = TrialPlan(example_model(4), example_task())
#: Plans that use something of a kind, by the hook that adds it.
USING: Mapping[str, Callable[[str], TrialPlan]] = {
    "tuner_lowerings": lambda kind: replace(PLAIN, shape=(TailEdit(kind),)),
    "tuner_solvers": lambda kind: replace(PLAIN, shape=(TailEdit(kind),)),
    "tuner_losses": lambda kind: replace(PLAIN, loss=(LossTerm(kind, 1.0),)),
    "tuner_batches": lambda kind: replace(PLAIN, data=replace(PLAIN.data, batches=(DataEdit(kind),))),
    "tuner_selectors": lambda kind: replace(PLAIN, data=replace(mixed(0.05).data, edit=DataEdit(kind, candidates=2))),
}
#: Hooks that do not depend on the backend.
WHEREVER = {"tuner_selectors", "tuner_solvers"}


def nothing(*_: object) -> Any:
    return ()


class Adding:
    """A plugin that adds functions of some kinds to PyTorch's backend, by one hook."""

    def __init__(self, hook: str, *kinds: str) -> None:
        def by_backend(backend: str) -> Mapping[str, Any]:
            if "raises" in kinds:
                raise OSError("no table")
            return dict.fromkeys(kinds, nothing) if backend == "torch" else {}

        def for_all() -> Mapping[str, Any]:
            return by_backend("torch")

        setattr(self, hook, hookimpl(for_all if hook in WHEREVER else by_backend))


class Terms(Strategy[None]):
    """Adds a term of the loss."""

    stage = Stage.LOSS

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # one class for several strategies

    def sample(self, draw: Draw, model: ModelInfo) -> None: ...

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        return replace(plan, loss=(*plan.loss, LossTerm(f"kind of {self.name}", 1.0)))


@pytest.mark.parametrize("hook", HOOKS)
def test_extensions_have_what_plugins_add_to_a_backend(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    plugins = {"a": Adding(hook, "x"), "careless": Adding(hook, "raises"), "b": Adding(hook, "y")}
    part, _ = HOOKS[hook]
    with caplog.at_level(logging.WARNING):
        host = build_host(plugins, installed=False)
        assert getattr(host.extensions("torch"), part) == {"x": nothing, "y": nothing}
    assert [record.getMessage() for record in caplog.records] == [f"plugin careless: {hook} raised"]
    if hook not in WHEREVER:  # they choose samples, or solve heads, whatever trains
        assert getattr(host.extensions("onnxruntime"), part) == {}


@pytest.mark.parametrize("hook", USING)
def test_two_of_one_kind_harm_only_plans_that_use_it(hook: str) -> None:
    host = build_host({"a": Adding(hook, "x", "y"), "b": Adding(hook, "x")}, installed=False)
    added, plan_of, what = host.extensions("torch"), USING[hook], HOOKS[hook][1]
    clash = f"plugins 'a' and 'b' both realise {what} 'x': remove one, or set TUNER_PLUGINS=-b"
    assert host.clashes() == [clash]
    assert added.lacking(plan_of("x")) == clash
    assert added.lacking(plan_of("y")) is added.lacking(PLAIN) is None
    assert added.lacking(plan_of("z")) == (
        f"no installed plugin realises {what} 'z' on torch (there are: x, y): see `tuner plugins`"
    )


def test_an_optimiser_of_the_core_cannot_be_taken() -> None:
    host = build_host({"a": Adding("tuner_optimisers", "sgd")}, installed=False)
    assert [one.refused for one in host.refused] == ["optimiser 'sgd' is the core's own: rename it"]


def test_the_recipe_offers_the_optimisers_that_plugins_add() -> None:
    host = build_host({"a": Adding("tuner_optimisers", "lion")}, installed=False)
    wanted = preferred_values({"recipe.optimiser": "lion"})
    composed = compose([host.strategies["recipe"]], wanted, example_model(4), example_task())
    assert str(composed.knobs["recipe.optimiser"]) == "recipe.optimiser in {sgd, adam, adamw, lion}"
    assert composed.plan.recipe.optimiser == "lion"


def test_several_strategies_add_terms_and_each_is_known_by_its_kind() -> None:
    terms: Sequence[Strategy[None]] = [Terms("a"), Terms("b")]
    composed = compose(terms, preferred_values({}), example_model(4), example_task())
    assert [term.kind for term in composed.plan.loss] == ["kind of a", "kind of b"]
    assert composed.editors == {"kind of a": "a", "kind of b": "b"}


def test_where_no_tail_trains_nothing_is_added_to_its_loss() -> None:
    plan = replace(PLAIN, split=2, loss=(LossTerm("l2", 1.0),))
    assert normal_form(plan).loss == plan.loss
    assert normal_form(replace(plan, heads=HeadsPlan("exits-only", (Exit(1, 8),)))).loss == ()


def test_a_backend_takes_what_plugins_add_to_another_one() -> None:
    class Mine(TorchBackend):
        name, lowers_as = "mine", "torch"

    offering = SimpleNamespace(tuner_backends=hookimpl(lambda: [Mine()]))
    host = build_host({"adding": Adding("tuner_lowerings", "bends"), "mine": offering}, installed=False)
    plan = replace(USING["tuner_lowerings"]("bends"), runtime=RuntimePlan("mine"))
    assert host.extensions("mine").lacking(plan) is None
    assert host.clashes() == []
    assert "bends" not in host.extensions("onnxruntime").lowerings
