"""The command ``tuner frigate``."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from tuner.cli.options import Memory, print_line, progress, stdout_console
from tuner.distribution import offered

if TYPE_CHECKING:
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
    time: str = "2m",
    memory: Memory = None,
) -> None:
    """Train a custom classification model on its photos, and write the files that Frigate loads.

    The files that were there are kept next to the new ones. Frigate loads these when it starts.

    Parameters
    ----------
    model_folder
        Folder of the model's photos, such as /media/frigate/clips/front_door: its folder dataset has the classes.
    model_cache
        Frigate's folder model_cache, next to its config.yml [default: looked for].
    work
        A new folder for the run and its bundle [default: runs/frigate-MODEL].
    weights
        File of MobileNetV2's weights, or IMAGENET1K_V1, which torchvision fetches once; it must be given.
    time
        Limit on the search, such as 5m; the export takes a minute more.
    """
    from tuner.cli.text.run import print_run
    from tuner.errors import UsageError
    from tuner_frigate.layout import model_of
    from tuner_frigate.train import train as carry_out

    if weights is None:
        raise UsageError("--weights must be given: a file of MobileNetV2's weights, or IMAGENET1K_V1, which is fetched")
    model = model_of(model_folder, model_cache)
    folder = work or Path("runs") / f"frigate-{model.name}"
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is in use: give another --work, or remove it")
    with closing(progress()) as listener:
        trained = carry_out(model, folder, time, memory, weights, listener)
    print_run(trained.run, stdout_console())
    for line in lines(trained):
        print_line(line)
    if (check := offered("tuner.commands").get("check")) is not None:
        check.load()(str(trained.task))  # which photos hurt, and whether there are enough


def lines(trained: "Trained") -> Iterator[str]:
    """Return what is said of the files that were written."""
    yield from trained.file
    for path in trained.unread:
        yield f"  {path} cannot be read, and was left out"
    for path in trained.kept:
        yield f"the file from before is {path}"
    yield f"written to {trained.target}: restart Frigate, and it loads them"
