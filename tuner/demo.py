"""The demonstration: tune, export and predict on real handwritten digits, with no data to fetch."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console

from tuner.results.show import print_run
from tuner.runtime import Personaliser
from tuner.search.events import Listener
from tuner.task.digits import digits
from tuner.tune import run

SHOWN = 5
TIME = "2m"  # a first import of the tensor library from a slow disk may take half a minute; the trials take seconds


def demo(out: Path | None, listener: Callable[[], Listener], console: Console) -> None:
    """Run the built-in task ``digits`` in the space ``smoke``, export the knee, and predict a few samples.

    Raises:
        TunerError: The folder is in use, or scikit-learn is not installed.
    """
    folder = out or Path(time.strftime("tuner-demo-%Y%m%d-%H%M%S"))
    console.print("A network knows the digits 0 to 6; one user writes 7, 8 and 9. What should the device train?")
    result = run("digits", space="smoke", time=TIME, out=folder / "run", listener=listener())
    print_run(result, console)
    bundle = result.export(folder / "bundle")
    console.print(f"exported trial {result.knee} to {bundle}", highlight=False)
    personaliser = Personaliser(bundle)
    task = digits()
    for index in range(SHOWN):
        path = folder / f"digit-{index}.npy"
        np.save(path, task.local.val.load(index))
        said = personaliser.predict_file(path)
        truth = task.labels[int(task.local.val.labels[index])]
        console.print(
            f"{path}: predicted {said.label} ({100 * said.probability:.0f} %), written as {truth}", highlight=False
        )
    console.print(f"try: tuner show {folder / 'run'}; tuner predict {bundle} {folder / 'digit-0.npy'}", highlight=False)
