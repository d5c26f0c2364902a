"""The text of a task file for a user's data: every value with the reason for it, for a person to change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from tuner.errors import TaskError
from tuner.printable import printable
from tuner.reading import text_from
from tuner_init.layout import DataPlaces
from tuner_init.survey import Survey

MOST_NAMED = 30  # classes in a comment
COLUMNS = 100
UNBROKEN = "\u00a0"  # a space at which no line is broken
#: What `tuner.task.file.variables` would replace.
VARIABLE = "${"
TEMPLATE = """\
# Written by `tuner init`. Every key is described in docs/tasks.md.
{name}

[model]
{about}
{model}

[local]                 # your {noun}{how}{comments}
{kind}
{train}
{val}
{test}

{known}

[input]{input_note}
{input}{sessions}{skip}
[augment]               # random changes that keep a label; leave out those that would change it
{ops}
"""
OWN_MODEL = """\
# A function that builds a torch.nn.Module, from a batch to [n, classes], and a file of its weights (a
# state_dict). It need not know your classes: each new one gets a row in the last layer. Another one:
# "torchvision.models:resnet18" and weights = "IMAGENET1K_V1", which torchvision fetches once; or a
# function of yours: "net.py:build" and weights = "net.pth"."""
PROPOSAL = "# Or let tuner run choose, by a pass of each over your photos; these are on this machine, NAME@SIZE:"
SCRATCH = """\
# A small network that nothing was learned with yet: it is trained from the beginning. A network that
# knows similar data does better: an ONNX file, or "net.py:build" and weights = "net.pth"."""
FILE = "# The ONNX file is the whole model; its last layer gets a row for each new class."
IMAGENET = "                 # mean and std: those that the model was trained with; these are ImageNet's"
PUBLISHED = "                 # size, mean and std are in the model's own configuration"
HELD_OUT = "# without val, about a fifth of each class is held out to validate with, the same one in every run"
NO_TEST = '# test = "mine/test"  # scored once, at export: the honest accuracy'
GLOBAL = "[global]                # data that the model knows already: how much of it it forgets is measured"
NO_GLOBAL = """\
# Data of classes that the model knows already: tuner then measures what it forgets, and can mix some
# of it in.
# [global]
# kind = "{kind}"
# train = "known/train"           # a folder for each class, as above
# classes = "known/classes.tsv"   # the row of each of these classes in the model's last layer"""
NO_CLASSES = "# no classes file: the first class by name has row 0 of the model's last layer, and so on"
SESSIONS = 'recording = "exif"      # photos of the same minute stay on one side, in train or in validation'
SKIP = "skip_unreadable = true  # files that cannot be read are left out"


