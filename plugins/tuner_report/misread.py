"""A sample that a trained model has wrong, for people to look at."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Misread:
    """A sample that a trained model has wrong.

    Attributes:
        truth: Row of its class in the union head.
        taken_for: Row that is predicted.
        probability: Of the prediction.
        jpeg: A small picture of the sample: JPEG in base64.
        file: Its file, or its place in an array.
        place: Its place among the samples that were scored.
    """

    truth: int
    taken_for: int
    probability: float
    jpeg: str
    file: str = ""
    place: int = -1
