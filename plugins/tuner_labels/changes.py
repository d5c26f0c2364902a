"""Change the labels of a bundle where it runs: one is added, renamed, removed, or two are merged. Base package only.

Every change writes a new bundle, which names the bundle as it was as its parent.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from tuner.bundle.format import Bundle, successor
from tuner.errors import BundleError, TaskError, nearest
from tuner.reading import files_below, kind_of, kinds_of, same_form
from tuner.targets.base import SEPARATOR
from tuner_labels.draft import Draft, LabelChange, new_labels
from tuner_labels.solved import change_solved
from tuner_labels.tails import change_tail

#: A head of fewer labels decides nothing.
LEAST_LABELS = 2


def add_label(folder: Path, name: str, photos: Sequence[Path], out: Path | None = None) -> LabelChange:
    """Teach a bundle a new label from a few samples.

    Args:
        folder: Folder of a bundle that was exported with ``--trainable``.
        name: The new label.
        photos: Files of its samples, or folders of them.
        out: The new bundle's folder; `next_folder` where it is not given.

    Raises:
        TunerError: The bundle cannot learn a label here, or has it; a file cannot be read, or the folder exists.
    """
    bundle = _opened(folder)
    name = _new_name(bundle, name)
    rows = tuple((row,) for row in range(len(bundle.labels)))
    draft = Draft((*bundle.labels, name), (*rows, ()), len(bundle.labels))
    return _written(bundle, draft, out or next_folder(folder), _files(bundle, photos))


def remove_label(folder: Path, name: str, out: Path | None = None) -> LabelChange:
    """Take a label out of a bundle, with the samples that have no other; arguments and errors as for `add_label`."""
    bundle = _opened(folder)
    gone = _row_of(bundle, name)
    if len(bundle.labels) <= LEAST_LABELS:
        raise BundleError(f"{bundle.name} must keep {LEAST_LABELS} labels, but has {_listed(bundle)}: add one first")
    rows = [row for row in range(len(bundle.labels)) if row != gone]
    draft = Draft(tuple(bundle.labels[row] for row in rows), tuple((row,) for row in rows), len(bundle.labels))
    return _written(bundle, draft, out or next_folder(folder))


def merge_labels(folder: Path, first: str, second: str, name: str, out: Path | None = None) -> LabelChange:
    """Make one label of two, in the place of the first; arguments and errors as for `add_label`."""
    bundle = _opened(folder)
    pair = _row_of(bundle, first), _row_of(bundle, second)
    if len(set(pair)) < len(pair):
        raise BundleError(f"two labels are merged, but {first!r} was given twice: give another one")
    if len(bundle.labels) <= LEAST_LABELS:
        raise BundleError(f"{bundle.name} must keep {LEAST_LABELS} labels, but has {_listed(bundle)}: add one first")
    name = name if name in (first, second) else _new_name(bundle, name)
    rows = [(row,) if row != pair[0] else pair for row in range(len(bundle.labels)) if row != pair[1]]
    labels = tuple(name if len(olds) > 1 else bundle.labels[olds[0]] for olds in rows)
    return _written(bundle, Draft(labels, tuple(rows), len(bundle.labels)), out or next_folder(folder))


def rename_label(folder: Path, old: str, new: str, out: Path | None = None) -> LabelChange:
    """Give a label another name: of any bundle, as nothing is computed; arguments and errors as for `add_label`."""
    began, bundle, out = time.monotonic(), Bundle.open(folder), out or next_folder(folder)
    at = _row_of(bundle, old)
    labels = tuple(_new_name(bundle, new) if row == at else label for row, label in enumerate(bundle.labels))
    draft = Draft(labels, tuple((row,) for row in range(len(labels))), len(labels))
    with successor(bundle, out, {}, None, unknown=bundle.info.unknown, **new_labels(bundle, draft)):
        pass
    return LabelChange(str(out), bundle.name, labels, seconds=time.monotonic() - began)


def next_folder(folder: Path) -> Path:
    """Return the folder beside a bundle's with the next number: ``dogs-2`` of ``dogs``, ``dogs-3`` of ``dogs-2``."""
    folder = folder.absolute()
    stem, dash, number = folder.name.rpartition("-")
    numbered = bool(dash) and number.isdecimal()
    return folder.with_name(f"{stem}-{int(number) + 1}" if numbered else f"{folder.name}-2")


def _written(bundle: Bundle, draft: Draft, out: Path, photos: Sequence[Path] = ()) -> LabelChange:
    train = bundle.info.train
    is_solved = train is not None and train.is_solved
    return (change_solved if is_solved else change_tail)(bundle, draft, out, photos)


def _opened(folder: Path) -> Bundle:
    """Open a bundle whose labels can change."""
    bundle = Bundle.open(folder)
    numbers = f"{bundle.name} predicts numbers, which have no labels to change: give a bundle of classes"
    bundle.targets.need_classes(BundleError(numbers))
    if bundle.info.train is None:
        raise BundleError(f"{folder} cannot learn here: export it with `tuner export RUN OUT --trainable`")
    if bundle.exits:
        raise BundleError(
            f"{folder} has early exits, each with a head of its own: `tuner apply` trains them for other labels, or "
            "export a trial without exits"
        )
    return bundle


def _row_of(bundle: Bundle, label: str) -> int:
    if label not in bundle.labels:
        raise BundleError(
            f"{bundle.name} has no label {label!r}{nearest(label, bundle.labels)}: give one of {_listed(bundle)}"
        )
    return bundle.labels.index(label)


def _new_name(bundle: Bundle, name: str) -> str:
    name = same_form(name.strip())
    if not name or not name.isprintable() or SEPARATOR in name:
        raise BundleError(f"a label must be printable text without {SEPARATOR}, got {name!r:.40}: give another name")
    if name in bundle.labels:
        raise BundleError(
            f"{bundle.name} has a label {name!r} already: `tuner watch` teaches it more photos, or give another name"
        )
    return name


def _listed(bundle: Bundle, most: int = 20) -> str:
    more = f", … ({len(bundle.labels)} in all)" if len(bundle.labels) > most else ""
    return ", ".join(bundle.labels[:most]) + more


def _files(bundle: Bundle, photos: Sequence[Path]) -> list[Path]:
    """Return the files of samples, those in folders included."""
    found, suffixes = list[Path](), bundle.kind.suffixes
    for path in photos:
        if kind_of(path) != "folder":
            found.append(path)
            continue
        there = list(files_below(path))
        own = [file for file in there if file.suffix.lower() in suffixes]
        if not own:
            held = f", but {kinds_of(there)}" if there else ""
            raise TaskError(f"{path}: no file of the model's kind ({', '.join(sorted(suffixes))}) in it{held}")
        found += own
    if not found:
        raise TaskError("a new label is learned from samples, but none were given: give some ten files, or a folder")
    return found
