"""What a bundle predicts, as text."""

import csv
import io
import re
from pathlib import Path

from tuner.cli.options import note
from tuner.printable import one_line, printable
from tuner.runtime.infer.prediction import UNKNOWN, Prediction
from tuner.targets.base import Named

CSV_HEADER = "file,label,probability,exit,seconds"
#: A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@")


class Notes:
    """Notes on files that were changed before prediction: those that differ only in their figures are printed once."""

    def __init__(self) -> None:
        self._alike = dict[str, list[str]]()

    def add(self, file: Path, text: str) -> None:
        """Take the note on a file; empty for none."""
        if text:
            self._alike.setdefault(re.sub(r"\d[\d.,]*", "", text), []).append(f"{one_line(str(file))}: {text}")

    def tell(self) -> None:
        """Print the notes."""
        for first, *more in self._alike.values():
            note(f"note: {first}" + (f"; {len(more):,} more files likewise" if more else ""))


def format_prediction(file: Path, prediction: Prediction, *, exits: int, timeline: bool = False) -> str:
    """Return a file's predicted label, or its labels over their thresholds, and where it left of several exits.

    With `timeline`, a line for each second of a sound follows.
    """
    listed = _listed if prediction.values is None else format_values
    seconds = (f"{second.begin:6d} s  {listed(second.labels) or '–'}" for second in prediction.timeline)
    return "\n".join((_format_labels(file, prediction, exits), *(seconds if timeline else ())))


def _format_labels(file: Path, prediction: Prediction, exits: int) -> str:
    left = f", exit {prediction.exit}" if exits > 1 else ""
    if prediction.values is not None:
        return f"{printable(str(file))}: {format_values(prediction.values)}{left}"
    name, best = printable(str(file)), f"{printable(prediction.label)} ({100 * prediction.probability:.0f} %{left})"
    if prediction.unknown is not None and prediction.answer != prediction.label:
        return f"{name}: {UNKNOWN} ({prediction.unknown:.2f} times as far as your own samples); nearest is {best}"
    if prediction.labels is None:
        return f"{name}: {best}"
    if not prediction.labels:
        return f"{name}: no label over its threshold; the most probable is {best}"
    return f"{name}: {_listed(prediction.labels)}{left}"


def _listed(labels: Named) -> str:
    return ", ".join(f"{printable(label)} ({100 * probability:.0f} %)" for label, probability in labels)


def format_values(values: Named) -> str:
    """Return outputs with their values; a single one whose name says nothing without it."""
    from tuner.targets.regression import are_named  # classes do without

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
    own = (prediction.answer,) if prediction.labels is None else tuple(label for label, _ in prediction.labels)
    probability = "" if prediction.values is not None else f"{prediction.probability:.6g}"
    cells = (name, printable("|".join(own)), probability, prediction.exit)
    csv.writer(line, lineterminator="").writerow((*cells, f"{prediction.seconds:.3g}"))
    return line.getvalue()
