"""An error in the user's own code names its file, line and sample."""

import json
from types import SimpleNamespace

import pytest

from tuner.search.processes.child import _mistake

CODE = """
class Mine:
    def load(self, number):
        return read(number)

def load(path):
    raise ValueError(path)

def read(number):
    return load("a photo") if number else json.loads("{")
"""


@pytest.mark.parametrize(("sample", "line"), [(3, 7), (0, 10)])
def test_the_last_line_of_the_users_own_is_named_and_the_sample_that_was_loaded(sample: int, line: int) -> None:
    space = {"json": json}
    exec(compile(CODE, "mine/task.py", "exec"), space)  # noqa: S102 - the code above
    with pytest.raises(ValueError, match=r"photo|Expecting") as raised:
        SimpleNamespace(**space).Mine().load(sample)
    assert str(_mistake(raised.value)).startswith(f"mine/task.py:{line} raised ")
    assert str(_mistake(raised.value)).endswith(f" for sample {sample}")


def test_what_only_libraries_raised_is_not_the_users() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    trace = raised.value.__traceback__
    assert trace is not None
    assert _mistake(raised.value.with_traceback(trace.tb_next)) is None
