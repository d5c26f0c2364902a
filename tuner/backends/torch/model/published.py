"""Models that libraries publish by name: torchvision's, and those of plugins; and how their inputs are prepared.

Names of torchvision weights in a task file ask for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from tuner.backends.torch.model.vision import declare_operators, torchvision
from tuner.distribution import PUBLISHERS, SWITCH, offered
from tuner.errors import PluginError, TaskError, first_line, missing_extra
from tuner.task import InputDefaults, ModelSpec


@contextmanager
def library_errors(failed: str, way_out: str) -> Iterator[None]:
    """Say what failed with the library's own error, as TaskError, or name the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error
    except (TaskError, PluginError):
        raise
    except Exception as error:  # of a library, about files or the network
        raise TaskError(f"{failed} {first_line(error)}: {way_out}") from error


def build_published(spec: ModelSpec) -> nn.Module:
    """Build a model of a library; with its own weights, where the task gives no others and there are any."""
    library, name = spec.source or ("", "")
    with library_errors(f"model.factory: {spec.factory} raised", "correct its name or model.arguments"):
        model: nn.Module = _publisher(library).build(name, spec)
        return model


def input_defaults(spec: ModelSpec) -> InputDefaults | None:
    """Return how the inputs of a published model are prepared, by its own configuration; None where it does not say."""
    with library_errors(f"how inputs are prepared for {spec.factory} cannot be read:", "give [input]"):
        declare_operators()
        if spec.source is not None:
            library, name = spec.source
            if spec.is_file:  # a model file does not say how its inputs are made
                return None
            found: InputDefaults | None = _publisher(library).input_defaults(name, spec)
            return found
        if spec.factory.startswith("torchvision.models:") and spec.weights is not None:
            return _torchvision_input(spec)
    return None


def _publisher(library: str) -> Any:
    point = offered(PUBLISHERS).get(library)
    if point is None:
        raise PluginError(
            f"no plugin that builds models of {library} is switched on: see `tuner plugins`, and {SWITCH}"
        )
    return point.load()


def _torchvision_input(spec: ModelSpec) -> InputDefaults | None:
    """Return the preset of some weights that torchvision knows by name."""
    models, builder = torchvision().models, spec.factory.rpartition(":")[2]
    try:
        weights = models.get_model_weights(builder)[str(spec.weights)]
    except (ValueError, KeyError):
        return None
    preset = weights.transforms()
    sizes = (preset.crop_size[0], max(preset.resize_size[0], preset.crop_size[0]))
    return InputDefaults(*sizes, tuple(preset.mean), tuple(preset.std))
