"""A bundle of sounds predicts files, with several labels over their thresholds."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model

from tests.plugins.audio.sounds import tone, write
from tuner.bundle.format import Bundle, file_hash
from tuner.cli.app import call
from tuner.errors import BundleError
from tuner.runtime import Personaliser, Second
from tuner.runtime.infer.personaliser import inputs
from tuner_watch.round import folds_of
from tuner_watch.watch import Event, ring_of, watch

LABELS = ("low", "high")


def made(folder: Path, **changes: object) -> Path:
    """Write a bundle whose logits are the loudest of the low bands and of the high ones: above silence, over 0."""
    folder.mkdir()
    low = (np.arange(64) < 32).astype(np.float32)
    mask = np.stack([low, 1 - low])[None, :, :, None]  # [1, 2, 64, 1]
    constants = [
        numpy_helper.from_array(mask, "mask"),
        numpy_helper.from_array(np.array([6.9078], np.float32), "lift"),
        numpy_helper.from_array(np.array([7.0], np.float32), "least"),
        numpy_helper.from_array(np.array([2, 3]), "axes"),
    ]
    nodes = [
        helper.make_node("Add", ["input", "lift"], ["lifted"]),
        helper.make_node("Mul", ["lifted", "mask"], ["parts"]),
        helper.make_node("ReduceMax", ["parts", "axes"], ["loudest"], keepdims=0),
        helper.make_node("Sub", ["loudest", "least"], ["logits"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("input", ["n", 1, 64, 96]), ("logits", ["n", 2]))
    ]
    graph = helper.make_graph(nodes, "loudest", values[:1], values[1:], constants)
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx"
    )
    content = {
        "format": 1,
        "name": "house",
        "labels": LABELS,
        "input": {"kind": "audio", "window": 96, "hop": 48},
        "input_shape": [1, 64, 96],
        "loss": "multi-label",
        "label_thresholds": [0.8, 0.8],
        "files": {"model.onnx": file_hash(folder / "model.onnx")},
        **changes,
    }
    (folder / "bundle.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return made(tmp_path / "bundle")


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Three seconds of a low tone, and then three of a high one."""
    return write(tmp_path / "a.flac", np.concatenate([tone(200, 3.0), tone(5000, 3.0)]))


def test_the_mean_over_the_patches_decides_and_each_second_is_reported(bundle: Path, clip: Path) -> None:
    prediction = Personaliser(bundle).predict_file(clip)
    assert len(prediction.windows) == 11  # of 598 frames
    assert {label for label, _ in prediction.labels or ()} <= set(LABELS)
    heard = [tuple(label for label, _ in second.labels) for second in prediction.timeline]
    assert [second.begin for second in prediction.timeline] == [0, 1, 2, 3, 4, 5]
    assert heard[0] == heard[1] == ("low",)
    assert heard[4] == heard[5] == ("high",)
    assert "note" not in prediction.to_dict()
    assert set(prediction.to_dict()["timeline"][0]["labels"]) == {"low"}


def test_a_waveform_and_a_file_give_the_same(bundle: Path, tmp_path: Path) -> None:
    sound = tone(200, 2.0)
    path = write(tmp_path / "b.wav", (sound * 2**15).astype(np.int16))
    personaliser = Personaliser(bundle)
    from_file, from_array = personaliser.predict_file(path), personaliser.predict_recording(sound)
    assert from_file.label == from_array.label == "low"
    assert from_file.probability == pytest.approx(from_array.probability, abs=0.01)


def test_thresholds_are_the_bundles_own_and_a_half_where_it_has_none(tmp_path: Path, clip: Path) -> None:
    strict = Personaliser(made(tmp_path / "strict", label_thresholds=[0.99999, 0.99999])).predict_file(clip)
    plain = Personaliser(made(tmp_path / "plain", label_thresholds=None)).predict_file(clip)
    single = Personaliser(made(tmp_path / "single", label_thresholds=None, loss="single-label")).predict_file(clip)
    assert strict.labels == ()
    assert all(probability >= 0.5 for _, probability in plain.labels or ())
    assert single.labels is None
    assert [label for label, _ in single.timeline[0].labels] == ["low"]
    assert single.timeline[0] == Second(0, single.timeline[0].labels)
    assert "labels" not in single.to_dict()
    assert Personaliser(tmp_path / "plain").predict(np.zeros((1, 64, 96), np.float32)).labels is not None


