"""A prior of runs and of studies that several workers share."""

from collections.abc import Callable, Sequence

from tuner.commands.runs.source import open_run
from tuner.errors import RunError
from tuner.results.prior.file import Prior
from tuner.results.prior.portfolio import portfolio
from tuner.results.run import Run


def build_prior(places: Sequence[str], say: Callable[[str], object]) -> Prior:
    """Return the prior of some runs; trials that several of them hold count once.

    Args:
        places: Folders of runs, or addresses of studies.
        say: Receives a message for each of them that is left out.

    Raises:
        TunerError: One of them cannot be read, or none has a front.
    """
    runs = [open_run(place) for place in places]
    kept = list[int]()
    for at in sorted(range(len(runs)), key=lambda at: -len(runs[at].records)):
        run = runs[at]
        whole = next((runs[other] for other in kept if _ended(run) & _ended(runs[other])), None)
        if not run.front:
            say(f"warning: {run.place} has no finished trial yet: it is left out")
        elif whole is not None:
            say(f"warning: {run.place} holds trials of {whole.place}: it is left out")
        else:
            kept.append(at)
    if not kept:
        named = " and ".join(run.place for run in runs)
        raise RunError(f"a prior needs finished trials, and {named} has none: wait for some, or give other runs")
    return portfolio([runs[at] for at in sorted(kept)])


def _ended(run: Run) -> set[tuple[int, float]]:
    """Return what is equal for the same trials only: their numbers, and the seconds that each took."""
    return {(record.trial, record.spent_seconds) for record in run.records if record.spent_seconds}
