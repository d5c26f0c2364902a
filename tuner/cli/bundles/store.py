"""The commands of what this device keeps: store list, store clear, forget."""

import json
from dataclasses import asdict
from pathlib import Path

from cyclopts import App

from tuner.cli.options import Json, print_line

store_app = App(name="store", help="List or delete the stored features (outputs of frozen blocks) on this device.")


def forget(task: str, /, *, store: Path | None = None, json_output: Json = False) -> None:
    """Remove everything that this device keeps of a task's samples: stored features, and samples kept by its bundles.

    Parameters
    ----------
    task
        A task.toml, a file.py:function, or a built-in task; or a bundle's folder, to delete only the samples it keeps.
    store
        The feature store's folder [default: in the user's cache].
    """
    from tuner.commands.forget import forget as remove

    removed = remove(task, store)
    if json_output:
        print_line(json.dumps(asdict(removed)))
        return
    print_line(
        f"forgot {removed.task}: {removed.records} feature records in {removed.files} files, "
        f"{removed.samples} kept samples"
    )


@store_app.command(name="list")
def store_list(*, store: Path | None = None, json_output: Json = False) -> None:
    """List the files of the feature store; those at the top are deleted first when space is short.

    Parameters
    ----------
    store
        The feature store's folder [default: in the user's cache].
    """
    from tuner.cli.text.store import format_store
    from tuner.commands.store import store_files
    from tuner.store.calibrated import calibrated_blocks

    files, blocks = store_files(store), calibrated_blocks()
    content = {"files": [asdict(file) for file in files], "int8": {"files": blocks.files, "bytes": blocks.bytes}}
    print_line(json.dumps(content) if json_output else format_store(files, blocks))


@store_app.command(name="clear")
def store_clear(*, store: Path | None = None, json_output: Json = False) -> None:
    """Delete everything in the feature store.

    Parameters
    ----------
    store
        The feature store's folder [default: in the user's cache].
    """
    from tuner.commands.store import clear_store
    from tuner.units import format_bytes

    freed = clear_store(store)
    print_line(json.dumps({"freed_bytes": freed}) if json_output else f"freed {format_bytes(freed)}")
