"""The command `tuner worker`."""

from pathlib import Path
from typing import Annotated

from tuner.cli.options import Flag, Json, LocalPlugins, Memory, Out, Time


def worker(
    study: str,
    /,
    *,
    task: str | None = None,
    space: str | None = None,
    time: Time = None,
    memory: Memory = None,
    storage: str | None = None,
    out: Out = None,
    store: Path | None = None,
    plugin: LocalPlugins = (),
    artifacts: str | None = None,
    resume: Annotated[bool, Flag] = False,
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
    storage
        Limit on stored features and the run folder together, such as 2GB.
    out
        This worker's own folder [default: runs/TASK].
    store
        The feature store's folder [default: in the user's cache].
    artifacts
        A folder, or s3://BUCKET/PREFIX, where workers put the weights of the front for whoever exports.
    resume
        Continue as the worker whose folder is --out.
    """
    from tuner.cli.run import run
    from tuner.commands.worker import look_up
    from tuner.search.shared.address import read_address

    joined = look_up(read_address(study), task, space, plugin)
    config = joined.info.config
    run(
        joined.task,
        space=joined.space,
        time=time,
        memory=memory,
        storage=storage,
        **joined.limits,  # type: ignore[arg-type]  # mypy does not follow the names of a dictionary
        backend=config.backend,
        seed=config.seed,
        folds=config.folds or None,
        out=out,
        store=store,
        plugin=tuple(map(Path, joined.plugins)),
        resume=resume,
        study=study,
        artifacts=artifacts,
        json_output=json_output,
    )
