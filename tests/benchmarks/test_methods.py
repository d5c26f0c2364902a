"""`benchmarks.methods`: every file of `docs/cookbook/` is a short plugin that makes a plan, and rows are told of."""

import ast
import re
from pathlib import Path

import pytest
import torch

from benchmarks.alternatives.tasks import written_digits
from benchmarks.methods.measure import BASE, Bench, hosted, plan_of
from benchmarks.methods.methods import BASELINE, COOKBOOK, METHODS, Method, added
from benchmarks.methods.table import Cells, gain, lines_of, page
from tuner.errors import TrainingError
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import EditTraits, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.results.records.trial import Outcome
from tuner.task.info import task_info
from tuner_testing.models.lowered import LoweredTail, made_up_model
from tuner_testing.models.made_up import made_up_task

FILES = sorted(COOKBOOK.glob("*.py"))
#: Lines that are imports or a hook, whatever the method is.
BOILERPLATE = re.compile(
    r"from (?:collections|dataclasses|tuner|typing)|@plugin.hookimpl|@hookimpl|def tuner_| {4}return [\[{]"
)
#: Recipes of the page of the same name that are rows too, by their numbers.
RECIPES = {"sam": 9, "mixup": 10, "solve_again": 11, "wise_ft": 12}


@pytest.fixture(scope="module")
def host() -> Host:
    return hosted(METHODS)


def planned(method: Method, host: Host) -> TrialPlan:
    return plan_of(method, host, example_model(6), example_task(), {})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_plugin_has_at_most_forty_lines_and_a_source(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert lines_of(path) <= 40
    assert sum(bool(BOILERPLATE.match(line)) for line in source.splitlines()) <= 10
    assert ast.get_docstring(ast.parse(source))


def test_every_plugin_is_a_row_and_every_row_has_a_claim() -> None:
    assert {method.file for method in METHODS if method.file is not None} == set(FILES)
    assert len({method.name for method in METHODS}) == len(METHODS) >= 25
    assert sum(bool(method.source and method.claim) for method in METHODS) == 22


def test_each_method_changes_the_plan_of_fine_tuning_and_no_two_are_alike(host: Host) -> None:
    plans = {method.name: planned(method, host) for method in METHODS}
    assert len({plan.key() for plan in plans.values()}) == len(METHODS)
    base = plans[BASELINE]
    for method in METHODS:
        plan = plans[method.name]
        assert plan.cache == base.cache
        assert plan.split == (5 if plan.traits.solves or method.name == "head" else base.split)
        assert (plan.data.alpha > 0) is method.replays
    assert base.trainable > 1
    assert {"recipe", "gdm"} <= {*BASE}


def test_a_file_is_the_recipe_of_its_name() -> None:
    text = (COOKBOOK.parent / "cookbook.md").read_text(encoding="utf-8")
    for name, number in RECIPES.items():
        found = re.search(rf"^## {number}\. .*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert found is not None
        assert ast.dump(ast.parse(found[1])) == ast.dump(ast.parse((COOKBOOK / f"{name}.py").read_text("utf-8")))


def test_a_strangers_file_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text((COOKBOOK / "slda.py").read_text(encoding="utf-8"), encoding="utf-8")
    method = added(path)
    assert planned(method, hosted([method])).traits.solves
    path.write_text("import nothing_of_that_name\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine.*nothing_of_that_name"):
        hosted([method])


def test_a_strangers_package_is_a_row_at_its_first_anchor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (COOKBOOK / "mixup.py").read_text(encoding="utf-8")
    anchors = '    def anchors(self, model):\n        return [{"mixup.strength": 0.3, "recipe.epochs": 4}]\n\n'
    for name, text in (
        ("still", source),
        ("tuner_mine", source.replace("    def sample(", f"{anchors}    def sample(")),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text, encoding="utf-8")
    assert added(tmp_path / "still").knobs == {}
    assert "still: it has no anchors: start values, at which it takes part, may do" in capsys.readouterr().err
    method = added(tmp_path / "tuner_mine")
    assert (method.name, method.knobs) == ("tuner_mine", {"mixup.strength": 0.3})
    (change,) = planned(method, hosted([method])).data.batches
    assert change.kind == "mixup"


def test_the_page_says_what_is_measured_and_what_is_not() -> None:
    cells: Cells = {
        name: {
            ("digits", seed): {
                "local_accuracy": local + seed / 100, "global_accuracy": 0.9, "train_seconds": 1.0, "bundle_bytes": 2e3,
                "epochs": 3.0,
            }
            for seed in range(3)
        }
        for name, local in ((BASELINE, 0.8), ("slda", 0.9))
    }  # fmt: skip
    assert gain(cells, "slda", ["digits"]) == pytest.approx((5.0, 0.0, 3))  # the mean of both accuracies
    text = page(cells, 6.0, ["digits", "emg"])
    assert "| SLDA | 91.0 / 90.0 | +5.0 ± 0.0 | 1.00 | 2 |" in text
    assert "trained for this many epochs: digits 3." in text
    assert "not measured yet: emg" in text
    assert "RanPAC" in text.partition("not measured yet: emg")[2].splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slda", "sam"])
def test_a_method_is_measured_on_tests_that_its_choice_does_not_see(name: str, tmp_path: Path) -> None:
    method = next(method for method in METHODS if method.name == name)
    bench = Bench(written_digits(0), hosted([method]), tmp_path / "store", both=True)
    outcome = bench.measured(method, 0, seconds=0.0)
    assert outcome.values["local_accuracy"] > 0.5
    assert outcome.values["epochs"] == 1
    assert outcome.values["choice_seconds"] > 0
    assert outcome.notes[0].startswith(method.tried[0])


def test_a_setting_whose_training_diverges_loses_whenever_it_does(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = next(method for method in METHODS if method.name == "lp_ft")
    bench, plan, rates = object.__new__(Bench), planned(method, host), list[object]()
    bench.__dict__.update(_choosing="choosing", _testing="testing", _both=False)

    def trained(_bench: Bench, opened: str, _method: Method, _seed: int, values: dict[str, float]) -> object:
        rates.append(values["recipe.learning_rate"])
        diverges = 1e-3 if opened == "choosing" else 3e-3
        if values["recipe.epochs"] > 1 and values["recipe.learning_rate"] == diverges:
            raise TrainingError("its loss is no longer finite")
        return Outcome({"local_accuracy": values["recipe.learning_rate"], "train_seconds": 0.1}), plan

    monkeypatch.setattr(Bench, "_trained", trained)
    outcome = bench.measured(method, 0, seconds=6.0)
    assert rates == [1e-3, 1e-3, 3e-4, 3e-3, 3e-3, 3e-4]
    assert outcome.notes == ("recipe.learning_rate = 0.0003, of 3",)


def test_lp_ft_trains_the_head_alone_and_then_every_weight() -> None:
    edit = TailEdit.of("lp_ft", EditTraits(traceable=False), probing=0.5)
    plan = TrialPlan(made_up_model(), task_info(made_up_task()), split=1, shape=(edit,))
    lowered = LoweredTail(plan, build_host(local=[COOKBOOK / "lp_ft.py"]).extensions("torch"))
    weights, head = (
        dict(lowered.tail.named_parameters()),
        {name for name, _ in list(lowered.tail.named_parameters())[-2:]},
    )

    def moved(before: dict[str, torch.Tensor]) -> set[str]:
        return {name for name, value in weights.items() if not torch.equal(value, before[name])}

    given, probed = lowered.state(), lowered.train(pause=1)
    assert moved(given) == head
    lowered.train(saved=probed)
    assert moved(probed.tail) == weights.keys()
