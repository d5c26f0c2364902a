"""The partitions whose samples a prefix runs on."""

import pytest

from tuner.backends.torch.features.batches import partitions_of
from tuner.task import Task

pytestmark = pytest.mark.slow


def test_the_splits_have_names(task: Task) -> None:
    assert list(partitions_of(task)) == [
        f"{domain}.{split}" for domain in ("local", "global") for split in ("train", "val", "test")
    ]
