"""The command ``tuner check``."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.options import Json, Memory, Out, Time, document, print_line

if TYPE_CHECKING:
    import numpy as np

    from tuner_check.findings import Findings

#: Samples that are listed; --out has all. Further samples whose gain is estimated.
LISTED, MORE = 20, 20


def check(
    task: str,
    /,
    *,
    more: int = MORE,
    out: Out = None,
    time: Time = None,
    memory: Memory = None,
    json_output: Json = False,
) -> None:
    """List local samples whose label may be wrong, and what more samples of each class would bring.

    Parameters
    ----------
    task
        As for tuner run.
    more
        Number of further samples of a class to estimate the gain of.
    out
        File to write all of these samples to, as a table with commas; it must not exist.
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.limits import CommandLimits
    from tuner.errors import UsageError
    from tuner_check import findings

    if more < 1:
        raise UsageError(f"--more must be at least 1, got {more}")
    limits = CommandLimits.read(time, memory)
    with ended_by(limits.end):
        found = findings.check(task, more, limits)
    if out is not None:
        findings.write_suspects(found.suspects, out)
    if json_output:
        print_line(document("check-1", found.to_dict()))
        return
    for line in lines(found, out):
        print_line(line)


def lines_of(
    features: "np.ndarray[Any, Any]", labels: "np.ndarray[Any, Any]", files: Sequence[str], names: Sequence[str]
) -> Iterator[str]:
    """Return what is found in samples, for people: an entry point of the group ``tuner.findings``.

    Args:
        features: float [n, features].
        labels: Rows of `names`, int64 [n].
        files: Of each sample.
        names: Of the classes.

    Raises:
        TaskError: There are fewer than two classes.
    """
    from tuner_check.findings import findings_of

    return lines(findings_of(features, labels, files, names, MORE), has_out=False)


def lines(found: "Findings", out: Path | None = None, *, has_out: bool = True) -> Iterator[str]:
    """Return findings for people; where the command `has_out`, how to get all of them."""
    from tuner.metrics import percent
    from tuner.printable import printable

    count, total = len(found.suspects), found.samples
    if count:
        expected = max(1, round(found.wrong))
        yield (
            f"Of {total:,} samples, {count} may have a wrong label, and up to about {expected} of these "
            f"{'is' if expected == 1 else 'are'} expected to be wrong. The likeliest first:"
        )
    else:
        yield f"Of {total:,} samples, none has a label that the others contradict."
    for suspect in found.suspects[:LISTED]:
        yield (
            f"  {printable(suspect.file)}: labelled {printable(suspect.label)}, wrong with {percent(suspect.wrong)}: "
            f"more like {printable(suspect.instead)}"
        )
    if out is not None:
        yield f"  all are in {printable(str(out))}"
    elif count > LISTED:
        yield f"  and {count - LISTED} more{': --out FILE has all' if has_out else ''}"
    yield f"A linear head on the given model's features finds {100 * found.found:.0f} % of a class in the mean."
    for one in found.classes:
        gain = "too few to tell" if one.gain is None else one.gain.text()
        yield f"  {printable(one.label)}: {one.samples} samples, {100 * one.found:.0f} % found; {gain}"
    if found.gain is not None:
        yield f"  every class: {found.gain.text()}"
