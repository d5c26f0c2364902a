"""What a command looks at: the folder of a run, or a study that several workers share."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tuner.errors import UsageError
from tuner.plugin.core import build_host
from tuner.plugin.studies import StudyReader
from tuner.reading import is_address
from tuner.results.run import Run
from tuner.results.views.pick import pick_trial


@contextmanager
def run_folder(place: str | Path) -> Iterator[Path]:
    """Give the folder of a run; of the address of a shared study, a copy that is removed with the block."""
    if not is_address(place):
        yield Path(place)
        return
    with study_reader(str(place)) as reader, tempfile.TemporaryDirectory(prefix="tuner-study-") as folder:
        reader.write(Path(folder))
        yield Path(folder)


def open_run(place: str | Path, kind: str = "") -> Run:
    """Read a run's folder, or a shared study by its address, of which no weights are here; see `Run.open`."""
    with run_folder(place) as folder:
        return Run.open(folder, kind=kind)


@contextmanager
def run_to_export(place: str, pick: str, artifacts: str | Path | None) -> Iterator[Run]:
    """Give a run with the weights of the trial that is picked; of a shared study, copies until the end of the block.

    The artifacts are the folder or bucket where the workers of a study put weights.

    Raises:
        UsageError: It is a study, and the artifacts are not given; or the other way round.
    """
    if not is_address(place):
        if artifacts is not None:
            raise UsageError(f"--artifacts is for the address of a study, got the folder {place}: leave it out")
        yield Run.open(place)
        return
    if artifacts is None:
        raise UsageError("a study is exported with --artifacts, where its workers put weights: give it")
    opener = build_host().study(place)
    opener.check(place, artifacts)
    with opener.read(place) as reader, tempfile.TemporaryDirectory(prefix="tuner-study-") as name:
        folder = Path(name)
        reader.write(folder)
        run = Run.open(folder)
        reader.fetch(pick_trial(run, pick).trial, artifacts, folder)
        yield run


def study_reader(address: str) -> AbstractContextManager[StudyReader]:
    """Open a study that several workers share, for the length of a block."""
    return build_host().study(address).read(address)


def shown_place(place: str) -> str:
    """Return a run's folder, or the address of a study, as it may be shown: without a password."""
    return build_host().study(place).check(place) if is_address(place) else place
