"""A dry run as text."""

from tuner.commands.tune.dry_run import DryRun
from tuner.units import format_bytes, format_seconds


def format_dry_run(preview: DryRun) -> str:
    """Return a dry run for people."""
    lines = [
        f"{preview.task} · space {preview.space} · strategies {', '.join(preview.strategies)}",
        f"objectives: {', '.join(preview.objectives)}",
        "knobs:",
        *(f"  {knob}" for knob in preview.knobs.values()),
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
    return "\n".join(lines)
