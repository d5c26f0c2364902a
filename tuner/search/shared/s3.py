"""Optuna's artifact store in a bucket of an S3-compatible store; what goes wrong there is an error of one line.

Endpoint, region, keys and certificates are those of boto3's own variables and files: none passes through `tuner`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from optuna.artifacts import Boto3ArtifactStore
from optuna.artifacts.exceptions import ArtifactNotFound

from tuner.errors import RunError, first_line, missing_extra
from tuner.printable import one_line
from tuner.search.shared.address import redacted
from tuner.search.shared.artifacts import KEYS, Bucket

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

#: Seconds for a connection and for each answer; how often a request is made, with seconds in between.
CONNECT_SECONDS, ANSWER_SECONDS, TRIES = 5, 10, 3
#: Written and removed to see whether weights may be.
PROBE = "probe"
#: Letters of what boto3 or the server says that are shown.
MOST_LETTERS = 200
#: Variable that names the server.
ENDPOINT = "AWS_ENDPOINT_URL_S3"
#: What is wrong, by the codes of S3's answers.
REFUSALS: Mapping[str, tuple[str, ...]] = {
    f"{{endpoint}} does not accept the keys ({{code}}): correct {KEYS}": (
        *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"),
    ),
    "{endpoint} does not let these keys use {bucket} ({code}): allow them s3:GetObject, and workers s3:PutObject and "
    "s3:DeleteObject, or give other keys": ("AccessDenied", "AllAccessDisabled", "AccountProblem", "403"),
    "there is no bucket {bucket.name} at {endpoint}: make it there, or correct --artifacts": ("NoSuchBucket", "404"),
    "{bucket} is of another region than {endpoint} ({code}): give the bucket's by AWS_DEFAULT_REGION": (
        *("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"),
    ),
    "the clock of this device is wrong for {endpoint} ({code}): set it": ("RequestTimeTooSkewed", "RequestExpired"),
}


class BucketStore:
    """A bucket as Optuna's artifact store.

    Args:
        bucket: Which.

    Raises:
        RunError: There are no keys, or a variable or a file of boto3's cannot be used.
        TunerError: boto3 is not installed.
    """

    def __init__(self, bucket: Bucket) -> None:
        try:
            from boto3.session import Session
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None
        self._bucket, self._endpoint = bucket, "the server"
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"total_max_attempts": TRIES, "mode": "standard"},
        )
        try:
            client = Session().client("s3", config=config)
        except (BotoCoreError, ValueError) as error:  # an address that is none is in the text, with all that it holds
            no_address = f"{ENDPOINT} or AWS_ENDPOINT_URL is no address: give one such as https://host:9000"
            raise self._line(error) or RunError(no_address) from None
        self._endpoint = redacted(client.meta.endpoint_url)
        self._store = Boto3ArtifactStore(bucket.name, client, avoid_buf_copy=True)  # no second copy in memory

    def check(self) -> None:
        """See that objects can be written and removed.

        Raises:
            RunError: They cannot.
        """
        self.write(PROBE, BytesIO())
        self.remove(PROBE)

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open an object.

        Raises:
            ArtifactNotFound: There is none.
            RunError: It cannot be read.
        """
        with self.explained():
            return self._store.open_reader(self._bucket.prefix + artifact_id)

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Write an object, whole or not at all.

        Raises:
            RunError: It cannot be written.
        """
        with self.explained():
            self._store.write(self._bucket.prefix + artifact_id, content_body)

    def remove(self, artifact_id: str) -> None:
        """Remove an object, if there is one.

        Raises:
            RunError: It cannot be removed.
        """
        with self.explained():
            self._store.remove(self._bucket.prefix + artifact_id)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise what boto3 raises in a block as an error of one line.

        Raises:
            RunError: The line.
        """
        from botocore.exceptions import ClientError

        try:
            yield
        except ArtifactNotFound as error:
            cause = error.__cause__  # to Optuna, a bucket that is not there is an object that is not there
            if isinstance(cause, ClientError) and _code(cause) not in {"NoSuchKey", "404"}:
                raise self._line(cause) or cause from None
            raise
        except Exception as error:
            line = self._line(error)
            if line is None:
                raise
            raise line from None

    def _line(self, error: Exception) -> RunError | None:
        """Return the line for an exception of boto3's; None for another exception."""
        from botocore import exceptions as known
        from botocore.parsers import ResponseParserError

        if isinstance(error, known.ClientError):
            return self._refusal(error)
        if isinstance(error, known.SSLError):
            return RunError(
                f"{self._endpoint} has no certificate that this device trusts ({error.kwargs['error']}): give its "
                f"authority's by AWS_CA_BUNDLE, or correct {ENDPOINT}"
            )
        silent = (known.ConnectionError, known.HTTPClientError, known.IncompleteReadError, ResponseParserError)
        if isinstance(error, silent):
            return RunError(
                f"{self._bucket}: {self._endpoint} does not answer as S3 does ({type(error).__name__}): see that it "
                f"runs, and that {ENDPOINT} names it"
            )
        if isinstance(error, known.NoCredentialsError | known.PartialCredentialsError):
            return RunError(f"{self._bucket} needs keys, and this device has none ({_short(error)}): give {KEYS}")
        if isinstance(error, known.BotoCoreError):
            return RunError(
                f"{self._bucket} cannot be used ({_short(error)}): correct it in the variables AWS_… or in ~/.aws"
            )
        return None

    def _refusal(self, error: "ClientError") -> RunError:
        code = _code(error)
        for rule, codes in REFUSALS.items():
            if code in codes:
                return RunError(rule.format(endpoint=self._endpoint, bucket=self._bucket, code=code))
        return RunError(
            f"{self._endpoint} refuses what {self._bucket} needs ({_short(error)}): see what it logs, and that "
            f"{ENDPOINT} names it"
        )


def _code(error: "ClientError") -> str:
    """Return the code of a refusal; the status, where there is no text."""
    return one_line(str(error.response.get("Error", {}).get("Code", "")))[:MOST_LETTERS]


def _short(error: Exception) -> str:
    return one_line(first_line(error))[:MOST_LETTERS]
