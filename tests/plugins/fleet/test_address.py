"""Addresses: what they mean, and that no password is shown."""

import sys

import pytest

from tuner.errors import TunerError, UsageError
from tuner.reading import is_address
from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened


@pytest.mark.parametrize(
    ("text", "url", "shown"),
    [
        ("postgresql://me@host/db", "postgresql+psycopg://me@host/db", "postgresql://me@host/db"),
        ("postgres://host:5433/db#hands", "postgresql+psycopg://host:5433/db", "postgresql://host:5433/db#hands"),
        ("postgresql+psycopg2://h/d", "postgresql+psycopg2://h/d", "postgresql+psycopg2://h/d"),
        ("mysql://h/d?ssl_ca=a.pem", "mysql+pymysql://h/d?ssl_ca=a.pem", "mysql://h/d?ssl_ca=a.pem"),
        ("mariadb://me@h/d", "mysql+pymysql://me@h/d", "mysql://me@h/d"),
        (
            "mysql://h/d?read_default_file=~/.my.cnf",
            "mysql+pymysql://h/d?read_default_file=~/.my.cnf",
            "mysql://h/d?read_default_file=~/.my.cnf",
        ),
        ("sqlite:///a/b.db", "sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("grpc://host", "grpc://host:13000", "grpc://host:13000"),
        ("grpc://host:7#x", "grpc://host:7", "grpc://host:7#x"),
        ("postgresql://host/db#me@home", "postgresql+psycopg://host/db", "postgresql://host/db#me%40home"),
        ("sqlite:////data/me@host/study.db", "sqlite:////data/me@host/study.db", "sqlite:////data/me@host/study.db"),
        (
            "postgresql://host/db?user=me@home",
            "postgresql+psycopg://host/db?user=me@home",
            "postgresql://host/db?user=me%40home",
        ),
    ],
)
def test_what_an_address_means(text: str, url: str, shown: str) -> None:
    address = read_address(text)
    assert (address.url, address.shown, address.has_password) == (url, shown, False)
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:s3cret@host/db",
        "postgresql://me:s3c%40ret@host:1/db?sslmode=verify-full",
        "postgresql://me:s3cr%2F3t@host/db",
        "postgresql://host/db?user=me&password=s3cret",
        "postgresql://host/db?sslkey=k.pem&sslpassword=s3cret#hands",
    ],
)
def test_a_password_is_in_nothing_that_is_shown(text: str) -> None:
    address = read_address(text)
    assert address.has_password
    for shown in (address.shown, repr(address), str(address), f"{[address]}"):
        assert "s3c" not in shown
        assert "***" in shown
    assert "s3c" in address.url
    assert ("sslmode=verify-full" in address.shown) == ("sslmode" in text)


def test_where_a_password_is_safe_is_said() -> None:
    files = {"postgresql://me:x@h/d": "PGPASSFILE", "mysql://me:x@h/d": "?read_default_file=", "grpc://h": ""}
    for text, file in files.items():
        way_out = read_address(text).way_out
        assert file in way_out
        assert way_out.endswith("the whole address in the variable TUNER_RUN_STUDY or TUNER_WORKER_STUDY")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("oracle://h/d", "must begin with postgresql://"),
        ("grpc://", "must name a host"),
        ("postgresql://h:x/d", "must be such as postgresql://host/db, got one that is none"),
        ("runs/digits", "must begin with .*, got none of them: correct it"),
        ("postgresql:/me:secret@h/d", "must begin with .*, got postgresql:/: correct it"),
        ("sqlite:///a.db#a%00b", "must be printable"),
        ("postgresql://me:s3cr3t/x@host/db", "in a password, write / as %2F"),
        ("postgresql://me:123/s3cr3t@host/db", "in a password, write / as %2F"),
        ("mysql://me:[s3cr3t]@host/db", "in a password, write / as %2F"),
        ("postgresql://me:12?s3cr3t@host/db", "in a password, write / as %2F"),
        ("postgresql://me:12#s3cr3t@host/db", "in a password, write / as %2F"),
        ("postgresql://me:p@s3cr3t#x@127.0.0.1:1/db", "in a password, write / as %2F"),
        ("postgresql://me:s3cr3t@x@host/db", "in a password, write / as %2F"),
        ("postgresql://me:12/3?s3cr3t@host/db", "in a password, write / as %2F"),
        ("postgresql://me:1@2/s3cr3t@host/db", "in a password, write / as %2F"),
        ("mysql://me:a@b?s3cr3t#@host/db", "in a password, write / as %2F"),
        ("postgresql://me:12#s3cr3t/@host:1/db#name", "in a password, write / as %2F"),
        ("postgresql://me:@s3cr3t@host/db", "in a password, write / as %2F"),
    ],
)
def test_what_is_none(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        read_address(text)
    assert "s3cr3t" not in str(refused.value)


def test_a_slash_too_few_makes_no_folder_of_it() -> None:
    assert is_address("postgresql:/h/d")
    assert not is_address("C:/runs/digits")


def open_one(address: str) -> None:
    with opened(read_address(address)):
        pass


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pymysql", "MySQLdb"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TunerError, match=r"this needs pymysql, which is not installed: pip install .*\[mysql\]"):
        open_one("mysql://h/d")
    with pytest.raises(TunerError, match=r"mysql\+mysqldb://h/d needs MySQLdb, which is not installed: pip install it"):
        open_one("mysql+mysqldb://h/d")
