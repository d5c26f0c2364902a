"""Faults put into plugins: each is put where it can be, and is no other one."""

import ast

from benchmarks.mutants.__main__ import EQUIVALENT, NAMES
from benchmarks.mutants.changes import FAULTS, mutants

SOURCE = '''
"""A plugin."""
from tuner.plugin import EditTraits, Stage, Strategy, TailEdit, hookimpl

class Mine(Strategy):
    name, stage = "mine", Stage.SHAPE
    excludes = frozenset({"growth"})

    def apply(self, plan, knobs):
        return replace(plan, shape=(*plan.shape, TailEdit("mine", traits=EditTraits(keeps_weights=False))))

@hookimpl
def tuner_strategies():
    return [Mine()]
'''


def test_a_fault_is_in_every_place_that_can_hold_it() -> None:
    found = {mutant.fault: mutant for mutant in mutants(SOURCE)}
    assert "excludes = frozenset({'grotwh'})" in found["an excluded name is misspelt"].source
    assert "keeps_weights=True" in found["keeps_weights is wrong"].source
    assert "stage = ('mine', Stage.LOSS)" in found["another stage"].source
    assert "@hookimpl" not in found["a hook is not marked"].source
    assert found["drops what others wrote"].source.count("*plan.shape") == 0
    assert not {"a term is a mean", "a knob is ignored"} & {*found}
    assert len({mutant.source for mutant in found.values()}) == len(found)
    for mutant in found.values():
        ast.parse(mutant.source)


def test_there_are_fifty_faults_and_none_is_excused_without_a_plugin() -> None:
    kinds = {fault.name for fault in FAULTS}
    assert len(kinds) >= 50
    assert {plugin for plugin, _ in EQUIVALENT} <= {*NAMES}
    assert {fault for _, fault in EQUIVALENT} <= kinds
