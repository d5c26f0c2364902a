"""The rules that a plugin obeys, each as a function that fails where the plugin breaks it."""

import inspect
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner.errors import TunerError, first_line, nearest
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.plugin.compose import StrategyError
from tuner.plugin.load.calls import OverdueError, fault, limited
from tuner_testing.backend import BackendContract
from tuner_testing.loss import LossContract
from tuner_testing.lowering import LoweringContract
from tuner_testing.models.composing import composes, corners_of
from tuner_testing.models.hosting import hosting, offered_by, place, require_free_names
from tuner_testing.models.libraries import BY_KIND, require_light_import
from tuner_testing.models.verdict import Verdict
from tuner_testing.objective import MeasureContract, ObjectiveContract
from tuner_testing.optimiser import OptimiserContract
from tuner_testing.selector import BatchContract, DataContract
from tuner_testing.solver import SolverContract
from tuner_testing.strategy import StrategyContract

#: The rule that a plugin's module obeys, not each of its parts.
_OF_THE_MODULE = "test_importing_the_plugin_loads_no_tensor_library"
#: The rule that others of its subject do not hang on: it is about time and libraries.
_IMPORT = "importing it is quick and loads no tensor library"
#: Seconds that a rule may take: code of a plugin that never returns is named too. A backend trains several times.
RULE_SECONDS, BACKEND_SECONDS = 120.0, 900.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a contract, about one part of a plugin.

    Attributes:
        subject: What the rule is about, for people: ``strategy bias``.
        place: Where the subject is written: ``mine.py, line 14``; empty where that is not known.
        call: Fails as a test does where the rule is broken, and skips where it does not apply or cannot be checked.
        faulty: Subjects of which a rule is broken; shared by all rules of a plugin. One fault breaks one rule: the
            others of its subject are not checked, and none at all of a plugin that is refused.
    """

    subject: str
    text: str
    place: str
    call: Callable[[], None]
    faulty: set[str] = field(default_factory=set)

    def check(self) -> None:
        """Check the rule within `RULE_SECONDS`; an exception says how it is broken, or why it was not checked."""
        if {self.subject, "plugin"} & self.faulty:
            pytest.skip("another rule is broken: correct that one first")
        seconds = BACKEND_SECONDS if self.subject.startswith("backend ") else RULE_SECONDS
        try:
            with limited(seconds):
                self.call()
        except pytest.skip.Exception:
            raise
        except BaseException as error:
            self.faulty.update({self.subject} if self.text != _IMPORT else ())
            if isinstance(error, OverdueError):
                pytest.fail(f"{self.subject}: it must return, but it {fault(error)}")
            raise

    def verdict(self) -> tuple[Verdict, str]:
        """Return whether the rule holds, and how it is broken or why it does not apply, in one line."""
        try:
            broken = self._broken()
        except pytest.skip.Exception as skipped:
            applies = re.fullmatch("not applicable: (.*)", str(skipped))
            return ("not applicable", applies[1]) if applies else ("not checked", "")
        return ("broken" if broken else "held"), broken

    def broken(self) -> str | None:
        """Return how the rule is broken, in one line: empty where it holds, None where it was not checked."""
        verdict, message = self.verdict()
        return message if verdict in {"held", "broken"} else None

    def _broken(self) -> str:
        try:
            self.check()
        except pytest.skip.Exception:
            raise
        except (pytest.fail.Exception, TunerError, StrategyError) as error:
            return " ".join(str(error).split())
        except AssertionError as error:  # of a fresh interpreter: its last line says why
            return str(error).strip().splitlines()[-1]
        except (Exception, SystemExit, OverdueError) as error:  # noqa: BLE001 - a plugin's code may raise anything
            return first_line(error)
        return ""


def rules_of(plugin: object) -> list[Rule]:
    """Return every rule for a plugin, a module or object, and its parts; the first alone where the host refuses it."""
    rules = list(_rules(_Loading, "plugin", plugin, plugin=plugin))
    with suppress(pytest.fail.Exception):
        rules += _rules_of_parts(plugin)
    faulty = set[str]()
    return [replace(rule, faulty=faulty) for rule in rules]


def _rules_of_parts(plugin: object) -> Iterator[Rule]:
    """Yield the rules of each part: its contract, what it is for people, where it is written, what is under test."""
    added, plans = hosting(plugin).extensions("torch"), _plans(plugin)
    settings = {edit.kind: dict(edit.settings) for plan in plans[::-1] if (edit := plan.data.edit) is not None}
    strategies = offered_by(plugin, "strategies")
    siblings = {strategy.name for strategy in strategies}
    for strategy in strategies:
        about = {"strategy": strategy, "siblings": siblings}
        yield from _rules(StrategyContract, f"strategy {strategy.name}", type(strategy), **about)
    yield from _rules_of_kinds(LoweringContract, "lowering", added.lowerings, plugin)
    yield from _rules_of_kinds(SolverContract, "solver", added.solvers, plugin)
    for kind, term in {term.kind: term for plan in plans for term in plan.loss}.items():
        source = added.losses.get(kind, plugin)
        yield from _rules(LossContract, f"loss term {kind}", source, term=term, losses=added.losses)
    for kind, selector in added.selectors.items():
        given = {"selector": staticmethod(selector), "settings": settings.get(kind, {})}
        yield from _rules(DataContract, f"selector {kind}", selector, **given)
    settings |= {change.kind: dict(change.settings) for plan in plans[::-1] for change in plan.data.batches}
    for kind, function in added.batches.items():
        given = {"function": staticmethod(function), "settings": settings.get(kind, {})}
        yield from _rules(BatchContract, f"change of batches {kind}", function, **given)
    for objective in offered_by(plugin, "objectives"):
        yield from _rules(ObjectiveContract, f"objective {objective.name}", plugin, objective=objective)
    for name, measure in added.measures.items():
        yield from _rules(MeasureContract, f"measure {name}", measure, measure=staticmethod(measure))
    for name, factory in added.optimisers.items():
        yield from _rules(OptimiserContract, f"optimiser {name}", factory, factory=staticmethod(factory))
    for backend in offered_by(plugin, "backends"):
        yield from _rules(BackendContract, f"backend {backend.name}", type(backend), backend=backend)


def _rules_of_kinds(contract: type, noun: str, added: Mapping[str, object], plugin: object) -> Iterator[Rule]:
    """Yield the rules of functions that realise edits of the tail, by kind."""
    for kind, function in added.items():
        yield from _rules(contract, f"{noun} {kind}", function, plugin=plugin, kind=kind)


def _plans(plugin: object) -> list[TrialPlan]:
    """Return the plans of a plugin's strategies at the corners of their knobs."""
    plans: list[TrialPlan] = []
    for strategy in offered_by(plugin, "strategies"):
        with suppress(TunerError, StrategyError):  # the strategy's own contract says what is wrong
            plans.extend(composed.plan for composed in corners_of(strategy, example_model(4), example_task()))
    return plans


