"""Bundles in service from the command line: watch, status, rollback, forget."""

import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plugins.watch.lived import Make
from tuner.bundle.format import FILE
from tuner.cli.app import call
from tuner_watch.incoming import files_in
from tuner_watch.orchestrator import NO_TRAINER
from tuner_watch.serving import install_round
from tuner_watch.watch import ring_of

pytestmark = pytest.mark.usefixtures("cache")
Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def bundle(make: Make, pointing: Make) -> Path:
    """Return a bundle that answers with the largest of three inputs."""
    folder: Path = make("bundle", [pointing(2.0)])
    return folder


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Return a folder with two files without a label, and one of the class b."""
    folder = tmp_path / "samples"
    (folder / "b").mkdir(parents=True)
    for number, path in enumerate(("1.npy", "2.npy", "b/3.npy")):
        np.save(folder / path, np.eye(3, dtype=np.float32)[number % 3])
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command: its exit code, the JSON it printed, and what went to stderr.

    What `watch` says of the whole at its end is left out.
    """

    def command(*arguments: object) -> tuple[int, list[dict[str, Any]], str]:
        code = call([*map(str, arguments), "--json"])
        captured = capsys.readouterr()
        events = [json.loads(line) for line in captured.out.splitlines()]
        return code, [event for event in events if "outlook" not in event], captured.err

    return command


def test_a_folder_is_answered_once(bundle: Path, samples: Path, run: Run) -> None:
    code, events, _ = run("watch", bundle, "--samples", samples, "--once")
    assert code == 0
    assert sorted((Path(event["file"]).name, event["label"]) for event in events) == [
        ("1.npy", "a"),
        ("2.npy", "b"),
        ("3.npy", "c"),
    ]
    assert run("watch", bundle, "--samples", samples, "--once")[1] == []
    np.save(samples / "4.npy", np.array([0, 0, 2], np.float32))
    assert [event["label"] for event in run("watch", bundle, "--samples", samples, "--once")[1]] == ["c"]
    assert sorted(str(sample.label) for sample in ring_of(bundle).load()) == ["None", "None", "None", "b"]


