"""The command `tuner worker`: join a study by its address alone, if what it says of its task may be believed."""

import re
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from tuner.cli.options import Json
from tuner.cli.run import DEFAULTS, run
from tuner.errors import RunError
from tuner.results.records.config import OWN_OPTIONS, RunRequest, named_objectives
from tuner_fleet.address import Address, read_address

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
        The study's task, if its file has another path here or the study was begun on another device.
    space
        The study's search space, in the same cases.
    """
    named, asked = look_up(read_address(study), task, space, request)
    run(named, request=replace(asked, study=study), json_output=json_output)


def look_up(address: Address, task: str | None, space: str | None, own: RunRequest) -> tuple[str, RunRequest]:
    """Return the task of a study, and what is asked of a worker of it.

    Raises:
        RunError: There is no such study, or it names code and was not begun on this device.
    """
    from tuner.plugin.core import build_host
    from tuner.results.records.origin import is_own
    from tuner.search.space import shipped
    from tuner_fleet.storage.opening import opened
    from tuner_fleet.study.content import find_study, info_of

    with opened(address, exists=True) as storage:
        info = info_of(find_study(storage, address).study.user_attrs, address)
    config, given = info.config, tuple(map(str, own.plugins))
    # by name alone: the file of one's own is among the plugins, which are guarded
    objectives = None if config.objectives is None else ",".join(one for one, _ in named_objectives(config.objectives))
    name, place = task or config.task, space or config.space
    if name.startswith("<"):
        raise RunError(f"the study {address.shown} is of a task given in Python: call tuner.run(task, study=...) there")
    if not is_own(config, info.mark):
        what = [
            f"its task {name} may be code: read it, then give --task"
            if task is None and name not in build_host().tasks
            else "",
            f"its search space {place} may name code: read it, then give --space"
            if space is None and place not in shipped()
            else "",
            f"its plugin {config.plugins[0]} is code: read it, then give --plugin"
            if config.plugins and not given
            else "",
        ]
        if found := next((reason for reason in what if reason), ""):
            raise RunError(f"the study {address.shown} was not begun on this device, and {found}")
    return name, replace(
        own,
        space=place,
        objectives=objectives,
        sampler=config.sampler,
        train_time=None if config.limits.train_seconds is None else f"{config.limits.train_seconds:f}s",
        trials=config.limits.trials,
        forget_at_most=None if config.limits.forgetting is None else f"{config.limits.forgetting:f}",
        backend=config.backend,
        seed=config.seed,
        folds=config.folds or None,
        plugins=given or config.plugins,
    )
