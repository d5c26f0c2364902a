"""What the inputs of a written training step mean."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.ort.port import Port

FORMAT = 1


class StepFileError(TunerError):
    """A file is not a training step, or not one for these weights or batches."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a step file's inputs mean.

    Attributes:
        inputs: The step's inputs, in order.
        updates: Input that an output replaces in the next step, by the output's name.
    """

    inputs: tuple[Port, ...]
    updates: Mapping[str, str]

    @property
    def batch_size(self) -> int:
        """Samples a step."""
        return self.only("input").shape[0]

    def only(self, kind: str) -> Port:
        """Return the one input of a kind."""
        return next(port for port in self.inputs if port.kind == kind)


def layout_of(path: Path, session: Any) -> Layout:
    """Read what a file's inputs mean from its metadata.

    Raises:
        StepFileError: It says nothing of them, or in another version's format.
    """
    about = json.loads(session.get_modelmeta().custom_metadata_map.get("tuner.step", "{}"))
    if about.get("format") != FORMAT:
        held = f"format {about['format']}" if "format" in about else "none"
        raise StepFileError(f"a training step of format {FORMAT} is wanted, but {path} holds {held}: export it again")
    ports = (Port(**{**port, "shape": tuple(port["shape"])}) for port in about["inputs"])
    return Layout(tuple(ports), about["updates"])
