"""Bundles that say which samples are none of the user's classes: nodes as numpy computes them, and what is answered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.bundle.format import UNKNOWN, file_hash, successor
from tuner.bundle.scores import DeviceScores
from tuner.cli.app import call
from tuner.errors import BundleError
from tuner.ort.unknown import distance_nodes
from tuner.ridge.unknown import Familiar
from tuner.runtime import Bundle, Personaliser
from tuner_watch.watch import ring_of

Make = Callable[..., Any]
DRAW = np.random.default_rng(0)
OWN = (np.eye(3, dtype=np.float32)[np.arange(30) % 2] * 5 + DRAW.normal(0, 0.3, (30, 3)), np.arange(30) % 2)
FAMILIAR = Familiar.of(OWN)


@pytest.fixture
def bundle(make: Make, pointing: Make, tmp_path: Path) -> Path:
    nodes = tmp_path / UNKNOWN
    nodes.write_bytes(distance_nodes("input", FAMILIAR))
    section = {"threshold": 0.5, "samples": 30, "reads": "input", "format": 1}
    made: Path = make("told", [pointing(2.0)], unknown=section)
    nodes.rename(made / UNKNOWN)
    text = (
        (made / "bundle.json")
        .read_text()
        .replace('"files": {', f'"files": {{"{UNKNOWN}": "{file_hash(made / UNKNOWN)}", ')
    )
    (made / "bundle.json").write_text(text)
    return made


def test_a_sample_beyond_the_threshold_is_unknown_alone_and_in_a_batch(bundle: Path) -> None:
    samples = np.concatenate([OWN[0], DRAW.normal(0, 5, (30, 3))]).astype(np.float32)
    told, plain = Personaliser(bundle, threads=1, unknown=True), Personaliser(bundle, threads=1)
    together, alone = told.predict_batch(samples), [told.predict(sample) for sample in samples]
    expected = FAMILIAR.distances(samples) / 0.5
    for answers in (together, alone):
        assert [answer.unknown for answer in answers] == pytest.approx(list(expected), abs=1e-4)
        assert [answer.answer == "unknown" for answer in answers] == list(expected > 1)
    assert {answer.answer for answer in together} >= {"a", "b", "unknown"}
    today = plain.predict_batch(samples)
    assert [(one.label, one.probability) for one in together] == [(one.label, one.probability) for one in today]
    assert {one.unknown for one in today} == {None}
    assert "unknown" not in today[0].to_dict()


def test_the_command_answers_unknown(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.array([0, 0, 5], np.float32))
    assert call(["predict", str(bundle), str(tmp_path / "x.npy"), "--unknown"]) == 0
    assert "x.npy: unknown (" in (text := capsys.readouterr().out)
    assert "nearest is c (" in text
    assert call(["predict", str(bundle), str(tmp_path / "x.npy")]) == 0
    assert "x.npy: c (" in capsys.readouterr().out


def test_a_watched_sample_that_is_none_of_the_classes_is_kept_and_named_first(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "new").mkdir()
    for name, values in {"unsure": (5, 4.9, 0), "known": (5, 0, 0), "none of these": (0, 0, 5)}.items():
        np.save(tmp_path / "new" / f"{name}.npy", np.array(values, np.float32))
    assert call(["watch", str(bundle), "--samples", str(tmp_path / "new"), "--once", "--label-next", "2"]) == 0
    named = [line for line in capsys.readouterr().out.splitlines() if line.startswith("worth a label: ")]
    assert [Path(line).name for line in named] == ["none of these.npy", "unsure.npy"]
    assert [sample.label for sample in ring_of(bundle).load()] == [None] * 3


def test_a_bundle_that_cannot_tell_says_so(bundle: Path, make: Make, pointing: Make, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot tell which samples are unknown"):
        Personaliser(make("plain", [pointing(2.0)]), unknown=True)
    with successor(Bundle.open(bundle), tmp_path / "trained", {}, DeviceScores(None, None, (), 1)):
        pass  # its head reads something else now
    assert Bundle.open(tmp_path / "trained").info.unknown is None
    assert not (tmp_path / "trained" / UNKNOWN).exists()
    with pytest.raises(BundleError, match=r"has no hash of unknown\.onnx"):
        Bundle.open(
            make("bare", [pointing(2.0)], unknown={"threshold": 0.5, "samples": 3, "reads": "input", "format": 1})
        )
    with pytest.raises(BundleError, match=r"threshold must be a finite number from 1e-09 to 2"):
        Bundle.open(make("far", [pointing(2.0)], unknown={"threshold": 7, "samples": 3, "reads": "x", "format": 1}))


def test_a_foreign_file_is_refused_in_one_line(bundle: Path) -> None:
    for nodes, says in (
        (b"no message", "ONNX|ends too early|does not know"),
        (distance_nodes("nothing", FAMILIAR), "cannot load"),
    ):
        before = file_hash(bundle / UNKNOWN)
        (bundle / UNKNOWN).write_bytes(nodes)
        place = bundle / "bundle.json"
        place.write_text(place.read_text().replace(before, file_hash(bundle / UNKNOWN)))
        with pytest.raises(BundleError, match=says):
            Personaliser(bundle, unknown=True)
