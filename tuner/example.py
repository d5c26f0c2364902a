"""Made-up models and tasks: numbers only, for listings, checks and tests."""

from tuner.plan import BlockInfo, ModelInfo, TaskInfo


def example_model(blocks: int) -> ModelInfo:
    """Return a model of so many equal blocks."""
    chain = (BlockInfo(f"block{at}", f"cut{at}", (8, 4, 4), 1_000_000, 1_000, 4_096) for at in range(blocks))
    return ModelInfo("example", "0" * 32, 10, tuple(chain))


def example_task() -> TaskInfo:
    """Return a task with local and global data: 40 local samples, 7 global classes of 100."""
    return TaskInfo("example", "1" * 32, 40, 10, (100,) * 7, 70, "images")
