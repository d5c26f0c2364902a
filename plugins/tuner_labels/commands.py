"""The commands on labels: labels suggest, labels check."""

from dataclasses import asdict
from pathlib import Path
from typing import Literal

from cyclopts import App

from tuner.cli.options import Json, Memory, Time, document, print_line

labels_app = App(name="labels", help="Compare the labels of local data with those of the model.")


@labels_app.command
def suggest(
    task: str,
    /,
    *,
    by: Literal["both", "names", "model"] = "both",
    out: Path | None = None,
    time: Time = None,
    memory: Memory = None,
    json_output: Json = False,
) -> None:
    """Propose labels of the model for each local label, with scores and example files; nothing is applied.

    Parameters
    ----------
    task
        A task.toml or its folder.
    by
        What the proposals are made from: how alike the names are, what the given model predicts on the local samples,
        or both.
    out
        File to write the first proposals to, with the others as comments: edit it, then name it as map in the section
        [labels] of the task.
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.limits import CommandLimits
    from tuner.printable import printable
    from tuner_labels.suggestions import format_proposal, suggest_labels, write_suggestions

    limits = CommandLimits.read(time, memory)
    with ended_by(limits.end):
        suggestions = suggest_labels(task, by, limits)
    if out is not None:
        write_suggestions(suggestions, out)
    if json_output:
        print_line(document("labels-suggest-1", {"suggestions": [asdict(suggestion) for suggestion in suggestions]}))
        return
    for suggestion in suggestions:
        print_line(printable(suggestion.label))
        for proposal in suggestion.proposals:
            print_line(f"  {printable(format_proposal(proposal))}")
        for file in suggestion.examples:
            print_line(f"    {printable(file)}")
    written = (
        f"{out} is written: edit it, then set" if out is not None else "nothing is applied: use --out FILE, or set"
    )
    print_line(f"{written} map in the section [labels] of the task")


@labels_app.command
def check(task: str, /, *, time: Time = None, memory: Memory = None, json_output: Json = False) -> None:
    """List the local training samples whose labels the given model contradicts most.

    Parameters
    ----------
    task
        A task.toml or its folder.
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.limits import CommandLimits
    from tuner.printable import printable
    from tuner_labels.suggestions import contradictions

    limits = CommandLimits.read(time, memory)
    with ended_by(limits.end):
        found = contradictions(task, limits)
    if json_output:
        print_line(document("labels-check-1", {"contradictions": [one.to_dict() for one in found]}))
        return
    for one in found:
        print_line(
            f"{printable(one.file)}: {printable(one.label)} {100 * one.probability:.0f} %; "
            f"the model finds {printable(one.instead)} {100 * one.instead_probability:.0f} %"
        )