@dataclass(frozen=True, slots=True)
class Draft:
    """What a task file is to say.

    Attributes:
        name: Name of the task.
        model: Keys of ``[model]``.
        local: User's data.
        input: Keys of ``[input]``; none of those that are in the model's own configuration.
        ops: Random changes that keep a label.
        global_: Data of classes that the model knows; None for none.
        classes: File that gives the row of each of these classes in the model's head.
        noun: Word for the samples.
        candidates: Networks on this machine that a run may choose among.
        known: Sentence on what the model has learned already; empty for nothing.
    """

    name: str
    model: Mapping[str, Any]
    local: DataPlaces
    input: Mapping[str, Any]
    ops: tuple[str, ...] = ()
    global_: DataPlaces | None = None
    classes: Path | None = None
    noun: str = "photos"
    candidates: tuple[str, ...] = ()
    known: str = ""

    def text(self, file: Path, survey: Survey | None = None) -> str:
        """Return the content of the task file.

        Args:
            file: Absolute path that it is to have.
            survey: What was found in the data, for the comments; None while nobody has looked, and then files that
                cannot be read are left out.

        Raises:
            TaskError: A path cannot be written into a task file.
        """
        local, model = self.local, dict(self.model)
        count = len(survey.unreadable) if survey else 0
        is_images, is_file = local.kind == "images", "factory" not in model
        scratch = "weights" not in model and str(model.get("factory", "")).startswith("tuner")
        if "weights" in model:
            model["weights"] = _path(Path(model["weights"]), file) if is_file else model["weights"]
        note = "" if not is_images else IMAGENET if self.input else PUBLISHED
        sessions = is_images and (survey is None or survey.sessions[0])
        return TEMPLATE.format(
            name=_pair("name", self.name),
            about=FILE if is_file else _comment(self.known) if self.known else SCRATCH if scratch else OWN_MODEL,
            model="\n".join((*(_pair(key, value) for key, value in model.items()), *self._proposal())),
            noun=self.noun,
            how=": a folder for each class" if "." not in local.train.name else "",
            comments="".join(f"\n{line}" for line in _class_comments(survey, self.noun)),
            kind=_pair("kind", local.kind),
            train=_pair("train", _path(local.train, file)),
            val=_pair("val", _path(local.val, file)) if local.val else HELD_OUT,
            test=_pair("test", _path(local.test, file)) if local.test else NO_TEST,
            known=self._global(file),
            input_note=note,
            input="".join(f"{_pair(key, value)}\n" for key, value in self.input.items()),
            sessions=f"{SESSIONS}\n" if sessions else "",
            skip=f"{SKIP}: {count} now\n" if survey is None or survey.unreadable else "",
            ops=_pair("ops", list(self.ops)),
        )

    def _proposal(self) -> Iterator[str]:
        if self.candidates:
            yield PROPOSAL
            yield f"# {_pair('candidates', list(self.candidates))}"

    def _global(self, file: Path) -> str:
        if self.global_ is None:
            return NO_GLOBAL.format(kind=self.local.kind)
        folders = {"train": self.global_.train, "val": self.global_.val, "test": self.global_.test}
        lines = [_pair(key, _path(folder, file)) for key, folder in folders.items() if folder is not None]
        lines.append(_pair("classes", _path(self.classes, file)) if self.classes else NO_CLASSES)
        return "\n".join([GLOBAL, _pair("kind", self.local.kind), *lines])


def _class_comments(survey: Survey | None, noun: str) -> tuple[str, ...]:
    if survey is None:
        return ()
    counts = [f"{printable(count.name)}{UNBROKEN}{count.train:,}" for count in survey.classes[:MOST_NAMED]]
    more = len(survey.classes) - MOST_NAMED
    listed = ", ".join((*counts, *((f"and {more} more",) if more > 0 else ())))
    train, val = sum(count.train for count in survey.classes), sum(count.val for count in survey.classes)
    text = f"{train:,} {noun} to train on and {val:,} to validate with. To train on: {listed}"
    return tuple(line.replace(UNBROKEN, " ") for line in _comment(text).splitlines())


def _comment(text: str) -> str:
    return "\n".join(wrap(text, COLUMNS, initial_indent="# ", subsequent_indent="# ", break_long_words=False))


def _pair(key: str, value: Any) -> str:
    """Return a line of TOML; a table is written in the line."""
    import tomli_w

    if isinstance(value, Mapping):
        return f"{key} = {{ {', '.join(_pair(name, each) for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"{key} = [{', '.join(_pair('_', each)[len('_ = ') :] for each in value)}]"
    return tomli_w.dumps({key: value}).rstrip("\n")


def _path(path: Path, file: Path) -> str:
    """Return a path as a task file has it: relative to the file where it is below the file's folder, else absolute."""
    whole = path.absolute()
    text = str(whole.relative_to(file.parent)) if whole.is_relative_to(file.parent) else str(whole)
    if text != text_from(text) or VARIABLE in text:
        rule = "its name holds ${" if VARIABLE in text else "its name is not UTF-8"
        raise TaskError(f"{path} cannot be written into a task file, as {rule}: rename the folder")
    return text
