"""Heads that other plugins solve from sums (`tuner_solvers`): what is checked, and how a bundle's is found again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.arrays import Doubles
from tuner.bundle.format import Bundle
from tuner.bundle.info import FOLDS, TrainInfo
from tuner.distribution import PLUGINS, SWITCH, offered
from tuner.errors import BundleError, TrainingError, first_line
from tuner.plan.trial import TrialPlan
from tuner.ridge.solve import LinearHead
from tuner.ridge.solver import HeadSolver, SolverSums
from tuner.ridge.union import Domain
from tuner.targets import SINGLE_LABEL, Targets
from tuner.task.partition import fold_numbers


@dataclass(frozen=True, slots=True, eq=False)
class SummedHead:
    """How a plugin solves a head: its function, and what it receives next to sums; see `SolverSums`."""

    solve: HeadSolver
    given: LinearHead
    settings: Mapping[str, Any]
    targets: Targets = SINGLE_LABEL
    known_weight: float = 1.0

    def head(self, local: Domain, known: Domain) -> LinearHead:
        """Return the head of the samples of both domains.

        Raises:
            TrainingError: There are no local samples, or what `solve` returns is no head of these features and outputs.
        """
        if not len(local):
            raise TrainingError("a head needs local samples, but there are none: give some")
        about = {"settings": self.settings, "targets": self.targets, "known_weight": self.known_weight}
        head: object = self.solve(SolverSums.of(local, known, self.given, **about))
        shapes = self.given.weight.shape, self.given.bias.shape
        if not isinstance(head, LinearHead):
            raise TrainingError(f"solve(sums) must return a LinearHead, got {head!r:.80}")
        if (np.shape(head.weight), np.shape(head.bias)) != shapes:
            got = f"{list(np.shape(head.weight))} and {list(np.shape(head.bias))}"
            raise TrainingError(
                f"solve(sums) must return weights {list(shapes[0])} and biases {list(shapes[1])}, got {got}"
            )
        if not (np.isfinite(head.weight).all() and np.isfinite(head.bias).all()):
            raise TrainingError("solve(sums) must return finite weights, but some are not: a class may have no samples")
        return head

    def left_out(self, local: Domain, known: Domain) -> Doubles:
        """Return the logits of the local samples, float64 [n, outputs], each by the head without a fifth of them.

        Without any other sample the given head answers.
        """
        folds = fold_numbers(local.labels, FOLDS)
        result = np.zeros((len(local), len(self.given.bias)))
        for number in np.unique(folds):
            rows = np.flatnonzero(folds == number)
            rest = local.without(rows)
            head = self.head(rest, known) if len(rest) else self.given
            result[rows] = head.scores(local.features[rows])
        return result


def plugin_head(bundle: Bundle, info: TrainInfo, plan: TrialPlan, given: LinearHead) -> SummedHead:
    """Return how a bundle's head is solved for, by the plugin that its training names.

    Raises:
        BundleError: The plugin is not installed, cannot be imported, or does not solve such heads.
    """
    name = info.solver or ""
    needed, point = bundle.info.plugins.get(name, name), offered(PLUGINS).get(name)
    if point is None:
        raise BundleError(
            f"{bundle.folder} needs the plugin {name!r} to learn, and it is not installed, or switched off: "
            f"install {needed}, or remove -{name} from {SWITCH}; the bundle predicts without the plugin"
        )
    try:
        edit = next(edit for edit in plan.shape if edit.traits.solves)
        solver = point.load().tuner_solvers()[edit.kind]
    except Exception as error:
        raise BundleError(
            f"{bundle.folder} learns by the plugin {name!r}, which does not solve for such a head "
            f"({first_line(error)}): install {needed}"
        ) from error
    return SummedHead(solver, given, dict(edit.settings), bundle.targets, plan.data.weight)
