"""`docs/cookbook.md` and `docs/cookbook/`: each recipe obeys the contracts, runs as a reader runs it, and is true."""

import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tuner
from tuner.backends.batches import Batch
from tuner.backends.losses import LossInputs
from tuner.backends.lowering import Tail
from tuner.backends.torch.features.selection import mixed_selections
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.choice import trained_on
from tuner.files import import_file
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import DataEdit, LossTerm, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.plugin.load.finding import select
from tuner.results.records.trial import TrialRecord
from tuner.runtime import Trainer
from tuner.search.space import check_knobs, load_space
from tuner.task.builtin import digits
from tuner_testing import (
    BatchContract,
    DataContract,
    LossContract,
    OptimiserContract,
    SolverContract,
    StrategyContract,
)
from tuner_testing.models.composing import corners_of
from tuner_testing.models.libraries import loaded_by

TEXT = (Path(__file__).parent.parent / "docs" / "cookbook.md").read_text(encoding="utf-8")
*RECIPES, KIND = re.findall(
    r"^## (\d+)\. .*?^```python\n(.*?)^```\n\n```toml\n(.*?)^```\n\nWatch out: ", TEXT, re.MULTILINE | re.DOTALL
)
PLUGINS = {f"recipe{number}": source for number, source, _ in RECIPES}
SPACES = {f"recipe{number}": space for number, _, space in RECIPES}
#: Plugins of their own files that are no recipes of the page too.
METHODS = [
    path
    for path in sorted((Path(__file__).parent.parent / "docs" / "cookbook").glob("*.py"))
    if path.stem not in {"sam", "mixup", "solve_again", "wise_ft"}
]
HEAD = "6."
#: Checks of each recipe's parts.
CHECKS = (24, 24, 24, 24, 30, 30, 0, 4, 4, 38, 24, 24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write every recipe as a file of its own, with its search space."""
    made = tmp_path_factory.mktemp("cookbook")
    for name, source in PLUGINS.items():
        (made / f"{name}.py").write_text(source, encoding="utf-8")
        (made / f"{name}.toml").write_text(SPACES[name], encoding="utf-8")
    return made


def module(folder: Path, number: int) -> Any:
    return import_file(folder / f"recipe{number}.py", "cookbook")


def test_there_are_thirteen_short_recipes() -> None:
    assert len(re.findall(r"^## ", TEXT, re.MULTILINE)) == TEXT.count("```python\n") == len([*RECIPES, KIND]) == 13
    assert [number for number, _, _ in (*RECIPES, KIND)] == list(map(str, range(1, 14)))
    lines = [len([line for line in source.splitlines() if line]) for source in PLUGINS.values()]
    assert max(lines) <= 55
    assert max(lines[8:]) <= 40


def test_importing_the_recipes_loads_no_tensor_library(folder: Path) -> None:
    assert loaded_by(f"import sys\nsys.path.insert(0, {str(folder)!r})\nimport {', '.join(PLUGINS)}") == ""


def hosted(folder: Path, name: str) -> Host:
    host = build_host(local=[folder / f"{name}.py"], installed=False)
    assert [one.refused for one in host.refused] == []
    return host


def contracts(host: Host) -> Iterator[type]:
    """Yield the contracts of a recipe's parts."""
    added, terms, changes = host.extensions("torch"), dict[str, LossTerm](), dict[str, DataEdit]()
    for name, strategy in host.strategies.items():
        if name not in build_host(installed=False).strategies:
            yield type("Strategies", (StrategyContract,), {"strategy": strategy})
            plans = [composed.plan for composed in corners_of(strategy, example_model(4), example_task(), share=0.0)]
            terms |= {term.kind: term for plan in plans for term in plan.loss}
            changes |= {one.kind: one for plan in plans for one in plan.data.batches}
            asked = {edit.kind for plan in plans for edit in plan.shape} | {*terms}
            asked |= {edit.kind for plan in plans for edit in (*plan.data.batches, plan.data.edit) if edit is not None}
            assert asked == {*added.lowerings, *added.solvers, *added.losses, *added.selectors, *added.batches}
    for kind, solver in added.solvers.items():
        yield type("Solvers", (SolverContract,), {"plugin": sys.modules[solver.__module__], "kind": kind})
    for kind in added.losses:
        yield type("Losses", (LossContract,), {"term": terms[kind], "losses": added.losses})
    for selector in added.selectors.values():
        yield type("Selectors", (DataContract,), {"selector": staticmethod(selector)})
    for kind, function in added.batches.items():
        given = {"function": staticmethod(function), "settings": dict(changes[kind].settings)}
        yield type("Batches", (BatchContract,), given)
    for factory in added.optimisers.values():
        yield type("Optimisers", (OptimiserContract,), {"factory": staticmethod(factory)})


def calls(contract: type) -> Iterator[Callable[[], object]]:
    """Yield every check of a contract with all its parameters."""
    for name in (name for name in dir(contract) if name.startswith("test_") and "importing" not in name):
        check = getattr(contract(), name)
        marks = [mark for mark in getattr(check, "pytestmark", ()) if mark.name == "parametrize"]
        for values in product(*(mark.args[1] for mark in marks)):
            given = dict(zip([mark.args[0] for mark in marks], values, strict=True))
            yield partial(called, check, given)


def called(check: Callable[..., object], given: Mapping[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fixtures = {"monkeypatch": patch} if "monkeypatch" in inspect.signature(check).parameters else {}
        with suppress(pytest.skip.Exception):  # a rule that does not apply
            check(**given, **fixtures)


@pytest.mark.parametrize(("name", "checks"), list(zip(PLUGINS, CHECKS, strict=True)))
def test_a_recipe_obeys_the_contracts_of_its_parts(name: str, checks: int, folder: Path) -> None:
    seen = [call() for contract in contracts(hosted(folder, name)) for call in calls(contract)]
    assert len(seen) == checks


@pytest.mark.parametrize("path", METHODS, ids=lambda path: path.stem)
def test_a_method_obeys_the_contracts_of_its_parts(path: Path) -> None:
    host = build_host(local=[path], installed=False)
    assert len([call() for contract in contracts(host) for call in calls(contract)]) >= 20


@pytest.mark.parametrize("name", PLUGINS)
def test_a_recipes_search_space_fits_it(name: str, folder: Path) -> None:
    space, host = load_space(str(folder / f"{name}.toml")), build_host(local=[folder / f"{name}.py"])
    wanted = space.strategies or ()
    asked = [one for one in host.strategies if one in (*wanted, "recipe", "none", "runtime")]
    assert check_knobs(space, select("strategy", asked, host.strategies), example_model(4), example_task())
    assert {*wanted, *(space.objectives or ())} <= {*host.strategies, *host.objectives}


@dataclass(frozen=True)
class Ran:
    """A study of one recipe, or of several that change different parts of a plan."""

    run: tuner.Run
    folder: Path
    module: Any

    def trials(self) -> Iterator[tuple[TrialRecord, TrialPlan, dict[str, torch.Tensor]]]:
        """Yield every trial of the front with its plan and its trained weights; of others none are kept."""
        assert self.run.front
        for record in map(self.run.record, self.run.front):
            assert record.plan is not None
            yield record, record.plan, load_file(self.weights(record))

    def weights(self, record: TrialRecord) -> Path:
        return self.folder / "trials" / str(record.trial) / "weights.safetensors"


#: Recipes that are run in one study: a start of a study takes longer than two trials.
TOGETHER = ((5, 6, 7, 8), (9, 10))
Studies = dict[tuple[int, ...], tuple[tuner.Run, Path]]


@pytest.fixture(scope="module")
def studies() -> Studies:
    """Keep the studies that have been run, by their recipes."""
    return {}


@pytest.fixture
def ran(request: pytest.FixtureRequest, folder: Path, own_cache: Path, studies: Studies) -> Ran:
    """Run a recipe's search space for two trials, as `tuner run` does."""
    number: int = request.param
    together = next((several for several in TOGETHER if number in several), (number,))
    if together not in studies:
        out, space = folder / f"run{number}", folder / f"study{number}.toml"
        space.write_text(joined([SPACES[f"recipe{one}"] for one in together]), encoding="utf-8")
        plugins, store = [folder / f"recipe{one}.py" for one in together], own_cache / "store"
        run = tuner.run("digits", space=str(space), trials=2, plugins=plugins, out=out, store=store, earlier="none")
        assert [record.state for record in run.records] == ["done"] * 2
        studies[together] = run, out
    return Ran(*studies[together], module(folder, number))


def joined(spaces: Sequence[str]) -> str:
    """Return one search space: all strategies of several, and of any other key the last one's line."""
    names = dict.fromkeys(name for space in spaces for name in tomllib.loads(space)["strategies"])
    lines = {line.partition(" = ")[0]: line for space in spaces for line in space.splitlines()}
    return "\n".join((lines | {"strategies": f"strategies = {list(names)}"}).values())


def study_of(number: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test of what the study of one recipe shows."""

    def marked(test: Callable[..., None]) -> Callable[..., None]:
        return pytest.mark.slow(pytest.mark.parametrize("ran", [number], indirect=True)(test))  # type: ignore[no-any-return]  # pytest leaves it untyped

    return marked


def moved(weights: Mapping[str, torch.Tensor]) -> set[str]:
    """Return the names of the weights that are not the given model's."""
    given = load(digits()).model.state_dict()
    return {name for name, value in weights.items() if not torch.equal(value, given[name])}


@study_of(1)
def test_only_the_named_block_and_the_head_move(ran: Ran) -> None:
    for _, plan, weights in ran.trials():
        (edit,) = plan.shape
        block = dict(edit.settings)["block"]
        assert isinstance(block, str)
        assert {name.partition(".")[0] for name in moved(weights)} == {block.partition(".")[0], "6"}


@study_of(2)
def test_weights_are_the_given_ones_times_a_factor_a_channel(ran: Ran) -> None:
    given, seen = load(digits()).model.state_dict(), 0
    for _, plan, weights in ran.trials():
        assert [edit.kind for edit in plan.shape] == ["factors"]
        for name in moved(weights):
            if weights[name].ndim > 1 and not name.startswith(HEAD):
                before, after = given[name].flatten(1), weights[name].flatten(1)
                factor = (after * before).sum(1, keepdim=True) / before.square().sum(1, keepdim=True)
                assert torch.allclose(after, factor * before, atol=1e-6)
                assert float((factor - 1).abs().max()) > 1e-4
                seen += 1
    assert seen >= 4


@study_of(3)
def test_noise_is_added_in_training_only_and_a_bundle_trains_again(ran: Ran, tmp_path: Path) -> None:
    ((_, plan, _), *_) = ran.trials()
    noisy = ran.module.noisy(Tail(torch.nn.Identity(), (), plan, 0, lambda _: 0, torch.nn.Identity), {"strength": 0.2})
    inputs = torch.rand(4, 3, 5, 5)
    size = 0.2 * inputs.abs().mean(dim=(1, 2, 3), keepdim=True).expand_as(inputs)
    assert torch.allclose((noisy.train()(inputs) - inputs).abs(), size, atol=1e-6)
    assert torch.equal(noisy.eval()(inputs), inputs)
    samples, bundle = digits().local.train, tmp_path / "bundle"
    tuner.export(ran.run, bundle, "0", trainable=True, refit=False)
    trainer = Trainer(bundle, threads=1)
    trainer.add([samples.load(index) for index in range(30)], [str(samples.labels[index]) for index in range(30)])
    assert len(trainer.train(epochs=2)) == 2
    after, before = (load_file(one / "weights.safetensors") for one in (trainer.save(tmp_path / "next"), bundle))
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert after.keys() == before.keys()


@study_of(4)
def test_one_more_block_trains_in_every_epoch(ran: Ran) -> None:
    learned = {name for name, _ in load(digits()).model.named_parameters()}  # norms of all blocks may still count
    for record, plan, weights in ran.trials():
        log = [epoch.get("trained_blocks") for epoch in record.epochs]
        assert log == [*range(2, plan.recipe.epochs + 1), None]  # none after the last one
        own = {name.removeprefix("0."): value for name, value in weights.items()}
        blocks = sorted({name.partition(".")[0] for name in own})
        assert {name.partition(".")[0] for name in moved(own) & learned} == set(blocks[-plan.recipe.epochs :])


@study_of(5)
def test_the_term_makes_of_the_loss_that_of_smoothed_labels(ran: Ran) -> None:
    for _, plan, _ in ran.trials():
        (term,) = plan.loss
        share = term.weight / (1 + term.weight)
        assert share == pytest.approx(0.1) or share == pytest.approx(0.2)
        logits, labels = torch.randn(6, 5), torch.arange(6) % 5
        added = ran.module.uniform(LossInputs(logits, labels, logits, None, 5), {}).mean()
        loss = torch.nn.functional.cross_entropy(logits, labels) + term.weight * added
        smooth = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=share)
        assert float(loss) == pytest.approx((1 + term.weight) * float(smooth), rel=1e-5)


@study_of(6)
def test_samples_at_the_border_are_mixed_in(ran: Ran) -> None:
    task = digits()
    for record, plan, _ in ran.trials():
        (chosen,) = trained_on(task, plan, ran.weights(record))
        (drawn,) = mixed_selections(task, replace(plan, data=replace(plan.data, edit=None)))
        assert len(chosen) == len(drawn) == plan.global_samples
        assert np.array_equal(np.unique(chosen.labels()), np.arange(7))
        assert set(chosen.indices) != set(drawn.indices)


@study_of(7)
def test_every_trial_has_the_work_of_all_cores_as_a_value(ran: Ran) -> None:
    for record, _, _ in ran.trials():
        assert 0 < record.values["cpu_seconds"] < 60
    assert [objective.name for objective in ran.run.objectives] == ["local_accuracy", "cpu_seconds"]


@study_of(8)
def test_lion_moves_every_weight_by_the_learning_rate(ran: Ran) -> None:
    assert {plan.recipe.optimiser for _, plan, _ in ran.trials()} == {"lion"}
    weight = torch.nn.Parameter(torch.ones(3))
    lion = ran.module.lion([weight], RecipePlan(learning_rate=0.1))
    for gradient, expected in (([2.0, -1.0, 0.0], [0.9, 1.1, 1.0]), ([-0.1, 0.0, 1.0], [0.8, 1.2, 0.9])):
        weight.grad = torch.tensor(gradient)
        lion.step()
        assert torch.allclose(weight.detach(), torch.tensor(expected))


@study_of(9)
def test_sam_moves_by_the_gradient_at_the_point_uphill(ran: Ran) -> None:
    assert {plan.recipe.optimiser for _, plan, _ in ran.trials()} == {"sam"}
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    sam, seen = ran.module.sam([weight], RecipePlan(learning_rate=0.1)), list[torch.Tensor]()

    def closure() -> torch.Tensor:
        seen.append(weight.detach().clone())
        weight.grad = weight.detach().clone()
        return weight.detach().square().sum() / 2

    assert float(sam.step(closure)) == 12.5
    assert torch.allclose(torch.stack(seen), torch.tensor([[3.0, 4.0], [3.03, 4.04]]))
    assert torch.allclose(weight.detach(), torch.tensor([2.9, 3.9]), atol=1e-4)


@study_of(10)
def test_mixup_mixes_samples_and_labels_alike(ran: Ran) -> None:
    for _, plan, _ in ran.trials():
        assert [change.kind for change in plan.data.batches] == ["mixup"]
    values = torch.eye(6)
    inputs, labels = ran.module.mixup(Batch(values, values, torch.default_generator, None), {"strength": 0.4})
    assert torch.equal(inputs, labels)
    assert torch.allclose(labels.sum(1), torch.ones(6))
    assert not torch.equal(inputs, values)


@study_of(11)
def test_the_head_is_solved_for_on_local_and_mixed_in_samples_and_a_bundle_trains_again(
    ran: Ran, tmp_path: Path
) -> None:
    for record, plan, weights in ran.trials():
        assert plan.global_samples
        assert f"head solved again on {plan.train_samples} samples" in record.notes
        assert moved(weights) >= {name for name in weights if name.startswith(HEAD)}
    bundle = tmp_path / "bundle"
    tuner.export(ran.run, bundle, str(ran.run.front[0]), trainable=True, refit=False)
    assert json.loads((bundle / "bundle.json").read_text())["train"]["left_out"] == ["solve-again"]


@study_of(12)
def test_one_training_gives_a_trial_for_each_share_also_when_it_is_resumed(
    ran: Ran, folder: Path, own_cache: Path
) -> None:
    given, first, second = load(digits()).model.state_dict(), *ran.run.records
    assert first.plan is not None
    assert second.plan is not None
    assert first.plan.line() == second.plan.line()
    shares = [float(dict(one.plan.shape[0].settings)["share"]) for one in (first, second) if one.plan]
    assert shares[0] != shares[1]
    assert first.epochs == second.epochs  # those of one training
    assert second.values["train_seconds"] >= sum(epoch["seconds"] for epoch in first.epochs)
    assert set(ran.run.front) == {0, 1}
    changes = [
        {name: (value - given[name]) / share for name, value in load_file(ran.weights(own)).items()}
        for own, share in zip((first, second), shares, strict=True)
    ]
    for name, value in given.items():
        if name in changes[0] and value.is_floating_point() and "running" not in name:
            assert torch.allclose(changes[0][name], changes[1][name], atol=1e-5)
    assert max(float(value.abs().max()) for value in changes[0].values()) > 1e-3
    given_again: dict[str, Any] = {"plugins": [folder / "recipe12.py"], "out": ran.folder}
    given_again["space"] = str(folder / "study12.toml")
    again = tuner.run("digits", trials=4, store=own_cache / "store", earlier="none", resume=True, **given_again)
    assert [own.epochs for own in again.records] == [first.epochs] * 4
    assert len({dict(own.plan.shape[0].settings)["share"] for own in again.records if own.plan}) == 4
    assert max(own.spent_seconds for own in again.records[1:]) < first.spent_seconds + 1
