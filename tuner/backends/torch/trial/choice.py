"""Which global samples a trial mixes in: the plan's fraction, or those that a plugin's selector chooses."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors import safe_open

from tuner.arrays import Floats
from tuner.backends.extensions import Extensions
from tuner.backends.selecting import Candidates, choose
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import Selection, mixed_selections, training_selections
from tuner.backends.torch.trial.inputs import computed_inputs, plan_prefix, stored_inputs
from tuner.errors import BundleError, TrainingError
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_records
from tuner.targets.strata import one_each
from tuner.task import Task
from tuner.task.mixing import MIX_SEED
from tuner.training.schedule import batches_of

#: Key of the chosen samples' numbers in the metadata of a trial's weights.
MIXED = "mixed"
BATCH = 64


def chosen_selections(access: Access, plan: TrialPlan, extensions: Extensions) -> list[Selection]:
    """Return what one epoch of the plan trains on: the same for the same plan and the same stored features.

    Raises:
        SelectorError: A selector raised, or broke a rule.
        TrainingError: No plugin offers the selector, or features of candidates are not finite.
    """
    lacking = extensions.lacking(plan)
    if lacking is not None:
        raise TrainingError(lacking)
    selections, edit = training_selections(access.task, plan), plan.data.edit
    local, mixed = selections[0], [one for one in selections if one.domain == "global"]
    if edit is None or not mixed:
        return selections
    (pool,) = mixed_selections(access.task, replace(plan, data=plan.data.pool))
    wanted, counts = np.unique(one_each(mixed[0].labels(), rarest=False), return_counts=True)
    candidates = Candidates(
        labels=one_each(pool.labels(), rarest=False),
        counts=dict(zip(wanted.tolist(), counts.tolist(), strict=True)),
        local_labels=one_each(local.labels(), rarest=False),
        seed=MIX_SEED,
        read=_reading(access, plan, pool),
        read_local=_reading(access, plan, local),
    )
    rows = choose(edit.kind, extensions.selectors[edit.kind], candidates, dict(edit.settings))
    return [*selections[: -len(mixed)], Selection(pool.partition, pool.samples, pool.indices[rows])]


def mixed_metadata(plan: TrialPlan, training: Sequence[Selection]) -> dict[str, str] | None:
    """Return what a trial's weights say of the samples that a selector chose; None where none did."""
    if plan.data.edit is None:
        return None
    mixed = (one for one in training if one.domain == "global")
    return {MIXED: json.dumps([int(index) for selection in mixed for index in selection.indices])}


def trained_on(task: Task, plan: TrialPlan, weights: Path) -> list[Selection]:
    """Return the global samples that a finished trial, which wrote these weights, was trained on."""
    if plan.data.edit is None:
        return mixed_selections(task, plan)
    with safe_open(weights, "np") as file:
        written = (file.metadata() or {}).get(MIXED)
    if written is None or task.global_ is None:
        raise BundleError(
            f"{weights} does not say which samples selector {plan.data.edit.kind!r} chose: export without --trainable"
        )
    return [Selection("global.train", task.global_.train, np.array(json.loads(written), np.int64))]


def _reading(access: Access, plan: TrialPlan, selection: Selection) -> Callable[[], Floats]:
    """Return what reads the mean over all positions of each feature map, float32 [n, channels].

    Codes narrower than 8 bits are requantised from those of 8 bits, which are there: those are read.
    """

    def read() -> Floats:
        if plan.cached:
            cut, bits = feature_records(plan)[-1]
            inputs = stored_inputs(Reader(access, cut, bits, [selection]), [selection])
        else:
            inputs = computed_inputs(access.task, plan_prefix(access.task, access.loaded, plan), [selection])
        maps = (inputs.read(rows).numpy() for rows in batches_of(np.arange(len(selection)), BATCH))
        width = access.loaded.chain.last_width(plan.cuts[-1]) if access.loaded.chain is not None else None
        features = np.concatenate([_mean_of_positions(part, width) for part in maps])
        if not np.isfinite(features).all():
            raise TrainingError("features of the frozen blocks must be finite to choose samples by, but some are not")
        return features.astype(np.float32)

    return read


def _mean_of_positions(maps: Floats, width: int | None) -> Floats:
    """Return float32 [n, channels] of maps [n, channels, ...], or of token sequences [n, ..., channels].

    `width` is the number of channels where the tail's first layer takes them last.
    """
    last = maps.ndim > 2 and maps.shape[-1] == width != maps.shape[1]  # noqa: PLR2004 - [n, channels] has no positions
    first: Floats = np.moveaxis(maps, -1, 1) if last else maps
    mean: Floats = first.reshape(*first.shape[:2], -1).mean(axis=2)
    return mean
