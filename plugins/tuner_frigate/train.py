"""Search for a model of Frigate's with PyTorch, which also trains the last blocks: search, refit, int8."""

import json
from dataclasses import dataclass
from pathlib import Path

from tuner.commands.bundles.export import export
from tuner.commands.tune.run import run
from tuner.errors import TaskError
from tuner.files import private_folder, write_private
from tuner.results.run import Run
from tuner.search.listener import Listener
from tuner_frigate.layout import LABELS, MODEL, SIDE, FrigateModel, install, stretched
from tuner_frigate.network import FETCHED, MEAN, STD

#: What is weighed: all plans of one network take the same time for a prediction, which is measured of the int8 file.
OBJECTIVES = "local_accuracy,bundle_bytes"
#: Points that int8 may cost: of a few dozen photos, one is two or three points.
MOST_LOSS = 5.0
#: What is trained on: photos as Frigate's model sees them, normalised as MobileNetV2's weights were trained.
TASK = """\
name = {name}

[model]
factory = "torchvision.models:mobilenet_v2"
weights = {weights}

[local]
kind = "images"
train = "photos"

[input]
size = {side}
mean = {mean}
std = {std}

[augment]
ops = ["flip", "crop", "shift"]
"""


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model of Frigate's.

    Attributes:
        run: What was tried.
        task: The task file.
        file: The lines on the TFLite file.
        unread: Photos that cannot be read.
        kept: Frigate's files from before.
        target: Folder of the new ones.
    """

    run: Run
    task: Path
    file: tuple[str, ...]
    unread: tuple[Path, ...]
    kept: tuple[Path, ...]
    target: Path


def train(
    model: FrigateModel, work: Path, time: str | None, memory: str | None, weights: str, listener: Listener
) -> Trained:
    """Search, export the best plan in int8, and write Frigate's two files.

    Args:
        model: The model.
        work: A folder for what is trained on and the run; it must be empty or not exist yet.
        time: Limit on the search, such as ``2m``.
        memory: Limit on the memory of a trial.
        weights: File of MobileNetV2's weights, or the name of those that torchvision fetches.
        listener: Receives progress.

    Raises:
        TunerError: The photos or the weights cannot be used, a limit leaves no room, or int8 loses too much.
    """
    photos, task, file = model.photos(), work / "task.toml", Path(weights)
    if weights != FETCHED and not file.is_file():
        raise TaskError(f"--weights {weights}: no such file: give MobileNetV2's state_dict, or {FETCHED}")
    unread = stretched(photos, private_folder(work, TaskError) / "photos")
    write_private(task, task_text(model.name, weights if weights == FETCHED else str(file.resolve())))
    result = run(
        str(task), objectives=OBJECTIVES, time=time, memory=memory, out=work / "run", earlier="none", listener=listener
    )
    bundle = export(result, work / "bundle", tflite="uint8", int8_loss=MOST_LOSS, listener=listener)
    files = bundle / "tflite"
    kept = install(
        {MODEL: (files / "model.tflite").read_bytes(), LABELS: (files / "labels.txt").read_bytes()}, model.target
    )
    lines = tuple((files / "report.txt").read_text(encoding="utf-8").splitlines())
    return Trained(result, task, lines, unread, tuple(kept), model.target)


def task_text(name: str, weights: str) -> str:
    """Return the task file of a model."""
    # TOML has no halves of characters, as JSON in ASCII does
    own, place = (json.dumps(text, ensure_ascii=False) for text in (f"frigate-{name}", weights))
    return TASK.format(name=own, weights=place, side=SIDE, mean=[*MEAN], std=[*STD])
