"""The rules that a plugin obeys, each as a function that fails where the plugin breaks it."""

import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner.backends.selecting import Selector
from tuner.errors import TunerError, first_line, nearest
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import LossTerm
from tuner.plugin.compose import StrategyError
from tuner.plugin.load.calls import OverdueError
from tuner_testing.backend import BackendContract
from tuner_testing.hosting import backends_of, hosting, objectives_of, place, strategies_of
from tuner_testing.loss import LossContract
from tuner_testing.lowering import LoweringContract
from tuner_testing.models.composing import corners_of
from tuner_testing.models.libraries import BY_KIND, require_light_import
from tuner_testing.objective import MeasureContract, ObjectiveContract
from tuner_testing.optimiser import OptimiserContract
from tuner_testing.selector import DataContract
from tuner_testing.strategy import StrategyContract

#: The rule that a plugin's module obeys, not each of its parts.
_OF_THE_MODULE = "test_importing_the_plugin_loads_no_tensor_library"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a contract, about one part of a plugin.

    Attributes:
        subject: What the rule is about, for people: ``strategy bias``.
        text: The rule, for people.
        place: Where the subject is written: ``mine.py, line 14``; empty where that is not known.
        check: Fails as a test does where the rule is broken, and skips where it cannot be checked.
    """

    subject: str
    text: str
    place: str
    check: Callable[[], None]

    def broken(self) -> str | None:
        """Return how the rule is broken, in one line: empty where it holds, None where it cannot be checked."""
        try:
            self.check()
        except pytest.skip.Exception:
            return None
        except (pytest.fail.Exception, TunerError, StrategyError) as error:
            return " ".join(str(error).split())
        except AssertionError as error:  # of a fresh interpreter: its last line says why
            return str(error).strip().splitlines()[-1]
        except (Exception, SystemExit, OverdueError) as error:  # noqa: BLE001 - a plugin's code may raise anything
            return first_line(error)
        return ""


def rules_of(plugin: object) -> list[Rule]:
    """Return every rule for a plugin and for each of its parts; the first alone where the host refuses it.

    Args:
        plugin: Module, or object with hook implementations.
    """
    loading = list(_rules(type("Loading", (_Loading,), {"plugin": plugin}), "plugin", plugin))
    try:
        return [*loading, *_rules_of_parts(plugin)]
    except pytest.fail.Exception:
        return loading


def _rules_of_parts(plugin: object) -> Iterator[Rule]:
    for strategy in strategies_of(plugin):
        contract = type("Strategy", (StrategyContract,), {"strategy": strategy})
        yield from _rules(contract, f"strategy {strategy.name}", type(strategy))
    extensions = hosting(plugin).extensions("torch")
    for kind, lowering in extensions.lowerings.items():
        contract = type("Lowering", (LoweringContract,), {"plugin": plugin, "kind": kind})
        yield from _rules(contract, f"lowering {kind}", lowering)
    for kind, term in _terms(plugin).items():
        contract = type("Loss", (LossContract,), {"term": term, "losses": extensions.losses})
        yield from _rules(contract, f"loss term {kind}", extensions.losses.get(kind, plugin))
    for kind, (selector, settings) in _selectors(plugin, extensions.selectors).items():
        contract = type("Data", (DataContract,), {"selector": staticmethod(selector), "settings": settings})
        yield from _rules(contract, f"selector {kind}", selector)
    for objective in objectives_of(plugin):
        contract = type("Objective", (ObjectiveContract,), {"objective": objective})
        yield from _rules(contract, f"objective {objective.name}", plugin)
    for name, measure in extensions.measures.items():
        contract = type("Measured", (MeasureContract,), {"measure": staticmethod(measure)})
        yield from _rules(contract, f"measure {name}", measure)
    for name, factory in extensions.optimisers.items():
        contract = type("Optimiser", (OptimiserContract,), {"factory": staticmethod(factory)})
        yield from _rules(contract, f"optimiser {name}", factory)
    for backend in backends_of(plugin):
        contract = type("BackendOf", (BackendContract,), {"backend": backend})
        yield from _rules(contract, f"backend {backend.name}", type(backend))


def _selectors(plugin: object, offered: Mapping[str, Selector]) -> dict[str, tuple[Selector, dict[str, Any]]]:
    """Return every selector with the settings of a data edit of its kind; with none where no strategy writes one."""
    settings: dict[str, dict[str, Any]] = {}
    for strategy in strategies_of(plugin):
        with suppress(TunerError, StrategyError):  # the strategy's own contract says what is wrong
            for composed in corners_of(strategy, example_model(4), example_task()):
                edit = composed.plan.data.edit
                if edit is not None:
                    settings.setdefault(edit.kind, dict(edit.settings))
    return {kind: (selector, settings.get(kind, {})) for kind, selector in offered.items()}


def _terms(plugin: object) -> dict[str, LossTerm]:
    """Return one of the loss terms of each kind that a plugin's strategies add."""
    terms: dict[str, LossTerm] = {}
    for strategy in strategies_of(plugin):
        with suppress(TunerError, StrategyError):  # the strategy's own contract says what is wrong
            for composed in corners_of(strategy, example_model(4), example_task()):
                terms |= {term.kind: term for term in composed.plan.loss}
    return terms


def _rules(contract: type, subject: str, source: object) -> Iterator[Rule]:
    """Yield a contract's rules in the order in which they are written."""
    instance = contract()
    names = [name for own in reversed(contract.__mro__) for name in vars(own) if name.startswith("test_")]
    for name in names:
        if name != _OF_THE_MODULE:
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
        hosting(self.plugin)

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
            return
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
            return
        unused = sorted(set(hosting(self.plugin).extensions("torch").losses) - set(_terms(self.plugin)))
        if unused:
            pytest.fail(
                f"loss term {unused[0]!r} must be added by a strategy of its plugin, but none does at the corners of "
                "its knobs: correct the kind"
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
