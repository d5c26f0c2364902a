"""The command ``tuner plugins search``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, document, print_line

if TYPE_CHECKING:
    from tuner_gallery.index import Measured
    from tuner_gallery.search import FoundPlugin


def search(
    *words: str,
    index: Annotated[tuple[Path, ...], Parameter(name="--index", negative=())] = (),
    json_output: Json = False,
) -> None:
    """Search installed plugins, the cookbook's methods and given indexes; nothing is fetched.

    Parameters
    ----------
    words
        Show plugins that match all of these words; without words, all plugins.
    index
        Index that lists plugins, a JSON or TOML file; may be given several times.
    """
    from tuner_gallery.search import search as found_by

    found = found_by(words, index)
    if json_output:
        listed = [{**asdict(one.entry), "installed": one.installed, "index": one.index} for one in found]
        print_line(document("plugins-search-1", {"plugins": listed}))
        return
    for one in found:
        print_line(_as_text(one))
    if not found:
        print_line(
            f"no plugin matches {' and '.join(map(repr, words))}: try other words, or add an index (--index FILE)"
        )


def _as_text(found: "FoundPlugin") -> str:
    entry, state = found.entry, found.installed or f"not installed, from {found.index}"
    about = [entry.summary, ", ".join(entry.adds)]
    if entry.measured:
        about.append(f"local / global accuracy (against fine-tuning): {', '.join(map(_row, entry.measured))}")
    about += [] if found.installed else [entry.install]
    about += [", ".join(filter(None, (entry.license, entry.address)))]
    return "\n".join((f"{entry.name} ({state})", *(f"  {line}" for line in about if line)))


def _row(row: "Measured") -> str:
    scores = [row.local_accuracy, *([] if row.global_accuracy is None else [row.global_accuracy])]
    points = "" if row.points is None else f", {row.points:+.1f} points"
    seeds = f"{row.seeds} seed{'' if row.seeds == 1 else 's'}"
    return f"{row.task} {' / '.join(f'{100 * score:.1f}' for score in scores)} % ({seeds}{points})"
