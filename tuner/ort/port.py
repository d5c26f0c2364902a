"""What goes into a training step and comes out of it. Needs no library."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a step.

    Attributes:
        name: Unique among inputs or among outputs; for a parameter or buffer its key in the tail's state dictionary.
        kind: `input`, `label`, `teacher` (the given model's logits), `sample_weight`, `learning_rate`, `step_count`
            (Adam's, 1 at the first step), `share` (a part's of its batch's weight), `noise` (of a dropout: uniform in
            [0, 1), drawn anew every step), `parameter`, `buffer`, `state` (of the optimiser, or a sum of gradients; 0
            at the first step); `loss` for that output.
        shape: Shape, with the batch where there is one.
        dtype: numpy's name of the type: ``"float32"``.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
