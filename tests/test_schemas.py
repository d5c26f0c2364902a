"""Every document of ``--json`` names its schema and obeys it: `tests/conftest.py` checks each that a test prints."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import ValidationError

from tests.cli.printed import printed_json
from tests.schemas import FILES, ROOT, check, validator
from tools import schemas
from tuner.cli import options

FIXTURES = ROOT / "tests" / "fixtures"
RUN, BUNDLE = FIXTURES / "exits" / "run", FIXTURES / "exits" / "bundle"
DOCUMENT = re.compile(r"(?:document\(\s*|SCHEMA = )\"([\w-]+)\"")


def test_the_files_are_what_the_code_prints_and_each_is_printed_and_described() -> None:
    written = schemas.files()
    assert {path: path.read_text(encoding="utf-8") for path in FILES.values()} == written, "python -m tools.schemas"
    sources = [path for place in ("tuner", "plugins") for path in (ROOT / place).rglob("*.py")]
    printed = {(path, name) for path in sources for name in DOCUMENT.findall(path.read_text(encoding="utf-8"))}
    assert {name for _, name in printed} == FILES.keys()
    for path, name in printed:  # a schema is in the package that prints it
        assert path.is_relative_to(FILES[name].parents[1]), name
    formats = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z-]+-[0-9]+)`", formats)) == FILES.keys()
    assert all(validator(name) for name in FILES)


def test_stored_runs_and_bundles_are_printed_as_their_schemas_say(
    capsys: pytest.CaptureFixture[str], own_cache: Path, tmp_path: Path
) -> None:
    sample = min((FIXTURES / "inputs").glob("digit-*.npy"))
    for name, *command in (
        ("run-1", "show", RUN),
        ("trials-1", "show", RUN, "--trials"),
        ("trial-1", "show", RUN, 0),
        ("bundle-1", "show", BUNDLE),
        ("predictions-1", "predict", BUNDLE, sample),
        ("status-1", "status", BUNDLE),
        ("plugins-1", "plugins"),
        ("plugins-why-1", "plugins", "why", "freeze"),
        ("diff-1", "diff", RUN, FIXTURES / "signals" / "run"),
        ("prior-1", "prior", "show", "shipped"),
        ("prior-build-1", "prior", "build", RUN, "--out", tmp_path / "prior.toml"),
        ("store-1", "store", "list"),
        ("store-clear-1", "store", "clear"),
        ("model-file-1", "describe", ROOT / "examples" / "nntrainer" / "lenet5.ini"),
    ):
        content = printed_json(capsys, *command)
        assert content["schema"] == name
        check(content)


def test_a_document_that_breaks_its_schema_is_found() -> None:
    assert json.loads(options.document("store-clear-1", {"freed_bytes": 1})) == {
        "schema": "store-clear-1",
        "freed_bytes": 1,
    }
    with pytest.raises(ValidationError, match="'freed_bytes' is a required property"):
        options.document("store-clear-1", {})
