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
TEMPLATE = f"""\
# Written by `tuner init`. Every key is described in docs/tasks.md.
{{name}}

[model]
# A function that builds a torch.nn.Module, from a batch of photos to [n, classes], and a file of its
# weights (a state_dict). It need not know your classes: each new one gets a row in the last layer.
# Another one: "torchvision.models:resnet18" and weights = "IMAGENET1K_V1", which torchvision fetches
# once; or a function of yours: "net.py:build" and weights = "net.pth".
{{factory}}
{{weights}}

[local]                 # your photos: a folder for each class{{comments}}
kind = "images"
{{train}}
{{val}}
{{test}}

{{known}}

[input]                 # mean and std: those that the model was trained with; these are ImageNet's
size = {SIZE}              # pixels; ImageNet's models were trained at 224, for twice the computation
mean = {MEAN}
std = {STD}
{{sessions}}{{skip}}
[augment]               # random changes that keep a photo's class
ops = ["flip", "crop", "shift"]   # leave out "flip" if left and right make a difference
"""
HELD_OUT = "# without val, about a fifth of each class is held out to validate with, the same one in every run"
NO_TEST = '# test = "photos/test"  # scored once, at export: the honest accuracy'
GLOBAL = """\
[global]                # classes that the model knows already: how much of them it forgets is measured
kind = "images\""""
NO_GLOBAL = """\
# Photos of classes that the model knows already: tuner then measures what it forgets, and can mix
# some of them in.
# [global]
# kind = "images"
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
        local = self.local
        count = len(survey.unreadable) if survey else 0
        return TEMPLATE.format(
            name=_pair("name", self.name),
            factory=_pair("factory", self.factory),
            weights=_pair("weights", self.weights) if self.weights else "# weights: the factory brings its own",
            comments="".join(f"\n{line}" for line in _class_comments(survey)),
            train=_pair("train", _path(local.train, file)),
            val=_pair("val", _path(local.val, file)) if local.val else HELD_OUT,
            test=_pair("test", _path(local.test, file)) if local.test else NO_TEST,
            known=self._global(file),
            sessions=f"{SESSIONS}\n" if survey is None or survey.sessions[0] else "",
            skip=f"{SKIP}: {count} now\n" if survey is None or survey.unreadable else "",
        )

    def _global(self, file: Path) -> str:
        if self.global_ is None:
            return NO_GLOBAL
        folders = {"train": self.global_.train, "val": self.global_.val, "test": self.global_.test}
        lines = [_pair(key, _path(folder, file)) for key, folder in folders.items() if folder is not None]
        lines.append(_pair("classes", _path(self.classes, file)) if self.classes else NO_CLASSES)
        return "\n".join([GLOBAL, *lines])


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
