"""The check of an exported model: parallel, in order, counted, and compared with PyTorch all over a partition."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tuner.arrays import Floats
from tuner.backends.torch.export.check import COMPARED, Check, checked_partitions, scored_partitions
from tuner.errors import BundleError
from tuner.task.builtin import digits

TASK = digits()
PARTITIONS = scored_partitions(TASK)


def tenth(batch: Any, off: float = 0.0) -> Any:
    """Return "logits" by which each sample is known."""
    return batch.reshape(len(batch), -1)[:, 20:30] + off


def test_samples_keep_their_order_and_are_counted_to_the_last() -> None:
    heard: list[Mapping[str, Any]] = []

    def report(progress: Mapping[str, Any]) -> bool:
        heard.append(progress)
        return False

    def both(batch: Floats) -> Floats:
        return np.stack([tenth(batch), tenth(batch)])

    check = Check(TASK, both, lambda batch: torch.stack([tenth(batch), tenth(batch)]), report, PARTITIONS)
    found = {name: check.logits(samples) for name, samples in PARTITIONS.items()}
    for name, samples in PARTITIONS.items():
        assert np.array_equal(found[name][1], tenth(TASK.batch(samples, range(len(samples)))))
    total = sum(map(len, PARTITIONS.values()))
    assert heard[-1] == {"scored": total, "of": total}
    assert check.largest_difference() == 0


def test_another_result_is_refused_and_learned_samples_are_compared_alone() -> None:
    wrong = Check(TASK, partial(tenth, off=0.1), tenth, lambda _: False, PARTITIONS)
    wrong.logits(TASK.local.val)
    with pytest.raises(BundleError, match="differ"):
        wrong.largest_difference()
    learned = checked_partitions(TASK, learned=True)
    assert {*learned} == {*PARTITIONS} - {"local_accuracy"} | {"local.val"}
    assert COMPARED / 2 < len(learned["local.val"]) <= COMPARED
    check = Check(TASK, tenth, tenth, lambda _: False, learned)
    check.score("local.val", learned["local.val"], check.logits(learned["local.val"]))
    assert check.scores == {}


@pytest.mark.parametrize("off", [0.0, 0.1])
def test_stored_features_stand_for_samples_only_where_they_have_the_same_logits(off: float) -> None:
    samples, ran, heard = TASK.local.val, list[int](), list[Mapping[str, Any]]()

    def written(batch: Floats) -> Any:
        ran.append(len(batch))
        return tenth(batch)

    def report(progress: Mapping[str, Any]) -> bool:
        heard.append(progress)
        return False

    wanted = tenth(TASK.batch(samples, range(len(samples))))
    check = Check(TASK, written, tenth, report, {"local_accuracy": samples})
    assert np.array_equal(check.logits(samples, wanted + off), wanted)
    assert check.largest_difference() == 0
    assert (sum(ran) <= COMPARED) if off == 0 else (sum(ran) > len(samples))
    assert heard[-1]["scored"] <= len(samples)
