"""What the command line prints, called in this process."""

import json
from typing import Any

import pytest

from tuner.cli.app import call


def printed_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Call the command line with ``--json`` and return the one object it prints."""
    capsys.readouterr()
    code = call([*map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    content: dict[str, Any] = json.loads(captured.out)
    return content
