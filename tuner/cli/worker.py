"""The command `tuner worker`."""

from dataclasses import replace
from pathlib import Path

from tuner.cli.options import Json, LocalPlugins, Memory, Out, Time
from tuner.results.config import Place, Size


def worker(
    study: str,
    /,
    *,
    task: str | None = None,
    space: str | None = None,
    time: Time = None,
    memory: Memory = None,
    storage: Size | None = None,
    out: Out = None,
    store: Path | None = None,
    plugin: LocalPlugins = (),
    artifacts: Place | None = None,
    resume: bool = False,
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

    found, shared = look_up(read_address(study), task, space, plugin)
    request = replace(
        shared,
        time=time,
        memory=memory,
        storage=storage,
        out=out,
        store=store,
        resume=resume,
        study=study,
        artifacts=artifacts,
    )
    run(found, request=request, json_output=json_output)
