"""The commands of a bundle in service: watch, status, rollback."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tuner.cli_options import Flag, Json, say


def watch(
    bundle: Path,
    /,
    *,
    samples: Annotated[str, Parameter(allow_leading_hyphen=True)],
    once: Annotated[bool, Flag] = False,
    enough: int = 100,
    exploration: float = 0.05,
    window: str | None = None,
    any_time: Annotated[bool, Flag] = False,
    keep: str = "256MB",
    json_output: Json = False,
) -> None:
    """Answer files as they come, keep them for training, watch for drift, and train when the device is idle.

    Parameters
    ----------
    bundle
        A bundle's folder.
    samples
        A folder of files, or of class folders where labels are known; - reads a path a line from standard input.
    once
        End when every file there is has been answered; else wait for more, until Ctrl-C.
    enough
        New samples that a round of training is due at.
    exploration
        Probability that all exits run on a sample and are compared.
    window
        When a round may start, such as 01:00-05:30.
    any_time
        Start rounds whether or not the device is idle, charging and cool.
    keep
        How much of the samples is kept, such as 256MB; the oldest go.
    """
    from tuner.errors import BudgetError
    from tuner.runtime import Policy
    from tuner.runtime.conditions import ANY_TIME, Conditions, read_window
    from tuner.runtime.watching import Watch
    from tuner.units import size
    from tuner.watch import Source
    from tuner.watch import watch as serve

    if enough < 1:
        raise BudgetError(f"--enough wants at least 1 sample, but it is {enough}")
    if not 0 <= exploration <= 1:
        raise BudgetError(f"--exploration wants a probability from 0 to 1, but it is {exploration:g}")
    hours = None if window is None else read_window(window)
    conditions = ANY_TIME if any_time else Conditions(window=hours)
    policy = Policy(watch=Watch(exploration=exploration, enough=enough), conditions=conditions)
    tell = _tell_json if json_output else _tell
    serve(bundle, Source(samples, once), tell, policy=policy, most_bytes=size(keep, "--keep"))


def status(bundle: Path, /, *, json_output: Json = False) -> None:
    """Say how a watched bundle does: exits, thresholds, drift, samples kept, rounds and why they ended so.

    Parameters
    ----------
    bundle
        A bundle's folder.
    """
    from tuner.watch import said_status
    from tuner.watch import status as look

    found = look(bundle)
    say(json.dumps(found) if json_output else said_status(found))


def rollback(bundle: Path, /, *, json_output: Json = False) -> None:
    """Go back to the model that was in use before the last accepted round.

    Parameters
    ----------
    bundle
        A bundle's folder.
    """
    from tuner.runtime import Bundle
    from tuner.runtime.home import EXPORTED, roll_back

    Bundle.read(bundle)
    left, used = roll_back(bundle)
    said = "as it was exported" if used == EXPORTED else f"round {used}"
    say(json.dumps({"left": left, "round": used}) if json_output else f"{bundle}: round {left} is left for {said}")


def _tell_json(event: Mapping[str, Any]) -> None:
    say(json.dumps(event))


def _tell(event: Mapping[str, Any]) -> None:
    if "label" in event:
        begin = f"@{event['begin']}" if "begin" in event else ""
        say(f"{event['file']}{begin}: {event['label']} ({100 * event['probability']:.0f} %, exit {event['exit']})")
    elif "round" in event:
        say(f"round {event['round']}: {event['reason']}")
    else:
        print(f"tuner: {event.get('refused') or event.get('problem')}", file=sys.stderr, flush=True)
