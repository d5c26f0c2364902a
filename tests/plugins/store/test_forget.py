"""Forgetting and clearing next to a run: refused in one line, and complete once the run is over."""

from pathlib import Path

import numpy as np
import pytest

from tests.bundle.handmade import write_bundle
from tests.store.made_up import PLAIN, records, sample
from tuner.bundle.format import FILE
from tuner.cli.app import call
from tuner.store import usage
from tuner.store.store import Store
from tuner_store.held import STRIPPED
from tuner_store.store import clear_store, forget

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(usage, "PATIENCE_SECONDS", 0.05)
    return tmp_path / "store"


@pytest.mark.parametrize("command", [["store", "clear"], ["forget", "digits"]])
def test_it_is_refused_in_one_line_while_a_run_uses_the_store(
    folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(folder)
    with store.file(PLAIN) as file:
        file.append([sample(1)], records(1))
        assert call([*command, "--store", str(folder)]) == 1
        assert capsys.readouterr().err == (
            f"tuner: {folder} is in use by a run, which would store again what is deleted: "
            "wait for it, or stop it (--resume continues it)\n"
        )
        assert not file.missing([sample(1)])


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_file_that_nobody_can_read_or_that_a_killed_call_left_empty_is_removed(
    folder: Path, *, is_damaged: bool
) -> None:
    with Store(folder).file(PLAIN) as file:
        file.append([sample(1)], records(1))
        path = file.folder
        if is_damaged:
            (path / "header").write_bytes(b"TUNERREC" + bytes(40))
        else:
            file.forget([sample(1)])
    del file
    assert forget("digits", folder).records == 0
    assert not path.exists()
    assert clear_store(folder) == 0


@pytest.mark.parametrize("content", ["[]", '{"files": {}', '{"format": 1}', '{"format": 1, "files": {}}'])
def test_a_damaged_file_that_would_replace_a_bundles_own_is_refused_and_replaces_nothing(
    content: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_bundle(folder.parent / "bundle", [np.eye(3)])
    before = (bundle / FILE).read_bytes()
    (bundle / f"{FILE}{STRIPPED}").write_text(content)
    assert call(["forget", "digits", "--bundle", str(bundle)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tuner: {bundle}")
    assert (bundle / FILE).read_bytes() == before
