"""How Sphinx builds the site from these documents; `docs/build.py` runs it.

What other files know is added while a page is read: the command line's own help to `cli`, the fragments to `changelog`,
`SECURITY.md` to `security`, and to a page that lists others the table of contents that its links make.
"""
# ruff: noqa: INP001 - Sphinx reads this file by its path

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx


ROOT = Path(__file__).parent.parent

project = "tuner"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["README.md"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "tuner"
html_copy_source = False
html_show_copyright = False
pygments_style, pygments_dark_style = "friendly", "github-dark"

default_role = "py:obj"  # `Name` in a docstring links to what has that name
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_ivar = True
maximum_signature_line_length = 80
python_use_unqualified_type_names = True

#: Documents outside of this folder, and the pages that have their text.
MOVED = {"README.md": "index.md", "SECURITY.md": "security.md"}
#: Pages that list others: their links are the table of contents at the side.
LISTS = ("index", "commands", "notes/README", "reference/index")
LINK = re.compile(r"\]\((?P<up>(?:\.\./)+)(?P<name>README\.md|SECURITY\.md)(?:#[\w-]+)?\)")
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
PAGE = re.compile(r"^(?:- |\| )\[[^\]]*\]\((?!\.\.|https?:)([\w./-]+)\.(?:md|rst)\)", re.MULTILINE)


def completed(page: str, text: str) -> str:
    """Return a page's text with what other files add to it."""
    text = LINK.sub(lambda link: f"]({link['up'][3:]}{MOVED[link['name']]})", text)
    if page in LISTS:
        text += contents(text)
    if page == "cli":
        text += command_line()
    if page == "changelog":
        text += "\n\n".join(change(path) for path in sorted((ROOT / "changelog").glob("0*.md"), reverse=True))
    if page == "security":
        text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    return text


def contents(text: str) -> str:
    """Return a hidden table of contents for each section of a page, or for a page without sections."""
    parts = SECTION.split(text)
    sections = [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]
    return "".join(
        "\n".join(
            ["", ":::{toctree}", ":hidden:", f":caption: {title}" if title else ":maxdepth: 1", "", *pages, ":::", ""]
        )
        for title, body in sections
        if (pages := PAGE.findall(body))
    )


def command_line() -> str:
    """Return every command and its options as cyclopts documents them, in the order of the alphabet."""
    from tuner.cli.app import add_commands, app

    add_commands()
    text = app.generate_docs(output_format="markdown").replace("```console", "```text")
    return "\n".join(f"\n## {section}" for section in sorted(text.split("\n## ")[1:]) if section.startswith("tuner "))


def change(path: Path) -> str:
    """Return a fragment of the changelog under its name."""
    number, _, name = path.stem.partition("-")
    return f"## {number} {name.replace('-', ' ')}\n\n{path.read_text(encoding='utf-8')}"


def setup(app: "Sphinx") -> None:
    """Complete pages while they are read; import names that modules offer lazily, so that autodoc sees them."""
    for module in map(import_module, ("tuner", "tuner.runtime", "tuner_testing")):
        for name in module.__all__:
            setattr(module, name, getattr(module, name))

    def complete(_: "Sphinx", page: str, source: list[str]) -> None:
        source[0] = completed(page, source[0])

    app.connect("source-read", complete)
