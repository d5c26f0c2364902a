"""What an error of a shared study's database means: wait and ask again, correct something, or a bug."""

import re

from optuna.exceptions import StorageInternalError

from tuner.errors import RunError, first_line

#: SQLAlchemy's errors after which the same question may be answered later. Optuna asks again within the same
#: transaction, which is pending where the first question was cut off.
OUTAGES = frozenset({"OperationalError", "InterfaceError", "PendingRollbackError"})
#: SQLAlchemy's errors of what the database does not take.
REFUSALS = frozenset({"DataError", "ProgrammingError"})
#: What SQLite and MariaDB's driver call an OperationalError too, and no waiting changes.
DENIED = re.compile(r"denied (to|for) user|readonly database|no such table")
#: What gRPC says where the proxy does not answer.
SILENT = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
#: What Optuna says where its database failed; the proxy passes on as text what `as_text` makes of it.
FAILED = "raised during the commit"
REMOTE = re.compile(rf"{FAILED}: ((\w+): .*)")


def as_text(error: BaseException) -> str:
    """Return an error of a database as the proxy passes it on; `REMOTE` finds its class in it."""
    return f"An exception is {FAILED}: {first_line(error)}"


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
    if name in REFUSALS | OUTAGES and not is_outage(error):
        return RunError(
            f"the study's database refuses ({reason}): see that its tables are Optuna's, hold so long a record and may "
            "be written"
        )
    if name == "UNKNOWN" and FAILED in reason:
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
