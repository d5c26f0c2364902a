"""The demonstration: tune, export and predict on real handwritten digits, with no data to fetch."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.commands.bundles.export import export
from tuner.commands.tune.run import run
from tuner.distribution import offered
from tuner.results.run import Run
from tuner.runtime import Personaliser, Prediction
from tuner.search.listener import Listener
from tuner.task.builtin import digits

EXAMPLES = 5
PREDICTING, WRITING = "predicting a few digits", "writing the report"
TIME = "2m"  # a first import of the tensor library from a slow disk may take half a minute; the trials take seconds


@dataclass(frozen=True, slots=True)
class Example:
    """A validation sample, the bundle's prediction, and the true label."""

    file: Path
    prediction: Prediction
    label: str


@dataclass(frozen=True, slots=True)
class Demo:
    """The result of the demonstration: folders, the exported trial, examples, and plugins' pages."""

    run: Path
    trial: int | None
    bundle: Path
    examples: tuple[Example, ...]
    pages: Mapping[str, Path]


def tune_digits(folder: Path | None, listener: Listener) -> Run:
    """Run the built-in task ``digits`` in a folder; None for a new one, named after the time."""
    folder = folder or Path(time.strftime("tuner-demo-%Y%m%d-%H%M%S"))
    return run("digits", space="smoke", time=TIME, out=folder / "run", listener=listener)


def export_and_predict(result: Run, listener: Listener) -> Demo:
    """Export the best of a run of `tune_digits` next to it, predict a few samples, and write plugins' pages."""
    folder = result.folder.parent
    # without a refit: samples that the model has not learned are shown
    bundle = export(result, folder / "bundle", refit=False, listener=listener)
    listener.phase(PREDICTING)
    personaliser = Personaliser(bundle)
    task = digits()
    examples = []
    for index in range(EXAMPLES):
        file = folder / f"digit-{index}.npy"
        np.save(file, task.local.val.load(index))
        label = task.labels[int(task.local.val.labels[index])]
        examples.append(Example(file, personaliser.predict_file(file), label))
    listener.phase(WRITING)
    pages = {name: point.load()(result, folder / f"{name}.html") for name, point in offered("tuner.run_pages").items()}
    return Demo(result.folder, result.best, bundle, tuple(examples), pages)