def _rules(contract: type, subject: str, source: object, **under_test: object) -> Iterator[Rule]:
    """Yield a contract's rules in the order in which they are written, but that of the module."""
    instance = type(contract.__name__, (contract,), under_test)()
    for name in vars(contract):
        if name.startswith("test_") and name != _OF_THE_MODULE:
            text = name.removeprefix("test_").replace("_", " ")
            yield Rule(subject, text, place(source), _called(getattr(instance, name)))


def _called(method: Callable[..., None]) -> Callable[[], None]:
    """Return a call of a test with all its parameters, and with the fixtures that contracts ask for."""
    marks = [mark for mark in getattr(method, "pytestmark", ()) if mark.name == "parametrize"]
    names, values = [mark.args[0] for mark in marks], [mark.args[1] for mark in marks]
    fixtures = set(inspect.signature(method).parameters) - set(names)

    def call() -> None:
        for chosen in product(*values):
            with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
                known: dict[str, Any] = {"monkeypatch": patch, "tmp_path": Path(folder)}
                method(**dict(zip(names, chosen, strict=True)), **{name: known[name] for name in fixtures})

    return call


class _Loading:
    """What a plugin obeys as a whole."""

    plugin: object

    def test_the_host_loads_it(self) -> None:
        """Hooks exist, are marked, take the arguments there are, and return what they should; no name is taken."""
        require_free_names(self.plugin)

    def test_it_offers_something(self) -> None:
        """A module without any hook is loaded, and does nothing."""
        if not any(name.startswith("tuner_") for name in dir(self.plugin)):
            pytest.fail("the plugin must have a hook, but there is no function tuner_...: see docs/plugins.md, Hooks")

    def test_it_offers_functions_by_kind(self) -> None:
        """These hooks are called in the process that loads no tensor library; their functions are called later."""
        for name in BY_KIND:
            hook = getattr(self.plugin, name, None)
            offered = {} if hook is None else hook(*("torch" for _ in inspect.signature(hook).parameters))
            for kind, function in dict(offered or {}).items():
                if not isinstance(kind, str) or not callable(function):
                    pytest.fail(
                        f"{name} must return functions by kind, but it returned {kind!r}: {function!r}: name the "
                        "function itself"
                    )

    def test_its_measures_are_of_objectives(self) -> None:
        """A value that no objective has is measured for nothing."""
        if not hasattr(self.plugin, "tuner_measures"):
            pytest.skip("not applicable: it measures nothing")
        host = hosting(self.plugin)
        unknown = sorted(set(host.extensions("torch").measures) - set(host.objectives))
        if unknown:
            pytest.fail(
                f"measure {unknown[0]!r} must be of an objective{nearest(unknown[0], host.objectives)}: add it to "
                "tuner_objectives"
            )

    def test_its_loss_terms_are_in_plans(self) -> None:
        """A strategy of the plugin adds them, under the names that `tuner_losses` has."""
        if not hasattr(self.plugin, "tuner_losses"):
            pytest.skip("not applicable: it adds no term of the loss")
        used = {term.kind for plan in _plans(self.plugin) for term in plan.loss}
        if not used and any(not composes(strategy) for strategy in offered_by(self.plugin, "strategies")):
            pytest.skip("a strategy of its plugin composes no plan: its own rules say why")
        unused = sorted(set(hosting(self.plugin).extensions("torch").losses) - used)
        if unused:
            pytest.fail(
                f"loss term {unused[0]!r} must be added by a strategy of its plugin, but none does at the corners of "
                "its knobs: correct the kind"
            )

    def test_its_selectors_are_in_plans(self) -> None:
        """A strategy of the plugin asks for them, under the kinds that `tuner_selectors` has."""
        selectors = hosting(self.plugin).extensions("torch").selectors
        if not selectors:
            pytest.skip("not applicable: it has no selector")
        plans = _plans(self.plugin)
        unused = sorted({*selectors} - {edit.kind for plan in plans if (edit := plan.data.edit) is not None})
        if unused and plans:
            pytest.fail(
                f"selector {unused[0]!r} must be the kind of a data edit, but no strategy asks for it: rename it"
            )

    def test_importing_it_is_quick_and_loads_no_tensor_library(self) -> None:
        """Every command that looks at plugins imports all of them, on devices that have no tensor library too."""
        require_light_import(self.plugin)


class PluginContract:
    """What every plugin obeys: all contracts of all its parts. A third party's whole test is a subclass.

    Attributes:
        plugin: Plugin's module.
    """

    plugin: ModuleType | object

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test of every rule."""
        if "rule" in metafunc.fixturenames:
            rules = rules_of(self.plugin)
            metafunc.parametrize("rule", rules, ids=[f"{rule.subject}: {rule.text}" for rule in rules])

    def test_it_obeys(self, rule: Rule) -> None:
        """A rule is kept; a breach is told in one line, which has the plugin's own place."""
        try:
            rule.check()
        except pytest.fail.Exception as error:
            pytest.fail(f"{error}{f' [{rule.place}]' if rule.place else ''}", pytrace=False)
