"""The option ``--encoder`` of the commands that read texts: of the group ``tuner.options``."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner_text import VARIABLE
from tuner_text.files import EncoderFiles

About = Parameter(help="Folder of another encoder of texts than WordLlama's (docs/your-texts.md).")


def choose(*, encoder: Annotated[Path | None, About] = None) -> None:
    """Let texts be read by another encoder, in this process and those that it starts; a `TaskError` if it is none."""
    if encoder is not None:
        EncoderFiles.of(encoder)
    os.environ[VARIABLE] = str(encoder.absolute()) if encoder else ""
