"""Optuna's artifact store in a bucket of an S3-compatible store; what goes wrong there is an error of one line.

Endpoint, region, keys and certificates are those of boto3's own variables and files: none passes through `tuner`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit
from uuid import uuid4

from optuna.artifacts import Boto3ArtifactStore
from optuna.artifacts.exceptions import ArtifactNotFound

from tuner.errors import RunError, TunerError, disk_error, first_line, missing_extra
from tuner.printable import one_line
from tuner_fleet.artifacts.place import KEYS, Bucket

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

#: Seconds for a connection and for each answer; how often a request is made, with seconds in between.
CONNECT_SECONDS, ANSWER_SECONDS, TRIES = 5, 10, 3
#: Letters of what boto3 or the server says that are shown.
MOST_LETTERS = 200
#: Variable that names the server.
ENDPOINT = "AWS_ENDPOINT_URL_S3"
NO_ADDRESS = f"{ENDPOINT} or AWS_ENDPOINT_URL is no address: give one such as https://host:9000"
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
        TunerError: A variable or a file of boto3's cannot be used, or boto3 is not installed.
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
        with self.explained():
            session = Session()
            session.get_credentials()  # what is wrong with those is not what is wrong with the address
            try:
                client = session.client("s3", config=config)
            except BotoCoreError:
                raise
            except ValueError:  # its text holds all that the address does
                raise RunError(NO_ADDRESS) from None
        url = client.meta.endpoint_url
        if "@" not in url:  # what is before it may be a key, wherever it is
            self._endpoint = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        self._store = Boto3ArtifactStore(bucket.name, client)

    def check(self) -> None:
        """See that objects can be written and removed.

        Raises:
            RunError: They cannot.
        """
        probe = f"probe-{uuid4()}"  # a name that nobody else uses
        self.write(probe, BytesIO())
        self.remove(probe)

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
        key = self._bucket.prefix + artifact_id
        with self.explained():  # Optuna's way has threads of its own, which the end of the process waits for
            self._store.client.put_object(Bucket=self._bucket.name, Key=key, Body=content_body)

    def remove(self, artifact_id: str) -> None:
        """Remove an object, if there is one.

        Raises:
            RunError: It cannot be removed.
        """
        with self.explained():
            self._store.remove(self._bucket.prefix + artifact_id)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise what boto3 or the system raises in a block as an error of one line.

        Raises:
            TunerError: The line.
        """
        from botocore.exceptions import ClientError

        try:
            yield
        except ArtifactNotFound as error:
            cause = error.__cause__  # to Optuna, a bucket that is not there is an object that is not there
            if isinstance(cause, ClientError) and _code(cause) not in {"NoSuchKey", "404"}:
                raise self._line(cause) or cause from None
            raise
        except TunerError:
            raise
        except Exception as error:
            line = self._line(error)
            if line is None:
                raise
            raise line from None

    def _line(self, error: Exception) -> TunerError | None:
        """Return the line for an exception of boto3's, or of the system; None for another exception."""
        from botocore import exceptions as known
        from botocore.parsers import ResponseParserError

        if isinstance(error, known.ClientError):
            return self._refusal(error)
        silent = (known.ConnectionError, known.HTTPClientError, known.IncompleteReadError, ResponseParserError)
        if isinstance(error, silent):
            return self._unreached(error)
        if "Custom endpoint" in str(error):
            return RunError(NO_ADDRESS)
        if isinstance(error, known.NoCredentialsError | known.PartialCredentialsError):
            return RunError(f"{self._bucket} needs keys, and this device has none ({_short(error)}): give {KEYS}")
        if isinstance(error, known.BotoCoreError | OSError | ValueError):  # those of the system, by who brings the keys
            line = f"{self._bucket} cannot be used ({_short(error)}): correct it in the variables AWS_… or in ~/.aws"
            return (disk_error(error) if isinstance(error, OSError) else None) or RunError(line)
        return None

    def _unreached(self, error: Exception) -> RunError:
        """Return the line for a request that no answer of S3's came to."""
        from botocore import exceptions as known

        cause: Any = getattr(error, "kwargs", {}).get("error")  # urllib3's or Python's own
        if isinstance(error, known.SSLError) and isinstance(cause.args[0], SSLCertVerificationError):
            return RunError(
                f"{self._endpoint} has no certificate that this device trusts ({cause}): give its authority's by "
                f"AWS_CA_BUNDLE, or correct {ENDPOINT}"
            )
        if isinstance(error, known.SSLError):
            return RunError(
                f"there is no encrypted connection to {self._endpoint} ({cause}): see that it takes https://, and that "
                "AWS_CA_BUNDLE, where it is given, is a file of certificates"
            )
        if type(error) is known.HTTPClientError:  # its text holds what cannot be sent
            return RunError(
                f"{self._bucket}: no request to {self._endpoint} can be made ({type(cause).__name__}): see that no "
                f"line break is in {KEYS}, and correct {ENDPOINT}"
            )
        return RunError(
            f"{self._bucket}: {self._endpoint} does not answer as S3 does ({type(error).__name__}): see that it runs, "
            f"and that {ENDPOINT} names it"
        )

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
    """Return an exception's class and what it says; only the class where a key may be in it."""
    text = one_line(first_line(error))[:MOST_LETTERS]
    return type(error).__name__ if "@" in text else text
