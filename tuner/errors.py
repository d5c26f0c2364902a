"""Errors a user can act on. Each message gives the rule, the value that broke it, and the way out, in one line.

The command line prints a `TunerError` without a traceback and exits with its exit code; any other exception is a bug of
the project, or of a plugin, and keeps its traceback.
"""

import errno
import traceback
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from tuner.distribution import install_command

#: Letters of an exception's message, and of a traceback, that are kept.
MOST_LETTERS, MOST_TRACE = 2_000, 20_000
#: Exit codes of commands: done, a mistake in what was given, and in how the command was called.
DONE, MISTAKE, USAGE = 0, 1, 2
#: A limit leaves no room for what was asked; a run has ended, but no trial obeys its limits.
LIMIT, NO_TRIAL_FITS = 3, 4
#: Ctrl-C or SIGTERM, as shells count SIGINT.
INTERRUPTED = 130


class TunerError(Exception):
    """An error the user can act on; reported in one line.

    Attributes:
        exit_code: How a command ends that fails with it.
    """

    exit_code: ClassVar[int] = MISTAKE


class UsageError(TunerError):
    """A command was given options or arguments that mean nothing, or nothing together."""

    exit_code = USAGE


class TaskError(TunerError):
    """A task file, its data or its model cannot be used as they are."""


class ModelError(TunerError):
    """A model description cannot be read, or its layers do not fit together."""


class PlanError(TunerError):
    """A plan breaks a rule, or two strategies claim the same value."""


class KnobError(TunerError):
    """A knob, or its range in a search space, is not one the strategy allows."""


class RangeError(KnobError):
    """A strategy draws a knob in a way that no search space can put right."""


class SpaceError(TunerError):
    """A search-space file cannot be used as it is."""


class PluginError(TunerError):
    """A plugin broke the contract; the message names the plugin."""


class ExtensionError(TunerError):
    """A plugin's function failed, or broke a rule: one that realises `what` (``tail edit``) of some kind."""

    what: ClassVar[str]
    noun: ClassVar[str]

    def __init__(self, kind: str, rule: str) -> None:
        super().__init__(f"{self.noun} {kind!r}: {rule}")
        self.kind = kind


class StoreError(TunerError):
    """The feature store cannot be read or written."""


class BudgetError(TunerError):
    """A limit leaves no room for the request."""

    exit_code = LIMIT


class MemoryLimitError(BudgetError):
    """Work took more memory than its limit, and was ended."""


class NoTrialFitsError(BudgetError):
    """A run has ended, and none of its trials obeys every limit."""

    exit_code = NO_TRIAL_FITS


class UnsupportedError(TunerError):
    """A backend cannot carry out a plan, which it noticed only when it began; another backend may."""


class TrainingError(TunerError):
    """Training cannot continue."""


class DivergedError(TrainingError):
    """A training's loss rose instead of falling: its learning rate is too high."""


class RunError(TunerError):
    """A run folder cannot be used as asked."""


class BundleError(TunerError):
    """A bundle cannot be opened by this version."""


def first_line(error: BaseException) -> str:
    """Return an exception's class and the first line of its message; see `text_of`."""
    return " ".join([f"{type(error).__name__}:", *text_of(error).strip().splitlines()[:1]])


def text_of(error: BaseException) -> str:
    """Return an exception's message, cut at `MOST_LETTERS`; that of a plugin's may itself raise."""
    try:
        return str(error)[:MOST_LETTERS]
    except Exception as second:  # noqa: BLE001 - of any class
        return f"its text raised {type(second).__name__}"


def with_trace(error: TunerError, trace: str) -> TunerError:
    """Return an error with the traceback of its cause as a note, which ``--verbose`` shows; none where it is empty."""
    if trace:
        error.add_note(trace)
    return error


def trace_of(error: BaseException) -> str:
    """Return an exception's traceback: its end, of `MOST_TRACE` letters."""
    return "".join(traceback.format_exception(error))[-MOST_TRACE:]


