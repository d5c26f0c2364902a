"""Variables of the environment in task files."""

from pathlib import Path

import pytest

from tuner.errors import TaskError
from tuner.task.file.variables import expand

FILE = Path("/nowhere/project/task.toml")


def test_variables_expand_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/data")
    assert expand({"a": ["${PLACE}/x", 3], "b": {"c": "$PLACE ${PLACE}"}}, FILE) == {
        "a": ["/data/x", 3],
        "b": {"c": "$PLACE /data"},
    }


def test_a_default_replaces_an_unset_or_empty_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET", raising=False)
    monkeypatch.setenv("EMPTY", "")
    assert expand("${UNSET:-a}${EMPTY:-b}${EMPTY}${UNSET:-}", FILE) == "ab"


def test_an_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET_HERE", raising=False)
    with pytest.raises(TaskError, match=r"\$\{UNSET_HERE\} is not set.*export UNSET_HERE=.*\$\{UNSET_HERE:-default\}"):
        expand("${UNSET_HERE}", FILE)


def test_the_data_variable_defaults_to_shared_data_beside_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNER_DATA", raising=False)
    (tmp_path / "shared/data").mkdir(parents=True)
    file = tmp_path / "project/examples/one/task.toml"
    assert expand("${TUNER_DATA}/x", file) == f"{tmp_path}/shared/data/x"
    monkeypatch.setenv("TUNER_DATA", "/elsewhere")
    assert expand("${TUNER_DATA}/x", file) == "/elsewhere/x"


def test_the_data_variable_without_data_is_reported_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNER_DATA", raising=False)
    with pytest.raises(TaskError, match="TUNER_DATA"):
        expand("${TUNER_DATA}", FILE)