def test_the_command_prints_labels_seconds_and_what_was_done(
    bundle: Path, clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["predict", str(bundle), str(clip), "--timeline"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[1].startswith("     0 s  low (")
    short = write(tmp_path / "s" / "b.wav", np.stack([tone(200, 0.5)] * 2, axis=1))
    for number, seconds in enumerate((0.6, 0.7)):
        write(tmp_path / "s" / f"c{number}.wav", np.stack([tone(200, seconds)] * 2, axis=1))
    assert call(["predict", str(bundle), str(short.parent), "--json"]) == 0
    printed = capsys.readouterr()
    first, *others = json.loads(printed.out)["predictions"]
    assert first["note"].startswith("2 channels mixed down to one, 0.50 s long, padded")
    assert all(one["note"] for one in others)
    (line,) = printed.err.splitlines()  # notes that differ only in their figures are printed once
    assert line == f"note: {short}: {first['note']}; 2 more files likewise"
    assert call(["predict", str(bundle), str(clip), "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split(",")[1] in {"low", "high", "low|high", "high|low", ""}


def test_patches_that_are_watched_remember_their_sound(
    bundle: Path, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write(tmp_path / "b.wav", tone(300, 2.0))
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{clip}\tlow\n{other}\tlow\n"))
    events: list[Event] = []
    watch(bundle, "-", events.append)
    samples = ring_of(bundle).load()
    marks = [sample.recording for sample in samples]
    assert len(samples) == len(events) - 1 == 11 + 3  # the last one says what was done
    assert len(set(marks[:11])) == len(set(marks[11:])) == 1
    assert marks[0] != marks[-1]
    assert sorted(map(len, folds_of(samples, range(14), 5))) == [3, 11]


def test_a_patch_that_was_kept_is_taken_as_it_is(bundle: Path) -> None:
    patch = np.zeros((1, 64, 96), np.float32)
    ((number, taken),) = inputs([patch], Bundle.read(bundle))
    assert number == 0
    assert taken is patch


def test_names_of_the_user_stand_for_labels_and_those_more_general(
    tmp_path: Path, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = made(tmp_path / "own", label_map={"hum": ["low", "high"], "low": ["low", "high"]})
    assert Bundle.read(own).label_rows(["hum", ["high"]]).tolist() == [[1, 1], [0, 1]]
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{clip}\thum\n"))
    watch(own, "-", lambda _: None)
    assert {sample.label for sample in ring_of(own).load()} == {"low|high"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"label_thresholds": [0.5]}, "has 1 label_thresholds for 2 labels"),
        ({"label_map": {"hum": ["middle"]}}, "label_map has 'middle', which is none of its labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused(change: dict[str, object], reason: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=reason):
        Bundle.open(made(tmp_path / "bad", **change))


def test_a_device_loads_the_kind_alone(bundle: Path, clip: Path) -> None:
    code = (
        "import sys; from tuner.runtime import Personaliser; Personaliser(sys.argv[1]).predict_file(sys.argv[2]); "
        "print(*{name.split('.')[0] for name in sys.modules}, *(name for name in sys.modules if 'plugin' in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundle), str(clip)], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert [name for name in loaded if name.startswith("tuner_")] == ["tuner_audio"]
    assert not {"torch", "pydantic", "pluggy", "tuner.plugin"} & {*loaded}


def test_without_its_plugin_a_bundle_is_refused(
    bundle: Path, clip: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_PLUGINS", "-audio")
    assert call(["predict", str(bundle), str(clip)]) == 1
    message = capsys.readouterr().err
    assert "bundle.json: kind must be one of arrays, images, signals, text, got 'audio'" in message
    assert message.endswith("install the plugin that offers it, or take that out of TUNER_PLUGINS\n")
    assert message.count("\n") == 1


def test_mistakes_are_one_line_each(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.ogg").write_bytes(b"OggS nonsense")
    assert call(["predict", str(bundle), str(tmp_path / "x.ogg")]) == 1
    assert "not a sound that can be read" in capsys.readouterr().err
    assert call(["predict", str(bundle), str(tmp_path / "x.ogg"), "--timeline", "--csv"]) == 2
    assert "--timeline shows the seconds of sounds" in capsys.readouterr().err
