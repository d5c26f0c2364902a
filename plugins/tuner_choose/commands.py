"""The command ``tuner models``: what this machine can load as a model, without any network connection."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, document, print_line, stdout_console
from tuner.distribution import FETCH, install_command
from tuner.errors import TunerError
from tuner.reading import kind_of

if TYPE_CHECKING:
    from rich.table import Table

    from tuner_choose.places import Network

#: Side of the pictures that FLOPs are of, where the user names none.
SIDE = 224
UNKNOWN = "nothing says which network these weights are of: name the function that builds it, net.py:build=FILE"


@dataclass(frozen=True, slots=True)
class Listed:
    """A network that is on this machine.

    Attributes:
        candidate: What names it: for ``--model``, and for ``[model] candidates`` of a task file; empty where nothing
            says which network a file of weights is of.
        file: Its weights, or their folder.
        parameters: Number of its parameters; None where it cannot be opened.
        flops: FLOPs of a prediction at the size that was asked for; None likewise.
        licence: "-" where it is not known.
        note: Why it cannot be opened; empty where it can.
    """

    candidate: str
    file: str
    bytes: int
    parameters: int | None = None
    flops: int | None = None
    licence: str = "-"
    note: str = ""


def models(
    task: Path = Path(),
    /,
    *,
    model_folder: Annotated[Path | None, Parameter(metavar="FOLDER")] = None,
    size: int = SIDE,
    names_only: bool = False,
    json_output: Json = False,
) -> None:
    """List the networks that this machine can load, with their sizes; nothing is fetched.

    They are files of weights and ONNX files next to a task, in the folder of shared data and in torchvision's cache,
    what timm and Hugging Face have cached, and weights in installed Python packages.

    Parameters
    ----------
    task
        A task file, or a folder: what lies next to it is listed.
    model_folder
        A further folder with files of weights, ONNX files, or folders as save_pretrained writes them.
    size
        Side of the pictures, in pixels, that FLOPs are counted for.
    names_only
        Open no network: parameters and FLOPs are then left out.
    """
    with _offline():
        found = listed(task, model_folder, 0 if names_only else size)
    if json_output:
        print_line(document("models-1", {"size": size, "models": [asdict(one) for one in found]}))
        return
    if not found:
        print_line(
            "no networks are on this machine: put files of weights or ONNX files next to the task file, or install "
            f"some: {install_command('networks')}"
        )
        return
    stdout_console().print(_table(found, size))
    for one in found:
        print_line(f"{one.candidate or 'unknown'}: {': '.join(filter(None, (one.file, one.note)))}")


def listed(near: Path, folder: Path | None, size: int) -> list[Listed]:
    """Return the networks that are on this machine; with parameters and FLOPs, if `size` is not 0."""
    from tuner_choose.places import networks

    file = near if kind_of(near) == "file" else near / "task.toml"
    return [_listed(one, file.absolute(), size) for one in networks(near, folder)]


def _listed(network: "Network", file: Path, size: int) -> Listed:
    from tuner.task.file.schema import ModelSection
    from tuner.task.file.sections import model_spec
    from tuner_choose.candidate import Candidate

    known = Listed(network.candidate, str(network.file), network.bytes, licence=network.licence)
    if not network.candidate:
        return replace(known, note=UNKNOWN)
    if not size or find_spec("torch") is None:
        return known
    try:
        candidate = Candidate.of(network.candidate)
        model = model_spec(ModelSection(**candidate.model({}, file)), file)
        from tuner_choose.torch.sizes import sizes

        parameters, flops = sizes(model, candidate.side(file) or size)
    except TunerError as error:
        return replace(known, note=str(error))
    return replace(known, parameters=parameters, flops=flops)


@contextmanager
def _offline() -> Iterator[None]:
    """Let no model be fetched, whatever the environment says."""
    before = os.environ.get(FETCH)
    os.environ[FETCH] = "0"
    try:
        yield
    finally:
        os.environ.pop(FETCH) if before is None else os.environ.update({FETCH: before})


def _table(found: list[Listed], size: int) -> "Table":
    from tuner.cli.text.screen import table_of
    from tuner.units import format_bytes

    titles = ["model", "parameters", f"FLOPs at {size} px", "size", "licence"]
    rows = [
        [
            one.candidate or "–",
            "–" if one.parameters is None else f"{one.parameters:,}",
            "–" if one.flops is None else f"{one.flops / 1e6:,.0f} M",
            format_bytes(one.bytes),
            one.licence,
        ]
        for one in found
    ]
    return table_of(titles, rows, whole=True)
