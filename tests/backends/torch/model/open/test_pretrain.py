"""Pretraining on global data: once a device, whoever the user is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tuner.backends.torch.model.open.load import load
from tuner.task import Subset
from tuner.task.builtin import digits

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
