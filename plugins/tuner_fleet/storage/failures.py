"""What an error of a shared study's database means: wait and ask again, correct something, or a bug."""

import re

from optuna.exceptions import StorageInternalError

from tuner.errors import RunError, first_line
from tuner_fleet.storage.finish import NO_ANSWER

#: SQLAlchemy's errors after which the same question may be answered later. Optuna asks again within the same
#: transaction, which is pending where the first question was cut off.
OUTAGES = frozenset({"OperationalError", "InterfaceError", "PendingRollbackError"})
#: What SQLite and MariaDB's driver call an OperationalError too, and no waiting changes.
DENIED = re.compile(r"denied (to|for) user|readonly database|no such table")
#: What gRPC says where the proxy does not answer.
SILENT = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
#: An error of the database in the proxy's text, which is all that the proxy passes on: its class, and its first line.
REMOTE = re.compile(rf"{NO_ANSWER}: ((\w+): .*)")


def as_text(error: BaseException) -> str:
    """Return an error of a database as the proxy passes it on; `REMOTE` finds its class in it."""
    return f"An exception is {NO_ANSWER}: {first_line(error)}"


def reason_of(error: BaseException) -> str:
    """Return what failed, in one line: the class and the message of the database's error, or gRPC's code."""
    return _failure(error)[1]


def is_outage(error: BaseException) -> bool:
    """Return whether an exception says that the database or the proxy does not answer, but may later."""
    name, reason = _failure(error)
    return name in SILENT or (name in OUTAGES and not DENIED.search(reason))


def refusal(error: BaseException) -> RunError | None:
    """Return what to tell the user where a database does not take what it is given; None for all else."""
    name, reason = _failure(error)
    if name == "DataError":
        return RunError(f"the study's database does not take a record ({reason}): give one whose tables tuner has made")
    if name == "ProgrammingError" or (name in OUTAGES and DENIED.search(reason)):
        return RunError(f"the study's database refuses ({reason}): see that the tables are its own, and may be written")
    if name == "UNKNOWN" and NO_ANSWER in reason:
        return RunError(f"the study's proxy failed ({reason}): see its own messages, and that it is of this version")
    return None


def _failure(error: BaseException) -> tuple[str, str]:
    """Return the name of an error of the database or of gRPC, and a line about it; no name for all other errors."""
    if isinstance(error, StorageInternalError):
        error = error.__cause__ or error
    code = getattr(error, "code", None)
    if callable(code) and hasattr(error, "details"):  # gRPC's, which may not be installed
        name, details = str(getattr(code(), "name", "")), str(error.details())
        if found := REMOTE.search(details):
            return found[2], found[1]
        return name, f"{name}: {details}".splitlines()[0]
    name = type(error).__name__ if type(error).__module__.startswith("sqlalchemy") else ""
    return name, first_line(error)
