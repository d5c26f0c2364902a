"""The classes of a task by name, as a run keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.task.info import TaskOutline

#: As many names as a sentence lists, and as many letters.
MOST_NAMES, MOST_LETTERS = 4, 40


@dataclass(frozen=True, slots=True)
class Classes:
    """Names of the classes: `labels` by the rows of the union head, and which of them are whose.

    Attributes:
        local: Rows that occur in the local data.
        known: Number of rows that the given model knew: the first ones.
    """

    labels: tuple[str, ...] = ()
    local: tuple[int, ...] = ()
    known: int = 0

    @classmethod
    def of(cls, task: TaskOutline) -> "Classes":
        """Return the classes of a task."""
        return cls(task.labels, task.local_labels, task.known)

    @property
    def are_new(self) -> bool:
        """Whether the given model knew none of the local classes."""
        return bool(self.local) and min(self.local) >= self.known

    def names(self, rows: Sequence[int]) -> str:
        """Return the names of some classes as a range or a list; empty where they are too many for a sentence."""
        return listed([self.labels[row] for row in rows])

    @property
    def local_names(self) -> str:
        """The local classes for a sentence: ``7–9``, ``cups and plates``, ``the user's 10 classes``."""
        return self.names(self.local) or f"the user's {len(self.local)} classes"


def listed(names: Sequence[str]) -> str:
    """Return names as a range or a list; empty where they are too many or too long for a sentence."""
    if len(names) > 2 and all(name.isdecimal() for name in names):  # noqa: PLR2004 - two are a list
        numbers = sorted(map(int, names))
        if numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"{numbers[0]}–{numbers[-1]}"
    text = " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
    return text if len(names) <= MOST_NAMES and len(text) <= MOST_LETTERS else ""
