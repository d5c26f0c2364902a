"""`tuner dashboard` answers on this device only, with a page that loads nothing from elsewhere."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.cli.app import call
from tuner.results.folder import read_run

OLD = Path(__file__).parents[2] / "fixtures" / "digits" / "run"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "mine"))


@pytest.fixture
def served(run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The dashboard in a process of its own, and its address."""
    pytest.importorskip("optuna_dashboard")
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner", "dashboard", str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - tests in the background ignore it
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.endswith(f" shows {run}; Ctrl-C ends it\n"), process.communicate(timeout=60)
    yield process, line.split()[0]
    process.kill()
    process.communicate()


def fetch(address: str, **headers: str) -> tuple[dict[str, str], str]:
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - of this test's own server
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - the same
        return dict(answer.headers), answer.read().decode()


@pytest.mark.slow
def test_the_dashboard_answers_here_with_the_studys_names_and_ctrl_c_ends_it_in_a_line(
    served: tuple[subprocess.Popen[str], str], run: Path
) -> None:
    process, address = served
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/dashboard/studies/\d+", address)
    headers, page = fetch(address)
    address = address.removesuffix("/dashboard/studies/0") + "/"
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["connect-src"] == "'self'"
    assert {source for sources in policy.values() for source in sources.split()} <= {
        *("'self'", "'none'", "'unsafe-inline'", "'unsafe-eval'", "data:", "blob:")
    }
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
    assert loaded == ["/static/bundle.js"]
    assert re.findall(r"https?://[^\"' ]+", page) == ["http://www.w3.org/2000/svg"]  # a namespace
    (study,) = json.loads(fetch(f"{address}api/studies")[1])["study_summaries"]
    assert study["study_name"] == "digits (mine)"
    detail = json.loads(fetch(f"{address}api/studies/{study['study_id']}")[1])
    assert detail["objective_names"] == [objective.name for objective in read_run(run).objectives]
    assert len(detail["trials"]) == 4
    assert detail["trials"][0]["note"]["body"].startswith("train last 2 of 4 blocks on 180 local")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(address, Host="elsewhere.example")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "the dashboard has ended; the run is as it was\n", "")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_cannot_be_served_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["dashboard", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"tuner: {tmp_path} is not a run: it has no run.json; ")
    pytest.importorskip("optuna_dashboard")
    assert call(["dashboard", str(OLD), "--port", "99999"]) == 1
    assert capsys.readouterr().err.startswith("tuner: port 99999 cannot be used (")
