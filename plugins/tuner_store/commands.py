"""The commands of what this device keeps: store list, store clear, forget."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tuner.cli.options import Json, document, print_line
from tuner.printable import printable
from tuner.units import format_bytes

if TYPE_CHECKING:
    from tuner.store.calibrated import CalibratedBlocks
    from tuner_store.store import StoreFile

store_app = App(name="store", help="List or delete the stored features (outputs of frozen blocks) on this device.")


def forget(
    task: str,
    /,
    *,
    store: Path | None = None,
    bundle: Annotated[tuple[Path, ...], Parameter(consume_multiple=False)] = (),
    json_output: Json = False,
) -> None:
    """Remove everything that this device keeps of a task's samples: stored features, and samples kept by its bundles.

    Parameters
    ----------
    task
        A task.toml, a file.py:function, or a built-in task; or the folder of a bundle, or of a run made without
        PyTorch, to delete only the samples it keeps.
    store
        The feature store's folder [default: in the user's cache].
    bundle
        A bundle from which the features of your samples that it was exported with are removed too; repeatable. It then
        learns on the device from new samples alone.
    """
    from tuner_store.store import forget as remove

    removed = remove(task, store, bundle)
    if json_output:
        print_line(document("forget-1", asdict(removed)))
        return
    print_line(
        f"forgot {removed.task}: {removed.records} feature records in {removed.files} files, "
        f"{removed.samples} kept samples"
    )
    for held in removed.held:
        name = printable(held.bundle)
        print_line(f"  {name} holds features of {held.samples:,} of your samples: --bundle {name} removes them")


@store_app.command(name="list")
def store_list(*, store: Path | None = None, json_output: Json = False) -> None:
    """List the files of the feature store; those at the top are deleted first when space is short.

    Parameters
    ----------
    store
        The feature store's folder [default: in the user's cache].
    """
    from tuner.store.calibrated import calibrated_blocks
    from tuner_store.store import store_files

    files, blocks = store_files(store), calibrated_blocks()
    content = {"files": [asdict(file) for file in files], "int8": {"files": blocks.files, "bytes": blocks.bytes}}
    print_line(document("store-1", content) if json_output else format_store(files, blocks))


@store_app.command(name="clear")
def store_clear(*, store: Path | None = None, json_output: Json = False) -> None:
    """Delete everything in the feature store.

    Parameters
    ----------
    store
        The feature store's folder [default: in the user's cache].
    """
    from tuner_store.store import clear_store

    freed = clear_store(store)
    print_line(document("store-clear-1", {"freed_bytes": freed}) if json_output else f"freed {format_bytes(freed)}")


def format_store(files: "Sequence[StoreFile]", blocks: "CalibratedBlocks") -> str:
    """Return the list for people."""
    return "\n".join([_listed(files), *([_described(blocks)] if blocks.files else [])])


def _described(blocks: "CalibratedBlocks") -> str:
    files = f"{blocks.files} {'file' if blocks.files == 1 else 'files'}"
    return f"frozen blocks in int8, for all stores: {files}, {format_bytes(blocks.bytes)}, in {blocks.folder}"


def _listed(files: "Sequence[StoreFile]") -> str:
    if not files:
        return "the store is empty"
    lines = ["cut                        bits  records       size  last used         engine"]
    for file in files:
        size = format_bytes(file.bytes)
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.last_used))
        line = (
            f"{file.cut or 'damaged':<26} {file.bits or 0:>4}  {file.records:>7,}  {size:>9}  {used}  {file.kind or ''}"
        )
        lines.append(line.rstrip())
    lines.append(f"in all {format_bytes(sum(file.bytes for file in files))}")
    return "\n".join(lines)
