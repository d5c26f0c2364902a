"""A warning where there are too few validation samples to tell good plans from better ones."""

from collections.abc import Iterator

from tuner.metrics import wilson
from tuner.task.info import TaskOutline

#: Fewer validation samples are warned of.
FEW_SAMPLES = 100
#: Folds that are suggested: of more, each trial takes longer than its surer score is worth.
FOLDS = 5


def few_samples(task: TaskOutline, folds: int = 0) -> Iterator[str]:
    """Yield a warning for each domain with too few samples to score on.

    Args:
        task: The task.
        folds: Folds of the local training samples that are scored too; 0 for none.
    """
    info, possible = task.info, min(FOLDS, task.most_folds)
    local = ("local.val and the folds of local.train", info.local_val + info.local_train)
    domains = {"local": local if folds else ("local.val", info.local_val), "global": ("global.val", info.global_val)}
    for domain, (where, count) in domains.items():
        if not 0 < count < FEW_SAMPLES:
            continue
        low, high = wilson(0.5, count)
        way_out = f"add {info.noun} to {domain}.val"
        if domain == "local" and folds:
            way_out = f"add {info.noun} to local.train"
        elif domain == "local" and possible > 1:
            way_out += f", or give --folds {possible}, which scores on those of local.train too"
        uncertain = info.targets.uncertain(50 * (high - low))
        yield (
            f"warning: {where} {'have' if ' and ' in where else 'has'} {count} {info.noun}, fewer than {FEW_SAMPLES}: "
            f"{uncertain}, and the best of many trials looks better than it is: {way_out}"
        )
