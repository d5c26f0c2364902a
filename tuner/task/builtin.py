"""A built-in task that needs no files: scikit-learn's 1,797 handwritten digits, 8 × 8.

The model is trained for 0 to 6; one user writes 7, 8 and 9, and has at most 60 training samples of each.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tuner.arrays import RowNumbers
from tuner.distribution import install_command
from tuner.errors import TaskError
from tuner.task.data.samples import ArraySamples, Subset
from tuner.task.partition import stratified_holdout
from tuner.task.spec import InputSpec, ModelSpec, Pretrain
from tuner.task.task import Domain, Task

_GLOBAL_DIGITS = 7  # digits below are global, the others local
_LOCAL_TRAIN_PER_CLASS = 60


def digits() -> Task:
    """Build the task: 60 / 20 / 20 % of each class for training, validation and test, seeded.

    Raises:
        TaskError: scikit-learn is not installed.
    """
    package = find_spec("sklearn")  # not imported: that takes a second and 70 MB
    if package is None or package.origin is None:
        raise TaskError(f"the digits task reads scikit-learn's data: {install_command('demo')}")
    table = np.loadtxt(Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    pixels = (table[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32)  # 0..16 -> [0, 1], float32 [n, 1, 8, 8]
    labels = table[:, -1].astype(np.int64)
    spec = InputSpec(kind="arrays")
    samples = ArraySamples(pixels, labels, spec, "digits")

    rest, test = stratified_holdout(labels, 0.2)
    train, val = (rest[part] for part in stratified_holdout(labels[rest], 0.25))
    new = train[labels[train] >= _GLOBAL_DIGITS]
    few = [new[labels[new] == digit][:_LOCAL_TRAIN_PER_CLASS] for digit in np.unique(labels[new])]

    def local_part(indices: RowNumbers) -> Subset:
        return Subset(samples, indices[labels[indices] >= _GLOBAL_DIGITS])

    def global_part(indices: RowNumbers) -> Subset:
        return Subset(samples, indices[labels[indices] < _GLOBAL_DIGITS])

    return Task(
        name="digits",
        model=ModelSpec("tuner.models.digits:build", pretrain=Pretrain(epochs=12, learning_rate=3e-3)),
        input=spec,
        loss="single-label",
        local=Domain(Subset(samples, np.sort(np.concatenate(few))), local_part(val), local_part(test)),
        global_=Domain(global_part(train), global_part(val), global_part(test)),
        labels=tuple(str(digit) for digit in range(10)),
        head_rows=tuple(range(_GLOBAL_DIGITS)),
        local_labels=tuple(range(_GLOBAL_DIGITS, 10)),
        augment=("shift",),  # a flipped digit is another one
    )
