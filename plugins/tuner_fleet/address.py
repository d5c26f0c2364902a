"""Addresses of shared studies: what they mean, and what of them may be shown."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from tuner.errors import UsageError

#: Drivers that an address without one means.
DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
#: Databases that a study may be in; any driver of theirs may be named, as in ``mysql+mysqldb``.
DATABASES = ("postgresql", "postgres", "mysql", "mariadb", "sqlite")
PROXY, PROXY_PORT = "grpc", 13000
#: The study of an address that names none after ``#``.
NAME = "tuner"
SECRETS = frozenset({"password", "passwd", "pwd", "sslpassword", "ssl_key_password"})
HIDDEN = "***"
#: Where a password is safe, by the beginning of the address; and anywhere.
SAFE = {"postgres": "a file named by PGPASSFILE", "mysql": "a file named by ?read_default_file= in the address"}
ENCODE = "correct it; in a password, write / as %2F, # as %23, ? as %3F, @ as %40, [ as %5B, ] as %5D"
ENVIRONMENT = "the whole address in the variable TUNER_RUN_STUDY or TUNER_WORKER_STUDY"


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """Where a shared study is.

    Attributes:
        url: For SQLAlchemy, or for Optuna's proxy: with its password, if it has one. It is never shown.
        study: Name of the study there.
    """

    url: str
    study: str

    @property
    def is_proxy(self) -> bool:
        """Whether Optuna's proxy is asked instead of a database."""
        return self.url.startswith(f"{PROXY}://")

    @property
    def has_password(self) -> bool:
        """Whether the address itself holds a password."""
        parts = urlsplit(self.url)
        return parts.password is not None or any(name.lower() in SECRETS for name, _ in parse_qsl(parts.query))

    @property
    def way_out(self) -> str:
        """Where its password would be safe."""
        files = [f"it in {file}, or " for database, file in SAFE.items() if self.url.startswith(database)]
        return f"put {''.join(files)}{ENVIRONMENT}"

    @property
    def shown(self) -> str:
        """The address as it is shown and written: without a password."""
        shown = redacted(self.url)
        return shown if self.study == NAME else f"{shown}#{quote(self.study)}"

    def hidden(self, text: str) -> str:
        """Return a text, such as a driver's error, without the password."""
        parts = urlsplit(self.url)
        pairs = parse_qsl(parts.query)
        secrets = [parts.password or "", *(value for name, value in pairs if name.lower() in SECRETS)]
        shown = text.replace(self.url, self.shown)
        for form in {form for secret in secrets for form in (secret, unquote(secret), quote(secret, safe=""))} - {""}:
            shown = shown.replace(form, HIDDEN)
        return shown

    def __repr__(self) -> str:
        """Return what may be shown."""
        return f"<Address {self.shown}>"


def redacted(url: str) -> str:
    """Return an address without its password."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    netloc = f"{name}{colon and f':{HIDDEN}'}{at}{host}"
    pairs = [(key, HIDDEN if key.lower() in SECRETS else value) for key, value in parse_qsl(parts.query, True)]  # noqa: FBT003 - blank values stay
    scheme = next((short for short, long in DRIVERS.items() if parts.scheme == long), parts.scheme)
    path = f"//{parts.path}" if not parts.netloc and scheme.startswith("sqlite") else parts.path
    return urlunsplit((scheme, netloc, path, urlencode(pairs, safe="*/:"), ""))


def _is_cut(parts: SplitResult, text: str) -> bool:
    """Return whether a password seems to hold what ends it, or the host: all of it that comes after would be shown.

    Only where one @ follows the first colon is it clear what the password is.
    """
    if parts.scheme.startswith("sqlite"):
        return False
    before, at, _ = text.partition("://")[2].rpartition("@")
    if not at or "@" in parts.path:
        return bool(at)
    return (":" in before and (parts.netloc.count("@") != 1 or "@" in parts.query + parts.fragment)) or (
        not parts.path and "@" in parts.query + parts.fragment
    )


def read_address(text: str) -> Address:
    """Return an address as the user gives it: ``postgresql://host/db``, ``grpc://host:port``; ``#name`` names a study.

    Raises:
        UsageError: It is none of a database that Optuna knows.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # it may quote a password
        raise UsageError(
            f"the address of a study must be such as postgresql://host/db, got one that is none: {ENCODE}"
        ) from None
    database, plus, _ = parts.scheme.partition("+")
    has_slashes = text[len(parts.scheme) :].startswith("://")
    if not has_slashes or (parts.scheme != PROXY and database not in DATABASES):
        got = f"{parts.scheme}:{'//' if has_slashes else '/'}" if parts.scheme else "none of them"
        raise UsageError(
            f"the address of a study must begin with postgresql://, mysql://, sqlite:/// or grpc://, got {got}: "
            "correct it"
        )
    if _is_cut(parts, text):
        raise UsageError(f"the address of a study has an @ too many, or after its host: {ENCODE}")
    study = unquote(parts.fragment) or NAME
    if not study.isprintable():
        raise UsageError("the name of a study, after #, must be printable: give another one")
    if parts.scheme == PROXY:
        if not parts.hostname:
            raise UsageError(
                "the address of a study must name a host, as in grpc://host:13000, got grpc:// without: correct it"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return Address(f"{PROXY}://{host}:{port or PROXY_PORT}", study)
    scheme = parts.scheme if plus else DRIVERS.get(parts.scheme, parts.scheme)
    head, _, _ = text.partition("#")
    return Address(scheme + head[len(parts.scheme) :], study)


def warn_of_password(address: Address, say: Callable[[str], object]) -> None:
    """Say so where an address with its password is in the list of processes."""
    if (exposed := exposed_password(address)) is not None:
        say(f"warning: {exposed}")


def exposed_password(address: Address, safe: str = ENVIRONMENT) -> str | None:
    """Return what to say where an address with its password is in the list of processes; one from a variable is not.

    Args:
        address: The address.
        safe: Where the whole address is safe.
    """
    place = address.url.partition("://")[2]
    if not address.has_password or not any(place in argument for argument in sys.argv):
        return None
    advice = address.way_out.replace(ENVIRONMENT, safe)
    return f"whoever may list processes may read the password in the study's address: {advice}"
