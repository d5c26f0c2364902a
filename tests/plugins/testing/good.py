"""A good plugin, in whose source `tests.plugins.testing.faults` replaces something, and what a fault is."""

from dataclasses import dataclass, field

GOOD = """
import itertools
from dataclasses import replace
from tuner.plugin import EditTraits, Stage, Strategy, TailEdit, hookimpl

COUNT = itertools.count()
TRAITS = EditTraits()

class Bias(Strategy):
    name, stage = "seeded", Stage.SHAPE

    def sample(self, draw, model):
        return draw.choice("used", (False, True)) and draw.integer("full", 1, model.num_blocks)

    def apply(self, plan, full):
        if not full:
            return plan
        return replace(plan, shape=(*plan.shape, TailEdit.of("bias", TRAITS, full=full)))

def lowered(tail, settings):
    for block in tail.blocks[: -settings["full"]]:
        for layer in block.layers.values():
            for value in layer.parameters():
                value.requires_grad_(value.ndim == 1)
    return tail.module

@hookimpl
def tuner_strategies():
    return [Bias()]

@hookimpl
def tuner_lowerings(backend):
    return {"bias": lowered} if backend == "torch" else {}
"""
DRAW = '"full", 1, model.num_blocks'
RETURN, TRAITS = "    return tail.module\n", "TRAITS = EditTraits()"
SAME = "return self.inner(value)"
MEMBER, ANCHORED = "    def sample(", "its anchors are values of knobs"
ANCHORS = "    def anchors(self, model):\n        return [{}]\n\n"
OWN = "TRAITS = EditTraits(keeps_weights=False)"
#: A module around the tail; what it does in `forward` is the fault.
AROUND = """
    import torch
    class Around(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.calls = inner, 0
            {set_up}
        def forward(self, value):
            self.calls += self.training
            {forward}
    return Around(tail.module)
"""


def around(forward: str, set_up: str = "pass") -> str:
    return AROUND.format(forward=forward, set_up=set_up)


@dataclass(frozen=True)
class Fault:
    """A fault, and who names it with which words.

    Attributes:
        edits: What is replaced in `GOOD`.
        host: The host's words, at load.
        kit: The kit's words, by its rule.
        trial: The trial's words.
    """

    edits: dict[str, str]
    host: str = ""
    kit: dict[str, str] = field(default_factory=dict)
    trial: str = ""
