"""What exits begin with: learned once from all of the task's global samples, kept in the store for every later trial.

Source: PersEPhonEE (HotMobile 2021): exits are trained offline on the data of the given model, then personalised.
"""

import json
import time
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import nn

from tuner.arrays import Array
from tuner.backends.extensions import Extensions
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.selection import Selection, pool_selections
from tuner.backends.torch.model.open.fingerprint import state_hash, structure_hash
from tuner.backends.torch.task_loss import torch_loss
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_bits
from tuner.planner.heads_terms import START_HEADS, START_RECIPE, TARGETS
from tuner.ridge.sums import Sums, coded, step_of
from tuner.runtime.train.exit_targets import exit_targets, linear_features
from tuner.store.files.disk import StoreFull
from tuner.store.kept import read_start, sample_set, start_name, write_start
from tuner.training.epoch import EpochLoop
from tuner_exits.torch.heads import build_heads
from tuner_exits.torch.inputs import CutInputs, cut_inputs
from tuner_exits.torch.steps import HeadsSteps, teacher_logits

#: Seed of first weights and of the order of samples: what exits begin with is the same in every study.
SEED = 0
SECONDS = "seconds"


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """What the exits of a plan begin with.

    Attributes:
        tensors: Of each exit: sums (`start_sums`), or its first weights; none where exits begin with nothing.
        seconds: What it took to learn them, now or before.
        stopped: Whether it was asked to stop before the end.
    """

    tensors: tuple[dict[str, Array], ...] = ()
    seconds: float = 0.0
    stopped: bool = False


def starts(access: Access, plan: TrialPlan, extensions: Extensions, *, may_stop: bool = False) -> Starts:
    """Return what a plan's exits begin with; what the store lacks is learned, and kept if there is room.

    An exit's start depends neither on the other exits nor on the user, so that each is kept for itself. Nothing of the
    model is trained yet. `may_stop` is whether to obey a request to stop.
    """
    if not plan.heads.global_weight:
        return Starts()
    (samples,) = pool_selections(access.task, plan)
    names = _names(access, plan, samples)
    found = [read_start(access.store.folder, name) for name in names]
    lacking = [at for at, own in enumerate(found) if own is None]
    if lacking:
        exits = tuple(plan.heads.exits[at] for at in lacking)
        started = time.perf_counter()
        learned = _learned(access, replace(plan, heads=replace(plan.heads, exits=exits)), samples, extensions, may_stop)
        if learned is None:
            return Starts(stopped=True)
        each = np.array((time.perf_counter() - started) / len(lacking))
        for at, own in zip(lacking, learned, strict=True):
            found[at] = own | {SECONDS: each}
            try:
                write_start(access.store, names[at], own | {SECONDS: each})
            except StoreFull as error:
                access.report({"warning": f"{error}; what exits begin with is learned again when it is needed"})
    tensors = [own for own in found if own is not None]
    seconds = sum(float(own.pop(SECONDS)) for own in tensors)
    return Starts(tuple(tensors), seconds)


def start_sums(start: dict[str, Array], heads: HeadsPlan) -> Sums:
    """Return the global samples' sums of what an exit in closed form is regressed on, with the weight they have."""
    sums = Sums.of_tensors(start)
    labels, answers, soft = np.split(sums.cross, TARGETS, axis=1)
    weight = heads.supervised + heads.pseudo
    hard = labels if heads.supervised else answers
    cross = (weight * hard + heads.distilled * soft) / (weight + heads.distilled)
    return replace(sums, cross=cross).weighted(heads.global_weight)


def load_starts(heads: nn.ModuleList, found: Starts) -> None:
    """Give heads that train by steps their first weights."""
    for head, own in zip(heads, found.tensors, strict=bool(found.tensors)):
        head.load_state_dict({name: torch.from_numpy(value) for name, value in own.items()})


def _names(access: Access, plan: TrialPlan, samples: Selection) -> list[str]:
    """Return the name of each exit's start: another one where anything differs that it depends on."""
    cut, bits = plan.cuts[-1], feature_bits(plan)
    final = access.loaded.tail(cut)

    def read_at(cut: int) -> str:  # a hash of the path of the records, or of exact ones where they are computed
        return access.folder(cut, bits[cut]).name if plan.cached else access.key(cut, 0).digest()

    common = json.dumps(
        [
            sample_set(samples.ids(), samples.labels()),
            state_hash(final) + structure_hash(final),
            read_at(cut),
            [access.task.loss, plan.model.outputs],
            asdict(START_HEADS),
            asdict(START_RECIPE),
        ]
    )
    return [start_name(common, read_at(place.block), str(place.channels)) for place in plan.heads.exits]


def _learned(
    access: Access, plan: TrialPlan, samples: Selection, extensions: Extensions, may_stop: bool
) -> list[dict[str, Array]] | None:
    """Return the starts of a plan's exits; None where it was asked to stop."""
    final = access.loaded.tail(plan.cuts[-1]).eval()
    inputs, task = cut_inputs(access, plan, [samples], exact=False), access.task
    if plan.heads.ridge:
        teacher = teacher_logits(plan.cuts[-1], final, inputs).numpy()
        labelled, plain = HeadsPlan(supervised=1.0, temperature=1.0), HeadsPlan(temperature=1.0)
        of_labels = exit_targets(labelled, teacher, inputs.labels, kind=task.targets)[:, : teacher.shape[1]]
        targets = np.concatenate([of_labels, exit_targets(plain, teacher, inputs.labels, kind=task.targets)], axis=1)
        return [_summed(place, inputs, targets) for place in plan.heads.exits]
    plan = replace(plan, heads=replace(START_HEADS, exits=plan.heads.exits), recipe=START_RECIPE)
    heads = nn.ModuleList()
    for place in plan.heads.exits:  # a head has the same first weights whatever other heads there are
        torch.manual_seed(SEED)
        heads.extend(build_heads(replace(plan, heads=replace(plan.heads, exits=(place,)))))
    steps = HeadsSteps(plan, heads, final, inputs, extensions, loss=torch_loss(task.targets))
    loop = EpochLoop(steps, plan.recipe, len(inputs.labels), SEED, loss_name="the loss of what exits begin with")

    def watch(step: int, count: int) -> bool:
        return access.report({"started": step, "of": count}) and may_stop

    if any(result.stopped for result in loop.epochs(watch)):
        return None
    return [{name: value.numpy() for name, value in head.state_dict().items()} for head in heads]


def _summed(place: Exit, inputs: CutInputs, targets: Array) -> dict[str, Array]:
    """Return the sums of all rows at an exit."""
    sums = None
    for rows, read in inputs.batches([place.block]):
        features = linear_features(read[place.block].float().numpy())
        step = step_of(features)
        if sums is None:
            sums = Sums.empty(features.shape[1], targets.shape[1], step)
        sums = sums.rescaled(max(step, sums.step))
        sums = sums.added(coded(features, sums.step), targets[rows])
    if sums is None:
        raise ValueError("there are no global samples to begin with")
    return sums.tensors()
