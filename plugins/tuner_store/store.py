"""The feature store: list its files, clear it, and forget a task: only files that the user keeps hold its samples."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.bundle.format import FILE, Bundle
from tuner.bundle.info import TrainKind
from tuner.commands.bundles.rings import ring_folder
from tuner.distribution import offered
from tuner.errors import StoreError, TaskError, TunerError, first_line
from tuner.files import cache_place
from tuner.plugin.core import load_task
from tuner.plugin.load.calls import OverdueError, limited
from tuner.reading import kind_of
from tuner.search.processes.supervisor import LOADING_SECONDS
from tuner.store.calibrated import forget_calibrated
from tuner.store.store import STARTS, Store, open_store
from tuner.task import InputDefaults, Task
from tuner.task.data.readable import forget_readable
from tuner_store.held import (
    HeldSamples,
    clear_ring,
    complete,
    forget_rounds,
    held_by,
    noted_bundles,
    ring_folders,
    strip,
)

#: In the place of what a published model says of its inputs: nothing is decoded here.
ANY_INPUT = InputDefaults(1, 1, (0.0,), (1.0,))


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One record file of the feature store: its folder's name, cut, width of a code and engine, None of a damaged one.

    The time to compute a record again may be unknown; the last use is in seconds since the epoch.
    """

    file: str
    cut: str | None
    bits: int | None
    kind: str | None
    records: int
    bytes: int
    seconds_per_record: float | None
    last_used: float


def clear_store(folder: Path | None) -> int:
    """Delete features, scales, frozen blocks in int8, what exits begin with, and the engine's choice; return the bytes.

    Raises:
        StoreError: A run uses the store, or frozen blocks in int8.
    """
    store = open_store(folder)
    with store.alone():
        freed = forget_calibrated() + store.clear()  # the first may be refused
        with store.lock:
            for path in (path for name in ("scales", "kinds", STARTS) for path in (store.folder / name).glob("*")):
                freed += path.stat().st_size
                path.unlink()
    forget_readable()
    return freed


def store_files(folder: Path | None) -> list[StoreFile]:
    """Return the record files of the store, in the order of eviction."""
    files = []
    for one in open_store(folder).list() if folder or cache_place().exists() else ():  # only looking makes none
        cut, bits, kind = (one.key.cut, one.key.bits, one.key.kind) if one.key else (None, None, None)
        sizes = (one.records, one.bytes, one.seconds_per_record, one.last_used)
        files.append(StoreFile(one.path.name, cut, bits, kind, *sizes))
    return files


@dataclass(frozen=True, slots=True)
class ForgottenSamples:
    """What was removed of a task: feature records, in so many record files, and samples in rings; and what is left.

    Attributes:
        held: Bundles whose export holds features of the user's samples.
    """

    task: str
    records: int
    files: int
    samples: int
    held: tuple[HeldSamples, ...] = ()


def _loaded(task: str) -> Task:
    """Return the task; its own code has so long as elsewhere."""
    try:
        with limited(LOADING_SECONDS):
            # what cannot be decoded is forgotten too, and how inputs are prepared changes no sample's identity
            return load_task(task, look=False, defaults_of=lambda _: ANY_INPUT)
    except OverdueError:
        raise TaskError(f"{task}: loading it took longer than {LOADING_SECONDS:.0f} s: correct its code") from None


def forget(task: str, folder: Path | None = None, bundles: Sequence[Path] = ()) -> ForgottenSamples:
    """Remove the task's samples from every file of the store, overwriting their records, and from its bundles' rings.

    A file that becomes empty is removed, and so are all quantile scales, all frozen blocks in int8 and all that exits
    begin with: these are statistics of samples, and are computed again when needed. A sample counts as the task's own
    as long as its file exists unchanged: features of photos that were deleted or edited before are removed by `tuner
    store clear` only. A call that was killed is completed by the next one.

    Args:
        task: As for `tuner.run`; or the folder of a bundle, whose ring alone is then emptied. Its rounds hold features
            of these samples, but for those of exits: they are removed, and the bundle is in use as exported. Or
            what a plugin has kept samples of, such as a run without PyTorch, or the data of such runs.
        folder: Folder of the store; by default the user's own.
        bundles: Folders of bundles from which the features of the user's samples that were exported are removed too.

    Raises:
        TaskError: The task cannot be read, and without it its samples are not known.
        StoreError: A run uses the store, or frozen blocks in int8: it would store again what is removed.
    """
    for bundle in bundles:
        complete(bundle)
    if kind_of(Path(task) / FILE) == "file":
        samples = _forget_device(Path(task))
        return ForgottenSamples(Bundle.read(Path(task)).name, 0, 0, samples, _still_held([Path(task)], bundles))
    samples = sum(point.load()(task) for point in offered("tuner.forgetters").values())
    if samples and Path(task).is_dir() and not (Path(task) / "task.toml").exists():
        name = Path(task).resolve().name
        return ForgottenSamples(name, 0, 0, samples, _still_held(list(noted_bundles(name, task)), bundles))
    loaded = _loaded(task)
    forget_readable()
    ids = list[str]()
    for domain in (loaded.local, loaded.global_):
        for _, partition in domain.partitions() if domain is not None else ():
            for index in range(len(partition)):
                with suppress(TaskError):  # what cannot be read was never stored
                    ids.append(partition.sample_id(index))
    store = open_store(folder)
    with store.alone():
        forget_calibrated()
        records, files = _forget_records(store, ids)
    known, failed = list(noted_bundles(loaded.name, task)), list[str]()
    samples += sum(map(clear_ring, ring_folders(loaded.name)))
    for bundle in known:
        try:
            samples += _forget_device(bundle)
        except (OSError, TunerError) as error:
            failed.append(f"{bundle}: {first_line(error)}")
    if failed:
        raise StoreError(f"the rounds of {'; '.join(failed)}; all else was forgotten: correct that and call it again")
    return ForgottenSamples(loaded.name, records, files, samples, _still_held(known, bundles))


def _forget_device(bundle: Path) -> int:
    """Forget what a bundle has seen on this device; return the number of samples that were kept."""
    samples, train = clear_ring(ring_folder(bundle)), Bundle.read(bundle).info.train
    forget_rounds(bundle, keep=train is None or train.kind == TrainKind.EXITS)
    return samples


def _still_held(known: Sequence[Path], stripped: Sequence[Path]) -> tuple[HeldSamples, ...]:
    for bundle in stripped:
        _forget_device(bundle)  # its rounds are of a bundle that held them
        strip(bundle)
    held = map(held_by, dict.fromkeys([*known, *stripped]))
    return tuple(one for one in held if one.samples)


def _forget_records(store: Store, ids: Sequence[str]) -> tuple[int, int]:
    """Remove samples from a store; return the number of records, and of files that held them."""
    records = files = 0
    for stored in store.list():
        if stored.key is None:  # nobody can tell what it holds, nor use it
            store.evict(stored.path)
            continue
        with store.file(stored.key) as file:
            removed, is_empty = file.forget(ids), not len(file)
        records += removed
        files += bool(removed)
        if is_empty:
            store.evict(stored.path)  # its header holds scales: statistics of the same samples
    for name in ("scales", STARTS):
        for path in (store.folder / name).glob("*"):
            path.unlink()
    return records, files
