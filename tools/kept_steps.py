"""A bundle, its conformance set and the file that trains it: what three runtimes take the same 20 steps with.

The bundle and the set are kept in ``tests/fixtures/digits``; ``web/test`` reads them as they are. LiteRT needs
``train.tflite`` too, which is written here.
"""

import json
import shutil
from pathlib import Path

import numpy as np

from tuner.bundle.format import CONFORMANCE, FILE, Bundle, seal
from tuner_conformance.files import FILE as SET_FILE
from tuner_tflite.file import file_of
from tuner_tflite.interpreter import TRAINS, Training
from tuner_tflite.signatures import signatures
from tuner_tflite.write import interface

KEPT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "digits"


def write(folder: Path) -> Path:
    """Write the bundle with the file that trains, and the kept set, into a new folder; return it."""
    shutil.copytree(KEPT / "bundle", folder)
    training = Training.of(folder)
    sample = np.zeros((1, *Bundle.open(folder).input_shape), np.float32)
    own = signatures(training, interface("arrays", (), (), sample.shape[1], "SOFTMAX"), sample, frozen=True)
    (folder / TRAINS).parent.mkdir()
    (folder / TRAINS).write_bytes(file_of(own, ""))
    about = json.loads((folder / FILE).read_bytes())
    (folder / FILE).unlink()
    seal(folder, about)
    shutil.copytree(KEPT / CONFORMANCE, folder / CONFORMANCE)
    content = json.loads((folder / CONFORMANCE / SET_FILE).read_bytes())
    content["bundle"] = Bundle.open(folder).identity  # another one, by the file that was added
    (folder / CONFORMANCE / SET_FILE).write_text(json.dumps(content), encoding="utf-8")
    return folder
