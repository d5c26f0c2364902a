"""A warning where there are too few validation samples to tell good plans from better ones."""

from collections.abc import Iterator

from tuner.metrics import wilson
from tuner.plan.info import TaskInfo

#: Fewer validation samples are warned of.
FEW_SAMPLES = 100


def few_samples(task: TaskInfo) -> Iterator[str]:
    """Yield a warning for each domain with too few validation samples."""
    for domain, count in (("local", task.local_val), ("global", task.global_val)):
        if 0 < count < FEW_SAMPLES:
            low, high = wilson(0.5, count)
            yield (
                f"warning: {domain}.val has {count} {task.noun}, fewer than {FEW_SAMPLES}: an accuracy on them is "
                f"uncertain by up to {50 * (high - low):.0f} points either way, and the best of many trials looks "
                f"better than it is: add {task.noun} to {domain}.val"
            )
