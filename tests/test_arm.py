"""What `make test-arm` fetches: packages by Debian's index, checked by their hash, and the base package's libraries."""

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from tools import arm

UNPACKS = pytest.mark.skipif(not hasattr(tarfile, "tar_filter"), reason="packages are unpacked by Python 3.11.4")
INDEX = """Package: libc6
Version: 2.36
Filename: pool/main/g/glibc/libc6_2.36_arm64.deb
SHA256: {digest}

Package: libc6-dev
Filename: pool/main/g/glibc/libc6-dev_2.36_arm64.deb
SHA256: 0
"""


def package(name: str, content: bytes) -> bytes:
    """Return a Debian package with one file."""
    files = io.BytesIO()
    with tarfile.open(fileobj=files, mode="w:xz") as archive:
        about = tarfile.TarInfo(name)
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content))
    members = (("debian-binary", b"2.0"), ("control.tar.xz", b"odd"), ("data.tar.xz", files.getvalue()))
    parts = [
        f"{member:<16}{0:<32}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2) for member, body in members
    ]
    return b"!<arch>\n" + b"".join(parts)


@UNPACKS
def test_a_package_is_found_by_its_whole_name_and_unpacked_if_it_is_what_the_index_says(tmp_path: Path) -> None:
    content = package("./lib/libc.so", b"library")
    index = INDEX.format(digest=hashlib.sha256(content).hexdigest())
    ((path, digest),) = arm.packages(index, ["libc6"])
    assert path == "pool/main/g/glibc/libc6_2.36_arm64.deb"
    with pytest.raises(SystemExit, match="is not what Debian's index says"):
        arm.unpack(content, "0" * 64, tmp_path)
    assert list(tmp_path.iterdir()) == []
    arm.unpack(content, digest, tmp_path)
    assert (tmp_path / "lib" / "libc.so").read_bytes() == b"library"
    with pytest.raises(SystemExit, match="no package libssl3"):
        list(arm.packages(INDEX, ["libssl3"]))


@UNPACKS
def test_no_file_of_a_package_leaves_the_folder(tmp_path: Path) -> None:
    content = package("../stray", b"x")
    with pytest.raises(tarfile.OutsideDestinationError):
        arm.unpack(content, hashlib.sha256(content).hexdigest(), tmp_path / "root")
    assert not (tmp_path / "stray").exists()


def test_it_installs_what_the_documents_say_that_has_wheels_for_aarch64() -> None:
    names = {re.split(r"[<>=]", requirement)[0] for requirement in arm.base_requirements()}
    text = (arm.ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    command = text.split("pip install --dry-run")[1].split("```")[0]
    assert len(names) >= 10
    assert {name for name in names if re.search(rf"\s{name}\s", command)} == names


def test_the_table_has_a_line_for_each_thing_done() -> None:
    head, line = arm.table({"predict": (0.5, 0.0)}, {"predict": (10.0, 2e-6)})
    assert "aarch64" in head
    assert line.split() == ["predict", "0.50", "s", "10.00", "s", "2e-06", "0.001"]


def test_losses_of_each_library_are_read() -> None:
    rows = [{"name": name, "difference": 1e-7, "tolerance": 1e-4} for name in ("logits", "losses", "losses.LiteRT")]
    assert arm.losses(json.dumps({"checks": rows})) == {"ONNX Runtime": (1e-7, 1e-4), "LiteRT": (1e-7, 1e-4)}
