"""Inputs that are easily taken for something else: what the command line must say of each, or refuse it in one line."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.inputs.malformed import Case

NET = """import torch
from torch import nn
def build(end=""):
    ends = {"softmax": [nn.Softmax(1)], "sigmoid": [nn.Sigmoid()], "": []}[end]
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2), *ends)
class Net(nn.Module):
    def __init__(self, how):
        super().__init__(); self.body, self.how = build(), how
    def forward(self, x):
        x = self.body(x)
        return torch.softmax(x, 1) if self.how == "softmax" else nn.functional.dropout(x, 0.5)
def lazy(): return nn.Sequential(nn.LazyConv2d(4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(2))
def scripted(): return torch.jit.script(build())
"""
TASK = '[model]\nfactory = "misread.py:{factory}"\n{model}\n[local]\nkind = "arrays"\ntrain = "{data}"\n{more}\n'


def misread(folder: Path) -> Iterator[Case]:
    """Write inputs into a folder, and yield the command that is given each, with what its answer must hold."""
    import torch

    (folder / "misread.py").write_text(NET)
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(40, 1, 8, 8)).astype(np.float32), np.arange(40) % 2
    np.savez(folder / "fine.npz", x=x, y=y)
    np.savez(folder / "pixels.npz", x=(x * 50 + 128).clip(0, 255).astype(np.uint8), y=y)
    x[7, 0, 1, 2] = np.nan
    np.savez(folder / "nan.npz", x=x, y=y)
    names: dict[str, object] = {}
    exec(NET, names)  # noqa: S102 - it is written above
    state = names["build"]().state_dict()  # type: ignore[operator]  # a function
    files = {
        "prefix": {f"module.{name}": value for name, value in state.items()},
        "entry": {"model": state, "epoch": 3},
        "codes": {name: (value * 100).to(torch.int8) for name, value in state.items()},
        "nan": {**state, "4.bias": torch.tensor([0.0, torch.nan])},
    }
    for name, content in files.items():
        torch.save(content, folder / f"{name}.ckpt")
    rows = (
        ("a NaN in an array", "build", "nan.npz", "", "", r"x\[7\]"),
        (
            "mean of pixels to 255", "build", "pixels.npz", "", "[input]\nmean = [128.0]\nstd = [50.0]",
            "pixels from 0 to 1",
        ),
        ("a softmax at the end", "build", "fine.npz", 'arguments = { end = "softmax" }', "", "Softmax"),
        ("a sigmoid at the end", "build", "fine.npz", 'arguments = { end = "sigmoid" }', "", "Sigmoid"),
        ("a softmax in forward", "Net", "fine.npz", 'arguments = { how = "softmax" }', "", "softmax"),
        ("dropout that is always on", "Net", "fine.npz", 'arguments = { how = "dropout" }', "", "evaluation mode"),
        ("lazy layers", "lazy", "fine.npz", "", "", "parameters"),
        ("a TorchScript module", "scripted", "fine.npz", "", "", "TorchScript"),
        ("weights with a prefix", "build", "fine.npz", 'weights = "prefix.ckpt"', "", r"module\."),
        ("weights in an entry", "build", "fine.npz", 'weights = "entry.ckpt"', "", "'model'"),
        ("integers for weights", "build", "fine.npz", 'weights = "codes.ckpt"', "", "int8"),
        ("a NaN in a weight", "build", "fine.npz", 'weights = "nan.ckpt"', "", r"'4\.bias'"),
    )  # fmt: skip
    for number, (name, factory, data, model, more, wanted) in enumerate(rows):
        file = folder / f"misread-{number}.toml"
        file.write_text(TASK.format(factory=factory, data=data, model=model, more=more))
        yield Case(f"misread: {name}", ("describe", file.name), must_say=wanted)
