"""`tuner report`: the file, what it says where the task cannot be opened, and photos only where they are asked for."""

import base64
import re
import stat
from pathlib import Path

import pytest
from PIL import Image

import tuner
from tests.pretrained import with_weights
from tuner.cli.app import call
from tuner.errors import RunError
from tuner_report.report import _jpeg

OLD = Path(__file__).parents[2] / "fixtures"


def test_a_run_whose_task_is_gone_has_a_report_that_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "signals.html"
    assert call(["report", str(OLD / "signals" / "run"), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    page = out.read_text()
    assert "Memory of a training step (" in page
    assert "was made from a task given in Python, which it does not hold" in page
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert call(["report", str(OLD / "signals" / "run"), "-o", str(tmp_path / "no" / "folder.html")]) == 1
    assert capsys.readouterr().err.count("tuner: ") == 1


@pytest.mark.parametrize("content", ["", "no base64!", base64.b64encode(b"<svg onload=x>").decode()])
def test_what_is_no_jpeg_is_not_put_into_a_page(content: str) -> None:
    with pytest.raises(RunError, match="no JPEG"):
        _jpeg(content)


@pytest.mark.slow
def test_the_winners_step_and_misread_samples_are_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(with_weights(tmp_path / "cache")))
    space = tmp_path / "space.toml"  # without heads that are solved for, which have no step
    smoke = Path(__file__).parents[3] / "search_spaces" / "smoke.toml"
    space.write_text(smoke.read_text().replace('"closed_form", ', ""))
    run = tuner.run("digits", space=str(space), trials=1, deterministic=True, out=tmp_path / "run")
    assert run.info.classes.labels == tuple("0123456789")
    counts = run.record(0).classes
    right = sum(hits for _, hits, _ in counts["local"].rows) / sum(total for _, _, total in counts["local"].rows)
    assert right == pytest.approx(run.record(0).values["local_accuracy"])
    assert {row for row, _, _ in run.info.untouched.classes["global"].rows} == set(range(7))
    plain, shown = tmp_path / "plain.html", tmp_path / "shown.html"
    assert call(["report", str(run.folder), "-o", str(plain), "--no-photos"]) == 0
    assert "data:image" not in plain.read_text()
    assert "in addition to the weights" in plain.read_text()
    assert call(["report", str(run.folder), "-o", str(shown)]) == 0
    photos = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', shown.read_text())
    assert 1 <= len(photos) <= 8
    assert re.search(r"taken for <b>\d</b> \(\d+\u00a0%\)<br>[^<]+", shown.read_text())
    assert shown.stat().st_size < 400_000
    first = tmp_path / "first.jpg"
    first.write_bytes(base64.b64decode(photos[0]))
    with Image.open(first) as image:
        assert image.size == (128, 128)
