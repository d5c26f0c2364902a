"""The commands `tuner report` and `tuner diff`."""

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from tuner.cli.options import Json, LocalPlugins, Memory, OutFile, Time, document, print_line, progress


def report(
    run: str,
    /,
    *,
    out: OutFile = Path("report.html"),
    no_photos: bool = False,
    task: str | None = None,
    plugin: LocalPlugins = (),
    time: Time = None,
    memory: Memory = None,
) -> None:
    """Write a report of a run: one HTML file with pictures, which needs no network and no script.

    Parameters
    ----------
    run
        A run's folder, or the address of a study that several workers share.
    out
        The file, which is replaced if it exists.
    no_photos
        Leave out the up to eight small photos of yours that the best trial gets wrong.
    task
        The run's task, if its file has moved or the run was made on another device.
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.limits import CommandLimits
    from tuner.commands.runs.source import run_folder
    from tuner.results.run import Run
    from tuner_report.report import report as write

    limits = CommandLimits.read(time, memory)
    with run_folder(run) as folder, closing(progress()) as listener, ended_by(limits.end):
        result = Run.open(folder)
        listener.phase("looking at what the best trial gets wrong; drawing")
        path = write(
            result,
            out,
            photos=not no_photos,
            task=task,
            plugins=plugin,
            time=time,
            memory=memory,
            warn=lambda line: listener.say(f"warning: {line}"),
        )
    print_line(str(path))


def diff(one: str, other: str, /, *, json_output: Json = False) -> None:
    """Compare two runs: settings that differ, results, fronts, hypervolume and picks side by side.

    Parameters
    ----------
    one
        A run's folder, or the address of a study that several workers share.
    other
        The other run's folder, or a study's address.
    """
    from tuner_report.diff import diff as compare
    from tuner_report.diff import format_diff, open_pair

    runs = open_pair(one, other)
    found = compare(*runs)
    objectives = {objective.name: objective for run in runs for objective in run.objectives}
    print_line(document("diff-1", asdict(found)) if json_output else format_diff(found, objectives))
