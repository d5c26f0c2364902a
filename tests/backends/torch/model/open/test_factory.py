"""A factory is the user's own code: whatever it raises is a line with its place."""

from pathlib import Path

import pytest

from tuner.backends.torch.model.open.factory import build
from tuner.errors import TaskError
from tuner.task import ModelSpec


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def build():\n    raise ValueError('no\\nluck')",
            r"build raised ValueError: no \(net\.py, line 2\): correct",
        ),
        ("import sys\ndef build():\n    sys.exit(0)", r"build raised SystemExit: 0 \(net\.py, line 3\): correct it$"),
        ("1 / 0", r"importing .*net\.py raised ZeroDivisionError: division by zero \(net\.py, line 1\): correct it$"),
        ("import sys\nsys.exit(0)", r"importing .*net\.py raised SystemExit: 0 \(net\.py, line 2\): correct it$"),
        ("import nowhere", r"net\.py cannot be imported \(No module named 'nowhere'\): correct it, or install"),
        ("def build(:", r"net\.py cannot be imported \(.*\): correct it"),
        ("x = 1", r"net\.py has no 'build'"),
        ("def build():\n    return 5", r"must return a torch module, but .*net\.py:build returns a int"),
        (
            "def build(outputs):\n    return None",
            r"does not take model\.arguments: TypeError: .* 'outputs': correct it$",
        ),
        ("def build():\n    return 1 + 'a'", r"does not take model\.arguments: TypeError: .* \(net\.py, line 2\)"),
    ],
)
def test_what_a_factory_raises_is_one_line_with_its_place(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "net.py").write_text(code)
    with pytest.raises(TaskError, match=message) as caught:
        build(ModelSpec(f"{tmp_path}/net.py:build"))
    assert "\n" not in str(caught.value)
