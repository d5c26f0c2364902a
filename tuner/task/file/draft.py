"""The text of a task file for a folder of photos: every value with the reason for it, for a person to change."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from tuner.errors import TaskError
from tuner.printable import printable
from tuner.reading import text_from
from tuner.task.data.layout import PhotoFolders
from tuner.task.survey import Survey

#: Side of the square that the model sees, in pixels.
SIZE = 160
#: Of the colours of ImageNet's photos, which torchvision's models were trained with.
MEAN, STD = "[0.485, 0.456, 0.406]", "[0.229, 0.224, 0.225]"
MOST_NAMED = 30  # classes in a comment
COLUMNS = 100
UNBROKEN = "\u00a0"  # a space at which no line is broken
#: What `tuner.task.file.variables` would replace.
VARIABLE = "${"


@dataclass(frozen=True, slots=True)
class Draft:
    """What a task file is to say.

    Attributes:
        name: Name of the task.
        factory: Function that builds the model.
        weights: Its weights: a file or a name; None where the factory brings its own.
        local: User's photos.
        global_: Photos of classes that the model knows; None for none.
        classes: File that gives the row of each of these classes in the model's head.
    """

    name: str
    factory: str
    weights: str | None
    local: PhotoFolders
    global_: PhotoFolders | None = None
    classes: Path | None = None

    def text(self, file: Path, survey: Survey | None = None) -> str:
        """Return the content of the task file.

        Args:
            file: Absolute path that it is to have.
            survey: What was found in the photos, for the comments; None while nobody has looked, and then files that
                cannot be read are left out.

        Raises:
            TaskError: A path cannot be written into a task file.
        """
        return "\n".join(
            (
                "# Written by `tuner init`. Every key is described in docs/tasks.md.",
                _pair("name", self.name),
                *self._model(),
                *self._local(file, survey),
                *self._global(file),
                *_input(survey),
                "",
                "[augment]               # random changes that keep a photo's class",
                'ops = ["flip", "crop", "shift"]   # leave out "flip" if left and right make a difference',
                "",
            )
        )

    def _model(self) -> tuple[str, ...]:
        weights = "# weights: the factory brings its own" if self.weights is None else _pair("weights", self.weights)
        return (
            "",
            "[model]",
            "# A function that builds a torch.nn.Module, from a batch of photos to [n, classes], and a file of its",
            "# weights (a state_dict). It need not know your classes: each new one gets a row in the last layer.",
            '# Another one: "torchvision.models:resnet18" and weights = "IMAGENET1K_V1", which torchvision fetches',
            '# once; or a function of yours: "net.py:build" and weights = "net.pth".',
            _pair("factory", self.factory),
            weights,
        )

    def _local(self, file: Path, survey: Survey | None) -> tuple[str, ...]:
        lines = ["", "[local]                 # your photos: a folder for each class", *_class_comments(survey)]
        lines += ['kind = "images"', _pair("train", _path(self.local.train, file))]
        if self.local.val is None:
            lines.append("# without val, a fifth of each class is held out to validate with, the same one in every run")
        else:
            lines.append(_pair("val", _path(self.local.val, file)))
        if self.local.test is None:
            lines.append('# test = "photos/test"  # scored once, at export: the honest accuracy')
        else:
            lines.append(_pair("test", _path(self.local.test, file)))
        return tuple(lines)

    def _global(self, file: Path) -> tuple[str, ...]:
        if self.global_ is None:
            return (
                "",
                "# Photos of classes that the model knows already: tuner then measures what it forgets, and can mix",
                "# some of them in.",
                "# [global]",
                '# kind = "images"',
                '# train = "known/train"           # a folder for each class, as above',
                '# classes = "known/classes.tsv"   # the row of each of these classes in the model\'s last layer',
            )
        lines = [
            "",
            "[global]                # classes that the model knows already: how much of them it forgets is measured",
            'kind = "images"',
            _pair("train", _path(self.global_.train, file)),
        ]
        for key, folder in (("val", self.global_.val), ("test", self.global_.test)):
            if folder is not None:
                lines.append(_pair(key, _path(folder, file)))
        if self.classes is None:
            lines.append("# no classes file: the first class by name has row 0 of the model's last layer, and so on")
        else:
            lines.append(_pair("classes", _path(self.classes, file)))
        return tuple(lines)


def _class_comments(survey: Survey | None) -> tuple[str, ...]:
    if survey is None:
        return ()
    counts = [f"{printable(count.name)}{UNBROKEN}{count.train:,}" for count in survey.classes[:MOST_NAMED]]
    more = len(survey.classes) - MOST_NAMED
    listed = ", ".join((*counts, *((f"and {more} more",) if more > 0 else ())))
    train, val = sum(count.train for count in survey.classes), sum(count.val for count in survey.classes)
    text = f"{train:,} photos to train on and {val:,} to validate with. To train on: {listed}"
    lines = wrap(text, COLUMNS, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
    return tuple(line.replace(UNBROKEN, " ") for line in lines)


def _input(survey: Survey | None) -> tuple[str, ...]:
    lines = [
        "",
        "[input]                 # mean and std: those that the model was trained with; these are ImageNet's",
        f"size = {SIZE}              # pixels; ImageNet's models were trained at 224, for twice the computation",
        f"mean = {MEAN}",
        f"std = {STD}",
    ]
    if survey is None or survey.unreadable:
        count = len(survey.unreadable) if survey else 0
        lines.append(f"skip_unreadable = true  # files that cannot be read are left out: {count} now")
    return tuple(lines)


def _pair(key: str, value: str) -> str:
    import tomli_w

    return tomli_w.dumps({key: value}).rstrip("\n")


def _path(path: Path, file: Path) -> str:
    """Return a path as a task file has it: relative to the file where it is below the file's folder, else absolute."""
    whole = path.absolute()
    text = str(whole.relative_to(file.parent)) if whole.is_relative_to(file.parent) else str(whole)
    if text != text_from(text) or VARIABLE in text:
        rule = "its name holds ${" if VARIABLE in text else "its name is not UTF-8"
        raise TaskError(f"{path} cannot be written into a task file, as {rule}: rename the folder")
    return text
