"""What a task says of itself before anything trains."""

from dataclasses import replace

import numpy as np
import pytest

from tuner.task import Subset
from tuner.task.builtin import digits
from tuner.task.data.samples import ArraySamples
from tuner.task.info import outline


def test_a_class_that_no_validation_sample_is_of_is_named() -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = digits()
    assert not any("has no" in line for line in outline(task).notes)
    others = np.flatnonzero(task.local.val.labels != 8)
    less = replace(task, local=replace(task.local, val=Subset(task.local.val, others)))
    (line,) = (line for line in outline(less).notes if "has no" in line)
    assert line.startswith("warning: local.val has no samples of '8', so whether these are right is not measured: ")


def test_values_of_another_scale_than_those_to_train_on_are_noticed() -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = digits()
    val = task.local.val
    values = 255 * np.stack([val.load(at) for at in range(len(val))])
    other = replace(task, local=replace(task.local, val=ArraySamples(values, val.labels, task.input, "val")))
    assert not any("one scale" in line for line in outline(task).notes)
    (line,) = (line for line in outline(other).notes if "one scale" in line)
    assert line.startswith("warning: the values of local.val are up to 255 and those of local.train up to 1 ")
