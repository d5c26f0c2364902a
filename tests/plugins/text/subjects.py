"""Texts that come with Python: what its own documentation says of functions and classes, by subject."""

import csv
import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path

MODULES = {
    "network": ("http.client", "urllib.request", "smtplib", "ftplib", "imaplib", "socket"),
    "files": ("os.path", "shutil", "pathlib", "tempfile", "zipfile", "tarfile"),
    "numbers": ("cmath", "decimal", "fractions", "math", "random", "statistics"),
    "words": ("codecs", "difflib", "html", "re", "string", "textwrap"),
}
LEAST = 60  # letters


def texts(subject: str, most: int) -> list[str]:
    """Return the documentation of a subject's functions, classes and methods, each in one line."""
    found: dict[str, None] = {}
    for module in map(importlib.import_module, MODULES[subject]):
        own = [one for name, one in sorted(vars(module).items()) if not name.startswith("_")]
        methods = [method for one in own if inspect.isclass(one) for _, method in sorted(vars(one).items())]
        for one in filter(inspect.isroutine, own + methods):
            text = " ".join((inspect.getdoc(one) or "").split())
            if len(text) >= LEAST:
                found.setdefault(text)
    return list(found)[:most]


def write_folders(folder: Path, subjects: Sequence[str], most: int) -> None:
    """Write a file for each text, in a folder for each subject."""
    for subject in subjects:
        (folder / subject).mkdir(parents=True)
        for number, text in enumerate(texts(subject, most)):
            (folder / subject / f"{number}.txt").write_text(text, encoding="utf-8")


def write_table(file: Path, subjects: Sequence[str], most: int) -> None:
    """Write a CSV of all texts with their subjects."""
    with file.open("w", encoding="utf-8", newline="") as target:
        rows = csv.writer(target)
        rows.writerow(("text", "label"))
        rows.writerows((text, subject) for subject in subjects for text in texts(subject, most))
