"""A run as programs and notebooks get it."""

from typing import Any

from tuner.distribution import offered
from tuner.results import run
from tuner.results.views.html import as_html


class Run(run.Run):
    """A finished or interrupted run, as `tuner.run` returns it, or ``tuner.Run.open(folder)`` reads it.

    It shows itself: as one line in a terminal; in a notebook as a table of the front, with two pictures of it where the
    extra ``report`` is installed. Its attributes and methods are those of `tuner.results.run.Run`.
    """

    __slots__ = ()

    def study(self) -> Any:
        """Return the run as an ``optuna.Study`` in memory, for ``optuna.visualization``.

        Trials that were scored on all samples are complete, those over a limit as infeasible ones; of lower rungs they
        are pruned, with the values they had there; the others are pruned or failed. What was measured is in
        ``user_attrs``.
        """
        return offered("tuner.studies")["dashboard"].load()(self)

    def _repr_html_(self) -> str:
        return as_html(self) + "".join(point.load()(self) for point in offered("tuner.run_html").values())
