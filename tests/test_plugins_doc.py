"""The author's guide, `docs/plugins.md`, as an author follows it: files written, installed, tested, run, exported."""

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import tuner.plugin
from tests.plan.plans import PLAN
from tests.pretrained import with_weights
from tests.warm import forked
from tools import methods
from tuner.backends.measuring import Answers
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.plugin import MeasuredTrial, Outcome, hookspecs
from tuner.plugin.core import build_host
from tuner.targets.single_label import SingleLabel
from tuner_testing import LossContract

TEXT = (Path(__file__).parent.parent / "docs" / "plugins.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\*\*`([\w.]+)`\*\*\n\n```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
LISTED = re.findall(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def python(*arguments: str, folder: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def tuner_command(*arguments: str) -> tuple[str, ...]:
    return ("-c", "import sys; from tuner.cli.app import call; sys.exit(call(sys.argv[1:]))", *arguments)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the document's files into an empty folder."""
    folder = tmp_path_factory.mktemp("tuner-dropout")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def environment(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the project offline next to `tuner`, into a folder of its own, and return variables that find it."""
    target = tmp_path_factory.mktemp("site")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    python("-m", "pip", "install", *options, "--target", str(target), ".", folder=project, environment=clean)
    return {**clean, "PYTHONPATH": str(target), "TUNER_CACHE": str(with_weights(tmp_path_factory.mktemp("cache")))}


def test_the_document_has_a_whole_project_and_its_commands_are_those_that_are_run_here() -> None:
    assert FILES.keys() == {"pyproject.toml", "tuner_dropout.py", "test_tuner_dropout.py", "space.toml"}
    assert len(LISTED) == 1
    named = [command[:2] for command in COMMANDS]
    assert named == [["pip", "install"], ["pytest"], ["tuner", "plugins"], ["tuner", "run"], ["tuner", "export"]]


@pytest.mark.slow
def test_the_plugin_is_listed_once_installed_as_the_document_says(environment: dict[str, str], tmp_path: Path) -> None:
    content = json.loads(python(*tuner_command("plugins", "--json"), folder=tmp_path, environment=environment))
    listed = {plugin["name"]: plugin for plugin in content["plugins"]}
    assert listed["dropout"].pop("seconds") < 5
    where = {"name": "dropout", "origin": "tuner-dropout 0.1.0", "module": "tuner_dropout"}
    assert listed["dropout"] == {**where, "refused": "", "off": False, "local": False}
    assert listed.keys() >= {"core", "freeze", "cache", "gdm"}
    strategies = {strategy["name"]: strategy for strategy in content["strategies"]}
    assert strategies["dropout"]["stage"] == "shape"
    assert strategies["dropout"]["knobs"] == ["dropout.rate in {0.0, 0.1, 0.2, 0.3, 0.5}"]
    printed = python(*tuner_command("plugins"), folder=tmp_path, environment=environment).splitlines()
    expected = LISTED[0].splitlines()
    assert [line for line in expected if line not in printed] == []
    assert len(expected) == 3


@pytest.mark.slow
def test_the_plugins_own_test_passes(environment: dict[str, str], project: Path) -> None:
    done = forked(["pytest", "-q", "-p", "no:cacheprovider"], project, environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "30 passed, 4 skipped" in done.stdout


@pytest.mark.slow
def test_the_plugin_takes_part_in_a_study_and_is_exported(environment: dict[str, str], project: Path) -> None:
    run, export = COMMANDS[-2:]
    shown = json.loads(python(*tuner_command(*run[1:], "--json"), folder=project, environment=environment))
    assert shown["counts"]["done"] >= 2
    assert shown["counts"]["failed"] == 0
    kinds = [edit["kind"] for trial in shown["trials"] if trial["plan"] for edit in trial["plan"]["shape"]]
    assert kinds
    assert set(kinds) == {"dropout"}
    python(*tuner_command(*export[1:]), folder=project, environment=environment)
    bundle = project / export[-1]
    assert 'kind = "dropout"' in (bundle / "plan.toml").read_text()
    scores = json.loads((bundle / "bundle.json").read_text())["scores"]
    assert abs(scores["from_pixels"]["local_accuracy"] - scores["trial"]["local_accuracy"]) < 0.02


def module_of(marker: str, name: str) -> ModuleType:
    """Return the document's block that holds a marker, as a module."""
    (block,) = [one for one in re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL) if marker in one]
    module = ModuleType(name)
    exec(compile(block, "plugins.md", "exec"), module.__dict__)  # noqa: S102 - as an import would
    return module


@pytest.mark.slow
def test_the_backends_test_has_checks_that_pass() -> None:
    contract = module_of("BackendContract", "test_mine").TestMine()
    assert len([name for name in dir(contract) if name.startswith("test_")]) == 7
    contract.test_the_model_is_described_as_a_chain_of_blocks()


@pytest.mark.slow
def test_the_loss_terms_plugin_obeys_its_contracts() -> None:
    module = module_of("tuner_losses", "unsure")
    plan = module.Unsure().apply(TrialPlan(example_model(4), example_task()), 0.1)

    class Contract(LossContract):
        (term,) = plan.loss
        losses = module.tuner_losses("torch")

    checks = [name for name in dir(Contract) if name.startswith("test_") and "importing" not in name]
    for name in checks:
        with suppress(pytest.skip.Exception):  # a rule that does not apply
            getattr(Contract(), name)()
    assert len(checks) == 6


def test_the_selectors_block_obeys_both_contracts() -> None:
    module = module_of("tuner_selectors", "test_nearest")
    host = build_host({"nearest": module}, installed=False)
    assert [one.refused for one in host.refused] == []
    assert host.extensions("torch").selectors == {"nearest": module.nearest}
    chosen = module.TestNearestChoice()
    chosen.test_it_chooses_as_many_of_each_class_as_asked_for(8)
    chosen.test_the_same_candidates_give_the_same_choice()
    module.TestNearest().test_only_its_own_stage_is_written(2)


def test_the_measures_block_counts_what_trained() -> None:
    module = module_of("tuner_measures", "trained_bytes")
    host = build_host({"bytes": module}, installed=False)
    assert [one.refused for one in host.refused] == []
    tail = SimpleNamespace(
        parameters=lambda: [
            SimpleNamespace(nbytes=8, requires_grad=True),
            SimpleNamespace(nbytes=4, requires_grad=False),
        ]
    )
    end = host.extensions("torch").measures["trained_bytes"]()
    assert end(MeasuredTrial(PLAN, tail, Outcome({}))) == 8.0


def test_the_functions_block_is_an_objective_that_is_measured() -> None:
    host = build_host({"misses": module_of("def misses", "misses")}, installed=False)
    assert [one.refused for one in host.refused] == []
    assert host.objectives["misses"].direction == "minimise"
    answers = Answers(np.eye(3, dtype=np.float32), np.array([0, 1, 1]), SingleLabel(), ("a", "b", "c"))
    end = host.extensions("torch").measures["misses"]()
    assert end(MeasuredTrial(PLAN, None, Outcome({}), answers={"local": answers})) == {"misses": 1.0}


def signatures() -> list[str]:
    """Return every hook as ``name(argument: type) -> type``, from the source."""
    tree = ast.parse(inspect.getsource(hookspecs))
    hooks = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("tuner_")]
    return [
        f"{hook.name}({ast.unparse(hook.args)}) -> {ast.unparse(hook.returns or ast.Constant(None))}".replace("'", "")
        for hook in hooks
    ]


def test_every_public_name_is_listed() -> None:
    section = TEXT.split("## What is public")[1].split("`API` is the version")[0]
    assert re.findall(r"`(\w+)`", section) == tuner.plugin.__all__
    assert tuner.plugin.API == 1
    assert "`API` is the version of these names and of the hooks, now 1." in TEXT


def test_every_hook_is_documented_with_its_signature() -> None:
    known = signatures()
    assert re.findall(r"^### `(tuner_.*)`$", TEXT, re.MULTILINE) == known
    assert len(known) == 14


def test_the_tables_of_methods_and_fields_are_those_of_the_classes() -> None:
    assert methods.page(TEXT) == TEXT, "run python -m tools.methods"
    abstract = {name for name in tuner.plugin.__all__ if inspect.isabstract(getattr(tuner.plugin, name))}
    assert abstract - {*methods.WRITTEN} == set()
    assert len(re.findall(r"^\| \**`(?:Strategy|Evolving|Session)\.", TEXT, re.MULTILINE)) >= 25
