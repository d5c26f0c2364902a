"""Side heads: trained on what is stored of several cuts, calibrated on unseen samples, scored as they will answer.

Source: PersEPhonEE (HotMobile 2021). The path to the final head never changes: in mode `exits-only` it is the given
model's, in `with-tail` that of the tail trained before.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.torch.features.selection import (
    calibration_selection,
    local_folds,
    refit_selections,
    validation_selections,
)
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.scoring import Scores, bundle_bytes, require_finite
from tuner.backends.torch.trial.tail import TailProcedure, frozen
from tuner.errors import TrainingError
from tuner.machine.awake import CLOCK
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import HEAD_SOLVED
from tuner.runtime.infer.calibration import exits_taken
from tuner.runtime.train.calibration import ExitCalibration, ExitCosts, calibrate_exits
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import BetweenEpochs, TrainingLog, train_epochs
from tuner_exits.torch.calibrate import describe_exits, exit_costs, truths, typical
from tuner_exits.torch.heads import build_heads
from tuner_exits.torch.inputs import CutInputs, answering_cuts, cut_inputs, cut_of
from tuner_exits.torch.joint import with_exits
from tuner_exits.torch.start import Starts, load_starts, start_sums, starts
from tuner_exits.torch.steps import HeadsSteps, solve_heads
from tuner_exits.torch.weights import write_exits


class ExitsProcedure(TailProcedure):
    """Trains the exits, and before them the tail where the plan has one."""

    def train(self) -> TrainingLog:
        """Train the tail and the heads, as many of both as the plan has."""
        opened, plan, seed = self.opened, self.plan, self.trial.seed
        if not len(calibration_selection(opened.task, plan)):
            raise TrainingError(
                f"exits are calibrated on a fifth of each class's local samples, but no class has two samples "
                f"({len(opened.task.local.train)} in all): add samples, or leave exits out"
            )
        begun = starts(self.access, plan, opened.extensions)  # kept in a study; the given model is their teacher
        torch.manual_seed(seed)
        self.heads, log = build_heads(plan), TrainingLog()
        if plan.trainable:
            self.opened = with_exits(opened, self.heads) if plan.heads.joint else opened
            torch.manual_seed(seed)
            log = super().train()
        last = plan.answering_cuts[-1]
        begins = plan.trainable > 0 and last == plan.split  # what trained may have other layers than the model's
        self.final = (self.trained if begins else opened.model.tail(last)).eval()
        self.tail = self.trained if plan.trainable else nn.Module()
        self.trained = nn.ModuleList([self.tail, self.heads] if plan.trainable else [self.heads])
        torch.manual_seed(seed)
        changed = "the backbone changed while exits were trained"
        cause = "the model changes its own weights or buffers in evaluation mode"
        with frozen(opened.model.model, changed, cause):
            own = self._train_heads(begun, is_over=log.requested)
        ended = "; ".join(filter(None, (log.ended, own.ended)))
        return TrainingLog((*log.entries, *own.entries), log.seconds + own.seconds + begun.seconds, ended)

    def _train_heads(self, begun: Starts, *, is_over: bool) -> TrainingLog:
        """Solve for the heads, or train them; not where the user asked to stop."""
        plan, opened = self.plan, self.opened
        self.unseen = None
        smaller = plan.smaller
        small = None if smaller is None else opened.described_by(smaller).access(smaller, self.access.store)
        learned = cut_inputs(self.access, plan, self.training, exact=False, small=small)
        calibrated = [calibration_selection(opened.task, plan)]
        if plan.out_of_fold:
            calibrated += refit_selections(opened.task, plan.data)
        self.calibrated = cut_inputs(self.access, plan, calibrated, exact=True, small=small)
        self.scored = {
            selection.domain: cut_inputs(self.access, plan, [selection], exact=True, small=small)
            for selection in validation_selections(opened.task, plan.data)
        }
        self.sums = [start_sums(own, plan.heads) for own in begun.tensors] if plan.heads.ridge else []
        if is_over:
            return TrainingLog()
        started = CLOCK.now()
        if plan.heads.ridge:
            folds = local_folds(*(one for one in self.training if one.domain == "local"))
            answered = self.calibrated if plan.out_of_fold else None
            self.unseen = solve_heads(plan, self.heads, self.final, learned, folds, self.sums, answered)
            return TrainingLog(seconds=CLOCK.now() - started)
        load_starts(self.heads, begun)
        loss = torch_loss(opened.task.targets)
        steps = HeadsSteps(plan, self.heads, self.final, learned, opened.extensions, loss=loss)
        loop = EpochLoop(steps, plan.recipe, len(learned.labels), self.trial.seed, loss_name="the exits' loss")
        start = TrainingLog(seconds=CLOCK.now() - started)
        return train_epochs(loop, self.trial.report, BetweenEpochs(self._mean_accuracy), start, of=" of the exits")

    def _mean_accuracy(self) -> float:
        """Return the mean of the exits' own accuracies on the local validation samples, which patience watches.

        Thresholds, and with them the accuracy of leaving early, are calibrated once, when training has ended.
        """
        task, local = self.opened.task, self.scored["local"]
        logits = exit_logits(self.plan, self.heads, self.final, local)
        truth = truths(task, "local", logits, local.labels)
        return float(np.mean([task.targets.score(own, truth) for own in logits[:-1]]))

    def score(self) -> Scores:
        """Calibrate, then score the policy that came out on the validation samples."""
        task, plan, model = self.opened.task, self.plan, self.opened.model
        costs = exit_costs(model, plan, self.heads, self.tail, typical(task))
        self.calibration = calibration = self._calibrate(costs)
        scores = Scores()
        values = scores.values
        if plan.trainable and self.again.solved is not None:
            values[HEAD_SOLVED] = float(self.again.solved)
        for domain, samples in self.scored.items():
            logits = exit_logits(plan, self.heads, self.final, samples)
            truth = truths(task, domain, logits, samples.labels)
            kept = logits[[*calibration.kept, -1]]
            exits = exits_taken(task.targets.confidences(kept, calibration.temperatures), calibration.thresholds)
            answers = kept[exits, np.arange(len(exits))]
            scores.add(task, domain, answers, truth)
            values[f"final_{domain}_accuracy"] = task.targets.score(logits[-1], truth)
            for place, own in enumerate(kept[:-1]):
                values[f"exit{place}_{domain}_accuracy"] = task.targets.score(own, truth)
            if domain == "local":
                rates = np.bincount(exits, minlength=len(kept)) / len(exits)
                kept_costs = costs.select(calibration.kept)
                values["mean_latency_seconds"] = float(rates @ kept_costs.seconds.cumulative())
                values["mean_flops"] = float(rates @ kept_costs.flops.cumulative())
                values["whole_latency_seconds"] = costs.seconds.reached[-1]
        kept_heads = [self.heads[index] for index in calibration.kept]
        whole = [model.model] if plan.traits.keeps_weights else [model.prefix(plan.split), self.tail]
        has_small = 0 in calibration.kept and plan.heads.small
        twice = [model.prefix(plan.heads.exits[0].block)] if has_small else []  # each segment's file has its own
        written = [*whole, *kept_heads, *twice]
        parts = {value.data_ptr(): value.numel() for part in written for value in part.parameters()}
        values["parameters"], values["flops"] = float(sum(parts.values())), costs.flops.reached[-1]
        values["bundle_bytes"] = bundle_bytes(written, [model.model, *kept_heads])
        return scores

    def _calibrate(self, costs: ExitCosts) -> ExitCalibration:
        """Choose the exits that are worth having, and their thresholds."""
        task, plan, samples = self.opened.task, self.plan, self.calibrated
        logits, out_of_fold = exit_logits(plan, self.heads, self.final, samples), plan.out_of_fold
        if out_of_fold and self.unseen is not None:
            logits[:-1] = self.unseen.own
            if self.left_out is not None:  # else the final head seems better than it is, and fewer samples leave
                logits[-1] = self.left_out[0]
        truth = truths(task, "local", logits, samples.labels)
        calibration = calibrate_exits(
            logits,
            truth,
            plan.heads,
            costs.flops,
            kind=task.targets,
            prune=True,
            labelled=task.labelled,
            out_of_fold=out_of_fold,
            known=self.unseen.known if self.unseen is not None else None,
        )
        self.notes += tuple(describe_exits(plan, calibration, logits, truth))
        return calibration

    def write(self, metadata: Mapping[str, str] | None) -> None:
        """Write the tail, the kept heads and their calibration."""
        write_exits(self.trial.weights, self.tail.state_dict(), self.heads, self.calibration, metadata or {}, self.sums)


def exit_logits(plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, inputs: CutInputs) -> Floats:
    """Return the logits of every exit and of the final head, float32 [exits + 1, n, outputs], in evaluation mode.

    `final` is the final head, and what of the tail is before it.
    """
    heads.eval()
    parts = []
    for _, values in inputs.batches(answering_cuts(plan)):
        with torch.inference_mode():
            sides = [side(spatial(values[cut_of(place)])) for place, side in zip(plan.heads.exits, heads, strict=True)]
            parts.append(torch.stack([*sides, final(spatial(values[plan.answering_cuts[-1]]))], dim=0).numpy())
    outputs = np.concatenate(parts, axis=1)
    require_finite("every exit and the final head", outputs)
    return outputs
