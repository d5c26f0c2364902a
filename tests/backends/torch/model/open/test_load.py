"""A model of a regression answers in standard deviations from the mean, and still says what it said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx, nn

from tuner.backends.torch.model.open.factory import build
from tuner.backends.torch.model.open.fingerprint import state_hash, structure_hash
from tuner.backends.torch.model.open.load import load
from tuner.errors import TaskError
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Subset, TargetScale, Task
from tuner.task.builtin import digits

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


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def build():\n    raise ValueError('no\\nluck')",
            r"build raised ValueError: no \(net\.py, line 2\): correct",
        ),
        ("import sys\ndef build():\n    sys.exit(0)", r"build raised SystemExit: 0 \(net\.py, line 3\): correct it$"),
        ("1 / 0", r"importing .*net\.py raised ZeroDivisionError: division by zero \(net\.py, line 1\): correct it$"),
        ("import sys\nsys.exit(0)", r"importing .*net\.py raised SystemExit: 0 \(net\.py, line 2\): correct it$"),
        ("import nowhere", r"net\.py cannot be imported \(No module named 'nowhere'\): correct it, or install"),
        ("def build(:", r"net\.py cannot be imported \(.*\): correct it"),
        ("x = 1", r"net\.py has no 'build'"),
        ("def build():\n    return 5", r"must return a torch module, but .*net\.py:build returns a int"),
        (
            "def build(outputs):\n    return None",
            r"does not take model\.arguments: TypeError: .* 'outputs': correct it$",
        ),
        ("def build():\n    return 1 + 'a'", r"does not take model\.arguments: TypeError: .* \(net\.py, line 2\)"),
    ],
)
def test_what_a_factory_raises_is_one_line_with_its_place(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "net.py").write_text(code)
    with pytest.raises(TaskError, match=message) as caught:
        build(ModelSpec(f"{tmp_path}/net.py:build"))
    assert "\n" not in str(caught.value)


pytestmark = pytest.mark.slow


def test_weights_that_are_alike_under_another_activation_are_another_prefix() -> None:
    def network(activation: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        return fx.symbolic_trace(nn.Sequential(nn.Conv2d(1, 2, 3), activation, nn.MaxPool2d(2, 2)))

    relu, same, tanh = network(nn.ReLU()), network(nn.ReLU()), network(nn.Tanh())
    wide = network(nn.LeakyReLU(0.1)), network(nn.LeakyReLU(0.2))
    assert state_hash(relu) == state_hash(tanh)
    assert relu.code == tanh.code  # why the code alone says too little
    assert structure_hash(relu) == structure_hash(same)
    assert len({structure_hash(one) for one in (relu, tanh, *wide)}) == 4


pytestmark = pytest.mark.slow


def test_another_users_data_change_nothing_of_the_pretrained_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    task = digits()
    few = replace(task, local=replace(task.local, train=Subset(task.local.train, np.arange(40))))
    first = load(task).info.fingerprint
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)  # trained anew, sums would be in another order
    try:
        assert load(few).info.fingerprint == first
    finally:
        torch.set_num_threads(threads)
    assert len(list((tmp_path / "pretrained").iterdir())) == 1
