"""The rules of a solver of sums: the cookbook's keeps them, and each is broken by a fault."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tuner.files import import_file
from tuner_testing.rules import rules_of

SOURCE = (Path(__file__).parents[3] / "docs" / "cookbook" / "slda.py").read_text(encoding="utf-8")
RETURN = "    return plugin.ridge.LinearHead(weight, bias)\n"
LOWERING = """
def lower(tail, settings):
    import torch

    class Other(torch.nn.Sequential, plugin.Solver):
        layer = tail.head

        def solve(self, samples):
            torch.nn.init.ones_(self.layer.weight)

    return Other(tail.module)

@plugin.hookimpl
def tuner_lowerings(backend):
    return {"slda": lower} if backend == "torch" else {}
"""
#: Faults, by the rule that names each: what is replaced in the recipe, and what the kit says.
FAULTS = {
    "it returns a head": (
        "    rows = counts[:, 0] > 0\n",
        "    rows = counts[:, 0] > -1\n",
        "where a class has no samples: it must return a head, but: ",
    ),
    "every setting is read": (
        'sums.settings["shrinkage"]',
        "1e-3",
        "every setting must be read, but 'shrinkage' is not",
    ),
    "the order of samples does not matter": (
        RETURN,
        f"    weight *= np.random.rand()\n{RETURN}",
        "draw nothing at random",
    ),
    "it needs numpy alone": (
        RETURN,
        f"    import torch\n{RETURN}",
        "without a tensor library: it must return a head, but: ",
    ),
    "it gives what a trial solves for": (
        RETURN,
        f"{RETURN}{LOWERING}",
        "must give the same head .* leave the lowering out",
    ),
}


@pytest.fixture
def verdicts(tmp_path: Path) -> Callable[[str, str], dict[str, tuple[str, str]]]:
    """Return a function that replaces something in the recipe, and returns what its solver's rules say."""

    def checked(old: str, new: str) -> dict[str, tuple[str, str]]:
        assert old in SOURCE
        (tmp_path / "tuner_checked.py").write_text(SOURCE.replace(old, new), encoding="utf-8")
        module: ModuleType = import_file(tmp_path / "tuner_checked.py", "checked")
        return {rule.text: rule.verdict() for rule in rules_of(module) if rule.subject == "solver slda"}

    return checked


@pytest.mark.slow
def test_a_solver_keeps_every_rule(verdicts: Callable[[str, str], dict[str, tuple[str, str]]]) -> None:
    assert verdicts(RETURN, RETURN) == dict.fromkeys(FAULTS, ("held", ""))


@pytest.mark.slow
@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_named(rule: str, verdicts: Callable[[str, str], dict[str, tuple[str, str]]]) -> None:
    old, new, message = FAULTS[rule]
    verdict, said = verdicts(old, new)[rule]
    assert verdict == "broken"
    assert re.search(message, said), said
