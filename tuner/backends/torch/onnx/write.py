"""A traced step as an ONNX file that the ordinary onnxruntime trains with: a plugin writes it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from tuner.backends.torch.step.traced import Step
from tuner.distribution import WRITERS, offered
from tuner.errors import PluginError


@cache
def writer() -> Callable[[Step, Path], None]:
    """Return what writes a step, imported.

    Raises:
        PluginError: No plugin that writes steps is switched on.
    """
    point = offered(WRITERS).get("onnx")
    if point is None:
        raise PluginError(
            "the plugin onnx-steps writes training steps, and is off: see `tuner plugins` and TUNER_PLUGINS"
        )
    write_step: Callable[[Step, Path], None] = point.load()
    return write_step


def write(step: Step, path: Path) -> None:
    """Write a step, traced with `padded` unless its norms are frozen.

    Raises:
        StepError: An operator has no ONNX form.
        PluginError: See `writer`.
    """
    writer()(step, path)
