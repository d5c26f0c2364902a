"""Distributions as an installer leaves them."""

from pathlib import Path

#: A plugin with one strategy and one edit; NAME is both's.
STRATEGY = """
from dataclasses import replace
from tuner.plugin import Stage, Strategy, TailEdit, hookimpl

class Made(Strategy):
    name, stage = "NAME", Stage.SHAPE

    def sample(self, draw, model):
        return draw.choice("used", (True, False))

    def apply(self, plan, knobs):
        return replace(plan, shape=(*plan.shape, TailEdit("NAME"))) if knobs else plan

def lower(tail, settings):
    return tail.module

@hookimpl
def tuner_strategies():
    return [Made()]

@hookimpl
def tuner_lowerings(backend):
    return {"NAME": lower}
"""


def install(folder: Path, name: str, source: str, version: str = "1.2") -> None:
    """Put a distribution with one entry point into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[tuner]\n{name} = {name}\n")
