"""Example models and tasks: numbers only, for listings, checks and tests."""

from tuner.plan.info import BlockInfo, ModelInfo, TaskInfo


def example_model(blocks: int) -> ModelInfo:
    """Return a model of equal blocks.

    Args:
        blocks: Length of the chain.
    """
    chain = (
        BlockInfo(
            name=f"block{number}",
            cut=f"cut{number}",
            in_shape=(8, 4, 4),
            flops=1_000_000,
            parameters=1_000,
            saved_bytes=4_096,
        )
        for number in range(blocks)
    )
    return ModelInfo("example", "0" * 32, 10, tuple(chain))


def example_task() -> TaskInfo:
    """Return a task with local and global data: 40 local samples, 7 global classes of 100."""
    return TaskInfo(
        name="example",
        fingerprint="1" * 32,
        local_train=40,
        local_val=10,
        global_per_class=(100,) * 7,
        global_val=70,
        noun="images",
    )
