"""Log-mel bands against an independent computation; what is read of sounds; patches of a task."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import ShortTimeFFT
from scipy.signal.windows import hann

from tests.plugins.audio.sounds import soundfile, tone, write
from tests.task.conftest import Load
from tuner.bundle.onnx_check import check_model
from tuner.errors import TaskError
from tuner.ort.session import open_session
from tuner.task.data.samples import content_id, wholes
from tuner.task.spec import InputSpec
from tuner_audio.bands import BANDS, RATE, log_mel, mel_weights, read_clip, read_header
from tuner_audio.graph import PATCHES, SOUND
from tuner_audio.kind import AUDIO as SOUNDS
from tuner_conformance.inputs import made_sound


def reference(waveform: np.ndarray) -> np.ndarray:
    """Compute log-mel bands in double precision: scipy's transform, and triangles drawn point by point in hertz."""
    transform = ShortTimeFFT(hann(400, sym=False), hop=160, fs=RATE, mfft=512, phase_shift=None)
    frames = 1 + (len(waveform) - 400) // 160
    slices = np.stack([waveform[at * 160 : at * 160 + 400] for at in range(frames)]).astype(np.float64)
    magnitudes = np.stack([np.abs(transform.stft(part, p0=0, p1=1, k_offset=200))[:, 0] for part in slices])

    def mel(hertz: float) -> float:
        return float(2595 * np.log10(1 + hertz / 700))

    edges = [700 * (10 ** (at / 2595) - 1) for at in np.linspace(mel(125), mel(7500), BANDS + 2)]
    bands = np.zeros((frames, BANDS))
    for band in range(BANDS):
        low, centre, high = (mel(edge) for edge in edges[band : band + 3])
        for line in range(257):
            at = mel(line * RATE / 512)
            weight = (at - low) / (centre - low) if at <= centre else (high - at) / (high - centre)
            bands[:, band] += max(0.0, weight) * magnitudes[:, line]
    return np.log(bands + 0.001).T


def test_the_bands_are_those_of_an_independent_computation() -> None:
    waveform = tone(440) + tone(3000, seed=1)
    bands, expected = log_mel(waveform), reference(waveform)
    assert bands.shape == expected.shape == (64, 148)
    assert bands.dtype == np.float32
    assert np.abs(bands - expected).max() < 2e-3
    assert bands.max() - bands.min() > 5  # the tones stand out


@pytest.mark.parametrize(("window", "hop"), [(20, 7), (96, 48)])
def test_the_graph_gives_the_same_patches_as_python(window: int, hop: int, tmp_path: Path) -> None:
    spec = InputSpec("audio", window=window, hop=hop)
    (path := tmp_path / "input.onnx").write_bytes(SOUNDS.graph(spec))
    check_model(path)  # as of a bundle
    session = open_session(path, 1)
    silence = np.zeros(900, np.float32)
    loud = tone(1000.0) * np.float32(1.9)  # in float32, the FFT would differ by 5e-3 here
    for sound in (made_sound(), silence, loud, np.concatenate([silence, loud]), loud[: 400 + 160 * 19 - 1]):
        patches = SOUNDS.pieces(sound, spec, "a sound")[1]
        (found,) = session.run([PATCHES], {SOUND: sound})
        assert found.shape == patches.shape
        assert np.abs(found - patches).max() < 2e-6


def test_the_triangles_cover_the_band_and_nothing_else() -> None:
    weights = mel_weights()
    assert weights.shape == (257, 64)
    covered = np.flatnonzero(weights.sum(axis=1)) * RATE / 512
    assert 125 < covered.min() < 160
    assert 7450 < covered.max() < 7500


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg"])
def test_a_file_is_mixed_down_and_resampled(ending: str, tmp_path: Path) -> None:
    left, right = tone(440, rate=44_100), tone(440, rate=44_100, seed=1)
    path = write(tmp_path / f"a.{ending}", np.stack([left, right], axis=1), 44_100)
    clip, direct = read_clip(path), log_mel((tone(440) + tone(440, seed=1)) / 2)
    assert clip.note == "2 channels mixed down to one"
    assert clip.bands.shape[1] in {direct.shape[1], direct.shape[1] + 1}
    loudest = direct.mean(axis=1).argmax()
    assert clip.bands.mean(axis=1).argmax() == loudest
    assert abs(clip.bands[loudest].mean() - direct[loudest].mean()) < 0.1
    assert read_header(path).frames(96) == clip.bands.shape[1]


