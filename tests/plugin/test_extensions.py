"""Losses and optimisers of plugins: collected by backend, offered to the recipe, and refused where two clash."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.info import ModelInfo
from tuner.plan.parts import LossTerm, Stage
from tuner.plan.trial import TrialPlan, normal_form
from tuner.plugin import Draw, LossInputs, RecipePlan, Strategy, hookimpl
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.sources import preferred_values


class Adding:
    """A plugin that adds losses and optimisers to one backend."""

    def __init__(self, losses: Sequence[str] = (), optimisers: Sequence[str] = (), backend: str = "torch") -> None:
        self.losses, self.optimisers, self.backend = losses, optimisers, backend

    @hookimpl
    def tuner_losses(self, backend: str) -> Mapping[str, Any]:
        return dict.fromkeys(self.losses, far) if backend == self.backend else {}

    @hookimpl
    def tuner_optimisers(self, backend: str) -> Mapping[str, Any]:
        return dict.fromkeys(self.optimisers, make) if backend == self.backend else {}


def far(batch: LossInputs, settings: Mapping[str, Any]) -> None: ...


def make(parameters: Sequence[Any], recipe: RecipePlan) -> None: ...


class Terms(Strategy[None]):
    """Adds a term of the loss."""

    stage = Stage.LOSS

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # one class for several strategies

    def sample(self, draw: Draw, model: ModelInfo) -> None: ...

    def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - it has none
        return replace(plan, loss=(*plan.loss, LossTerm(f"kind of {self.name}", 1.0)))


def test_extensions_have_what_plugins_add_to_a_backend() -> None:
    host = build_host({"a": Adding(["l2"], ["lion"]), "b": Adding(["kl"], backend="onnxruntime")}, installed=False)
    assert host.extensions("torch").losses == {"l2": far}
    assert host.extensions("torch").optimisers == {"lion": make}
    assert host.extensions("onnxruntime").losses == {"kl": far}
    assert host.extensions("onnxruntime").optimisers == {}


def test_two_of_one_kind_harm_only_plans_that_use_it() -> None:
    host = build_host({"a": Adding(["l2"]), "b": Adding(["l2", "kl"])}, installed=False)
    added, plain = host.extensions("torch"), TrialPlan(example_model(4), example_task())
    assert added.lacking(plain) is None
    assert added.lacking(replace(plain, loss=(LossTerm("kl", 1.0),))) is None
    clash = added.lacking(replace(plain, loss=(LossTerm("l2", 1.0),)))
    assert clash is not None
    assert clash.startswith("plugins 'a' and 'b' both realise loss term 'l2': remove one")
    assert host.clashes() == [clash]


def test_an_optimiser_of_the_core_cannot_be_taken() -> None:
    host = build_host({"a": Adding(optimisers=["sgd"])}, installed=False)
    assert [one.refused for one in host.refused] == ["optimiser 'sgd' is the core's own: rename it"]


def test_the_recipe_offers_the_optimisers_that_plugins_add() -> None:
    host = build_host({"a": Adding(optimisers=["lion"])}, installed=False)
    composed = compose(
        [host.strategies["recipe"]],
        preferred_values({"recipe.optimiser": "lion"}),
        example_model(4),
        example_task(),
    )
    assert str(composed.knobs["recipe.optimiser"]) == "recipe.optimiser in {sgd, adam, adamw, lion}"
    assert composed.plan.recipe.optimiser == "lion"


def test_several_strategies_add_terms_and_each_is_known_by_its_kind() -> None:
    terms = [Terms("a"), Terms("b")]
    composed = compose(terms, preferred_values({}), example_model(4), example_task())
    assert [term.kind for term in composed.plan.loss] == ["kind of a", "kind of b"]
    assert composed.editors == {"kind of a": "a", "kind of b": "b"}


def test_where_no_tail_trains_nothing_is_added_to_its_loss() -> None:
    plan = TrialPlan(example_model(4), example_task(), split=2, loss=(LossTerm("l2", 1.0),))
    exits = HeadsPlan("exits-only", (Exit(1, 8),))
    assert normal_form(plan).loss == plan.loss
    assert normal_form(replace(plan, heads=exits)).loss == ()