def test_the_end_says_what_was_done_when_a_round_comes_and_what_to_label_next(
    bundle: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(samples / "between.npy", np.array([1, 0.9, 0], np.float32))
    np.save(samples / "b" / "labelled.npy", np.array([1, 1, 1], np.float32))
    np.save(samples / "wide.npy", np.zeros(7))
    command = ["watch", str(bundle), "--samples", str(samples), "--once", "--label-next", "1"]
    assert call([*command, "--json"]) == 0
    last, outlook = json.loads(capsys.readouterr().out.splitlines()[-1]), f"no round of training comes: {NO_TRAINER}"
    counts = {"predicted": 5, "not_predicted": 1, "kept": 5, "outlook": outlook}
    assert last == {"schema": "watch-1", **counts, "label_next": [str(samples / "between.npy")]}
    for path in samples.rglob("*.npy"):
        path.touch()  # new to the next watch
    assert call(command) == 0
    *events, next_, end = capsys.readouterr().out.splitlines()
    assert not [line for line in events if "exit" in line]  # the bundle has none
    assert (next_, end) == (
        f"worth a label: {samples / 'between.npy'}",
        f"5 files predicted, 1 refused; 5 samples kept; {outlook}",
    )


def test_a_copy_of_a_bundle_has_samples_of_its_own_and_one_that_was_moved_has_those_of_before(
    bundle: Path, samples: Path, run: Run, tmp_path: Path
) -> None:
    run("watch", bundle, "--samples", samples, "--once")
    shutil.copytree(bundle, tmp_path / "copy")
    assert (len(ring_of(bundle)), len(ring_of(tmp_path / "copy"))) == (3, 0)
    run("forget", tmp_path / "copy")
    assert len(ring_of(bundle)) == 3
    moved = tmp_path / "away" / "moved"
    moved.parent.mkdir()
    before = ring_of(bundle).folder
    bundle.rename(moved)
    _, (status,), _ = run("status", moved)
    assert status["kept"]["samples"] == 3
    assert ring_of(moved).folder == before  # only looking moves nothing
    run("watch", moved, "--samples", samples, "--once")
    assert ring_of(moved).folder != before
    assert len(ring_of(tmp_path / "copy")) == 0
    _, (forgotten,), _ = run("forget", moved)
    assert forgotten["samples"] == 3


def test_a_copy_does_not_take_the_samples_of_a_bundle_whose_disk_is_away(
    bundle: Path, samples: Path, run: Run, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    own = bundle.rename(disk / "bundle")
    run("watch", own, "--samples", samples, "--once")
    copy = shutil.copytree(own, tmp_path / "copy", ignore=shutil.ignore_patterns("device"))
    disk.rename(tmp_path / "away")
    _, (status,), _ = run("status", copy)
    run("watch", copy, "--samples", tmp_path / "away", "--once")
    _, (forgotten,), _ = run("forget", copy)
    assert (status["kept"]["samples"], forgotten["samples"]) == (0, 0)
    (tmp_path / "away").rename(disk)
    assert len(ring_of(own)) == 3


def test_a_clock_that_is_set_back_hides_no_file(
    bundle: Path, samples: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, _ = files_in(samples, frozenset({".npy"}))
    later = [replace(file, changed_ns=file.changed_ns - 10**14) for file in listed[1:]]
    answers = iter([listed[:1], listed[:1], [*later, *listed[:1]], listed[:1], []])
    monkeypatch.setattr("tuner_watch.watch.files_in", lambda *_: (next(answers, []), []))
    _, events, _ = run("watch", bundle, "--samples", samples, "--once")
    assert [event["label"] for event in events] == ["a", "b", "c"]


def test_files_that_hold_no_sample_are_reported_and_the_service_continues(
    bundle: Path, samples: Path, run: Run
) -> None:
    (samples / "broken.npy").write_bytes(b"\x93NUMPY half")
    np.save(samples / "wide.npy", np.zeros(7))
    (samples / "notes.txt").write_text("not a sample")
    code, events, _ = run("watch", bundle, "--samples", samples, "--once")
    assert code == 0
    refused = {Path(event["file"]).name: event["refused"] for event in events if "refused" in event}
    assert set(refused) == {"broken.npy", "wide.npy"}
    assert "takes numbers of shape [3], got float64 [7]" in refused["wide.npy"]
    assert sum("label" in event for event in events) == 3
    assert {"schema": "watch-1", "left_out": 1, "kinds": "1 .txt"} in events


def test_files_are_predicted_as_they_come_whole_and_sigterm_ends_it(
    bundle: Path, samples: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("inotify_simple", reason="the extra watch is not installed")
    np.save(tmp_path / "whole.npy", np.array([0, 0, 2], np.float32))
    content = (tmp_path / "whole.npy").read_bytes()
    settled = 0.3
    monkeypatch.setattr("tuner_watch.incoming.SETTLED_SECONDS", settled)
    came = threading.Event()

    def printed(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        if "4.npy" in line:
            came.set()

    monkeypatch.setattr("tuner_watch.commands.print_line", printed)

    def live() -> None:
        with (samples / "b" / "4.npy").open("wb", buffering=0) as file:
            for part in (content[:100], content[100:]):  # half of it is there for a while
                file.write(part)
                time.sleep(settled / 2)
        came.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    writer = threading.Timer(0.2, live)
    writer.start()
    code, events, error = run("watch", bundle, "--samples", samples)
    writer.join()
    assert code == 130
    assert error.splitlines() == ["tuner: interrupted; what was finished is kept"]
    assert [(Path(event["file"]).name, event.get("label")) for event in events][-1] == ("4.npy", "c")
    assert len(events) == 4
    _, (status,), _ = run("status", bundle)
    assert status["answers"] == 4


def test_without_inotify_it_says_how_often_it_looks(
    bundle: Path, samples: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("tuner_watch.watch.watch", lambda *_, **__: None)
    assert run("watch", bundle, "--samples", samples)[2].startswith(
        'tuner: the folder is looked at every 10 s; to be woken by a new file: pip install "device-tuner[watch]"'
    )
    assert run("watch", bundle, "--samples", samples, "--once")[2] == ""
    assert run("watch", bundle, "--samples", samples / "none")[2] == ""  # the refusal is the one line


def test_paths_come_as_a_stream(bundle: Path, samples: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{samples / '1.npy'}\n\n{samples / '2.npy'}\tb\nnone.npy\n"))
    code, events, _ = run("watch", bundle, "--samples", "-")
    assert code == 0
    assert [event.get("label") for event in events] == ["a", "b", None]
    assert "none.npy" in events[2]["refused"]
    assert [sample.label for sample in ring_of(bundle).load()] == [None, "b"]


def test_status_reports_answers_samples_and_rounds(
    bundle: Path, samples: Path, run: Run, capsys: pytest.CaptureFixture[str], make: Make, pointing: Make
) -> None:
    run("watch", bundle, "--samples", samples, "--once")
    _, (content,), _ = run("status", bundle)
    assert (content["name"], content["round"], content["answers"], content["due"]) == ("hand-made", "0000", 3, None)
    assert content["exits"] == [{"exit": 0, "threshold": None, "share": 1.0, "rate": 1.0, "loss": None}]
    assert content["kept"]["samples"] == content["kept"]["new"] == 3
    assert {test["stream"] for test in content["drift"]} == {"doubt", "errors"}
    assert call(["status", str(bundle)]) == 0
    text = capsys.readouterr().out
    assert "hand-made · as it was exported · 3 predictions" in text
    assert "kept: 3 samples (3 new)" in text
    install_round(bundle, make("other", [pointing(3.0)]))
    _, (content,), _ = run("status", bundle)
    assert (content["round"], content["earlier"], content["answers"]) == ("0001", ["0000"], 0)


def test_a_round_that_is_due_says_what_it_waits_for_and_a_damaged_state_is_reported(
    bundle: Path, samples: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("watch", bundle, "--samples", samples, "--once", "--enough", "3")
    _, (content,), _ = run("status", bundle)
    assert (content["due"], content["waits"]) == ("3 new samples are kept", NO_TRAINER)
    assert call(["status", str(bundle)]) == 0
    text = capsys.readouterr().out
    assert f"a round is due: 3 new samples are kept; it waits: {NO_TRAINER}" in text
    assert "exit" not in text.replace("exported", "").replace(NO_TRAINER, "")
    run("forget", bundle)
    _, (content,), _ = run("status", bundle)
    assert (content["due"], content["waits"], content["kept"]["new"]) == (None, None, 0)
    state = bundle / "device/state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"answers": 3, "left": []}))
    code, (content,), _ = run("status", bundle)  # counts that contradict each other begin anew
    assert (code, content["answers"]) == (0, 0)
    state.write_text("{}")
    for command in (["status", bundle], ["watch", bundle, "--samples", samples, "--once"]):
        code, _, line = run(*command)
        assert code == 1
        assert "state.json is damaged" in line
        assert "remove it to start anew" in line


def test_rolling_back_goes_back_one_round(bundle: Path, run: Run, make: Make, pointing: Make) -> None:
    install_round(bundle, make("other", [pointing(3.0)]))
    assert run("rollback", bundle) == (0, [{"schema": "rollback-1", "left": "0001", "round": "0000"}], "")
    code, events, line = run("rollback", bundle)
    assert (code, events) == (1, [])
    assert line == f"tuner: {bundle} is in use as it was exported: there is no earlier round to go back to\n"


def test_forgetting_a_bundle_or_its_task_empties_its_ring(
    bundle: Path, samples: Path, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    content = json.loads((bundle / FILE).read_text())
    (bundle / FILE).write_text(json.dumps({**content, "name": "digits"}))
    for named in (bundle, "digits"):
        run("watch", bundle, "--samples", samples, "--once")
        with monkeypatch.context() as patch:
            patch.setenv("TUNER_PLUGINS", "-watch")  # what was kept is forgotten without the plugin too
            _, (forgotten,), _ = run("forget", named)
        assert (forgotten["task"], forgotten["samples"]) == ("digits", 3)
        assert len(ring_of(bundle)) == 0
        for path in samples.rglob("*.npy"):
            path.touch()  # new to the next watch
    assert call(["forget", str(bundle)]) == 0
    assert capsys.readouterr().out.startswith("forgot digits")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["watch", "none", "--samples", "."], "none is not a bundle"),
        (["watch", "BUNDLE", "--samples", "none"], "--samples none cannot be read (No such file or directory)"),
        (["watch", "BUNDLE", "--samples", ".", "--enough", "0"], "--enough must be at least 1 sample, got 0"),
        (["watch", "BUNDLE", "--samples", ".", "--exploration", "2"], "--exploration must be a probability"),
        (["watch", "BUNDLE", "--samples", ".", "--window", "night"], "--window must be two times of the day"),
        (["watch", "BUNDLE", "--samples", ".", "--keep", "much"], "--keep must be a size"),
        (["status", "none"], "none is not a bundle"),
        (["rollback", "none"], "none is not a bundle"),
    ],
)
def test_mistakes_are_reported_in_one_line(arguments: list[str], says: str, bundle: Path, run: Run) -> None:
    code, events, line = run(*(str(bundle) if word == "BUNDLE" else word for word in arguments))
    is_usage = says.startswith("--") and "must be" in says
    assert (code, events) == (2 if is_usage else 1, [])
    assert line.startswith(f"tuner: {says}")
    assert line.count("\n") == 1
