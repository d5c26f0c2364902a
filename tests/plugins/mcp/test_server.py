"""`tuner mcp` as an assistant's program uses it: the SDK's own client, and the server as a process on pipes."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.pretrained import with_weights
from tests.schemas import check
from tuner.cli.app import call
from tuner.errors import MISTAKE

FIXTURES = Path(__file__).parents[2] / "fixtures"
READING = {"runs", "show", "bundle", "plugins", "docs"}


@pytest.mark.slow
def test_an_assistant_reads_runs_and_trains_only_within_limits_that_it_states(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    shutil.copytree(FIXTURES / "digits", tmp_path / "shop")
    (tmp_path / "numpy.py").write_text("raise SystemExit('a module in the folder was imported')")
    (tmp_path / "table.csv").write_text("x,label\n1,a\n2,b\n")
    environment = {**os.environ, "TUNER_CACHE": str(with_weights(tmp_path / "cache"))}
    program = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "tuner", "mcp", "."], env=environment, cwd=tmp_path
    )

    async def session() -> None:
        async with Client(program) as client:

            async def ask(name: str, **arguments: Any) -> Any:
                answer = await client.call_tool(name, arguments, progress_callback=told)
                text = "".join(getattr(block, "text", "") for block in answer.content)
                return text if answer.is_error or name == "docs" else json.loads(text)

            lines: list[str] = []

            async def told(progress: float, total: float | None, message: str | None) -> None:
                lines.append(message or "")

            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools.keys() == READING | {"plan", "run"}
            reads = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
            assert reads == READING
            assert {"task", "time", "memory", "out"} == set(tools["run"].input_schema["required"])
            (listed,) = (await ask("runs"))["runs"]
            assert (listed["run"], listed["counts"]["done"]) == ("shop/run", 4)
            shown = await ask("show", run="shop/run")
            check(shown)
            assert [trial["trial"] for trial in shown["trials"]] == sorted(shown["shortlist"])
            assert "shop/run has no trial 99: it has 0 to 3" in (await ask("show", run="shop/run", trial=99))
            assert (await ask("bundle", bundle="shop/bundle"))["trainable"] is True
            assert "tasks.md" in (await ask("docs"))
            assert "skip_unreadable" in (await ask("docs", page="tasks.md"))
            for place in ("..", str(tmp_path.parent), "--plugin=evil.py", "shop/../../x"):
                assert "Error executing tool show" in (await ask("show", run=place)), place
            assert "is no path" in (await ask("show", run="shop\0run"))
            assert "'table.csv' is no task" in (await ask("plan", task="table.csv", time="10m", memory="2GB"))
            assert "--time must be" in (await ask("plan", task="digits", time="--help", memory="2GB"))
            deep = await ask("run", task="digits", out="a/b/c/d", time="10m", memory="2GB")
            assert "deeper than 3 folders" in deep
            assert not (tmp_path / "runs").exists(), "a task file was written for the table"
            refused = await ask("run", task="digits", out="mine", space="smoke", trials=1)
            assert "time\n  Field required" in refused
            assert "memory\n  Field required" in refused
            assert not (tmp_path / "mine").exists()
            lines.clear()
            ran = await ask("run", task="digits", out="mine", space="smoke", time="10m", memory="2GB", trials=1)
            assert ran["counts"]["done"] == 1
            assert ran["limits"]["time_seconds"] == 600
            assert any(line.startswith("trial 0") for line in lines)

    anyio.run(session)


def test_what_is_no_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mcp")
    assert call(["mcp", str(tmp_path / "none")]) == MISTAKE
    assert "none is no folder" in capsys.readouterr().err


def test_without_the_sdk_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "tuner_mcp.server", raising=False)
    for name in ("mcp", "mcp.server", "mcp.server.mcpserver"):
        monkeypatch.setitem(sys.modules, name, None)
    assert call(["mcp", "."]) == MISTAKE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tuner: this needs mcp, which is not installed: ")
    assert 'pip install "device-tuner[mcp]"' in line
