"""What a loss term of a plugin receives and returns. This module loads no tensor library: the types are the backend's.

A trial minimises the task's loss plus, of every term of its plan, the weight times the mean over the samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import ExtensionError
from tuner.targets import SINGLE_LABEL, Targets


class LossError(ExtensionError):
    """A plugin's loss term failed, or broke a rule of loss terms."""

    what = noun = "loss term"


@dataclass(frozen=True, slots=True, eq=False)
class LossInputs:
    """What a loss term reads of a batch of n samples.

    Attributes:
        logits: The tail's logits, float32 [n, outputs], with their graph.
        labels: int64 [n]; of several labels a sample, and of targets, float32 [n, outputs].
        features: The tail's input, float32 [n, ...], with the plan's random changes.
        teacher: The given model's logits of the same samples without random changes, float32 [n, outputs]; None where
            the term's `teacher` is False.
        known: How many of the first outputs the given model brought along: the others are new, and it knows nothing of
            them.
        targets: What a sample's label is.
    """

    logits: Any
    labels: Any
    features: Any
    teacher: Any
    known: int
    targets: Targets = SINGLE_LABEL


#: Computes a loss term: takes the batch and the term's settings, and returns one loss per sample, float32 [n]. It is
#: pure, as it is traced like the model: it draws no random numbers and asks for no tensor's value.
LossFunction = Callable[[LossInputs, Mapping[str, Any]], Any]
