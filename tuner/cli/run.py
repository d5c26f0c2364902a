"""The commands that tune: run, demo."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner.cli.options import Flag, Json, LocalPlugins, Out, Whole, note, print_line, progress, stdout_console


def run(
    task: str = ".",
    /,
    *,
    space: str = "board-10min",
    time: str | None = None,
    train_time: str | None = None,
    memory: str | None = None,
    storage: str | None = None,
    trials: Annotated[int | None, Whole] = None,
    forget_at_most: str | None = None,
    stop_when_flat: str | None = None,
    keep_going: Annotated[bool, Flag] = False,
    backend: str | None = None,
    seed: Annotated[int, Whole] = 0,
    deterministic: Annotated[bool, Flag] = False,
    folds: Annotated[int | None, Whole] = None,
    out: Out = None,
    store: Path | None = None,
    earlier: Annotated[Path | None, Parameter(name="--from")] = None,
    prior: Path | None = None,
    resume: Annotated[bool, Flag] = False,
    plugin: LocalPlugins = (),
    study: str | None = None,
    artifacts: str | None = None,
    dry_run: Annotated[bool, Flag] = False,
    json_output: Json = False,
) -> None:
    """Tune a task: try plans by training them, within limits, and write the results as a run.

    Parameters
    ----------
    task
        A task.toml or its folder, a model.ini, a folder of photos, a file.py:function, or the name of a built-in task.
    space
        A search space's file, or board-10min, early-exits, every-strategy, int8, phone-overnight, smoke or wearable.
    time
        Limit on the whole command, such as 90s, 10m or 1h30m.
    train_time
        Limit on the training time of each trial, without the time to fill the feature store.
    memory
        Limit on the memory that a trial adds to its process, such as 512MB.
    storage
        Limit on stored features and the run folder together, such as 2GB.
    trials
        Limit on the number of trials.
    forget_at_most
        Limit on the loss of global accuracy against the untouched model, such as 3%.
    stop_when_flat
        End after this time without a better front, such as 60s.
    keep_going
        Use all of --time, even if nothing is left to gain that the validation samples could show.
    backend
        Use only this backend: torch, onnxruntime, or one of a plugin [default: any that is installed].
    seed
        The study's seed: the same seed suggests the same plans.
    deterministic
        Make the run repeatable: one thread, costs computed from FLOPs, not measured; it ends after --trials only.
    folds
        Divide local.train into this many folds, and score each by a training without it: surer scores of few samples.
    out
        The run's folder [default: runs/TASK].
    store
        The feature store's folder [default: in the user's cache].
    earlier
        A run whose front is tried first, or none [default: the newest run of the same model].
    prior
        A file from `tuner prior build`, or `shipped`: those of its plans that suit the task are tried first.
    resume
        Continue the run in --out.
    study
        Address of a study that several workers share, such as postgresql://host/db: begin it, or join it.
    artifacts
        With --study: a folder, or s3://BUCKET/PREFIX, where workers put the weights of the front for whoever exports.
    dry_run
        Show what would be searched and what fits; train nothing.
    """
    limits = {
        "time": time,
        "train_time": train_time,
        "memory": memory,
        "storage": storage,
        "trials": trials,
        "forget_at_most": forget_at_most,
        "stop_when_flat": stop_when_flat,
        "keep_going": keep_going or None,
    }
    from tuner.cli.fence import ended_after
    from tuner.commands.tune import limits_of, process_started

    started = process_started()
    seconds = limits_of(space, limits, deterministic=deterministic).time_seconds
    if dry_run:
        from tuner.cli.text.dry_run import format_dry_run
        from tuner.commands.dry_run import LOOKING_SECONDS
        from tuner.commands.dry_run import dry_run as look

        with ended_after(None if seconds is None else max(seconds, LOOKING_SECONDS), started):
            preview = look(
                _file_of(task, out),
                space=space,
                limits=limits,
                backend=backend,
                deterministic=deterministic,
                folds=folds,
                store=store,
                plugins=plugin,
                started=started,
            )
        print_line(json.dumps(asdict(preview)) if json_output else format_dry_run(preview))
        return
    from tuner.cli.text.next import continue_command, next_commands
    from tuner.cli.text.run import print_run
    from tuner.commands.show import as_json
    from tuner.commands.tune import DEFAULT_SPACE
    from tuner.commands.tune import run as tune

    listener = progress()
    try:
        with ended_after(seconds, started):
            result = tune(
                _file_of(task, out),
                space=space,
                **limits,  # type: ignore[arg-type]  # mypy does not follow the names of a dictionary
                backend=backend,
                seed=seed,
                deterministic=deterministic,
                folds=folds,
                out=out,
                store=store,
                earlier=None if earlier is None else str(earlier),
                prior=prior,
                resume=resume,
                plugins=plugin,
                study=study,
                artifacts=artifacts,
                started=started,
                listener=listener,
            )
    except KeyboardInterrupt:
        from tuner.search.shared.address import read_address

        options = {
            "space": None if space == DEFAULT_SPACE else space,
            **{name.replace("_", "-"): value for name, value in limits.items()},
            "backend": backend,
            "seed": seed or None,
            "deterministic": deterministic,
            "folds": folds,
            "store": store,
            "from": earlier,
            "prior": prior,
            "plugin": plugin,
            "study": None if study is None else read_address(study).shown,
            "artifacts": artifacts,
            "json": json_output,
            "out": out,
            "resume": resume,
        }
        raise KeyboardInterrupt(continue_command(task, options, listener.folder)) from None
    if json_output:
        print_line(json.dumps(as_json(result)))
    else:
        print_run(result, stdout_console())
        for command in next_commands(result, artifacts):
            listener.say(f"next: {command}")
    if not result.front:
        from tuner.errors import BudgetError
        from tuner.results.pick import nothing_feasible

        raise BudgetError(f"no trial fits: {nothing_feasible(result)}")


def _file_of(task: str, out: Path | None) -> str:
    """Return what names a task; for a folder of photos, its task file, which is written where there is none yet."""
    from tuner.reading import kind_of

    folder = Path(task)
    if not task or kind_of(folder) != "folder" or kind_of(folder / "task.toml") != "nothing":
        return task
    from tuner.cli.text.init import format_found
    from tuner.commands.init import task_of_photos
    from tuner.plugin.core import build_host

    if task in build_host().tasks:
        return task
    file = task_of_photos(folder, out, lambda prepared: note(format_found(prepared)))
    note(f"task: {file}")
    return str(file)


def demo(*, out: Out = None) -> None:
    """Tune, export and predict on real handwritten digits; takes about half a minute and needs no data.

    Parameters
    ----------
    out
        Folder for the run and the bundle [default: a new folder in the current one].
    """
    from tuner.cli.text.demo import QUESTION, print_demo
    from tuner.cli.text.run import print_run
    from tuner.commands.demo import export_and_predict, tune_digits

    console = stdout_console()
    console.print(QUESTION)
    result = tune_digits(out, progress())
    print_run(result, console)
    print_demo(export_and_predict(result), console)
