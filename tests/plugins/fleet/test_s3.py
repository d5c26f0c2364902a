"""Weights in an S3-compatible bucket: a real server's, and each way in which one cannot be used, in a line."""

import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
from botocore.stub import Stubber
from optuna.artifacts.exceptions import ArtifactNotFound

import tuner
from benchmarks.fleet.servers import PASSWORD as SECRET
from benchmarks.fleet.servers import SeaweedFS, running
from tuner.cli.app import call
from tuner.commands.runs.source import run_to_export
from tuner.errors import RunError, TunerError, UsageError
from tuner.task import Task
from tuner_fleet.artifacts.place import KEYS, Bucket, read_artifacts
from tuner_fleet.artifacts.stores import BucketStore, explained, open_writable

PLACE = Bucket("weights", "digits/")
URL = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's own settings out of it."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    set_all(monkeypatch, {"AWS_ENDPOINT_URL_S3": URL, "AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": SECRET})


def set_all(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server() -> Iterator[SeaweedFS]:
    """An S3-compatible server."""
    if SeaweedFS.programs() is None:
        pytest.skip("SeaweedFS is not installed")
    with running(SeaweedFS) as found:
        yield found


@pytest.mark.slow
def test_a_third_folder_exports_what_two_workers_have_sent_to_a_bucket(
    tune: Callable[..., Any],
    moods: Callable[..., None],
    task: Task,
    server: SeaweedFS,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_all(monkeypatch, server.variables)
    moods("well")
    place, study = "s3://weights/fleet/digits", f"sqlite:///{tmp_path / 'study.db'}"
    one = tune(trials=2, study=study, artifacts=place)
    other = tune(trials=5, study=study, artifacts=place, out=tmp_path / "other")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in written
    assert {record.trial for record in one.records} < {record.trial for record in other.records}
    shutil.rmtree(one.folder)
    shutil.rmtree(other.folder)

    sent = [item["Key"] for item in server.client.list_objects_v2(Bucket="weights", Prefix="fleet/")["Contents"]]
    assert all(key.startswith("fleet/digits/") for key in sent)
    assert len(sent) >= len(other.front) > 0
    with run_to_export(study, "best", place) as found:
        tuner.export(tuner.Run.open(found.folder, task), tmp_path / "third", refit=False)
    assert (tmp_path / "third" / "weights.safetensors").read_bytes() == b"weights"

    for key in sent:
        server.client.delete_object(Bucket="weights", Key=key)
    for elsewhere, line in (
        (place, rf"the weights of trial \d+ are not in {place}: give --artifacts as the workers have it"),
        ("s3://others/digits", r"the weights of trial \d+ are not in s3://others/digits: give --artifacts"),
    ):
        with pytest.raises(RunError, match=line), run_to_export(study, "best", elsewhere):
            pass
    with pytest.raises(RunError, match=r"s3://others cannot be used \(.*NoSuchBucket.*: see that the server"):
        open_writable(Bucket("others"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(RunError, match=r"cannot be used \(.*SignatureDoesNotMatch.*\): see that"):
        open_writable(PLACE)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://weights", Bucket("weights")),
        ("s3://weights/", Bucket("weights")),
        ("s3://weights/a/b/", Bucket("weights", "a/b/")),
        ("/mnt/weights", Path("/mnt/weights")),
        ("weights", Path("weights")),
    ],
)
def test_a_place_is_a_folder_or_a_bucket(text: str, place: object) -> None:
    assert read_artifacts(text) == place
    assert str(read_artifacts(text)) == text.rstrip("/")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("s3://", "--artifacts must be a folder, s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3:/weights", "--artifacts must be a folder, s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3://a bucket", "got 's3://a bucket': correct it"),
        ("gs://weights", "got 'gs://weights': correct it"),
        ("s3://mine:s3cret@weights", "--artifacts must hold no keys, as whoever lists processes reads them"),
        ("s3:mine:s3cret@weights", "--artifacts must hold no keys, as whoever lists processes reads them"),
        ("s3:///mine:s3cret@weights", "--artifacts must hold no keys, as whoever lists processes reads them"),
        ("s3://weights?key=s3cret", "--artifacts must hold no keys, as whoever lists processes reads them"),
    ],
)
def test_a_place_that_is_none_is_refused_before_the_task_is_opened(
    text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = f"sqlite:///{tmp_path / 'study.db'}"
    assert call(["run", "no-task", "--time", "9h", "--study", study, "--artifacts", text]) == 2
    assert call(["export", study, str(tmp_path / "out"), "--artifacts", text]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line in one and "s3cret" not in one for one in lines)
    with pytest.raises(UsageError, match="--artifacts must"):
        read_artifacts(Path("s3://weights"))  # a path has lost one of the slashes


def refused(variables: dict[str, str | None], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the line with which a bucket is refused."""
    for name, value in variables.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(TunerError) as caught:
        open_writable(PLACE)
    assert SECRET not in str(caught.value)
    return str(caught.value)


UNREACHED = "EndpointConnectionError: Could not connect to the endpoint URL: ***"
NONE = "EndpointResolutionError: Custom endpoint *** was not a valid URI"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, UNREACHED),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "NoCredentialsError: Unable to locate"),
        ({"AWS_SECRET_ACCESS_KEY": None}, "PartialCredentialsError: Partial credentials found in env"),
        ({"AWS_PROFILE": "nobody"}, "ProfileNotFound: The config profile (nobody)"),
        ({"AWS_ENDPOINT_URL_S3": f"me:{SECRET}@"}, "ValueError: Invalid endpoint: ***"),
        ({"AWS_ENDPOINT_URL_S3": f"http://me:{SECRET}@127.0.0.1:9"}, UNREACHED),
        ({"AWS_ENDPOINT_URL_S3": f"http://{SECRET}@127.0.0.1:9"}, UNREACHED),
        ({"AWS_ENDPOINT_URL_S3": f"{URL}/{SECRET}"}, UNREACHED),
        ({"AWS_ENDPOINT_URL_S3": f"{URL}/?key={SECRET}"}, NONE),
        ({"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{SECRET}"}, NONE),
        ({"AWS_DEFAULT_REGION": "my region"}, "InvalidRegionError: Provided region_name 'my region'"),
        ({"AWS_SESSION_TOKEN": f"{SECRET}\n"}, "HTTPClientError: An HTTP Client raised an unhandled exception: "),
    ],
)
def test_a_store_that_cannot_be_used_is_said_so_in_one_line(
    given: dict[str, str | None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(given, monkeypatch)
    assert said.startswith(f"s3://weights/digits cannot be used ({reason}")
    assert said.endswith("): see that the server runs, and correct AWS_ENDPOINT_URL_S3, " + f"{KEYS}, or ~/.aws")
    assert "\n" not in said


@pytest.mark.parametrize("process", ["/nonexistent", "/bin/echo 'me", "/bin/echo {bad", f"/bin/ls /me@{SECRET}"])
def test_a_program_for_keys_that_fails_is_said_so_in_one_line(
    process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(f"[profile mine]\ncredential_process = {process}\n")
    given = {"AWS_PROFILE": "mine", "AWS_CONFIG_FILE": str(tmp_path / "config")}
    said = refused({**given, "AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, monkeypatch)
    assert said.startswith("s3://weights/digits cannot be used (")
    assert "\n" not in said


def test_what_a_server_refuses_is_passed_on_in_one_line_and_what_is_gone_is_not_found() -> None:
    store = BucketStore(PLACE)
    with Stubber(store.client) as stub:
        for code in ("NoSuchBucket", "AccessDenied", "SlowDown\n"):
            stub.add_client_error("put_object", code, http_status_code=400)
            with pytest.raises(RunError, match=rf": An error occurred \({code.strip()}") as caught, explained(PLACE):
                store.write("weights", BytesIO())
            assert "\n" not in str(caught.value)
        stub.add_client_error("get_object", "NoSuchKey", http_status_code=404)
        with pytest.raises(ArtifactNotFound), explained(PLACE):
            store.open_reader("weights")


def test_boto3_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(TunerError, match=r"this needs boto3, which is not installed: pip install .*\[s3\]"):
        BucketStore(PLACE)


class Answers(BaseHTTPRequestHandler):
    """Says that it is busy, once; takes whatever is written; breaks off what is read."""

    busy = 1
    put: ClassVar[list[str]] = []

    def do_PUT(self) -> None:
        self.put.append(self.path)
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(503 if type(self).busy else 200)
        type(self).busy = 0

    def do_DELETE(self) -> None:
        self._answer(204)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"weights")

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Answers, "busy", 1)
    monkeypatch.setattr(Answers, "put", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{running.server_port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        yield url
        running.shutdown()
        thread.join()


def test_a_busy_server_is_asked_again_and_what_is_written_to_see_whether_it_may_be_has_a_name_of_its_own(
    answers: str,
) -> None:
    for _ in range(2):
        open_writable(PLACE)
        assert Answers.busy == 0
    first, *_, second = Answers.put
    assert first.startswith("/weights/digits/probe-")
    assert len(first) > len("/weights/digits/probe-") + 30
    assert first != second


@pytest.mark.parametrize("given", [{}, {"AWS_CA_BUNDLE": "/nonexistent"}])
def test_an_encrypted_connection_that_fails_is_said_so(
    given: dict[str, str | None], answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused({**given, "AWS_ENDPOINT_URL_S3": answers.replace("http:", "https:")}, monkeypatch)
    assert said.startswith("s3://weights/digits cannot be used (SSLError: SSL validation failed for *** [")


def test_weights_that_break_off_are_no_weights(answers: str) -> None:
    store = BucketStore(PLACE)
    assert answers
    with pytest.raises(RunError, match="s3://weights/digits cannot be used"), explained(PLACE):
        shutil.copyfileobj(store.open_reader("weights"), BytesIO())


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner_fleet.artifacts.stores.ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("tuner_fleet.artifacts.stores.TRIES", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        line = refused({"AWS_ENDPOINT_URL_S3": url}, monkeypatch)
    assert line.startswith("s3://weights/digits cannot be used (ReadTimeoutError: Read timeout on endpoint URL: ***")
    assert time.monotonic() - began < 5
