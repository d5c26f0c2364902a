"""The browser's files are those that its sources make."""

import hashlib
from pathlib import Path

WEB = Path(__file__).parent.parent / "web"


def test_the_page_was_built_from_these_sources() -> None:
    folders = [sorted((WEB / folder).iterdir()) for folder in ("page", "src")]
    files = [WEB / "build.mjs", WEB / "package-lock.json", *(path for folder in folders for path in folder)]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(WEB).as_posix()}\n".encode() + path.read_bytes())
    assert len(files) > 30
    assert (WEB / "built.sha256").read_text().strip() == digest.hexdigest(), "run `make web`"
