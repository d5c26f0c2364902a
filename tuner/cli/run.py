"""The commands that tune: run, demo."""

import json
from dataclasses import asdict
from pathlib import Path

from tuner.cli.options import Json, Out, note, print_line, progress, stdout_console
from tuner.results.records.config import RunRequest

DEFAULTS = RunRequest()


def run(
    task: str = ".", /, *, request: RunRequest = DEFAULTS, dry_run: bool = False, json_output: Json = False
) -> None:
    """Tune a task: try plans by training them, within limits, and write the results as a run.

    Parameters
    ----------
    task
        A task.toml or its folder, a model.ini, a folder of photos, a file.py:function, or the name of a built-in task.
    dry_run
        Show what would be searched and what fits; train nothing.
    """
    from tuner.cli.fence import ended_after
    from tuner.commands.tune.run import process_started
    from tuner.search.budget import budget
    from tuner.search.space import load_space

    started = process_started()
    seconds = budget(request, load_space(request.space).limits).time_seconds
    if dry_run:
        from tuner.cli.text.runs.dry_run import format_dry_run
        from tuner.commands.tune.dry_run import LOOKING_SECONDS
        from tuner.commands.tune.dry_run import dry_run as look

        with ended_after(None if seconds is None else max(seconds, LOOKING_SECONDS), started):
            preview = look(_file_of(task, request.out), request, started=started)
        print_line(json.dumps(asdict(preview)) if json_output else format_dry_run(preview))
        return
    from tuner.cli.text.runs.next import continue_command, next_commands
    from tuner.cli.text.runs.run import print_run
    from tuner.commands.runs.show import as_json
    from tuner.commands.tune.run import run as tune

    listener = progress()
    try:
        with ended_after(seconds, started):
            result = tune(_file_of(task, request.out), **vars(request), started=started, listener=listener)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(continue_command(task, request, listener.folder, as_json=json_output)) from None
    if json_output:
        print_line(json.dumps(as_json(result)))
    else:
        print_run(result, stdout_console())
        for command in next_commands(result, request.artifacts):
            listener.say(f"next: {command}")
    if not result.front:
        from tuner.errors import BudgetError
        from tuner.results.views.pick import nothing_feasible

        raise BudgetError(f"no trial fits: {nothing_feasible(result)}")


def _file_of(task: str, out: str | Path | None) -> str:
    """Return what names a task; for a folder of photos, its task file, which is written where there is none yet."""
    from tuner.reading import kind_of

    folder = Path(task)
    if not task or kind_of(folder) != "folder" or kind_of(folder / "task.toml") != "nothing":
        return task
    from tuner.cli.text.init import format_found
    from tuner.commands.tasks.init import task_of_photos
    from tuner.plugin.core import build_host

    if task in build_host().tasks:
        return task
    file = task_of_photos(folder, None if out is None else Path(out), lambda prepared: note(format_found(prepared)))
    note(f"task: {file}")
    return str(file)


def demo(*, out: Out = None) -> None:
    """Tune, export and predict on real handwritten digits; takes about half a minute and needs no data.

    Parameters
    ----------
    out
        Folder for the run and the bundle [default: a new folder in the current one].
    """
    from tuner.cli.text.runs.demo import QUESTION, print_demo
    from tuner.cli.text.runs.run import print_run
    from tuner.commands.demo import export_and_predict, tune_digits

    console = stdout_console()
    console.print(QUESTION)
    result = tune_digits(out, progress())
    print_run(result, console)
    print_demo(export_and_predict(result), console)
