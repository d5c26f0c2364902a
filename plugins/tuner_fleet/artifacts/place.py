"""Where workers of a shared study put the weights of its front: a folder, or a bucket of an S3-compatible store."""

import re
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError
from tuner.reading import is_address

SCHEME = "s3:"
#: Names that boto3 takes.
BUCKET = re.compile(r"[a-zA-Z0-9._-]{1,255}")
#: Where keys are safe.
KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, or a part of one.

    Attributes:
        name: Its name.
        prefix: What the names of all objects begin with: empty, or with a slash at its end.
    """

    name: str
    prefix: str = ""

    def __str__(self) -> str:
        """Return it as the user gives it."""
        return f"{SCHEME}//{self.name}/{self.prefix}".rstrip("/")


def read_artifacts(place: str | Path) -> Path | Bucket:
    """Return where weights are, as the user gives it: the path of a folder, or ``s3://BUCKET/PREFIX``.

    Raises:
        UsageError: It is an address of something else, or holds keys.
    """
    text = str(place)
    if not is_address(text) and not text.startswith(SCHEME):
        return Path(place)
    scheme, _, rest = text.partition("://")
    name, _, prefix = rest.partition("/")
    if f"{scheme}:" != SCHEME or BUCKET.fullmatch(name) is None or not prefix.isprintable():
        if "@" in text or "?" in text:  # then it is not shown
            line = "--artifacts must hold no keys, as whoever lists processes reads them: give them by "
            raise UsageError(line + KEYS)
        raise UsageError(
            f"--artifacts must be a folder, s3://BUCKET or s3://BUCKET/PREFIX, the bucket of letters, digits, '.', '_' "
            f"and '-', got {text!r}: correct it"
        )
    prefix = prefix.strip("/")
    return Bucket(name, prefix and f"{prefix}/")
