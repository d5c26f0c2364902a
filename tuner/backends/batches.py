"""What a change of batches receives and returns. This module loads no tensor library: the types are the backend's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import ExtensionError
from tuner.targets import SINGLE_LABEL, Targets


class BatchError(ExtensionError):
    """A plugin's change of batches failed, or broke a rule of changes."""

    what = noun = "change of batches"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The n samples of training that are in memory at once: a batch, or its part where the recipe cuts batches.

    Attributes:
        inputs: What the tail reads, float32 [n, ...]: stored features, or pixels where the whole model trains.
        labels: float32 [n, outputs]: of one class a sample, a one in its place; else as the task has them.
        generator: What random numbers are drawn from, a `torch.Generator`. Its state is part of a checkpoint.
        is_local: Whether a sample is the user's own, bool [n]; the others are global ones that are mixed in.
        targets: What a sample's label is.
    """

    inputs: Any
    labels: Any
    generator: Any
    is_local: Any
    targets: Targets = SINGLE_LABEL


#: Changes a batch: takes it and the edit's settings, and returns inputs and labels of the same shapes. Labels need not
#: be classes any more: of one class a sample, they are the probabilities that the loss compares answers with.
BatchFunction = Callable[[Batch, Mapping[str, Any]], tuple[Any, Any]]
