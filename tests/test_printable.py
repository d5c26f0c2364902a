"""No part of a password is printed, whatever characters it holds; other text stays."""

import pytest

from tuner.printable import one_line, without_passwords, wrapped_at


@pytest.mark.parametrize(
    "password",
    ["s3cr3t", "s3@cr3t", "s3/cr3t", "s3?cr3t", "s3#cr3t", "s3:cr3t", "s3 cr3t", 's3"cr3t', "s3\ncr3t", "s3%zzcr3t"],
)
def test_a_password_is_in_no_line(password: str) -> None:
    line = one_line(f'Unknown option: "--studdy=postgresql://me:{password}@host:5432/db". Did you mean "--study"?')
    assert "s3" not in line
    assert "cr3t" not in line
    assert line.startswith('Unknown option: "--studdy=postgresql://me:***@host:5432/db')


@pytest.mark.parametrize(
    "text", ["http://localhost:8000/", "a: b @ c", "postgresql://host/db", "see me@host", "s3://b"]
)
def test_what_is_no_password_stays(text: str) -> None:
    assert without_passwords(text) == text


@pytest.mark.parametrize("width", range(8, 30))
def test_a_figure_and_its_unit_stay_together(width: int) -> None:
    lines = wrapped_at("trial 0: yours 97.2 % (92–99), 0.259 s, 30 MB, on 180 samples of 4 blocks", width).split("\n")
    assert all(len(line) <= width for line in lines) or width < len("  180 samples")
    for figure in ("97.2 %", "0.259 s", "30 MB", "180 samples"):
        assert any(figure in line for line in lines)
