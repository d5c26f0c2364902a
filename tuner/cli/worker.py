"""The command `tuner worker`."""

import re
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from tuner.cli.options import Json
from tuner.cli.run import DEFAULTS, run
from tuner.results.config import OWN_OPTIONS, RunRequest

OWN = Parameter(parse=re.compile(f"^(request|{'|'.join(OWN_OPTIONS)})$"))


def worker(
    study: str,
    /,
    *,
    task: str | None = None,
    space: str | None = None,
    request: Annotated[RunRequest, OWN] = DEFAULTS,
    json_output: Json = False,
) -> None:
    """Join a study that several workers share, with the task, the search space and the limits that it names.

    Parameters
    ----------
    study
        The study's address, such as postgresql://host/db or grpc://host:13000.
    task
        The study's task, where its file is elsewhere here, or the study was not begun on this device.
    space
        The study's search space, likewise.
    """
    from tuner.commands.worker import look_up
    from tuner.search.shared.address import read_address

    named, asked = look_up(read_address(study), task, space, request)
    run(named, request=replace(asked, study=study), json_output=json_output)
