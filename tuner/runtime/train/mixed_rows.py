"""What a round trains on: new samples, and the global ones that the bundle brings along."""

from tuner.bundle.replay import Replay
from tuner.ort.training_step import TrainingRows
from tuner.plan.parts import DataPlan
from tuner.training.emphasis import epoch_order, sample_weights


def mixed_rows(data: DataPlan, local: Replay, replay: Replay) -> TrainingRows:
    """Return local samples, followed by global ones, which count as a plan says.

    Args:
        data: The weight of global samples, and whether classes are balanced.
        local: The new samples.
        replay: The global ones.
    """
    samples = local.extended(replay.codes, replay.labels)
    weights = sample_weights(data, len(local), len(replay))
    return TrainingRows(samples.read, samples.labels, weights=weights, order=epoch_order(data, samples.labels))
