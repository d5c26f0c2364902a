"""Solving again: when training ends, the head, which lags behind the features below it, is solved for on these.

Both heads are scored on the validation samples: leave-one-out answers are too hopeful on features that were trained on
the same samples. Source: the first-session adaptation of RanPAC (McDonnell et al., 2023).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
import torch
from torch import nn

from tuner.arrays import Array, Floats
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.head import heads_of
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.scoring import SCORE_BATCH
from tuner.errors import TrainingError
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import MOST_FEATURES, coded, step_of
from tuner.ridge.union import Domain, UnionSettings, regression_head, union_head
from tuner.targets import Regression, Targets
from tuner.task import Task
from tuner.training.schedule import batches_of

#: The head is solved with this ridge penalty, in samples: 30 to 300 are equally good on trained features.
RIDGE = 100.0


@dataclass(frozen=True, slots=True, eq=False)
class SolvedAgain:
    """What solving again came to.

    Attributes:
        outputs: Logits of the validation samples with the tail's head, by domain; None where none can be solved for.
        notes: For the trial's record.
        solved: Whether the tail has the solved head now; None where none can be solved for.
    """

    outputs: Mapping[str, Floats] | None = None
    notes: tuple[str, ...] = ()
    solved: bool | None = None


#: A head that is not to be solved for again.
ALONE = SolvedAgain()


def solve_again(
    task: Task, tail: nn.Module, trusted_rows: int, train: TailInputs, validation: Mapping[str, TailInputs]
) -> SolvedAgain:
    """Solve for the head of a trained tail, and let the tail have the better one of both.

    Without validation samples it is the solved one. Samples come without random changes. The model had the first
    `trusted_rows` of the head before.
    """
    heads = list(heads_of(tail.eval().requires_grad_(), spatial(train.read(np.arange(1)))).values())
    layer = heads[0] if len(heads) == 1 else None
    if layer is None or layer.bias is None or layer.weight.flatten(1).shape[1] > MOST_FEATURES:
        return _refused(f"it must be one linear layer with a bias and at most {MOST_FEATURES} features")
    own = LinearHead(layer.weight.detach().double().flatten(1).numpy(), layer.bias.detach().double().numpy())
    try:
        seen = {domain: head_inputs(tail, layer, inputs) for domain, inputs in validation.items()}
        if any(not np.allclose(own.scores(one), outputs, rtol=1e-3, atol=1e-3) for one, outputs in seen.values()):
            return _refused("its outputs are not those of the model")
        solved = _solved(task, own, trusted_rows, head_inputs(tail, layer, train)[0], train)
    except (TrainingError, np.linalg.LinAlgError) as error:
        return _refused(str(error))
    trained = {domain: outputs for domain, (_, outputs) in seen.items()}
    exact = {domain: solved.scores(features).astype(np.float32) for domain, (features, _) in seen.items()}
    before, after = (
        {name: task.targets.score(one[name], validation[name].labels) for name in one} for one in (trained, exact)
    )
    # by which scores must differ to tell the heads apart: a standard error of each accuracy
    margin = math.sqrt(sum(task.targets.most_variance(len(inputs.labels)) for inputs in validation.values()))
    keeps = sum(before.values()) > sum(after.values()) + margin
    note = "head solved again"
    if before:
        note = "local score of the trained head {:.3f}, solved again {:.3f}: the {} one is kept".format(
            before["local"], after["local"], "trained" if keeps else "solved"
        )
    if keeps:
        return SolvedAgain(trained, (note,), solved=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(solved.weight.astype(np.float32)).view_as(layer.weight))
        layer.bias.copy_(torch.from_numpy(solved.bias.astype(np.float32)))
    return SolvedAgain(exact, (note,), solved=True)


def _refused(reason: str) -> SolvedAgain:
    return SolvedAgain(notes=(f"head not solved again: {reason}",))


def head_inputs(tail: nn.Module, layer: nn.Module, inputs: TailInputs) -> tuple[Floats, Floats]:
    """Return what enters a layer, float32 [n, features], and the logits, float32 [n, outputs].

    Raises:
        TrainingError: The layer is applied in several positions.
    """
    caught: list[torch.Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, values: caught.append(values[0].flatten(1).clone()))
    try:
        with torch.inference_mode():
            batches = batches_of(np.arange(len(inputs.labels)), SCORE_BATCH)
            outputs = np.concatenate([tail(spatial(inputs.read(rows))).numpy() for rows in batches])
    finally:
        handle.remove()
    features: Floats = torch.cat(caught).float().numpy()
    if features.shape[1] != layer.get_parameter("weight").flatten(1).shape[1]:
        raise TrainingError("it is applied in several positions")
    return features, outputs


def _solved(task: Task, own: LinearHead, trusted_rows: int, features: Array, train: TailInputs) -> LinearHead:
    """Return the head that is solved for; of old classes the trained head answers."""
    step, given = step_of(features), LinearHead(own.weight.copy(), own.bias.copy())
    codes, is_local = coded(features, step), train.is_local
    empty = Domain.empty(features.shape[1], len(own.bias), step, task.targets)
    local, known = (empty.added(codes[rows], train.labels[rows]) for rows in (is_local, ~is_local))
    given.weight[trusted_rows:] = 0.0
    given.bias[trusted_rows:] = 0.0
    return _head_of(task.targets, given, local, known)


@singledispatch
def _head_of(_: Targets, given: LinearHead, local: Domain, known: Domain) -> LinearHead:
    return union_head(given, local, known, UnionSettings(RIDGE, RIDGE)).head


@_head_of.register
def _numbers(_: Regression, given: LinearHead, local: Domain, known: Domain) -> LinearHead:
    return regression_head(given, local, known, RIDGE)[0]
