"""Build the API reference from docstrings and check the links, in it and in the Markdown documents.

``python docs/build.py [FOLDER]``; FOLDER is ``build/docs`` by default. It needs no network.
"""
# ruff: noqa: INP001, T201 - a program: run by its path, and it prints

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pdoc
import pdoc.doc
import pdoc.render

ROOT = Path(__file__).parent.parent
#: What authors of plugins and programs that embed `tuner` import, and the types of what these return.
MODULES = (
    "tuner",
    "tuner.plugin",
    "tuner.runtime",
    "tuner.task",
    "tuner.testing",
    "tuner.backends.base",
    "tuner.events",
    "tuner.planner.device",
    "tuner.planner.memory.step",
    "tuner.results.folder",
    "tuner.results.records",
    "tuner.results.run",
    "tuner.store.store",
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Build, check, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "docs")
    folder = parser.parse_args(arguments).folder
    build(folder)
    pages, documents = sorted(folder.rglob("*.html")), markdown_files()
    links = [*html_links(pages), *markdown_links(documents)]
    broken = [(source, target) for source, target in links if not leads_somewhere(source, target)]
    for source, target in broken:
        print(f"broken link: {source}: {target}")
    sources = f"{len(pages)} pages and {len(documents)} documents"
    print(f"{folder}: {sources} with {len(links)} links, of which {len(broken)} are broken")
    return 1 if broken else 0


def build(folder: Path) -> None:
    """Write a page for each of `MODULES`, an index and a search index.

    Raises:
        AttributeError: A module offers a name that it does not have.
    """
    pdoc.render.configure(docformat="google", footer_text="tuner", show_source=False)
    modules = {name: pdoc.doc.Module(_with_lazy_names(import_module(name))) for name in MODULES}
    for name, module in modules.items():
        page = folder / f"{name.replace('.', '/')}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pdoc.render.html_module(module, modules), encoding="utf-8")
    (folder / "index.html").write_text(pdoc.render.html_index(modules), encoding="utf-8")
    (folder / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")


def _with_lazy_names(module: ModuleType) -> ModuleType:
    """Return the module with every name that it offers in its dictionary, where pdoc looks for them."""
    for name in getattr(module, "__all__", ()):
        setattr(module, name, getattr(module, name))
    return module


def markdown_files() -> list[Path]:
    """Return every Markdown document of the project."""
    return sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog").glob("*.md")])


def markdown_links(documents: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield (document, target) of every link within the project."""
    for path in documents:
        for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", path.read_text(encoding="utf-8"))):
            if "://" not in target:
                yield path, target


def html_links(pages: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield (page, target) of every link within the reference."""
    for path in pages:
        for target in read_page(path).links:
            if "://" not in target:
                yield path, target


def leads_somewhere(source: Path, target: str) -> bool:
    """Return whether a link's file exists and, if it names an anchor, has it."""
    name, _, anchor = target.partition("#")
    path = (source.parent / name).resolve() if name else source
    if not path.exists():
        return False
    if not anchor:
        return True
    return anchor in (read_page(path).anchors if path.suffix == ".html" else headings(path))


def headings(document: Path) -> set[str]:
    """Return the anchors of a Markdown document's headings, by the rule that GitHub follows."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


class Page(HTMLParser):
    """The links of a page, and what links to it may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        values = {name: value for name, value in attrs if value}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.anchors |= {values[name] for name in ("id", "name") if name in values}


@cache
def read_page(path: Path) -> Page:
    """Return a page, read once."""
    return Page(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
