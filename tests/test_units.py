import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import TunerError
from tuner.units import said_bytes, said_seconds, seconds, size


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90s", 90),
        ("5m", 300),
        ("5min", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        (" 2 H ", 7200),
        ("1d", 86400),
        ("0.5s", 0.5),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "value"), [("512MB", 512 * 10**6), ("1GiB", 2**30), ("1.5kb", 1500), ("7 B", 7)])
def test_sizes_are_read_as_people_write_them(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["", "5", "m", "5 parsecs", "-5m", "5m!", "1h,30m", "m5", "nan s", "1e3s"])
def test_what_is_no_duration_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(TunerError, match="--time wants a duration such as 90s, 5m or 1h30m, but it is"):
        seconds(text, "--time")


@pytest.mark.parametrize("text", ["", "512", "MB", "512 megs", "-1MB", "1MB?"])
def test_what_is_no_size_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(TunerError, match="--memory wants a size such as 512MB or 1GiB, but it is"):
        size(text, "--memory")


def test_nothing_is_no_limit() -> None:
    with pytest.raises(TunerError, match="--time is above zero, but it is '0s'"):
        seconds("0s", "--time")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.04, "0.0s"),
        (59.94, "59.9s"),
        (59.96, "1m 00s"),
        (60, "1m 00s"),
        (245, "4m 05s"),
        (3599.7, "1h 00m"),
        (5400, "1h 30m"),
    ],
)
def test_seconds_are_said_for_people(value: float, said: str) -> None:
    assert said_seconds(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (38.2e6, "38.2 MB"), (999_960_000, "1.0 GB"), (2e9, "2.0 GB")],
)
def test_bytes_are_said_for_people(value: float, said: str) -> None:
    assert said_bytes(value) == said


@given(st.integers(60, 10**6))
def test_what_is_said_reads_back_to_the_minute(value: int) -> None:
    assert abs(seconds(said_seconds(value)) - value) < 60
