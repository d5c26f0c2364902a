"""The distance of a sample to the user's samples, as nodes that are appended to a model when they are asked for.

They are a file of their own, which is checked as any model's, and merged into the model as `tuner.ort.answer` is.
"""

from collections.abc import Sequence

import numpy as np

from tuner.arrays import Array
from tuner.ort.answer import DISTANCE, appended, node
from tuner.ridge.unknown import SHORTEST, Familiar


def distance_nodes(head_input: str, familiar: Familiar) -> bytes:
    """Return the nodes from what enters a model's head, float32 [n, features], to `DISTANCE`, float32 [n, 1]."""
    features = len(familiar.centre)
    constants: dict[str, Array] = {
        "unknown.centre": familiar.centre.astype(np.float32),
        "unknown.means": familiar.means.T.astype(np.float32),
        "unknown.axes": familiar.axes.T.astype(np.float32),
        "unknown.features": np.ones((features, 1), np.float32),
        "unknown.directions": np.ones((len(familiar.axes), 1), np.float32),
        "unknown.shortest": np.array(SHORTEST, np.float32),
        "unknown.one": np.ones(1, np.int64),
        "unknown.least": np.ones(1, np.float32),
    }
    steps: Sequence[tuple[str, str, tuple[str, ...]]] = (
        ("shifted", "Sub", (head_input, "unknown.centre")),
        ("cosines", "MatMul", ("unknown.shifted", "unknown.means")),
        ("squares", "Mul", ("unknown.shifted", "unknown.shifted")),
        ("length", "MatMul", ("unknown.squares", "unknown.features")),
        ("turned", "MatMul", ("unknown.shifted", "unknown.axes")),
        ("turned_squares", "Mul", ("unknown.turned", "unknown.turned")),
        ("less", "MatMul", ("unknown.turned_squares", "unknown.directions")),
        ("square", "Sub", ("unknown.length", "unknown.less")),
        ("above", "Max", ("unknown.square", "unknown.shortest")),
        ("root", "Sqrt", ("unknown.above",)),
        ("cosine", "Div", ("unknown.most", "unknown.root")),
        ("", "Sub", ("unknown.least", "unknown.cosine")),
    )
    nodes = [node(operator, inputs, (f"unknown.{name}" if name else DISTANCE,)) for name, operator, inputs in steps]
    nodes.insert(2, node("TopK", ("unknown.cosines", "unknown.one"), ("unknown.most", "unknown.nearest")))
    return appended(nodes, constants, {DISTANCE: "float32"})
