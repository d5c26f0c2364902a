"""The partitions whose samples a prefix runs on."""

import pytest

from tuner.task import Task

pytestmark = pytest.mark.slow


def test_the_splits_have_names(task: Task) -> None:
    assert list(dict(task.partitions())) == [
        f"{domain}.{split}" for domain in ("local", "global") for split in ("train", "val", "test")
    ]
