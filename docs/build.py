"""Build the site from the Markdown documents and the docstrings, and check every link, in it and in the documents.

``python docs/build.py [FOLDER]``; FOLDER is ``build/docs`` by default. Warnings are errors. It needs no network, and
neither do readers: a page that would load something from elsewhere is an error. It also writes ``docs/llms.txt``, the
list of pages for assistants, from the lists of the pages themselves; the site holds it, with the pages as Markdown.
"""
# ruff: noqa: INP001, T201 - a program: run by its path, and it prints

import argparse
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^- \[([^\]]+)\]\(([\w./-]+\.md)\): (.*)$", re.MULTILINE)
#: Sections of ``llms.txt``, each with the page, or the section of the index, that lists its pages.
LISTED = {
    "Start": "index.md",
    "Understand": "index.md",
    "Reference": "index.md",
    "Commands": "commands.md",
    "Background": "index.md",
    "Optional": "notes/README.md",  # by the convention, what may be left out where the context is short
}
#: Pages whose text other files hold.
STUBS = {"cli.md", "changelog.md", "security.md", "reference/index.md"}
#: What a page loads by itself, by tag: the attribute that names it.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


def main(arguments: Sequence[str]) -> int:
    """Build, check, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "docs")
    folder = parser.parse_args(arguments).folder
    (ROOT / "docs" / "llms.txt").write_text(llms_text(), encoding="utf-8")
    if build(folder) != 0:
        return 1
    for page in ("llms.txt", *(target for _, target, _ in ITEM.findall(llms_text()))):
        shutil.copy(ROOT / "docs" / page, folder / page)
    pages, documents = sorted(folder.rglob("*.html")), markdown_files()
    links = [*html_links(pages), *markdown_links(documents)]
    outside = sorted({target for _, target in links if "://" in target})
    inside = [(source, target) for source, target in links if "://" not in target]
    broken = [(source, target) for source, target in inside if not leads_somewhere(source, target)]
    fetched = [(page, target) for page in pages for target in read_page(page).loaded if "//" in target]
    for source, target in broken:
        print(f"broken link: {source}: {target}")
    for page, target in fetched:
        print(f"loaded from elsewhere: {page}: {target}")
    (folder / "external-links.txt").write_text("".join(f"{target}\n" for target in outside), encoding="utf-8")
    sources = f"{len(pages)} pages and {len(documents)} documents"
    print(f"{folder}: {sources} with {len(inside)} links, of which {len(broken)} are broken")
    print(f"{folder / 'external-links.txt'}: {len(outside)} addresses outside, not fetched")
    return 1 if broken or fetched else 0


def build(folder: Path) -> int:
    """Build the site into an empty folder, and return Sphinx's exit code."""
    from sphinx.cmd.build import build_main

    shutil.rmtree(folder, ignore_errors=True)
    between = folder.with_name(f"{folder.name}-doctrees")
    strict = ("--fresh-env", "--fail-on-warning", "--keep-going", "--quiet")
    return build_main([*strict, "-b", "html", "-d", str(between), str(ROOT / "docs"), str(folder)])


def llms_text() -> str:
    """Return ``docs/llms.txt`` (https://llmstxt.org): the project in a sentence, and each page in a line."""
    docs = ROOT / "docs"
    title, summary, more = (docs / "index.md").read_text(encoding="utf-8").split("\n\n")[:3]
    text = [title, f"> {' '.join(summary.split())}", " ".join(more.split())]
    for section, page in LISTED.items():
        content = (docs / page).read_text(encoding="utf-8")
        found = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", content, re.MULTILINE | re.DOTALL)
        folder = page.rpartition("/")[0] + "/" if "/" in page else ""
        items = [item for item in ITEM.findall(found[1] if found else content) if item[1] not in STUBS]
        text.append(
            "\n".join([f"## {section}", "", *(f"- [{name}]({folder}{target}): {line}" for name, target, line in items)])
        )
    return "\n\n".join(text) + "\n"


def markdown_files() -> list[Path]:
    """Return every Markdown document of the project."""
    return sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog").glob("*.md")])


def markdown_links(documents: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield (document, target) of every link and picture."""
    for path in documents:
        for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", path.read_text(encoding="utf-8"))):
            yield path, target


def html_links(pages: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield (page, target) of everything that a page links to or loads."""
    for path in pages:
        for target in (*read_page(path).links, *read_page(path).loaded):
            if not target.startswith(("data:", "mailto:")):
                yield path, target


def leads_somewhere(source: Path, target: str) -> bool:
    """Return whether a link's file exists and, if it names an anchor, has it."""
    name, _, anchor = target.partition("#")
    name, anchor = unquote(name.partition("?")[0]), unquote(anchor)
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
    """The links of a page, what it loads by itself, and what links to it may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        values = {name: value for name, value in attrs if value}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if values.get(LOADED.get(tag, "")):
            self.loaded.append(values[LOADED[tag]])
        self.anchors |= {values[name] for name in ("id", "name") if name in values}


@cache
def read_page(path: Path) -> Page:
    """Return a page, read once."""
    return Page(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
