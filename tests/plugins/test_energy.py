"""The energy of a trial, from a made-up device."""

import time
from pathlib import Path

import pytest

import tuner_energy
from tests.plan.plans import PLAN
from tuner.backends.measuring import MeasuredTrial
from tuner.plugin.core import build_host
from tuner.results.records.trial import Outcome
from tuner_energy import EnergyError, measuring, source


def zone(sysfs: Path, name: str, microjoules: int, called: str = "package-0") -> Path:
    folder = sysfs / "powercap" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{called}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("10000000\n")
    return folder


def battery(sysfs: Path, **values: int | str) -> Path:
    folder = sysfs / "power_supply" / "BAT0"
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in {"type": "Battery", "status": "Discharging", **values}.items():
        (folder / name).write_text(f"{value}\n")
    return folder


def test_packages_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    for name, called in (("0", "package-0"), ("0:0", "core"), ("1", "package-1"), ("2", "psys")):
        zone(tmp_path, f"intel-rapl:{name}", 1_000_000, called)
    zone(tmp_path, "intel-rapl-mmio:0", 1_000_000)
    read = source(tmp_path)
    assert read is not None
    for name in ("0", "0:0", "1", "2"):
        (tmp_path / "powercap" / f"intel-rapl:{name}" / "energy_uj").write_text("3500000\n")
    (tmp_path / "powercap" / "intel-rapl-mmio:0" / "energy_uj").write_text("9000000\n")
    assert read(1.0) == pytest.approx(5.0)


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", 9_000_000)
    read = source(tmp_path)
    assert read is not None
    (folder / "energy_uj").write_text("500000\n")
    assert read(1.0) == pytest.approx(1.5)
    (folder / "energy_uj").write_text("700000\n")
    assert read(1.0) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"energy_now": 2_000_000}, {"energy_now": 1_999_000}),
        ({"charge_now": 500_000, "voltage_now": 4_000_000}, {"charge_now": 499_750, "voltage_now": 4_000_000}),
        ({"power_now": -900_000, "energy_now": 1}, {}),  # over four seconds
    ],
)
def test_what_a_battery_has_lost_counts(tmp_path: Path, before: dict[str, int], after: dict[str, int]) -> None:
    battery(tmp_path, **before)
    read = source(tmp_path)
    assert read is not None
    battery(tmp_path, **after)
    assert read(4.0) == pytest.approx(3.6)


def test_a_battery_that_is_charged_says_nothing_of_a_trial(tmp_path: Path) -> None:
    battery(tmp_path, energy_now=1_000, status="Charging")
    with pytest.raises(EnergyError, match=r"while it discharges, but BAT0 is 'Charging': unplug it"):
        measuring(tmp_path)()


def test_the_battery_of_a_mouse_is_not_the_devices(tmp_path: Path) -> None:
    battery(tmp_path, energy_now=1_000, scope="Device")
    assert source(tmp_path) is None


def test_a_trial_has_taken_what_was_counted_from_its_beginning_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner_energy, "PERIOD_SECONDS", 0.01)
    folder = zone(tmp_path, "intel-rapl:0", 1_000_000)
    end = measuring(tmp_path)()
    for reading in (9_000_000, 2_000_000, 8_000_000):  # wraps once: 8 + 3 + 6
        (folder / "new").write_text(f"{reading}\n")
        (folder / "new").replace(folder / "energy_uj")  # at once, as a reader may come at any time
        time.sleep(0.1)
    assert end(MeasuredTrial(PLAN, None, Outcome({}, ({"epoch": 1.0},)))) == pytest.approx(17.0)


def test_epochs_of_an_earlier_process_count_like_those_that_were_measured(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", 1_000_000)
    end = measuring(tmp_path)()
    (folder / "energy_uj").write_text("3000000\n")
    epochs = tuple({"epoch": float(number)} for number in range(4))
    assert end(MeasuredTrial(PLAN, None, Outcome({}, epochs), continued=3)) == pytest.approx(8.0)


def test_a_counter_that_goes_away_fails_the_measure(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", 1_000_000)
    end = measuring(tmp_path)()
    (folder / "energy_uj").unlink()
    with pytest.raises(OSError, match="energy_uj"):
        end(MeasuredTrial(PLAN, None, Outcome({})))


def test_the_objective_is_offered_where_the_device_can_measure_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner_energy, "SYSFS", tmp_path)
    given = {"energy": tuner_energy}
    assert "energy_joules" not in build_host(given, installed=False).objectives
    zone(tmp_path, "intel-rapl:0", 1)
    host = build_host(given, installed=False)
    assert host.objectives["energy_joules"].text(12.34) == "12.3 J"
    assert "energy_joules" in host.extensions("torch").measures
