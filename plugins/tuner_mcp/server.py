"""The tools of `tuner mcp`: each runs a command in a process of its own, whose stdout is not that of the protocol."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from signal import SIGINT
from typing import Annotated, Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from tuner.distribution import installed_version
from tuner.errors import RunError, TunerError
from tuner.reading import kind_of
from tuner.results.run import Run

INSTRUCTIONS = """\
tuner finds out on this device, within a time and a memory, how a pretrained model is best personalised to a user's
samples. Begin with docs and its page llms.txt. Call plan before run: it says what fits, and trains nothing. A task and
a search-space file name code, which plan and run execute: use only those that the user trusts."""
#: How many folders deep runs are looked for.
DEPTH = 3
TASK_FILES = (".toml", ".ini")
#: Pages of the documents: in the wheel, and in a checkout.
PAGES = (Path(__file__).parent / "docs", Path(__file__).parents[2] / "docs")
BUILT_IN = re.compile(r"[a-z][\w-]*")
#: Seconds that a command has to end in order when its call is cancelled.
CLOSING_SECONDS = 20.0
#: Python's -P, for the processes of a command too: a numpy.py in the user's folder is not imported.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
#: What a task or a search space names is executed, and weights may be fetched: that is not only reading.
CODE = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
RunFolder = Annotated[str, Field(description="The run's folder, as the tool runs lists it.")]
TaskName = Annotated[
    str, Field(description="A task.toml or its folder, a model.ini, a file.py:function, or a built-in task: digits.")
]
Space = Annotated[str, Field(description="The search space: a name such as board-10min or smoke, or a file.")]
Time = Annotated[str, Field(min_length=1, description="Limit on the whole command, such as 90s or 10m.")]
Memory = Annotated[str, Field(min_length=1, description="Limit on the memory that a trial adds, such as 512MB.")]


class Tools:
    """What an assistant may call; a tool's docstring is its description.

    Args:
        folder: What every path must be in.

    Raises:
        RunError: It is no folder.
    """

    def __init__(self, folder: Path) -> None:
        if kind_of(folder) != "folder":
            raise RunError(f"{folder} is no folder: give the one that holds your runs and tasks")
        self._folder = folder.resolve()

    def runs(self) -> dict[str, Any]:
        """List the runs in the folder: task, how many trials there are by state, the best trial, and why each ended."""
        files = sorted(file for depth in range(DEPTH + 1) for file in self._folder.glob("*/" * depth + "run.json"))
        return {"runs": [self._summary(file.parent) for file in files]}

    async def show(
        self,
        run: RunFolder,
        trial: Annotated[int | None, Field(description="Number of one trial, to show all of it.")] = None,
    ) -> dict[str, Any]:
        """Show a run: the answer, the front, baselines, and the trials that are worth a look; or one trial."""
        words = ["show", self._inside(run), *([] if trial is None else [str(trial)])]
        found = await self._command(*words)
        if "trials" in found:
            found["trials"] = [one for one in found["trials"] if one["trial"] in found["shortlist"]]
        return found

    async def bundle(self, bundle: Annotated[str, Field(description="The bundle's folder or zip.")]) -> dict[str, Any]:
        """Describe a bundle: what it predicts, its plan, scores with intervals, sizes, whether it can train again."""
        return await self._command("show", self._inside(bundle))

    async def plan(self, task: TaskName, time: Time, memory: Memory, space: Space = "board-10min") -> dict[str, Any]:
        """Say what a run would try, and which depths fit the limits; the task is opened, and nothing is trained."""
        limits = (f"--time={time}", f"--memory={memory}")
        return await self._command("run", self._task(task), "--dry-run", "--space", self._space(space), *limits)

    async def plugins(self) -> dict[str, Any]:
        """List what is installed: plugins, strategies with their knobs, backends, objectives, tasks, kinds of input."""
        return await self._command("plugins")

    def docs(
        self, page: Annotated[str, Field(description="A page, such as tasks.md or commands/run.md.")] = "llms.txt"
    ) -> str:
        """Return a page of the documents; llms.txt lists all pages."""
        folder = next((place for place in PAGES if (place / "llms.txt").is_file()), PAGES[0])
        known = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*.md")}
        known["llms.txt"] = folder / "llms.txt"
        if page not in known:
            raise ToolError(f"there is no page {page!r}: the page llms.txt lists all")
        return known[page].read_text(encoding="utf-8")

    async def run(
        self,
        context: Context,
        task: TaskName,
        time: Time,
        memory: Memory,
        out: Annotated[str, Field(min_length=1, description="The run's new folder, such as runs/photos.")],
        space: Space = "board-10min",
        trials: Annotated[int | None, Field(ge=1, description="Limit on the number of trials.")] = None,
    ) -> dict[str, Any]:
        """Tune a task within a time and a memory, which must be stated: try plans by training them on this device."""
        limits = [f"--time={time}", f"--memory={memory}", *([] if trials is None else ["--trials", str(trials)])]
        folder = self._inside(out, new=True)
        if len(Path(folder).relative_to(self._folder).parts) > DEPTH:
            raise ToolError(f"out is deeper than {DEPTH} folders, where runs finds none: give one such as runs/photos")
        await self._command(
            "run", self._task(task), "--space", self._space(space), "--out", folder, *limits, context=context
        )
        return await self.show(folder)

    def _summary(self, folder: Path) -> dict[str, Any]:
        name = folder.relative_to(self._folder).as_posix()
        try:
            run = Run.open(folder)
        except TunerError as error:
            return {"run": name, "problem": str(error)}
        return {
            "run": name,
            "task": run.info.task_name,
            "counts": run.counts,
            "best": run.best,
            "ended": run.info.ended,
        }

    def _inside(self, text: str, *, new: bool = False) -> str:
        """Return the absolute path of what a caller names, which must be in the folder, and exist unless it is new."""
        try:
            path = (self._folder / text).resolve()
        except (OSError, ValueError):
            raise ToolError(f"{text!r} is no path: name a file or a folder in {self._folder}") from None
        if not path.is_relative_to(self._folder):
            raise ToolError(f"{text!r} is not in {self._folder}: name what is, or start tuner mcp with another folder")
        if not new and not path.exists():
            raise ToolError(f"there is no {text!r} in {self._folder}: name a file or a folder that is there")
        return str(path)

    def _task(self, text: str) -> str:
        if BUILT_IN.fullmatch(text) and not (self._folder / text).exists():
            return text
        file, colon, function = text.rpartition(":")
        path = Path(self._inside(file if colon else text))
        if path.is_dir() and not (path / "task.toml").is_file():
            raise ToolError(f"{text!r} holds no task.toml: let the user write one with tuner init")
        if not path.is_dir() and path.suffix not in ((".py",) if colon else TASK_FILES):
            # tuner run would write a task file for a table, without the user having seen it
            raise ToolError(f"{text!r} is no task: give a task.toml or its folder, a model.ini, or a file.py:function")
        return f"{path}:{function}" if colon else str(path)

    def _space(self, text: str) -> str:
        return text if BUILT_IN.fullmatch(text) else self._inside(text)

    async def _command(self, *words: str, context: Context | None = None) -> dict[str, Any]:
        """Return what a command prints as JSON; lines of its stderr are progress, and of one that fails the reason."""
        command = [sys.executable, "-m", "tuner", *words, "--json"]
        lines = [""]  # the last of them is still being written

        async def follow(process: Process) -> None:
            async for text in TextReceiveStream(process.stderr, errors="replace"):  # type: ignore[arg-type]  # it is a pipe
                first, *others = text.split("\n")
                lines[-1] += first
                for line in others:
                    if context is not None:
                        await context.report_progress(len(lines), message=lines[-1])
                    lines.append(line)

        environment = {**os.environ, **SAFE_PATH}
        async with await anyio.open_process(
            command, cwd=self._folder, env=environment, stdin=subprocess.DEVNULL
        ) as process:
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(follow, process)
                    printed = "".join([text async for text in TextReceiveStream(process.stdout)])  # type: ignore[arg-type]  # likewise
                await process.wait()
            except anyio.get_cancelled_exc_class():
                process.send_signal(SIGINT)  # a run keeps what is finished
                with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                    await process.wait()
                raise
        if process.returncode:
            ended = f"tuner ended with {process.returncode}"
            raise ToolError(
                next((line for line in reversed(lines) if line.startswith("tuner: ")), ended).removeprefix("tuner: ")
            )
        content: dict[str, Any] = json.loads(printed)
        return content


def server(tools: Tools) -> MCPServer[Any]:
    """Return a server of the tools."""
    served: MCPServer[Any] = MCPServer(
        "tuner", instructions=INSTRUCTIONS, version=installed_version(), log_level="ERROR"
    )
    for tool in (tools.runs, tools.show, tools.bundle, tools.plugins):
        served.add_tool(tool, annotations=READS)
    served.add_tool(tools.docs, annotations=READS, structured_output=False)
    served.add_tool(tools.plan, annotations=CODE)
    served.add_tool(tools.run, annotations=CODE)
    return served
