"""What the given model makes of the user's files: an entry point of the group `tuner.questions`."""

from tuner.backends.torch.features.selection import whole_partition
from tuner.backends.torch.trial.inputs import computed_inputs, inference_prefix
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.scoring import logits
from tuner.task.data.samples import mean_of_wholes, wholes


def probabilities(opened: OpenTask, partition: str) -> tuple[tuple[float, ...], ...]:
    """Return the given model's probabilities of its own labels, for all that a partition's samples are parts of.

    Returns:
        For each of `tuner.task.data.samples.wholes`, the means over its samples, by row of the union head.
    """
    task, model = opened.task, opened.model
    selection = whole_partition(task, partition)
    inputs = computed_inputs(task, inference_prefix(model, 0), [selection])
    outputs = logits(model.tail(0), inputs)[:, : model.trusted_rows]
    answers = task.targets.probabilities(outputs)
    means = mean_of_wholes(answers, wholes(selection.samples)[1])
    return tuple(tuple(row) for row in means.tolist())
