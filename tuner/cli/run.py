"""The command that tunes, and its text."""

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.options import Json, document, note, print_line, progress, stdout_console
from tuner.distribution import offered
from tuner.printable import printable
from tuner.results.records.config import RunRequest, option_name
from tuner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tuner.commands.tune.dry_run import DryRun

DEFAULTS = RunRequest()
#: Group of the entry point of what writes the task file of a user's data.
DRAFTS = "tuner.drafts"


def run(
    task: str = ".",
    /,
    *,
    request: RunRequest = DEFAULTS,
    dry_run: bool = False,
    details: bool = False,
    json_output: Json = False,
) -> None:
    """Tune a task: try plans by training them, within limits, and write the results as a run.

    Parameters
    ----------
    task
        A task.toml or its folder, a model.ini, data as for tuner init, a file.py:function, or a built-in task's name.
    dry_run
        Show what would be searched and what fits; train nothing.
    details
        Show everything that was found, as `tuner show RUN --details` does.
    """
    from tuner.cli.fence import ended_after
    from tuner.commands.tune.run import process_started
    from tuner.search.budget import budget
    from tuner.search.space import load_space

    started = process_started()
    seconds = budget(request, load_space(request.space).limits).time_seconds
    if dry_run:
        from tuner.commands.tune.dry_run import LOOKING_SECONDS
        from tuner.commands.tune.dry_run import dry_run as look

        most = None if seconds is None else max(seconds, LOOKING_SECONDS)
        with closing(progress()) as shown, ended_after(most, started):
            preview = look(_file_of(task, request), request, started=started, listener=shown)
        print_line(document("dry-run-1", asdict(preview)) if json_output else format_dry_run(preview))
        return
    from tuner.cli.text.run import print_run
    from tuner.commands.runs.show import as_json
    from tuner.commands.tune.run import run as tune

    listener, newest = progress(), {"takes_newest": not json_output}  # each job of a pipeline begins as its first did
    try:
        with ended_after(seconds, started):
            result = tune(_file_of(task, request), **vars(request), started=started, listener=listener, **newest)
    except KeyboardInterrupt:
        again = continue_command(task, request, listener.folder, as_json=json_output)
        raise KeyboardInterrupt("interrupted; what was finished is kept", "to continue:", again) from None
    if json_output:
        print_line(document("run-1", as_json(result)))
    else:
        print_run(result, stdout_console(), details=details, artifacts=request.artifacts)
    if not result.front:
        from tuner.errors import NoTrialFitsError
        from tuner.results.views.pick import nothing_feasible

        raise NoTrialFitsError(f"no trial fits: {nothing_feasible(result)}")


def _file_of(task: str, request: RunRequest) -> str:
    """Return what names a task; for a user's data, its task file, which a plugin writes where there is none yet."""
    from tuner.reading import kind_of
    from tuner.task.data.table import split_column

    place, draft = Path(task), offered(DRAFTS).get("init")
    is_table = split_column(place)[0].suffix.lower() in {".csv", ".npy", ".npz"}
    is_folder = kind_of(place) == "folder" and kind_of(place / "task.toml") == "nothing"
    if not task or draft is None or not (is_folder or is_table):
        return task
    from tuner.plugin.core import build_host

    if task in build_host(local=map(str, request.plugins)).tasks:
        note(f"task: {task}, of a plugin; ./{task} is the folder of this name")
        return task
    out = None if request.out is None else Path(request.out)
    file = str(draft.load()(task, out, note, request.models))
    note(f"task: {file}")
    return file


def format_dry_run(preview: "DryRun") -> str:
    """Return a dry run for people."""
    lines = [
        *map(printable, preview.notes),
        *_choosing(preview),
        f"{preview.task} · space {preview.space} · strategies {', '.join(preview.strategies)}",
        f"objectives: {', '.join(preview.objectives)}",
        (
            f"filling the store: features of {preview.fill_samples:,} samples are missing; computing them takes about "
            f"{format_seconds(preview.fill_seconds)}"
        ),
        "last blocks  train time  to spend now  peak memory  storage  fits",
    ]
    for depth in preview.depths:
        fits = "yes" if not depth.over else f"no: over {', '.join('--' + name for name in depth.over)}"
        train, spend = format_seconds(depth.train_seconds), format_seconds(depth.spend_seconds)
        lines.append(
            f"{depth.trainable:>11}  {train:>10}  {spend:>12}  "
            f"{format_bytes(depth.peak_bytes):>11}  {format_bytes(depth.storage_bytes):>7}  {fits}"
        )
    return "\n".join([*lines, "knobs that are searched:", *(f"  {knob}" for knob in preview.knobs.values())])


def _choosing(preview: "DryRun") -> Iterator[str]:
    """Yield what a run does first where there are several candidates for the model."""
    if preview.candidates:
        seconds = preview.choosing_seconds
        within = "" if seconds is None else f", in at most {format_seconds(seconds)}"
        yield f"candidates for the model: {printable(', '.join(preview.candidates))}"
        yield (
            f"a run compares them by a pass of each over your samples{within}, and then searches one network, at one "
            "size or two; below is the first candidate that can be used"
        )


def continue_command(task: str, request: RunRequest, folder: Path | None, *, as_json: bool = False) -> str:
    """Return the command that continues a run, or that asks again where nothing was begun in a folder.

    It works as it stands, but for the password in a study's address, which is not shown.
    """
    if request.study is not None:
        from tuner.commands.runs.source import shown_place

        request = replace(request, study=shown_place(request.study))
    if folder is not None:
        request = replace(request, out=folder, resume=True)
    words = ["tuner", "run", task]
    for one in fields(RunRequest):
        value, option = getattr(request, one.name), f"--{option_name(one.name)}"
        if value is True:
            words.append(option)
        elif value != one.default:
            values = value if isinstance(value, list | tuple) else (value,)
            words += [word for each in values for word in (option, str(each))]
    return shlex.join([*words, "--json"] if as_json else words)


#: What runs where PyTorch is not installed: of a plugin, if one offers it.
WITHOUT = offered("tuner.without_torch").get("run") if find_spec("torch") is None else None
command = run if WITHOUT is None else WITHOUT.load()
