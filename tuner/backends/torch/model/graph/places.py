"""Where a model's own code raised."""

import inspect
import traceback
from pathlib import Path

import torch

#: Code below these raises on behalf of who called it.
_NOT_THE_MODELS = (str(Path(inspect.getfile(torch)).parent), str(Path(__file__).parents[3]), "<")


def place_of_model(error: BaseException) -> str:
    """Return the last line of the model's own code that an error came through, as ``net.py, line 14``; or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_MODELS)]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""


def raised_in(error: BaseException) -> str:
    """Return the same in brackets after a space, for the end of a sentence."""
    place = place_of_model(error)
    return f" ({place})" if place else ""
