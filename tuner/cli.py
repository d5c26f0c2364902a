"""The command line: arguments in, one call, text or JSON out, and the error boundary."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from tuner.cli_device import rollback, status, watch
from tuner.cli_options import Flag, Json, ReaderGoneError, say
from tuner.cli_store import forget, store_app
from tuner.errors import TunerError, lacking

DONE, MISTAKE, USAGE, INTERRUPTED = 0, 1, 2, 130

app = App(
    name="tuner",
    help="Tune how a model is personalised on this device, within a time and memory budget.",
    version_flags=["--version"],
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # `call` says what an interruption leaves behind
    help_format="plaintext",  # markdown would cost a quarter of the time that --help takes
)
app.command(store_app)
app.command(forget)
app.command(watch)
app.command(status)
app.command(rollback)


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(call(sys.argv[1:]))


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 the user's mistake or a limit, 2 usage, 130 interrupted."""
    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(f"tuner: {' '.join(str(error).split())} See tuner --help.", file=sys.stderr)
        return USAGE
    except TunerError as error:
        print(f"tuner: {error}", file=sys.stderr)
        return MISTAKE
    except ModuleNotFoundError as error:
        way_out = lacking(error)
        if way_out is None:
            raise
        print(f"tuner: {way_out}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt:
        print("tuner: interrupted; nothing finished is lost", file=sys.stderr)
        return INTERRUPTED
    except ReaderGoneError:
        with suppress(OSError):  # what is still buffered goes nowhere, without a word at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return DONE


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that nothing half made stays."""

    def ask(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command
def run(
    task: str,
    /,
    *,
    space: str = "board-10min",
    time: str | None = None,
    train_time: str | None = None,
    memory: str | None = None,
    storage: str | None = None,
    trials: int | None = None,
    backend: str | None = None,
    seed: int = 0,
    deterministic: Annotated[bool, Flag] = False,
    out: Path | None = None,
    store: Path | None = None,
    resume: Annotated[bool, Flag] = False,
    dry_run: Annotated[bool, Flag] = False,
    json_output: Json = False,
) -> None:
    """Tune a task within limits and write a run.

    Parameters
    ----------
    task
        A task.toml, a file.py:function, or the name of a built-in task.
    space
        A search space's file, or one of board-10min, early-exits, phone-overnight, smoke, wearable.
    time
        Limit on the whole command, such as 90s, 10m or 1h30m.
    train_time
        Limit on a result's training time on an empty store.
    memory
        Limit on a trial's memory above its resting process, such as 512MB.
    storage
        Limit on stored features and the run folder together.
    trials
        How many trials at most.
    backend
        Use this backend only.
    seed
        Of the study: the same seed asks for the same plans.
    deterministic
        One thread, and costs from FLOPs instead of clocks; ends by --trials.
    out
        The run's folder [default: runs/TASK].
    store
        The feature store's folder [default: in the user's cache].
    resume
        Go on with the run in --out.
    dry_run
        Say what would be searched and what fits; train nothing.
    """
    limits = {"time": time, "train_time": train_time, "memory": memory, "storage": storage, "trials": trials}
    from tuner.tune import process_started

    started = process_started()
    if dry_run:
        from tuner.dry import dry_run as look
        from tuner.dry import said

        found = look(
            task, space=space, limits=limits, backend=backend, deterministic=deterministic, store=store, started=started
        )
        say(json.dumps(found) if json_output else said(found))
        return
    from tuner.results.show import as_json, print_run
    from tuner.tune import run as tune

    result = tune(
        task,
        space=space,
        **limits,  # type: ignore[arg-type]  # mypy does not follow the names of a dictionary
        backend=backend,
        seed=seed,
        deterministic=deterministic,
        out=out,
        store=store,
        resume=resume,
        started=started,
        listener=_progress(),
    )
    if json_output:
        say(json.dumps(as_json(result)))
    else:
        print_run(result, _console())
    if not result.front:
        from tuner.errors import BudgetError
        from tuner.results.picking import nothing_feasible

        raise BudgetError(f"no trial fits: {nothing_feasible(result)}")


@app.command
def show(run: Path, /, *, json_output: Json = False) -> None:
    """Show a run: the untouched model, the front, the counts, what was spent.

    Parameters
    ----------
    run
        A run's folder.
    """
    from tuner.results.show import as_json, print_run
    from tuner.tune import Run

    found = Run.open(run)
    if json_output:
        say(json.dumps(as_json(found)))
    else:
        print_run(found, _console())


@app.command
def export(
    run: Path,
    out: Path,
    /,
    *,
    pick: str = "knee",
    trainable: Annotated[bool, Flag] = False,
    json_output: Json = False,
) -> None:
    """Write a trial of the front as a bundle; nothing is trained.

    Parameters
    ----------
    run
        A run's folder.
    out
        The bundle's folder, which must not exist yet.
    pick
        knee, a trial's number, or an expression: 'global_accuracy >= 0.5 and min(train_seconds)'.
    trainable
        Let the bundle train again without PyTorch; it then holds features of global samples.
    """
    from tuner.bundle import export_bundle
    from tuner.tune import Run

    found = Run.open(run)
    print("exporting; validation samples run through ONNX Runtime for a check", file=sys.stderr, flush=True)
    with _ended_in_order():
        made = export_bundle(found, out, pick, trainable=trainable)
    _tell_bundle(made, json_output=json_output)


@app.command
def apply(
    bundle: Path,
    task: str,
    out: Path,
    /,
    *,
    source: Annotated[str, Parameter(name="--from")] = "bundle",
    json_output: Json = False,
) -> None:
    """Carry a bundle's plan out on a task, and write a new bundle that names its parent.

    Parameters
    ----------
    bundle
        A bundle's folder.
    task
        A task.toml, a file.py:function, or the name of a built-in task.
    out
        The new bundle's folder, which must not exist yet.
    source
        What training starts from: bundle (its weights) or original (the task's own weights).
    """
    from tuner.apply import apply_bundle

    _tell_bundle(apply_bundle(bundle, task, out, source, _progress()), json_output=json_output)


@app.command
def predict(
    bundle: Path, files: Annotated[list[Path], Parameter(consume_multiple=True)], /, *, json_output: Json = False
) -> None:
    """Predict files with a bundle.

    Parameters
    ----------
    bundle
        A bundle's folder.
    files
        Images, or .npy arrays for a model of arrays, or .npy recordings [channels, time] for a model of signals.
    """
    from tuner.runtime import Personaliser

    personaliser = Personaliser(bundle)
    found = [{"file": str(path), **personaliser.predict_file(path).to_dict()} for path in files]
    if json_output:
        say(json.dumps({"predictions": found}))
        return
    for one in found:
        left = f", exit {one['exit']}" if personaliser.exits > 1 else ""
        say(f"{one['file']}: {one['label']} ({100 * one['probability']:.0f} %{left})")


@app.command
def describe(task: str, /, *, plan: Path | None = None, picture: Path | None = None, json_output: Json = False) -> None:
    """Show a model's blocks, cut points, FLOPs and bytes; with a plan, its cost and the memory of its training step.

    Of an NNTrainer model file, show its layers and the planned memory of a training step.

    Parameters
    ----------
    task
        A task.toml, a file.py:function, the name of a built-in task, or a model.ini.
    plan
        A plan.toml to estimate, for a task.
    picture
        Where to write memory over the training step as SVG, for a model.ini, or for a task with a plan.
    """
    if task.endswith(".ini"):
        from tuner.planner.describe import describe_ini, said_ini

        if plan is not None:
            raise TunerError(f"--plan is for a task, but {task} is a model file: leave it out")
        described = describe_ini(Path(task), picture)
        say(json.dumps(described) if json_output else said_ini(described))
        return
    from tuner.dry import describe_task, said_description

    if picture is not None and plan is None:
        raise TunerError(f"--picture of the task {task!r} shows a plan's step, but there is no --plan: give one")
    found = describe_task(task, plan, picture)
    say(json.dumps(found) if json_output else said_description(found))


@app.command
def plugins(*, json_output: Json = False) -> None:
    """List what is installed, from where, its knobs, and what was refused and why."""
    from tuner.listing import plugin_list, said_plugins

    found = plugin_list()
    say(json.dumps(found) if json_output else said_plugins(found))


@app.command
def demo(*, out: Path | None = None) -> None:
    """Tune, export and predict on real handwritten digits; one minute, no data needed.

    Parameters
    ----------
    out
        Where the run and the bundle go [default: a new folder in the current one].
    """
    from tuner.demo import demo as play

    play(out, _progress, _console())


def _tell_bundle(folder: Path, *, json_output: bool) -> None:
    from tuner.runtime import Bundle
    from tuner.units import said_bytes

    info = Bundle.open(folder).info
    scores: dict[str, Any] = info["scores"]
    if json_output:
        train = {"train": info["train"]} if "train" in info else {}
        say(json.dumps({"bundle": str(folder), "sentence": info["sentence"], "scores": scores, **train}))
        return
    say(f"{folder}: {info['sentence']}")
    for name, value in scores["from_pixels"].items():
        beside = scores["trial"].get(name)
        said = f" (in the trial {beside:.4g})" if beside is not None else ""
        say(f"  {name} {value:.4g}{said}")
    if "train" in info:
        train = info["train"]
        say(
            f"  trains again without PyTorch: {said_bytes(train['bytes'])}, with features of "
            f"{train['replay_samples'] + train['check_samples']} global samples: their terms hold for the bundle too"
        )


def _progress() -> Any:
    from tuner.progress import Progress

    return Progress()


def _console() -> Any:
    from rich.console import Console

    class Stdout(Console):
        def on_broken_pipe(self) -> None:
            raise ReaderGoneError

    return Stdout(soft_wrap=True)
