"""Side heads: trained on what is stored of several cuts, calibrated on unseen samples, scored as they will answer.

Source: PersEPhonEE (HotMobile 2021). The path to the final head never changes: in mode `exits-only` it is the given
model's, in `with-tail` that of the tail trained before.
"""

import time

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.base import Trial
from tuner.backends.torch.exits.calibrate import describe_exits, exit_costs, truths
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.exits.inputs import ExitInputs
from tuner.backends.torch.exits.joint import with_exits
from tuner.backends.torch.exits.logits import exit_logits
from tuner.backends.torch.exits.solve import solve_heads
from tuner.backends.torch.exits.start import load_starts, start_sums, starts
from tuner.backends.torch.exits.steps import HeadsSteps
from tuner.backends.torch.exits.weights import write_exits
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import calibration_selection, local_folds
from tuner.backends.torch.model.fingerprint import state_hash
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.choice import chosen_selections, mixed_metadata
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.run import TrainedTail, train_tail
from tuner.backends.torch.trial.scoring import bundle_bytes, classes_of
from tuner.errors import TrainingError
from tuner.plan.trial import TrialPlan
from tuner.process_memory import PeakMeter
from tuner.results.counts import ClassCounts
from tuner.results.records import Outcome
from tuner.runtime.infer.calibration import exits_taken
from tuner.runtime.train.exit_calibration import ExitCalibration, calibrate_exits
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import BetweenEpochs, TrainingLog, train_epochs


def train_exits(trial: Trial, opened: OpenTask) -> TrainedTail:
    """Train the exits, and before them the tail where the plan has one; see `tuner.backends.base.Session.train`."""
    task, model, plan = opened.task, opened.model, trial.plan
    start, tail = PeakMeter(), TrainedTail(Outcome({}), requested=False)
    access = opened.access(plan, trial.store, trial.report)
    torch.set_num_threads(plan.runtime.threads)
    if not len(calibration_selection(task, plan)):
        raise TrainingError(
            f"exits are calibrated on a fifth of each class's local samples, but no class has two samples "
            f"({len(task.local.train)} in all): add samples, or leave exits out"
        )
    if plan.cached:
        fill(access, [plan])  # nothing to do in a study, which fills ahead
    begun = starts(access, plan, opened.extensions)  # likewise; the given model is their teacher
    start_peak = start.peak_bytes() if begun.tensors else 0
    torch.manual_seed(trial.seed)
    heads = build_heads(plan)
    if plan.trainable:
        tail = train_tail(trial, with_exits(opened, heads) if plan.heads.joint else opened)
    torch.manual_seed(trial.seed)
    meter = PeakMeter()
    trial.report({"resting_bytes": start.resting})
    backbone_hash = state_hash(model.model)
    final = model.tail(plan.answering_cuts[-1]).eval()
    training = chosen_selections(access, plan, opened.extensions)
    inputs, unseen = ExitInputs.resolve(access, plan, training), None
    sums = [start_sums(own, plan.heads) for own in begun.tensors] if plan.heads.ridge else []
    if tail.requested:
        log = TrainingLog()
    elif plan.heads.ridge:
        started = time.perf_counter()
        folds = local_folds(training[0])
        unseen = solve_heads(plan, heads, final, inputs, folds, sums)
        log = TrainingLog(seconds=time.perf_counter() - started)
    else:
        load_starts(heads, begun)
        log = _train(trial, opened, heads, final, inputs)
    if state_hash(model.model) != backbone_hash:
        raise TrainingError(
            "the backbone changed while exits were trained, so the trial does not count: check whether the model "
            "changes its own weights or buffers in evaluation mode"
        )
    sample = torch.from_numpy(task.batch(task.local.val, [0]))
    scored, calibration = _scored(opened, plan, heads, final, inputs, sample, unseen)
    values = dict(scored.values)
    values["train_seconds"] = tail.outcome.values.get("train_seconds", 0.0) + log.seconds + begun.seconds
    peak = max(
        start_peak, tail.outcome.values.get("peak_bytes", 0.0), meter.peak_bytes() + meter.resting - start.resting
    )
    values["peak_bytes"] = float(max(0, peak))
    parts = [model.model, *(heads[index] for index in calibration.kept)]
    values["bundle_bytes"] = bundle_bytes(parts, parts)
    state = model.tail(plan.split).state_dict() if plan.trainable else {}
    write_exits(trial.weights, state, heads, calibration, mixed_metadata(plan, training) or {}, sums)
    ended = "; ".join(reason for reason in (tail.outcome.stopped, log.ended) if reason)
    notes = (*tail.outcome.notes, *scored.notes)
    outcome = Outcome(values, (*tail.outcome.epochs, *log.entries), ended, notes, scored.classes)
    trained = [heads] if tail.trained is None else [tail.trained, heads]
    return TrainedTail(outcome, log.requested, nn.ModuleList(trained), tail.continued)


