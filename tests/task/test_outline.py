"""What a task says of itself before anything trains."""

from dataclasses import replace

import numpy as np
import pytest

from tuner.task import Subset
from tuner.task.builtin import digits
from tuner.task.info import outline


def test_a_class_that_no_validation_sample_is_of_is_named() -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = digits()
    assert not any("has no" in line for line in outline(task).notes)
    others = np.flatnonzero(task.local.val.labels != 8)
    less = replace(task, local=replace(task.local, val=Subset(task.local.val, others)))
    (line,) = (line for line in outline(less).notes if "has no" in line)
    assert line.startswith("warning: local.val has no samples of '8', so whether these are right is not measured: ")
