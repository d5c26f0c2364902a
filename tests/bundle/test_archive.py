"""A bundle in a zip, which may come from anywhere."""

import errno
import json
import random
import shutil
import zipfile
from pathlib import Path

import pytest

from tuner.bundle.archive import unpacked
from tuner.bundle.format import Bundle
from tuner.cli.app import call
from tuner.errors import BundleError

OLD = Path(__file__).parents[1] / "fixtures"


def test_a_zip_of_a_bundle_is_shown_and_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = shutil.make_archive(str(tmp_path / "digits"), "zip", OLD / "digits", "bundle")
    assert call(["show", archive, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bundle"] == archive
    sample = min((OLD / "inputs").glob("digit-*.npy"))
    assert call(["predict", archive, str(sample)]) == 0
    assert str(sample) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "compression", "reason"),
    [
        ("../bundle.json", b"{}", zipfile.ZIP_STORED, "leads out"),
        ("images/../../bundle.json", b"{}", zipfile.ZIP_STORED, "leads out"),
        ("C:bundle.json", b"{}", zipfile.ZIP_STORED, "is not the name of a file"),  # on Windows, of another drive
        ("images\\..\\..\\bundle.json", b"{}", zipfile.ZIP_STORED, "is not the name of a file"),
        ("bundle.json", b"{}", zipfile.ZIP_LZMA, "compressed in a way other than deflate"),
        ("model.onnx", bytes(10_000), zipfile.ZIP_DEFLATED, "more than 1,000 bytes"),
    ],
)
def test_what_no_zip_of_a_bundle_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, compression: int, reason: str
) -> None:
    monkeypatch.setattr("tuner.bundle.archive.MOST_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "bad.zip", "w", compression) as archive:
        archive.writestr(name, content)
        if name != "bundle.json":
            archive.writestr("bundle.json", "{}")
    with pytest.raises(BundleError, match=reason), unpacked(tmp_path / "bad.zip") as folder:
        Bundle.open(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.zip"]


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EINVAL, "copy or export it again"), (errno.ENOSPC, "free some space, or name another")],
)
def test_what_is_wrong_with_a_zip_is_told_from_what_is_wrong_with_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    path = Path(shutil.make_archive(str(tmp_path / "digits"), "zip", OLD / "digits", "bundle"))

    def extract(*_: object) -> None:
        raise OSError(number, "it went wrong")

    monkeypatch.setattr("tuner.bundle.archive._extract", extract)
    with pytest.raises(BundleError, match=rf"cannot be unpacked.* \(it went wrong\): {advice}"), unpacked(path):
        pass


def test_a_damaged_zip_is_one_line(tmp_path: Path) -> None:
    whole = Path(shutil.make_archive(str(tmp_path / "digits"), "zip", OLD / "digits", "bundle")).read_bytes()
    draw, damaged, refused = random.Random(0), tmp_path / "damaged.zip", list[str]()
    for cut in (False, True) * 60:
        content = bytearray(whole[: draw.randrange(1, len(whole))] if cut else whole)
        for _ in range(3):
            content[draw.randrange(len(content))] ^= draw.randrange(1, 256)
        damaged.write_bytes(content)
        try:
            with unpacked(damaged):
                pass
        except BundleError as error:
            refused.append(str(error))
    assert not any("\n" in line for line in refused)
    assert len(refused) > 100