def test_a_short_sound_is_padded_with_silence(tmp_path: Path) -> None:
    clip = read_clip(write(tmp_path / "a.wav", tone(440, 0.4)))
    assert clip.note == "0.40 s long, padded with silence to 0.97 s" or clip.note.endswith("to 0.98 s")
    assert clip.bands.shape == (64, 96)
    assert np.allclose(clip.bands[:, 60:], np.log(0.001))


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "not a sound that can be read"), (b"RIFF nonsense", "not a sound that can be read"), (None, "no such file")],
)
def test_what_cannot_be_read_is_one_line(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TaskError, match=reason) as caught:
        read_clip(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "shape", "reason"),
    [
        (0, 0, r"a\.wav: cannot be used \(it is empty\): replace or remove it"),
        (np.inf, 8000, "not finite"),
        (3e38, (8000, 1), r"cannot be used \(it holds a sample of 3e\+38, where full scale is 1"),
        (3e38, (8000, 2), r"cannot be used \(it holds a sample of 3e\+38, where full scale is 1"),
        (4, (8000, 2), ""),
    ],
)
def test_samples_that_cannot_be_heard_are_refused_before_they_overflow(
    value: float, shape: Any, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.full(shape, value, np.float32), RATE, subtype="FLOAT")
    if not reason:
        assert np.isfinite(read_clip(path).bands).all()
        return
    with pytest.raises(TaskError, match=reason):
        read_clip(path)


def silence(path: Path, seconds: float, rate: int, channels: int = 1) -> Path:
    """Write a WAV of 16 bits that takes no space on disk."""
    size = round(seconds * rate) * channels * 2
    head = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    with path.open("wb") as file:
        file.write(b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + struct.pack("<I", 16) + head)
        file.write(b"data" + struct.pack("<I", size))
        file.truncate(44 + size)
    return path


def test_a_sound_may_last_an_hour_at_any_rate(tmp_path: Path) -> None:
    assert read_header(silence(tmp_path / "a.wav", 3600, 192_000, 2)).samples == 3600 * RATE
    with pytest.raises(TaskError, match=r"cannot be used \(it is 3,601 s long, more than 3,600 s\)"):
        read_header(silence(tmp_path / "b.wav", 3600.1, 1000))


def test_blocks_are_resampled_as_the_whole(tmp_path: Path) -> None:
    import soxr

    sound = tone(440, 12, rate=44_100)  # several blocks
    bands = read_clip(write(tmp_path / "a.flac", sound, 44_100)).bands
    assert np.abs(bands - log_mel(soxr.resample(sound, 44_100, RATE))).max() < 0.1


AUDIO = {
    "model.factory": "tuner_audio.yamnet:yamnet_256",
    "model.arguments": {"outputs": 2},
    "local.kind": "audio",
    "local.train": "l#[12]-*",
}


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """Write two classes, of three recordings each; two clips were cut from the first."""
    for at, name in enumerate(("high", "low")):
        for number, clip in enumerate(("1-10-A", "1-10-B", "2-11-A", "3-12-A")):
            write(tmp_path / "l" / name / f"{clip}-{at}.wav", tone(300 + 2000 * at, 2.0, seed=10 * at + number))
    return tmp_path


