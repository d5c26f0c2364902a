"""Local labels and the model's: a proposed map, for the user to edit; and the samples that speak against a map."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tuner.arrays import Doubles
from tuner.commands.limits import NO_LIMITS, CommandLimits
from tuner.errors import TaskError
from tuner.files import write_private
from tuner.plugin.core import build_host
from tuner.printable import printable
from tuner.reading import expanded, kind_of, text_from
from tuner.search.processes.remote import open_remote
from tuner.targets.strata import presence
from tuner.task import Task
from tuner.task.data.samples import wholes
from tuner.task.file.reconcile import LOCAL
from tuner.task.file.toml import task_from_toml
from tuner_labels.names import likeness

Evidence = Literal["names", "model", "both"]
#: Labels that are proposed for a local one, example files of each, and samples that speak against a map.
PROPOSED, EXAMPLES, SHOWN = 3, 3, 10


@dataclass(frozen=True, slots=True)
class Proposal:
    """A label of the model that a local one may mean.

    Attributes:
        label: The model's label.
        score: What it is ordered by: the mean of what is known of the two that follow.
        by_name: How alike the names are, from 0 to 1; None where names are not asked for.
        by_model: How much more probable than on all local samples the model finds it, from -1 to 1; None likewise.
    """

    label: str
    score: float
    by_name: float | None
    by_model: float | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a local label may mean.

    Attributes:
        label: The local label.
        proposals: The model's labels, the best first.
        examples: Files of the local label: those that the model is surest of the first proposal.
    """

    label: str
    proposals: tuple[Proposal, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A local sample whose mapped labels the model does not find in it.

    Attributes:
        file: The file.
        label: Its label that the model finds least probable.
        probability: Of that label.
        instead: The model's most probable label.
        instead_probability: Of that one.
    """

    file: str
    label: str
    probability: float
    instead: str
    instead_probability: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON's types."""
        return asdict(self)


def suggest_labels(task: str, by: Evidence = "both", limits: CommandLimits = NO_LIMITS) -> tuple[Suggestion, ...]:
    """Propose labels of the model for each local label; nothing is changed.

    Args:
        task: A ``task.toml`` or its folder, with [global].
        by: What the proposals are made from.
        limits: What the command may take.

    Raises:
        TunerError: The task or its model cannot be used, or has no global labels.
    """
    opened = task_from_toml(_task_file(task), mapped=False)
    known = opened.labels[: len(opened.head_rows)]
    if not known or not opened.own_classes:
        raise TaskError(f"{task} has no labels to map onto each other: it needs [global], and local data with labels")
    found = None if by == "names" else _probabilities(opened, limits)
    files, places = wholes(opened.local.train)
    has = _has(opened)[np.unique(places, return_index=True)[1]]  # bool [files, labels]
    return tuple(
        _suggestion(
            opened.labels[row].removesuffix(LOCAL), known, [files[at] for at in np.flatnonzero(has[:, row])], rows, by
        )
        for row in opened.local_labels
        if has[:, row].any()
        for rows in [_evidence(found, has[:, row])]
    )


def contradictions(task: str, limits: CommandLimits = NO_LIMITS) -> tuple[Contradiction, ...]:
    """Return the local training samples whose labels the given model contradicts most, at most `SHOWN`.

    Labels that the model does not know do not count.

    Args:
        task: A ``task.toml`` or its folder, with [global].
        limits: What the command may take.

    Raises:
        TunerError: The task or its model cannot be used.
    """
    opened = task_from_toml(_task_file(task))
    known = opened.labels[: len(opened.head_rows)]
    if not known or not opened.own_classes:
        raise TaskError(f"{task} has no labels that the model could contradict: it needs [global], and local labels")
    found = _probabilities(opened, limits)
    files, places = wholes(opened.local.train)
    has = _has(opened)[np.unique(places, return_index=True)[1], : len(known)]
    own = np.where(has, found, np.inf)
    order = [at for at in np.argsort(own.min(axis=1), kind="stable") if has[at].any()]
    return tuple(
        Contradiction(
            text_from(files[at]),
            known[int(own[at].argmin())],
            float(own[at].min()),
            known[int(found[at].argmax())],
            float(found[at].max()),
        )
        for at in order[:SHOWN]
    )


def write_suggestions(suggestions: Sequence[Suggestion], out: Path) -> None:
    """Write the first proposals as a file that ``[labels] map`` takes, with the others as comments.

    Raises:
        TaskError: The file exists.
    """
    if kind_of(out) != "nothing":
        raise TaskError(f"{out} exists: give another file, or remove it")
    lines = ["# Proposed, not applied: edit this file, then set map in the section [labels] of the task to its name."]
    for suggestion in suggestions:
        lines += [f"# {printable(format_proposal(proposal))}" for proposal in suggestion.proposals]
        lines += [f"#   {printable(file)}" for file in suggestion.examples]
        line = f"{suggestion.label}\t{suggestion.proposals[0].label}"
        unfit = not line.replace("\t", "", 1).isprintable() or line.startswith("#") or "|" in line
        lines.append(f"# write this one into the task file: {printable(line)}" if unfit else line)
    write_private(out, "\n".join([*lines, ""]))


def format_proposal(proposal: Proposal) -> str:
    """Return a proposal in words: ``Bark: 0.81 (names 0.79, model 0.83)``."""
    parts = (("names", proposal.by_name), ("model", proposal.by_model))
    evidence = ", ".join(f"{name} {value:.2f}" for name, value in parts if value is not None)
    return f"{proposal.label}: {proposal.score:.2f} ({evidence})"


def _task_file(task: str) -> Path:
    path = expanded(task).absolute()
    path = path / "task.toml" if kind_of(path) == "folder" else path
    if path.suffix != ".toml" or kind_of(path) != "file":
        raise TaskError(f"{task}: labels are mapped in a task file: give a task.toml, or its folder")
    return path


def _probabilities(task: Task, limits: CommandLimits) -> Doubles:
    """Return the given model's probabilities of its labels for each local file, float64 [files, labels]."""
    host = build_host(end=limits.end)
    name = next(iter(host.backends))
    with open_remote(host, task, [name], kill_at=limits.end, memory_bytes=limits.memory_bytes) as sessions:
        return np.array(sessions[name].ask("probabilities", partition="local.train"))


def _has(task: Task) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which labels the local training samples have, bool [n, labels]."""
    return presence(task.local.train.labels, np.arange(len(task.labels)))


def _evidence(found: Doubles | None, own: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[Doubles, Doubles] | None:
    """Return how much more probable each label is on a label's own files, and its probabilities on them."""
    return None if found is None else (found[own].mean(axis=0) - found.mean(axis=0), found[own])


def _suggestion(
    label: str, known: Sequence[str], files: Sequence[str], evidence: tuple[Doubles, Doubles] | None, by: Evidence
) -> Suggestion:
    names = None if by == "model" else [likeness(label, other) for other in known]
    gains = None if evidence is None else evidence[0].tolist()
    proposals = []
    for row, other in enumerate(known):
        by_name, by_model = (None if values is None else float(values[row]) for values in (names, gains))
        parts = [value for value in (by_name, by_model) if value is not None]
        proposals.append(Proposal(other, sum(parts) / len(parts), by_name, by_model))
    best = sorted(proposals, key=lambda proposal: -proposal.score)[:PROPOSED]
    order = range(len(files))
    if evidence is not None:
        order = np.argsort(-evidence[1][:, known.index(best[0].label)], kind="stable").tolist()
    return Suggestion(label, tuple(best), tuple(text_from(files[at]) for at in list(order)[:EXAMPLES]))
