"""Answers of a model that is being trained."""

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

from tuner.arrays import Floats
from tuner.bundle.format import Bundle


class Answer(NamedTuple):
    """What a model answers to a sample.

    Attributes:
        label: Most probable label; or the values as text.
        exit: Index of the exit that it left at; 0 of a model without exits.
    """

    label: str
    exit: int


def answers_to(bundle: Bundle, logits: Floats, exits: Iterable[int] = repeat(0)) -> list[Answer]:
    """Return what the logits of a bundle's model answer.

    Args:
        bundle: The bundle.
        logits: float32 [n, labels].
        exits: Exit that each sample left at.
    """
    return [
        Answer(text, int(exit_))
        for text, exit_ in zip(bundle.targets.texts(logits, bundle.labels), exits, strict=False)
    ]
