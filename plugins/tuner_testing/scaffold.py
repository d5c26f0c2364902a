"""Write the package of a new plugin. What a kind of plugin consists of is one file in ``templates/``."""

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from tuner.errors import PluginError, UsageError, nearest
from tuner.plugin.core import build_host
from tuner.reading import kind_of

#: The files that every package has.
COMMON = "common"
MOST_LETTERS = 64  # of a plugin's name
#: A line of a template, after which a file's content stands.
FILE = re.compile(r"^==> (.+) <==\n", re.MULTILINE)


def kinds() -> list[str]:
    """Return the kinds of plugins that there is a template of."""
    names = (path.name for path in files("tuner_testing").joinpath("templates").iterdir())
    return sorted(name.removesuffix(".txt") for name in names if name != f"{COMMON}.txt")


def write_package(name: str, kind: str, folder: Path) -> tuple[Path, list[str]]:
    """Write the package of a plugin that works as it is into a folder, which must be empty or not exist yet.

    Returns:
        The folder, and the files in it.

    Raises:
        PluginError: The name is not one that a plugin can have or is taken, or the folder is in use.
    """
    if kind not in kinds():
        raise UsageError(f"--kind must be one of {', '.join(kinds())}, got {kind!r}{nearest(kind, kinds())}")
    if not re.fullmatch(rf"[a-z][a-z0-9_-]{{0,{MOST_LETTERS - 1}}}", name):
        raise PluginError(
            f"a plugin's name must be lower-case letters, digits, _ and -, at most {MOST_LETTERS}, got {name!r}: "
            "give another one"
        )
    name = name.replace("-", "_")
    host = build_host()
    plugins = {plugin.name.replace("-", "_") for plugin in host.plugins}
    for registered in (host.strategies, host.backends, host.tasks, plugins):
        if name in registered:
            raise PluginError(f"the name {name!r} is taken by what is installed: give another one")
    if kind_of(folder) != "nothing" and (kind_of(folder) != "folder" or any(folder.iterdir())):
        raise PluginError(f"{folder} is not empty: give another folder with --out")
    words = {"name": name, "kind": kind, "module": f"tuner_{name}", "Class": name.title().replace("_", "")}
    written = {Template(path).substitute(words): Template(text).substitute(words) for path, text in _template(kind)}
    for path, text in written.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder, sorted(written)


def _template(kind: str) -> list[tuple[str, str]]:
    """Return the paths and contents of a kind's files, with the words to fill in."""
    pairs: list[tuple[str, str]] = []
    for name in (COMMON, kind):
        text = files("tuner_testing").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")
        _, *parts = FILE.split(text)
        pairs += zip(parts[::2], parts[1::2], strict=True)
    return pairs
