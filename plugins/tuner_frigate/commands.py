"""The command ``tuner frigate``."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from tuner.cli.options import Memory, print_line, progress, stdout_console
from tuner.distribution import offered

if TYPE_CHECKING:
    from tuner_frigate.layout import FrigateModel
    from tuner_frigate.solve import Solved
    from tuner_frigate.train import Trained

frigate_app = App(name="frigate", help="Train the classification models of Frigate, the recorder of cameras.")


@frigate_app.command(name="train")
def train(
    model_folder: Path,
    /,
    *,
    model_cache: Path | None = None,
    work: Path | None = None,
    weights: str | None = None,
    time: str | None = None,
    memory: Memory = None,
) -> None:
    """Train a custom classification model on its photos, and write the files that Frigate loads.

    The last layer is solved for, in seconds and without PyTorch. With --time, a search also tries to train the last
    blocks. Old files are kept next to the new ones. Frigate loads the new ones when it starts.

    Parameters
    ----------
    model_folder
        Folder of the model's photos, such as /media/frigate/clips/front_door: its folder dataset has the classes.
    model_cache
        Frigate's folder model_cache, next to its config.yml [default: looked for].
    work
        With --time: a new folder for the run and its bundle [default: runs/frigate-MODEL].
    weights
        File of MobileNetV2's weights, or IMAGENET1K_V1, which is fetched once; it must be given.
    time
        Limit on a search, such as 5m; the export takes a minute more. It needs the extra tune.
    """
    if time is None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: its matrices here are too small for more
    from tuner.errors import UsageError
    from tuner_frigate.layout import model_of

    if weights is None:
        raise UsageError("--weights must be given: a file of MobileNetV2's weights, or IMAGENET1K_V1, which is fetched")
    if time is None and (work or memory):
        raise UsageError(f"--{'work' if work else 'memory'} is for a search: give --time too, or leave it out")
    model = model_of(model_folder, model_cache)
    if time is not None:
        _search(model, work or Path("runs") / f"frigate-{model.name}", time, memory, weights)
        return
    from tuner_frigate.solve import solve

    with closing(progress()) as listener:
        solved = solve(model, weights, listener)
    for line in (*solved.lines(), *_written(solved)):
        print_line(line)


def _search(model: "FrigateModel", folder: Path, time: str, memory: str | None, weights: str) -> None:
    """Search with PyTorch, and print what was found."""
    from tuner.cli.text.run import print_run
    from tuner.errors import UsageError
    from tuner_frigate.train import train as carry_out

    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is in use: give another --work, or remove it")
    with closing(progress()) as listener:
        trained = carry_out(model, folder, time, memory, weights, listener)
    print_run(trained.run, stdout_console())
    for line in (*trained.file, *_written(trained)):
        print_line(line)
    if (check := offered("tuner.commands").get("check")) is not None:
        check.load()(str(trained.task))  # which photos hurt, and whether there are enough


def _written(made: "Solved | Trained") -> Iterator[str]:
    """Return what is said of the files that were written."""
    for path in made.unread:
        yield f"  {path} cannot be read, and was left out"
    for path in made.kept:
        yield f"the file from before is {path}"
    yield f"written to {made.target}: restart Frigate, and it loads them"
