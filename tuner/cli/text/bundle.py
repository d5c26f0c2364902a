"""A bundle, and what it predicts, as text."""

from pathlib import Path

from tuner.bundle.info import BundleInfo
from tuner.cli.printable import printable
from tuner.runtime.infer.personaliser import Prediction
from tuner.units import format_bytes


def format_bundle(folder: Path, info: BundleInfo) -> str:
    """Return the plan of a bundle that was just written, and its accuracies compared with the trial's."""
    lines = [f"{folder}: {info.sentence}"]
    for name, value in info.scores.from_pixels.items():
        in_trial = info.scores.trial.get(name)
        comparison = f" (in the trial {in_trial:.4g})" if in_trial is not None else ""
        lines.append(f"  {name} {value:.4g}{comparison}")
    if info.train is not None:
        samples = info.train.replay_samples + info.train.check_samples
        lines.append(
            f"  trains again without PyTorch: {format_bytes(info.train.bytes)}, with features of {samples} global "
            "samples; the licence of these samples also applies to the bundle"
        )
        if info.train.left_out:
            lines.append(f"  when it trains again, its loss is the task's, without {', '.join(info.train.left_out)}")
    return "\n".join(lines)


def format_prediction(file: Path, prediction: Prediction, *, exits: int) -> str:
    """Return a file's predicted label; where a model has exits, also the one that the sample left at."""
    left = f", exit {prediction.exit}" if exits > 1 else ""
    name, label = printable(str(file)), printable(prediction.label)
    return f"{name}: {label} ({100 * prediction.probability:.0f} %{left})"
