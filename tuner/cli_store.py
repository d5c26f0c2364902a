"""The commands of what is kept on this device: store list, store clear, forget."""

import json
from pathlib import Path

from cyclopts import App

from tuner.cli_options import Json, say

store_app = App(name="store", help="What is kept on this device of the frozen prefix's outputs.")


def forget(task: str, /, *, store: Path | None = None, json_output: Json = False) -> None:
    """Remove everything this device keeps of a task's samples: stored features, and what its bundles have kept.

    Parameters
    ----------
    task
        A task.toml, a file.py:function, or the name of a built-in task; or a bundle's folder: what it has kept.
    store
        The feature store's folder [default: in the user's cache].
    """
    from tuner.forget import forget as remove

    found = remove(task, store)
    said = f"forgot {found['task']}: {found['records']} records in {found['files']} files, "
    said += f"{found['samples']} kept samples"
    say(json.dumps(found) if json_output else said)


@store_app.command(name="list")
def store_list(*, store: Path | None = None, json_output: Json = False) -> None:
    """List what the feature store holds, the files that an eviction takes first at the front."""
    from tuner.listing import said_store, store_files

    found = store_files(store)
    say(json.dumps({"files": found}) if json_output else said_store(found))


@store_app.command(name="clear")
def store_clear(*, store: Path | None = None, json_output: Json = False) -> None:
    """Delete everything in the feature store."""
    from tuner.listing import clear_store
    from tuner.units import said_bytes

    freed = clear_store(store)
    say(json.dumps({"freed_bytes": freed}) if json_output else f"freed {said_bytes(freed)}")
