"""The commands watch, status and rollback."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tuner.bundle.rounds import EXPORTED
from tuner.cli.options import Json, document, note, print_line
from tuner.printable import one_line, printable
from tuner.results.records.config import Duration, Size
from tuner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tuner_watch.watch import ExitStatus, ServiceStatus

DAY_SECONDS = 24 * 60 * 60


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
    any_time: Annotated[bool, Parameter(name=["--any-time", "--now"])] = False,
    round_time: Duration = "10m",
    keep: Size = "256MB",
    label_next: int = 5,
    json_output: Annotated[
        bool, Parameter(name="--json", help="Print one JSON object a line, for each event.")
    ] = False,
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
        At the end, name so many files without a label that are none of your classes, or whose label is least sure; 0
        for none.
    """
    from importlib.util import find_spec

    from tuner.cli.fence import guarded
    from tuner.commands.limits import NO_LIMITS
    from tuner.distribution import install_command
    from tuner.errors import UsageError
    from tuner.reading import kind_of
    from tuner.runtime import Bundle
    from tuner.runtime.train.gate import Rules
    from tuner.units import parse_seconds, parse_size
    from tuner_watch.conditions import ANY_TIME, Conditions, read_window
    from tuner_watch.incoming import POLL_SECONDS
    from tuner_watch.monitor import Watch
    from tuner_watch.orchestrator import Policy
    from tuner_watch.watch import watch as serve

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
    exits = not json_output and Bundle.read(bundle).exits is not None
    listener = _print_json if json_output else partial(_print_event, exits=exits)
    most_bytes = parse_size(keep, "--keep")
    if kind_of(samples) == "folder" and not once and find_spec("inotify_simple") is None:
        hint = f"; to be woken by a new file: {install_command('watch')}" if sys.platform == "linux" else ""
        print(f"tuner: the folder is looked at every {POLL_SECONDS:g} s{hint}", file=sys.stderr, flush=True)
    with guarded("watching", NO_LIMITS):
        serve(bundle, samples, listener, once=once, policy=policy, most_bytes=most_bytes, label_next=label_next)


def status(bundle: Path, /, *, json_output: Json = False) -> None:
    """Show the state of a watched bundle: exits, drift, samples kept, and why rounds of training were accepted or not.

    Parameters
    ----------
    bundle
        A bundle's folder.
    """
    from tuner_watch.watch import status as status_of

    current = status_of(bundle)
    print_line(document("status-1", asdict(current)) if json_output else format_status(current))


def rollback(bundle: Path, /, *, json_output: Json = False) -> None:
    """Return to the model that was in use before the last accepted round of training by tuner watch.

    Parameters
    ----------
    bundle
        A bundle's folder.
    """
    from tuner.bundle.format import Bundle
    from tuner_watch.serving import roll_back

    Bundle.read(bundle)
    before, in_use = roll_back(bundle)
    if json_output:
        print_line(document("rollback-1", {"left": before, "round": in_use}))
        return
    target = "the bundle as it was exported" if in_use == EXPORTED else f"round {in_use}"
    print_line(f"{bundle}: rolled back from round {before} to {target}")


def _print_json(event: Mapping[str, Any]) -> None:
    print_line(document("watch-1", event))


def _print_event(event: Mapping[str, Any], *, exits: bool) -> None:
    begin = f"@{event['begin']}" if "begin" in event else ""
    if "label" in event:
        labels = event.get("labels") or {event["label"]: event["probability"]}
        listed = "), ".join(f"{printable(label)} ({100 * share:.0f} %" for label, share in labels.items())
        left = f", exit {event['exit']}" if exits else ""
        print_line(f"{printable(event['file'])}{begin}: {listed}{left})")
    elif "values" in event:
        from tuner.cli.text.predictions import format_values

        print_line(f"{printable(event['file'])}{begin}: {format_values(tuple(event['values'].items()))}")
    elif "outlook" in event:
        for file in event.get("label_next", ()):
            print_line(f"worth a label: {printable(file)}")
        refused = f", {event['not_predicted']:,} refused" if event["not_predicted"] else ""
        done = f"{event['predicted']:,} files predicted{refused}; {event['kept']:,} samples kept"
        print_line(f"{done}; {event['outlook']}")
    elif "round" in event:
        print_line(f"round {event['round']}: {event['reason']}")
    elif "left_out" in event:
        what = "1 file is" if event["left_out"] == 1 else f"{event['left_out']:,} files are"
        note(f"note: {what} left out, of no kind that the model reads: {event['kinds']}")
    else:
        print(f"tuner: {one_line(event.get('refused') or event['problem'])}", file=sys.stderr, flush=True)


def format_status(status: "ServiceStatus") -> str:
    """Return the status for people."""
    in_use = "as it was exported" if status.round == EXPORTED else f"round {status.round}"
    speed = "" if status.mean_seconds is None else f", {1000 * status.mean_seconds:.2f} ms each"
    lines = [f"{status.name} · {in_use} · {status.answers:,} predictions{speed}"]
    if len(status.exits) > 1:
        lines += [_exit(exit_, status.explored) for exit_ in status.exits]
    lines += [
        f"  drift of {one.stream}: statistic {one.statistic:.2f} (alarm above {one.limit:g}), "
        f"mean {one.mean:.3f} over {one.samples:,} samples"
        for one in status.drift
    ]
    kept = status.kept
    lines.append(f"  kept: {kept.samples:,} samples ({kept.new:,} new), {format_bytes(kept.bytes)}")
    lines.append(_due(status))
    for round_ in status.rounds:
        verdict = "accepted" if round_.accepted else "refused"
        if round_.name and round_.name not in (status.round, *status.earlier):
            verdict = f"accepted as {round_.name}, which is not in use any more"
        lines.append(f"  {_ago(round_.when)}: a round on {round_.samples:,} samples was {verdict}: {round_.reason}")
    lines += [f"  {_ago(problem.when)}: {problem.line}" for problem in status.problems]
    return "\n".join(lines)


def _exit(status: "ExitStatus", explored: int) -> str:
    threshold = "last" if status.threshold is None else f"threshold {status.threshold:g}"
    rate = "no predictions yet" if status.rate is None else f"{100 * status.rate:.0f} % leave"
    loss = "" if status.loss is None else f", loss {status.loss:.3f} on {explored} samples that all exits ran on"
    return f"  exit {status.exit} ({threshold}): {rate}{loss}"


def _due(status: "ServiceStatus") -> str:
    if not status.due:
        return "  no round is due"
    return f"  a round is due: {status.due}" + (f"; it waits: {status.waits}" if status.waits else "")


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    return f"{seconds / DAY_SECONDS:.0f} days ago" if seconds > 2 * DAY_SECONDS else f"{format_seconds(seconds)} ago"
