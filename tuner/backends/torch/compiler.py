"""PyTorch's compiler, imported when something of it is used instead of by the first optimiser.

`torch.optim.Optimizer` imports ``torch._dynamo`` to say where a compiler must not look: 1.6 s of processor time of each
start (torch 2.13), which nothing needs before a step is traced. `defer` puts a module in its place that answers
optimisers; whatever else is asked of it imports the real one.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"


class _Deferred(ModuleType):
    """Answers what optimisers ask of ``torch._dynamo``; the rest comes from the real module."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        """Return a function as it is: nothing compiles it."""
        return function

    @staticmethod
    def graph_break(*_: object, **__: object) -> None:
        """Do nothing: no graph is being compiled."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(load(), name, value)


def defer() -> None:
    """Let ``torch._dynamo`` be imported when it is used; where it is imported already, nothing changes."""
    if NAME in sys.modules:
        return
    deferred = _Deferred(NAME)
    spec = importlib.util.find_spec(NAME)
    # `inspect` asks every module for its file, as an export does
    deferred.__dict__.update(__spec__=spec, __file__=None if spec is None else spec.origin)
    sys.modules[NAME] = torch.__dict__["_dynamo"] = deferred


def load() -> ModuleType:
    """Import ``torch._dynamo``, deferred or not, and return it."""
    if isinstance(sys.modules.get(NAME), _Deferred):
        del sys.modules[NAME]
        torch.__dict__.pop("_dynamo", None)
    return importlib.import_module(NAME)