def test_a_task_of_sounds_is_cut_into_patches_and_no_recording_is_on_both_sides(sounds: Path, load: Load) -> None:
    task = load({"input.recording": r"^\d-\d+"}, AUDIO)
    train, val = task.local.train, task.local.val
    assert task.input_shape == (1, 64, 96)
    assert (task.input.window, task.input.hop) == (96, 48)
    assert not any("3-12" in samples.name(at) for samples in (train, val) for at in range(len(samples)))
    assert len(train) + len(val) == 6 * 3  # 199 frames
    recordings = [{samples.origin(at) for at in range(len(samples))} for samples in (train, val)]
    assert recordings[0].isdisjoint(recordings[1])
    assert recordings[0] | recordings[1] == {"1-10", "2-11"}
    names, places = wholes(train)
    assert len(names) == len(set(places.tolist()))
    patch = train.load(1)
    assert np.array_equal(patch[0], read_clip(Path(names[0])).bands[:, 48:144])
    assert len({train.sample_id(at) for at in range(len(train))}) == len(train)


def test_an_edit_of_any_sound_changes_the_fingerprint(sounds: Path, load: Load) -> None:
    for number in range(40):  # of one patch each, more than the patches whose content is hashed
        write(sounds / "l" / "low" / f"1-{number + 30}-A.wav", tone(400, 0.98, seed=number))
    before, files = load(None, AUDIO).fingerprint(), sorted((sounds / "l" / "low").glob("1-*.wav"))[-8:]
    assert load(None, AUDIO).fingerprint() == before
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert load(None, AUDIO).fingerprint() != before, file
        file.write_bytes(content)


def test_a_sound_of_any_size_is_hashed(sounds: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    train = load(None, AUDIO).local.train
    monkeypatch.setattr("tuner.task.data.images.MOST_IMAGE_BYTES", 10)
    identity = content_id(Path(train.whole(0)).read_bytes())
    assert train.stamp(0) == identity
    assert train.sample_id(0) == content_id(f"{identity} 0 96".encode())


def test_what_is_done_to_sounds_is_noted_and_bad_ones_are_named(sounds: Path, load: Load) -> None:
    write(sounds / "l" / "low" / "2-20-A.wav", tone(400, 0.3))
    assert [note.partition(": ")[2][:12] for note in load(None, AUDIO).notes] == ["0.30 s long,"]
    (sounds / "l" / "low" / "2-21-A.wav").write_bytes(b"x")
    with pytest.raises(TaskError, match=r"1 file cannot be used: .*2-21-A.wav: not a sound that can be read"):
        load(None, AUDIO)
    assert len(load({"input.skip_unreadable": True}, AUDIO).skipped) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input.recording": "("}, "must be a regular expression"),
        ({"input.recording": "x+"}, "does not match this file's name"),
        ({"input.recording": "x*"}, "matches nothing of this file's name"),
        (
            {"global.kind": "audio", "global.train": "l#1-*", "local.val": "l#1-*", "local.train": "l#[23]-*"},
            r"global.train and local.val share the recording '.*1-10-A",
        ),
        ({"global.kind": "audio", "global.train": "l#1-*"}, r"local.train and global.train share the recording"),
        ({"input.size": 6}, "input.size = 6 does not apply to kind 'audio'"),
        ({"augment.ops": ["flip"]}, "sounds cannot be changed by 'flip'"),
        ({"augment.ops": ["time-shft"]}, "did you mean 'time-shift'"),
        ({"local.train": "l#9-*"}, "must have at least one sound"),
        ({"local.train": "l/low/1-10-A-1.wav"}, "must be in a folder of class folders"),
    ],
)
def test_a_mistake_in_a_task_of_sounds_is_one_line(
    change: dict[str, object], reason: str, sounds: Path, load: Load
) -> None:
    with pytest.raises(TaskError, match=reason) as caught:
        load(change, AUDIO)
    assert "\n" not in str(caught.value)


def test_a_folder_may_have_the_mark_of_a_pattern_in_its_name(sounds: Path, load: Load) -> None:
    (sounds / "c# l").mkdir()
    (sounds / "l").rename(sounds / "c# l" / "l")
    assert len(load({"local.train": "c# l/l#1-*"}, AUDIO).local.train) > 0
