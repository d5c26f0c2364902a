"""A bundle, and what it predicts, as text."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from tuner.bundle.info import BundleInfo
from tuner.printable import printable
from tuner.runtime.infer.prediction import Prediction
from tuner.targets.base import ACCURACY, ERROR, Named
from tuner.units import format_bytes

CSV_HEADER = "file,label,probability,exit,seconds"
#: A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@")


def format_bundle(folder: Path, info: BundleInfo, scored: Mapping[str, int], folds: int = 0) -> str:
    """Return the plan of a bundle that was just written, and its accuracies compared with the trial's.

    Args:
        folder: Its folder.
        info: What it says of itself.
        scored: Number of validation samples by the name of the accuracy on them.
        folds: Number of folds that judged the trial; 0 for none.
    """
    from tuner.cli.text.bundles.int8 import int8_lines  # a process that only predicts does without
    from tuner.results.scores.objectives import title_of

    lines = [f"{folder}: {info.sentence}"]
    for name, value in info.scores.from_pixels.items():
        shown, targets = title_of(name, info.targets), info.targets
        in_trial = info.scores.trial.get(name)
        over = f", over {folds} folds," if folds and name == "local_accuracy" else ""
        if not name.endswith(ACCURACY):
            is_score = in_trial is not None and name.endswith(ERROR)
            lines.append(f"  {shown} {value:.4g}" + (f"; in the trial{over} {in_trial:.4g}" if is_score else ""))
            continue
        trial = "" if in_trial is None else f"; in the trial{over} {targets.text(in_trial)}"
        lines.append(f"  {shown} {targets.text(value, scored.get(name, 0))}{trial}")
    lines += [f"  {line}" for line in int8_lines(info)]
    if info.train is not None:
        samples = info.train.replay_samples + info.train.check_samples
        lines.append(
            f"  trains again without PyTorch: {format_bytes(info.train.bytes)}, with features of {samples} global "
            "samples; the licence of these samples also applies to the bundle"
        )
        if info.train.left_out:
            lines.append(f"  when it trains again, its loss is the task's, without {', '.join(info.train.left_out)}")
    return "\n".join(lines)


def format_prediction(file: Path, prediction: Prediction, *, exits: int, timeline: bool = False) -> str:
    """Return a file's predicted label, or its labels over their thresholds.

    Args:
        file: The file.
        prediction: What was predicted.
        exits: Exits of the model; if there are several, the one that the sample left at is said too.
        timeline: Whether a line for each second of a sound follows.
    """
    listed = _listed if prediction.values is None else format_values
    seconds = (f"{second.begin:6d} s  {listed(second.labels) or '–'}" for second in prediction.timeline)
    return "\n".join((_format_labels(file, prediction, exits), *(seconds if timeline else ())))


def _format_labels(file: Path, prediction: Prediction, exits: int) -> str:
    left = f", exit {prediction.exit}" if exits > 1 else ""
    if prediction.values is not None:
        return f"{printable(str(file))}: {format_values(prediction.values)}{left}"
    name, best = printable(str(file)), f"{printable(prediction.label)} ({100 * prediction.probability:.0f} %{left})"
    if prediction.labels is None:
        return f"{name}: {best}"
    if not prediction.labels:
        return f"{name}: no label over its threshold; the most probable is {best}"
    return f"{name}: {_listed(prediction.labels)}{left}"


def _listed(labels: Named) -> str:
    return ", ".join(f"{printable(label)} ({100 * probability:.0f} %)" for label, probability in labels)


def format_values(values: Named) -> str:
    """Return outputs with their values; a single one whose name says nothing without it."""
    from tuner.targets.regression import are_named

    if len(values) == 1 and not are_named([values[0][0]]):
        return f"{values[0][1]:.6g}"
    return ", ".join(f"{printable(name)} {value:.6g}" for name, value in values)


def prediction_as_csv(file: Path, prediction: Prediction) -> str:
    """Return a prediction as one line of CSV under `CSV_HEADER`; several labels, or values, are joined with ``|``.

    What cannot be printed in a name is escaped, line breaks too: a file is one line. A name that a spreadsheet would
    take for a formula is written with ``./`` before it, which leads to the same file.
    """
    name = printable(str(file))
    name = f"./{name}" if name.startswith(_FORMULA) else name
    line = io.StringIO()
    own = (prediction.label,) if prediction.labels is None else tuple(label for label, _ in prediction.labels)
    probability = "" if prediction.values is not None else f"{prediction.probability:.6g}"
    cells = (name, printable("|".join(own)), probability, prediction.exit)
    csv.writer(line, lineterminator="").writerow((*cells, f"{prediction.seconds:.3g}"))
    return line.getvalue()
