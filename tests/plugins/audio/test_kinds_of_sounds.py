"""Which sounds count, and what is read of them: each row's answer comes from soundfile, or from the row itself."""

from pathlib import Path

import numpy as np
import pytest

from tests.plugins.audio.sounds import soundfile, tone, write
from tests.task.conftest import Load
from tuner_audio.bands import SUFFIXES, log_mel, read_clip

#: Ending, format, subtype, and how far values may be from what was written, in full scale.
ROWS = [
    ("wav", "WAV", "PCM_16", 1e-4),
    ("wav", "WAV", "PCM_24", 1e-6),
    ("wav", "WAV", "PCM_U8", 1e-2),
    ("wav", "WAV", "FLOAT", 0),
    ("wav", "WAV", "DOUBLE", 0),
    ("wav", "WAV", "ULAW", 2e-2),
    ("WAV", "WAVEX", "PCM_16", 1e-4),
    ("wav", "RF64", "PCM_16", 1e-4),
    ("aiff", "AIFF", "PCM_16", 1e-4),
    ("aif", "AIFF", "PCM_24", 1e-6),
    ("aifc", "AIFF", "FLOAT", 0),
    ("au", "AU", "PCM_16", 1e-4),
    ("caf", "CAF", "PCM_16", 1e-4),
    ("w64", "W64", "PCM_16", 1e-4),
    ("flac", "FLAC", "PCM_16", 1e-4),
    ("flac", "FLAC", "PCM_24", 1e-6),
    ("ogg", "OGG", "VORBIS", 0.2),
    ("oga", "OGG", "VORBIS", 0.2),
    ("opus", "OGG", "OPUS", 0.2),
    ("mp3", "MP3", "MPEG_LAYER_III", 0.2),
    ("MP3", "MP3", "MPEG_LAYER_III", 0.2),
]


@pytest.mark.parametrize(("ending", "kind", "subtype", "far"), ROWS)
def test_a_sound_is_what_soundfile_hears(tmp_path: Path, ending: str, kind: str, subtype: str, far: float) -> None:
    if subtype not in soundfile.available_subtypes(kind):
        pytest.skip(f"this libsndfile writes no {subtype}")
    sound, path = tone(880), tmp_path / f"sound.{ending}"
    soundfile.write(path, sound, 16_000, format=kind, subtype=subtype)
    heard, rate = soundfile.read(path, dtype="float32")
    assert rate == 16_000
    assert path.suffix.lower() in SUFFIXES
    assert np.abs(read_clip(path).bands - log_mel(heard)).max() < 5e-3  # MP3 in blocks is rounded in another way
    assert np.abs(heard[: len(sound)] - sound[: len(heard)]).max() <= far or far >= 0.2  # lossy ones delay the sound


@pytest.mark.parametrize(
    ("place", "fate"),
    [
        ("2.wav", "counts"),
        ("2.MP3", "counts"),
        ("a walk/May/2.flac", "counts"),
        (".2.wav", "hidden"),
        ("._2.wav", "hidden"),
        ("@eaDir/2.wav", "hidden"),
        ("__MACOSX/2.wav", "hidden"),
        ("2.m4a", "left out"),
        ("2.wma", "left out"),
        ("2.amr", "left out"),
        ("2", "left out"),
        ("cover.jpg", "left out"),
    ],
)
def test_what_counts_is_decided_by_place_and_kind(tmp_path: Path, load: Load, place: str, fate: str) -> None:
    for number, name in enumerate(("bark/1.wav", "rain/1.wav", "rain/3.wav")):
        write(tmp_path / "s" / name, tone(440 + 220 * number))
    path = tmp_path / "s/bark" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = {".mp3": "MP3", ".flac": "FLAC"}
    with path.open("wb") as file:
        soundfile.write(file, tone(990), 16_000, format=kinds.get(path.suffix.lower(), "WAV"))
    images = {f"input.{key}": None for key in ("size", "mean", "std")}
    for name in ("bark", "rain"):
        write(tmp_path / "v" / name / "1.wav", tone(523 + len(name)))
    task = load({"local.kind": "audio", "local.train": "s", "local.val": "v", **images})
    names = {task.local.train.whole(at) for at in range(len(task.local.train))}
    assert len(names) == 3 + (fate == "counts")
    warnings = [line for line in task.findings if line.startswith("warning")]
    ending = Path(place).suffix or "without an ending"
    assert len(warnings) == (fate == "left out")
    assert all(
        line.endswith(f"1 file is left out, of no kind that is read or in no class folder: 1 {ending}")
        for line in warnings
    )
