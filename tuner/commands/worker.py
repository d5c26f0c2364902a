"""A worker that joins a study by its address alone: what the study says of its task, if that may be believed."""

from collections.abc import Iterable
from pathlib import Path

from tuner.errors import RunError
from tuner.plugin.core import build_host
from tuner.results.config import RunRequest
from tuner.results.origin import is_own
from tuner.search.shared.address import Address
from tuner.search.space import shipped


def look_up(
    address: Address, task: str | None, space: str | None, plugins: Iterable[Path | str]
) -> tuple[str, RunRequest]:
    """Return the task of a study, and what it asks of every worker; limits on time, memory and storage are each one's.

    Args:
        address: Where the study is.
        task: The task, where the user names it: its file is elsewhere here, or the study was not begun on this device.
        space: The search space, likewise.
        plugins: Files of local plugins, likewise.

    Raises:
        RunError: There is no such study, or it names code and was not begun on this device.
    """
    from tuner.search.shared.content import find_study, info_of
    from tuner.search.shared.storage import close, open_storage

    storage = open_storage(address, exists=True)
    try:
        info = info_of(find_study(storage, address).user_attrs, address)
    finally:
        close(storage)
    config, given = info.config, tuple(map(str, plugins))
    name, place = task or config.task, space or config.space
    if name.startswith("<"):
        raise RunError(f"the study {address.shown} is of a task given in Python: call tuner.run(task, study=...) there")
    if not is_own(config, info.mark):
        what = [
            f"its task {name} may be code: read it, then give --task" if task is None and name not in _tasks() else "",
            f"its search space {place} may name code: read it, then give --space"
            if space is None and place not in shipped()
            else "",
            f"its plugin {config.plugins[0]} is code: read it, then give --plugin"
            if config.plugins and not given
            else "",
        ]
        if found := next((reason for reason in what if reason), ""):
            raise RunError(f"the study {address.shown} was not begun on this device, and {found}")
    return name, RunRequest(
        space=place,
        train_time=None if config.limits.train_seconds is None else f"{config.limits.train_seconds:f}s",
        trials=config.limits.trials,
        forget_at_most=None if config.limits.forgetting is None else f"{config.limits.forgetting:f}",
        backend=config.backend,
        seed=config.seed,
        folds=config.folds or None,
        plugins=given or config.plugins,
    )


def _tasks() -> Iterable[str]:
    return build_host().tasks
