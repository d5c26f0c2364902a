"""The status of a watched bundle as text."""

import time

from tuner.bundle.rounds import EXPORTED
from tuner.commands.bundles.watch import DriftStatus, ExitStatus, ServiceStatus
from tuner.units import format_bytes, format_seconds

DAY_SECONDS = 24 * 60 * 60


def format_status(status: ServiceStatus) -> str:
    """Return the status for people."""
    in_use = "as it was exported" if status.round == EXPORTED else f"round {status.round}"
    speed = "" if status.mean_seconds is None else f", {1000 * status.mean_seconds:.2f} ms each"
    lines = [f"{status.name} · {in_use} · {status.answers:,} predictions{speed}"]
    lines += [_exit(exit_, status.explored) for exit_ in status.exits]
    lines += [_drift(drift) for drift in status.drift]
    kept = status.kept
    lines.append(f"  kept: {kept.samples:,} samples ({kept.new:,} new), {format_bytes(kept.bytes)}")
    lines.append(_due(status))
    for round_ in status.rounds:
        verdict = "accepted" if round_.accepted else "refused"
        lines.append(f"  {_ago(round_.when)}: a round on {round_.samples:,} samples was {verdict}: {round_.reason}")
    lines += [f"  {_ago(problem.when)}: {problem.line}" for problem in status.problems]
    return "\n".join(lines)


def _exit(status: ExitStatus, explored: int) -> str:
    threshold = "last" if status.threshold is None else f"threshold {status.threshold:g}"
    rate = "no predictions yet" if status.rate is None else f"{100 * status.rate:.0f} % leave"
    loss = "" if status.loss is None else f", loss {status.loss:.3f} on {explored} samples that all exits ran on"
    return f"  exit {status.exit} ({threshold}): {rate}{loss}"


def _drift(status: DriftStatus) -> str:
    return (
        f"  drift of {status.stream}: statistic {status.statistic:.2f} (alarm above {status.limit:g}), "
        f"mean {status.mean:.3f} over {status.samples:,} samples"
    )


def _due(status: ServiceStatus) -> str:
    if not status.due:
        return "  no round is due"
    return f"  a round is due: {status.due}" + (f"; it waits: {status.waits}" if status.waits else "")


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    return f"{seconds / DAY_SECONDS:.0f} days ago" if seconds > 2 * DAY_SECONDS else f"{format_seconds(seconds)} ago"
