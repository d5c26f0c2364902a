"""Hostile bundles of the benchmark, in this process: one line each, and nothing outside is touched."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.inputs.malformed import Case
from benchmarks.limits.hostile.bundles import is_well, judged
from benchmarks.limits.hostile.cases import cases
from benchmarks.limits.hostile.child import ONE_LINE, confined
from tuner.cli.app import call

#: Of these the benchmark takes care: they take seconds to be made.
SLOW = ("1,100,000", "20 MB")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def files_of(canary: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in canary.rglob("*") if path.is_file()}


def test_each_is_refused_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    seen, wrong, before = 0, [], None
    for case in cases(folder, 0):
        before = before or files_of(folder / "canary")
        if any(word in case.name for word in SLOW):
            continue
        seen += 1
        code = call(list(case.argv))
        printed = capsys.readouterr()
        lines = printed.err.strip().splitlines()
        is_refused = code == 1 and len(lines) == 1 and lines[0].startswith("tuner: ")
        if "\x1b" in printed.out + printed.err or not (is_refused or (case.is_harmless and code == 0)):
            wrong.append((case.name, code, printed.err))
    assert wrong == []
    assert seen > 200
    assert files_of(folder / "canary") == before
    assert not any((folder / "canary/empty").iterdir())


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("raise ValueError('ours')", "traceback"),
        ("import time; time.sleep(60)", "hang"),
        ("open(canary / 'secret').read()", "outside"),
        ("(canary / 'new').touch()", "outside"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("x = bytearray(3 * 10**9)", "traceback"),
        ("import sys; print('tuner: no', file=sys.stderr); code = 1", ONE_LINE),
        ("import sys; print('a\\nb', file=sys.stderr); code = 1", "many lines"),
        ("code = 0", "accepted"),
    ],
)
def test_a_child_is_judged_by_what_it_does(body: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")

    def action() -> int:
        names = {"canary": tmp_path, "code": 0}
        exec(body, names)  # noqa: S102 - a line of this test
        return int(str(names["code"]))

    seconds = 0.5 if kind == "hang" else 20.0  # a busy machine is slow with the others
    assert confined(action, tmp_path, seconds, 10**9).kind == kind


def test_a_case_that_is_accepted_is_well_only_where_it_is_harmless(tmp_path: Path) -> None:
    bundle, sample = (Path(__file__).parents[1] / "fixtures" / name for name in ("digits/bundle", "inputs"))
    argv = ("predict", os.fspath(bundle), os.fspath(min(sample.glob("digit*.npy"))))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # a fork of this process, which has threads, may hang
        outcome = pool.submit(judged, Case("not hostile", argv), tmp_path).result()
    assert outcome.kind == "accepted"
    assert is_well(Case("", argv, is_harmless=True), outcome)
    assert not is_well(Case("", argv), outcome)
