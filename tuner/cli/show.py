"""The command that shows what there is: a run, a trial, a bundle."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, document, print_line, stdout_console
from tuner.distribution import SWITCH, EntryPoint, offered
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.results.run import Run


def show(
    folder: str,
    trial: int | None = None,
    /,
    *,
    details: bool = False,
    whole: Annotated[bool, Parameter(name="--all")] = False,
    trials: bool = False,
    plot: bool = False,
    kind: str = "",
    json_output: Json = False,
) -> None:
    """Show a run, one of its trials, or a bundle.

    Of a run: what it came to in one sentence, the best trials, where the time went, and what to do next.

    Parameters
    ----------
    folder
        A run's folder, or the address of a study that several workers share; or a bundle's folder, or a zip of one:
        what it predicts, its plan, scores, sizes, and whether it can train again.
    trial
        Number of a trial of the run: its plan, values, estimate, reason, notes, and the traceback of an exception.
    details
        Show everything else of a run too: plans in full, baselines, cuts, strategies, and errors of the estimates.
    whole
        Show the whole front: also members that are near-equal, or no better than the untouched model.
    trials
        Show all trials: state and values, and why a trial was refused or ended early.
    plot
        Draw the front, how it grew, and where the time went, as text.
    kind
        For a study that ran on several kinds of devices: first letters of the kind whose costs and front are shown.
    """
    from tuner.commands.bundles.card import card_at

    if trials + (whole or details) + plot + (trial is not None) > 1 or (plot and json_output):
        raise UsageError(
            "show takes one of a trial's number, --trials, --plot, and --all or --details: leave the others out"
        )
    from tuner.commands.runs.source import open_run
    from tuner.reading import is_address

    card = None if is_address(folder) else card_at(Path(folder))
    if card is not None:
        from tuner.cli.text.bundles import format_card

        if trials or whole or details or plot or kind or trial is not None:
            raise UsageError(
                f"{folder} is a bundle, not a run: leave out the number, --trials, --all, --details, --plot and --kind"
            )
        print_line(document("bundle-1", card.to_dict()) if json_output else format_card(card))
        return
    run = open_run(folder, kind)
    if plot:
        print_line("\n\n".join(point.load()(run, stdout_console().width) for point in _plots()))
        return
    _show_run(run, trial, details=details, whole=whole, trials=trials, json_output=json_output)


def _plots() -> list[EntryPoint]:
    """Return what draws a run with letters."""
    if found := list(offered("tuner.run_letters").values()):
        return found
    raise UsageError(f"--plot is drawn by a plugin, and none is on: change {SWITCH}")


def _show_run(run: "Run", trial: int | None, *, details: bool, whole: bool, trials: bool, json_output: bool) -> None:
    from tuner.cli.text.run import format_trial, format_trials, print_run
    from tuner.commands.runs.show import as_json, trial_as_json

    if trial is not None:
        record = run.record(trial)
        print_line(document("trial-1", trial_as_json(record)) if json_output else format_trial(run, record))
    elif trials:
        content = [trial_as_json(record) for record in run.records]
        print_line(document("trials-1", {"trials": content}) if json_output else format_trials(run))
    elif json_output:
        print_line(document("run-1", as_json(run)))
    else:
        print_run(run, stdout_console(), whole=whole, details=details)
