"""Durations and sizes: as people write them, and as they are printed."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import TunerError
from tuner.units import format_bytes, format_limit, format_seconds, parse_seconds, parse_share, parse_size


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
    assert parse_seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("512MB", 512 * 10**6),
        ("1GiB", 2**30),
        ("1.5kb", 1500),
        ("7 B", 7),
        ("1G", 2**30),
        ("512MiB", 2**29),
        ("1.5GB", 1.5e9),
        ("0.5 g", 2**29),
        ("100k", 102_400),
        ("2M", 2**21),
        ("1T", 2**40),
        ("1tb", 10**12),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["512 MB", "1 GiB", "2 GB", "512 MiB", "1,500 MB", "100 MiB"])
def test_a_limit_is_shown_in_the_unit_that_it_was_typed_in(text: str) -> None:
    assert format_limit(parse_size(text.replace(",", ""))) == text


@pytest.mark.parametrize(
    ("parse", "option", "rule", "texts"),
    [
        (
            parse_seconds,
            "--time",
            "must be a duration such as 90s, 5m or 1h30m",
            ["", "5", "m", "5 parsecs", "-5m", "5m!", "1h,30m", "m5", "nan s", "1e3s"],
        ),
        (
            parse_size,
            "--memory",
            "must be a size such as 512MB, 1GiB or 1G",
            ["", "512", "MB", "512 megs", "-1MB", "1MB?"],
        ),
        (
            parse_share,
            "--forget-at-most",
            "must be a share .* such as 3%",
            ["0", "-3%", "101%", "3", "three", "3%%", "nan", ""],
        ),
        (parse_seconds, "--time", r"must be at most 1e\+18", ["9" * 400 + "s", "9" * 5001 + "s", "999999999999999d"]),
        (parse_size, "--memory", r"must be at most 1e\+18", ["9" * 400 + "GB"]),
        (parse_seconds, "--time", "must be above zero", ["0s"]),
    ],
)
def test_what_is_no_such_value_is_refused_with_an_example(
    parse: Callable[[str, str], float], option: str, rule: str, texts: list[str]
) -> None:
    for text in texts:
        with pytest.raises(TunerError, match=f"{option} {rule}, got '{re.escape(text[:9])}"):
            parse(text, option)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1m 00s"),
        (60, "1m 00s"),
        (245, "4m 05s"),
        (3599.7, "1h 00m"),
        (5400, "1h 30m"),
    ],
)
def test_seconds_are_formatted_for_people(value: float, text: str) -> None:
    assert format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (38.2e6, "38.2 MB"), (999_960_000, "1.0 GB"), (2e9, "2.0 GB")],
)
def test_bytes_are_formatted_for_people(value: float, text: str) -> None:
    assert format_bytes(value) == text


@given(st.integers(60, 10**6))
def test_formatted_seconds_read_back_to_the_minute(value: int) -> None:
    assert abs(parse_seconds(format_seconds(value)) - value) < 60


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), (" 2.5 %", 0.025), ("0.03", 0.03), ("100%", 1.0)])
def test_a_share_is_a_fraction_or_has_a_percent_sign(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)