def _train(trial: Trial, opened: OpenTask, heads: nn.ModuleList, final: nn.Module, inputs: ExitInputs) -> TrainingLog:
    """Train the heads.

    Patience watches the mean of the exits' own accuracies on the local validation samples: thresholds, and with them
    the accuracy of leaving early, are calibrated once, when training has ended.
    """
    plan, task, local = trial.plan, opened.task, inputs.validation["local"]

    def mean_accuracy() -> float:
        logits = exit_logits(plan, heads, final, local)
        truth = truths(task, "local", logits, local.labels)
        return float(np.mean([task.targets.score(own, truth) for own in logits[:-1]]))

    started = time.perf_counter()
    steps = HeadsSteps(plan, heads, final, inputs.train, opened.extensions, loss=torch_loss(task.targets))
    samples = len(inputs.train.labels)
    loop = EpochLoop(steps, plan.recipe, samples, trial.seed, loss_name="the exits' loss")
    start = TrainingLog(seconds=time.perf_counter() - started)
    return train_epochs(loop, trial.report, BetweenEpochs(mean_accuracy), start, of=" of the exits")


def _scored(
    opened: OpenTask,
    plan: TrialPlan,
    heads: nn.ModuleList,
    final: nn.Module,
    inputs: ExitInputs,
    sample: torch.Tensor,
    unseen: Floats | None,
) -> tuple[Outcome, ExitCalibration]:
    """Calibrate, then score the policy that came out on the validation samples.

    Args:
        opened: The task and its model.
        plan: Its exits.
        heads: Their heads.
        final: The final head, and what of the tail is before it.
        inputs: What they read.
        sample: One input of the model, whose latency is measured.
        unseen: Logits of the exits as `solve_heads` returns them; None where they train by steps.
    """
    task = opened.task
    logits, out_of_fold = exit_logits(plan, heads, final, inputs.calibration), plan.heads.out_of_fold
    if out_of_fold and unseen is not None:
        logits[:-1] = unseen
    truth = truths(task, "local", logits, inputs.calibration.labels)
    costs = exit_costs(opened.model, plan, heads, sample)
    calibration = calibrate_exits(
        logits,
        truth,
        plan.heads,
        costs.flops,
        kind=task.targets,
        prune=True,
        labelled=task.labelled,
        out_of_fold=out_of_fold,
    )
    notes = describe_exits(plan, calibration, logits, truth)
    values, classes = dict[str, float](), dict[str, ClassCounts]()
    for domain, samples in inputs.validation.items():
        logits = exit_logits(plan, heads, final, samples)
        truth = truths(task, domain, logits, samples.labels)
        kept = logits[[*calibration.kept, -1]]
        exits = exits_taken(task.targets.confidences(kept, calibration.temperatures), calibration.thresholds)
        answers = kept[exits, np.arange(len(exits))]
        values |= task.targets.scores(domain, answers, truth, labelled=task.labelled)
        classes |= {domain: counts} if (counts := classes_of(task, answers, truth)) else {}
        values[f"final_{domain}_accuracy"] = task.targets.score(logits[-1], truth)
        for place, own in enumerate(kept[:-1]):
            values[f"exit{place}_{domain}_accuracy"] = task.targets.score(own, truth)
        if domain == "local":
            rates = np.bincount(exits, minlength=len(kept)) / len(exits)
            kept_costs = costs.select(calibration.kept)
            values["mean_latency_seconds"] = float(rates @ kept_costs.seconds.cumulative())
            values["mean_flops"] = float(rates @ kept_costs.flops.cumulative())
            values["whole_latency_seconds"] = costs.seconds.reached[-1]
    return Outcome(values, notes=tuple(notes), classes=classes), calibration
