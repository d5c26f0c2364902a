"""No part of a password is printed, whatever characters it holds; other text stays."""

import pytest

from tuner.printable import one_line, without_passwords


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
