"""Rounds of a bundle: swapped whole, the last good one kept, and an answer after a kill at any moment."""

import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.killed import killed, swaps
from tuner.bundle.format import new_folder
from tuner.bundle.rounds import EXPORTED, current, rounds_in_use, state_of
from tuner.errors import BundleError
from tuner.runtime import Bundle, Personaliser
from tuner_store.held import forget_rounds
from tuner_watch.serving import install_round, roll_back

Make = Callable[..., Any]


def test_a_round_is_opened_in_place_of_the_exported_bundle(make: Make, pointing: Make, sample: Make) -> None:
    bundle, made = make("first", [pointing(1.0)]), make("second", [pointing(1.0, (1, 0, 2))])
    assert current(bundle) == bundle
    assert install_round(bundle, made) == "0001"
    assert Personaliser(bundle, threads=1).predict(sample(0)).label == "b"
    assert Bundle.read(bundle).identity != Bundle.open(bundle).identity
    assert roll_back(bundle) == ("0001", EXPORTED)
    assert Personaliser(bundle, threads=1).predict(sample(0)).label == "a"


def test_the_last_good_round_and_the_exported_bundle_are_kept(make: Make, pointing: Make) -> None:
    bundle, made = make("first", [pointing(1.0)]), make("second", [pointing(2.0)])
    assert [install_round(bundle, made) for _ in range(4)] == ["0001", "0002", "0003", "0004"]
    assert rounds_in_use(bundle) == ("0004", "0003", EXPORTED)
    assert sorted(path.name for path in (bundle / "device/rounds").iterdir()) == ["0003", "0004"]
    assert roll_back(bundle) == ("0004", "0003")
    assert install_round(bundle, made) == "0005"
    assert [roll_back(bundle)[1] for _ in range(2)] == ["0003", EXPORTED]
    with pytest.raises(BundleError, match="there is no earlier round to go back to"):
        roll_back(bundle)


def test_rounds_are_private_and_leave_the_inner_ones_out(make: Make, pointing: Make) -> None:
    bundle, made = (make(name, [pointing(1.0), pointing(1.0)], [0.5]) for name in ("first", "second"))
    install_round(made, bundle)
    install_round(bundle, made)
    assert not (current(bundle) / "device").exists()
    for path in (bundle / "device").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == "lock", path


@pytest.mark.parametrize("content", ["", "0001\n1\n", "0001 ../../etc 0000\n1\n", "\0", "0001 0000\n"])
def test_a_damaged_list_of_rounds_is_reported(content: str, make: Make, pointing: Make) -> None:
    bundle = make("first", [pointing(1.0)])
    install_round(bundle, make("second", [pointing(2.0)]))
    (bundle / "device/current").write_text(content)
    with pytest.raises(BundleError, match="is damaged: remove it to use the bundle as exported"):
        Bundle.open(bundle)


def test_a_full_disk_leaves_the_round_in_use(make: Make, pointing: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, made = make("first", [pointing(1.0)]), make("second", [pointing(2.0)])
    install_round(bundle, made)

    def full(source: Any, target: Any, **_: Any) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", full)
        patch.setattr(shutil.copytree, "__kwdefaults__", None)
        patch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
        with pytest.raises(OSError, match="No space left"):
            install_round(bundle, made)
    assert rounds_in_use(bundle) == ("0001", EXPORTED)
    assert [path.name for path in (bundle / "device/rounds").iterdir()] == ["0001"]
    Personaliser(bundle, threads=1)


@pytest.mark.parametrize("keep", [True, False])
def test_forgetting_removes_what_a_killed_round_began_and_lets_no_round_in_that_knew_the_samples(
    make: Make, pointing: Make, *, keep: bool
) -> None:
    bundle, made = make("first", [pointing(1.0)]), make("second", [pointing(2.0)])
    install_round(bundle, made)
    begun = [bundle / "device" / name for name in (".made.999999999.part", "made", "rounds/.0002.part")]
    for folder in begun:
        (folder / "train").mkdir(parents=True)
        (folder / "train/solved.safetensors").write_bytes(b"vectors")
    before = state_of(bundle)
    assert forget_rounds(bundle, keep=keep) == (not keep)
    assert not any(folder.exists() for folder in begun)
    assert rounds_in_use(bundle) == (("0001", EXPORTED) if keep else (EXPORTED,))
    with pytest.raises(BundleError, match="meanwhile"):
        install_round(bundle, made, before)
    assert install_round(bundle, made, state_of(bundle)) == "0003"


def test_an_export_removes_what_a_killed_one_has_begun(tmp_path: Path) -> None:
    dead, own = tmp_path / ".out.999999999.part", tmp_path / ".other.1.part"
    for folder in (dead, own):
        folder.mkdir()
        (folder / "weights.safetensors").write_bytes(b"weights")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "out"):
        raise ZeroDivisionError
    assert [*tmp_path.iterdir()] == [own]


@pytest.mark.slow
def test_a_bundle_answers_after_a_kill_at_any_moment_of_a_swap(make: Make, pointing: Make, sample: Make) -> None:
    bundle = make("first", [pointing(1.0), pointing(1.0)], [0.5])
    others = [make(name, [pointing(2.0), pointing(3.0)], [0.5]) for name in ("second", "third")]
    for _ in killed(30, 0.2, swaps, bundle, *others):
        assert Personaliser(bundle, threads=1).predict(sample(2)).label == "c"
    assert len(list((bundle / "device/rounds").iterdir())) <= 4
    assert int(install_round(bundle, others[0])) > 2  # swaps did happen


def test_rounds_that_a_stopped_process_keeps_locked_are_reported(
    make: Make, pointing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.bundle.rounds.CHANGE_SECONDS", 0.05)
    bundle = make("first", [pointing(1.0)])
    install_round(bundle, make("second", [pointing(2.0)]))
    with FileLock(bundle / "device" / "lock"), pytest.raises(BundleError, match="has been locked by another process"):
        roll_back(bundle)
    assert roll_back(bundle) == ("0001", EXPORTED)


def test_a_folder_that_another_process_makes_meanwhile_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "bundle.json").touch()
    with pytest.raises(BundleError, match="out was made by another process meanwhile"), new_folder(tmp_path / "out"):
        (tmp_path / "other").rename(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_names_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as raised, new_folder(tmp_path / "out") as part:
        raise OSError(28, "No space left on device", str(part / "model.onnx"))
    assert raised.value.filename == str(tmp_path / "out")