def trace_of_cause(error: BaseException) -> str:
    """Return the traceback of an error that code of the user's, or of a plugin, caused; of any other, nothing."""
    return "" if error.__cause__ is None else "".join(traceback.format_exception(error))


def place_of(error: BaseException) -> str:
    """Return where a plugin's function raised, as `` (mine.py, line 14)``; empty where it was not reached.

    The line is the last one in the function's own file; whoever called the function has caught the error. Decorators of
    PyTorch, such as `torch.no_grad`, do not count as the function.
    """
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in list(traceback.walk_tb(error.__traceback__))[1:]
        if frame.f_globals.get("__name__", "").partition(".")[0] != "torch"
    ]
    own = [line for file, line in frames if file == frames[0][0]]
    return f" ({Path(frames[0][0]).name}, line {own[-1]})" if own else ""


def call_extension(
    raised: type[ExtensionError], kind: str, function: Callable[..., Any], *arguments: Any, did: str = ""
) -> Any:
    """Call a plugin's function; what it raises becomes an error that names its kind, but for a `TunerError`."""
    try:
        return function(*arguments)
    except TunerError:
        raise
    except Exception as error:
        raise raised(kind, f"{did}{first_line(error)}{place_of(error)}") from error


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the candidate closest to a word, or an empty string."""
    match = get_close_matches(word, list(candidates), n=1, cutoff=0.5)
    return f" (did you mean {match[0]!r}?)" if match else ""


#: Extra that installs a library which the base package does without.
EXTRAS = {
    "boto3": "s3",
    "grpc": "study",
    "huggingface_hub": "hf",
    "inotify_simple": "watch",
    "matplotlib": "report",
    "mcp": "mcp",
    "onnx": "tune",
    "onnxscript": "tune",
    "optuna": "tune",
    "optuna_dashboard": "dashboard",
    "pandas": "pandas",
    "psycopg": "study",
    "pymysql": "mysql",
    "pytest": "kit",
    "ray": "ray",
    "scipy": "tune",
    "sklearn": "demo",
    "soundfile": "audio",
    "soxr": "audio",
    "timm": "timm",
    "tokenizers": "text",
    "torch": "tune",
    "torchvision": "tune",
    "transformers": "hf",
    "wordllama": "text",
}


def missing_extra(error: ModuleNotFoundError) -> TunerError | None:
    """Return an error that names the extra to install for a failed import; None where no extra brings the module."""
    library = (error.name or "").split(".")[0]
    if library not in EXTRAS:
        return None
    instead = "; tuner instant needs no PyTorch" if EXTRAS[library] == "tune" else ""
    return TunerError(f"this needs {library}, which is not installed: {install_command(EXTRAS[library])}{instead}")


#: Way out where the system does not let a file be written.
WAYS_OUT = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or raise the quota",
    errno.EFBIG: "raise the limit on the size of a file",
    errno.EROFS: "give a folder that can be written",
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EIO: "check the disk",
    errno.EMFILE: "raise the limit on open files",
    errno.ENAMETOOLONG: "give a shorter name",
}


def disk_error(error: OSError, place: Path | None = None, then: str = "") -> TunerError | None:
    """Return the error that a full or protected disk is to the user; None where the reason is another one.

    `place` could not be written, where the error does not name it; `then` says what to do once the way is free.
    """
    way_out = WAYS_OUT.get(error.errno or 0)
    if way_out is None:
        return None
    done = "written" if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG} else "used"
    return TunerError(f"{error.filename or place or 'a file'} cannot be {done} ({error.strerror}): {way_out}{then}")


def opening_error(error: OSError) -> TunerError:
    """Return the error that the user sees where the system kept a task from being opened."""
    return disk_error(error) or TaskError(f"opening the task failed: {first_line(error)}: see what it names")
