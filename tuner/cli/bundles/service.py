"""The commands of a bundle in service: watch, status, rollback."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tuner.cli.options import Json, document, note, print_line
from tuner.printable import one_line, printable
from tuner.results.records.config import Duration, Size


def watch(
    bundle: Path,
    /,
    *,
    samples: Annotated[str, Parameter(allow_leading_hyphen=True)],
    once: bool = False,
    enough: int = 100,
    exploration: float = 0.05,
    window: str | None = None,
    battery_full: bool = False,
    any_time: bool = False,
    round_time: Duration = "10m",
    keep: Size = "256MB",
    label_next: int = 0,
    json_output: Json = False,
) -> None:
    """Predict files as they come, keep them for training, watch for drift, and train when the device is idle.

    Parameters
    ----------
    bundle
        A bundle's folder.
    samples
        A folder of files, or of class folders where labels are known; - reads one path per line from standard input.
    once
        End when every existing file has been predicted. Without it, wait for more files, until Ctrl-C.
    enough
        Number of new samples at which a round of training is due.
    exploration
        For a bundle with exits: probability that all exits run on a sample, to compare them with the last exit.
    window
        Time of day within which a round of training may start, such as 01:00-05:30.
    battery_full
        Also wait until the battery is at 95 %; no effect without a battery.
    any_time
        Start rounds even if the device is busy, on battery or hot; --window and --battery-full are then ignored.
    round_time
        Time after which a round trains no further models to judge by, such as 10m; it trains two at least.
    keep
        Largest size of the samples kept, such as 256MB; the oldest are removed.
    label_next
        At the end, name so many files without a label that are none of your classes, or whose label is least sure.
    """
    from importlib.util import find_spec

    from tuner.commands.bundles.watch import watch as serve
    from tuner.commands.tune.interruption import terminated_as_interrupted
    from tuner.distribution import install_command
    from tuner.errors import UsageError
    from tuner.reading import kind_of
    from tuner.runtime import Policy
    from tuner.runtime.service.conditions import ANY_TIME, Conditions, read_window
    from tuner.runtime.service.incoming import POLL_SECONDS
    from tuner.runtime.service.watch.gate import Rules
    from tuner.runtime.service.watch.monitor import Watch
    from tuner.units import parse_seconds, parse_size

    if enough < 1:
        raise UsageError(f"--enough must be at least 1 sample, got {enough}")
    if label_next < 0:
        raise UsageError(f"--label-next must be at least 0 files, got {label_next}")
    if not 0 <= exploration <= 1:
        raise UsageError(f"--exploration must be a probability from 0 to 1, got {exploration:g}")
    hours = None if window is None else read_window(window)
    conditions = ANY_TIME if any_time else Conditions(window=hours, full=battery_full)
    rules = Rules(seconds=parse_seconds(round_time, "--round-time"))
    policy = Policy(Watch(exploration=exploration, enough=enough), rules, conditions)
    listener = _print_json if json_output else _print_event
    most_bytes = parse_size(keep, "--keep")
    if kind_of(samples) == "folder" and not once and find_spec("inotify_simple") is None:
        hint = f"; to be woken by a new file: {install_command('watch')}" if sys.platform == "linux" else ""
        print(f"tuner: the folder is looked at every {POLL_SECONDS:g} s{hint}", file=sys.stderr, flush=True)
    with terminated_as_interrupted():
        serve(bundle, samples, listener, once=once, policy=policy, most_bytes=most_bytes, label_next=label_next)


def status(bundle: Path, /, *, json_output: Json = False) -> None:
    """Show the state of a watched bundle: exits, drift, samples kept, and why rounds of training were accepted or not.

    Parameters
    ----------
    bundle
        A bundle's folder.
    """
    from tuner.cli.text.bundles import format_status
    from tuner.commands.bundles.watch import status as status_of

    current = status_of(bundle)
    print_line(document("status-1", asdict(current)) if json_output else format_status(current))


def rollback(bundle: Path, /, *, json_output: Json = False) -> None:
    """Return to the model that was in use before the last accepted round of training by tuner watch.

    Parameters
    ----------
    bundle
        A bundle's folder.
    """
    from tuner.bundle.rounds import EXPORTED, roll_back
    from tuner.runtime import Bundle

    Bundle.read(bundle)
    before, in_use = roll_back(bundle)
    if json_output:
        print_line(document("rollback-1", {"left": before, "round": in_use}))
        return
    target = "the bundle as it was exported" if in_use == EXPORTED else f"round {in_use}"
    print_line(f"{bundle}: rolled back from round {before} to {target}")


def _print_json(event: Mapping[str, Any]) -> None:
    print_line(document("watch-1", event))


def _print_event(event: Mapping[str, Any]) -> None:
    begin = f"@{event['begin']}" if "begin" in event else ""
    if "label" in event:
        labels = event.get("labels") or {event["label"]: event["probability"]}
        listed = "), ".join(f"{printable(label)} ({100 * share:.0f} %" for label, share in labels.items())
        print_line(f"{printable(event['file'])}{begin}: {listed}, exit {event['exit']})")
    elif "values" in event:
        from tuner.cli.text.predictions import format_values

        print_line(f"{printable(event['file'])}{begin}: {format_values(tuple(event['values'].items()))}")
    elif "label_next" in event:
        for file in event["label_next"]:
            print_line(f"label next: {printable(file)}")
    elif "round" in event:
        print_line(f"round {event['round']}: {event['reason']}")
    elif "left_out" in event:
        what = "1 file is" if event["left_out"] == 1 else f"{event['left_out']:,} files are"
        note(f"note: {what} left out, of no kind that the model reads: {event['kinds']}")
    else:
        print(f"tuner: {one_line(event.get('refused') or event['problem'])}", file=sys.stderr, flush=True)
