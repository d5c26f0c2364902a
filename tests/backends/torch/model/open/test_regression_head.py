"""A model of a regression answers in standard deviations from the mean, and still says what it said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tuner.backends.torch.model.open.load import load
from tuner.errors import TaskError
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, TargetScale, Task

pytestmark = pytest.mark.slow
SPEC = InputSpec(kind="arrays")
SCALE = TargetScale((290.0, -3.0), (5.0, 0.01))
NET = """
from torch import nn
def build(**more):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), {head})
"""


def task_of(folder: Path, head: str, scale: TargetScale | None = SCALE) -> Task:
    (folder / "net.py").write_text(NET.format(head=head))
    generator = np.random.default_rng(0)
    x, z = generator.normal(size=(12, 1, 4, 4)).astype(np.float32), generator.normal(size=(12, 2)).astype(np.float32)
    samples = ArraySamples(x, z, SPEC)
    rows, labels = (0, 1), ("kelvin", "metres")
    model = ModelSpec(f"{folder / 'net.py'}:build")
    local = Domain(samples, samples)
    return Task("net", model, SPEC, "regression", local, None, labels, rows, rows, scale=scale)


@pytest.mark.parametrize(
    "head", ["nn.Linear(6, 2)", "nn.Linear(6, 4), nn.Linear(4, 2)", "nn.Unflatten(1, (6, 1, 1)), nn.Conv2d(6, 2, 1)"]
)
def test_the_outputs_mean_what_they_meant(head: str, tmp_path: Path) -> None:
    head = f"{head}, nn.Flatten()" if "Conv2d" in head else head
    task = task_of(tmp_path, head)
    given, standardised = (load(replace(task, scale=scale)).model for scale in (None, SCALE))
    batch = torch.from_numpy(task.batch(task.local.train, range(12)))
    with torch.inference_mode():
        again = standardised(batch) * torch.tensor(SCALE.std) + torch.tensor(SCALE.mean)
        torch.testing.assert_close(again, given(batch), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("nn.Linear(6, 3)", r"gives 3 outputs, but the targets have 2 \(kelvin, metres\): a regression needs as many"),
        ("nn.Linear(6, 2), nn.Sigmoid()", r"must end with a linear layer that has a bias, and nothing after it"),
        ("nn.Linear(6, 2, bias=False)", r"must end with a linear layer that has a bias"),
    ],
)
def test_a_model_whose_outputs_are_no_numbers_of_any_size_is_refused(head: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=message) as error:
        load(task_of(tmp_path, head))
    assert "\n" not in str(error.value)


def test_a_model_that_answers_standardised_targets_already_is_left_as_it_is(tmp_path: Path) -> None:
    task = task_of(tmp_path, "nn.Linear(6, 2)")
    of_bundle = replace(task, model=replace(task.model, head=task.labels))
    heads = [load(one).model.get_submodule("3") for one in (of_bundle, replace(task, scale=None))]
    assert all(isinstance(head, nn.Linear) for head in heads)
    assert torch.equal(*(head.get_parameter("weight") for head in heads))
