"""The head of a bundle that a plugin solves for: the plugin must be installed, and needs no tensor library."""

from tuner.bundle.format import Bundle
from tuner.bundle.info import TrainInfo
from tuner.distribution import PLUGINS, SWITCH, offered
from tuner.errors import BundleError, first_line
from tuner.plan.trial import TrialPlan
from tuner.ridge.solve import LinearHead
from tuner.ridge.solver import SummedHead


def plugin_head(bundle: Bundle, info: TrainInfo, plan: TrialPlan, given: LinearHead) -> SummedHead:
    """Return how a bundle's head is solved for, by the plugin that its training names.

    Raises:
        BundleError: The plugin is not installed, cannot be imported, or does not solve such heads.
    """
    name = info.solver or ""
    needed, point = bundle.info.plugins.get(name, name), offered(PLUGINS).get(name)
    if point is None:
        raise BundleError(
            f"{bundle.folder} learns by the plugin {name!r}, which is not there: install {needed}, or take it out of "
            f"{SWITCH}; it predicts without"
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
