"""An answer of a model that is being trained."""

from typing import NamedTuple


class Answer(NamedTuple):
    """What a model answers to a sample.

    Attributes:
        label: Most probable label.
        exit: Index of the exit that it left at; 0 of a model without exits.
    """

    label: str
    exit: int
