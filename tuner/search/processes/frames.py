"""Frames on a socket: a kind, a length, the content. Whoever reads decides how much it takes and how long it waits."""

import select
import socket
import struct
import time
from collections import deque
from contextlib import suppress

from tuner.errors import TunerError

HEADER, LENGTH = struct.Struct("!cI"), struct.Struct("!Q")
PROGRESS, RESULT, FAILURE = b"p", b"r", b"f"
#: Of the process that children are forked from: the task, loaded; it is open; a child's process id; its exit code.
TASK, OPENED, FORKED, EXITED = b"t", b"o", b"c", b"x"
#: Longest content of a frame, by its kind: there is no other kind.
MOST_BYTES = {PROGRESS: 16_000, RESULT: 4_000_000, FAILURE: 300_000, TASK: 4_000_000, OPENED: 0, FORKED: 20, EXITED: 20}
READ_BYTES = 1 << 16


class FrameError(TunerError):
    """The process at the other end sent what it may not send."""


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """Return a frame.

    Raises:
        FrameError: The content is longer than frames of its kind may be.
    """
    most = MOST_BYTES[kind]
    if len(content) > most:
        raise FrameError(f"a message of {len(content):,} bytes is too long: at most {most:,} are allowed")
    return HEADER.pack(kind, len(content)) + content


def packed(content: bytes) -> bytes:
    """Return a message to the process that children are forked from: it trusts the parent, so any length will do."""
    return LENGTH.pack(len(content)) + content


def receive_packed(connection: socket.socket) -> bytes:
    """Return a message of the parent, and wait for it.

    Raises:
        EOFError: The parent is gone.
    """
    (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        arrived = connection.recv(min(READ_BYTES, length - len(received)))
        if not arrived:
            raise EOFError
        received += arrived
    return bytes(received)


class Channel:
    """One end of a socket that is never waited for: what cannot be sent yet is kept, half a frame is not returned.

    Args:
        connection: The socket; the channel closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0.0)
        self._socket, self._received = connection, bytearray()
        self._unsent = deque[memoryview]()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the other end was too slow for so far."""
        return sum(map(len, self._unsent))

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def post(self, content: bytes) -> None:
        """Send now what can be sent, and the rest later; nothing where the other end is gone."""
        self._unsent.append(memoryview(content))
        self.send()

    def send(self, seconds: float = 0.0) -> None:
        """Send what is unsent, and wait for so long at most."""
        until = time.monotonic() + seconds
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent[0])
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._wait(left, select.POLLOUT)
            except OSError:  # the other end is gone, which reading reports
                self._unsent.clear()
            else:
                rest = self._unsent.popleft()[sent:]
                if rest:
                    self._unsent.appendleft(rest)

    def listen(self, seconds: float) -> list[tuple[bytes, bytes]]:
        """Return the frames that have arrived whole, as kind and content; wait for the first for so long at most.

        Raises:
            EOFError: The other end is closed.
            FrameError: A frame of another kind, or one that is too long, begins.
        """
        self.send()
        self._wait(seconds, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        try:
            arrived = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            arrived = b""
        if not arrived:
            raise EOFError
        self._received += arrived
        return list(iter(self._next, None))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _next(self) -> tuple[bytes, bytes] | None:
        if len(self._received) < HEADER.size:
            return None
        kind, length = HEADER.unpack_from(self._received)
        most = MOST_BYTES.get(kind)
        if most is None:
            raise FrameError("its process sent what is no message")
        if length > most:
            raise FrameError(f"its process sent a message of {length:,} bytes: at most {most:,} are allowed")
        end = HEADER.size + length
        if len(self._received) < end:
            return None
        content = bytes(self._received[HEADER.size : end])
        del self._received[:end]
        return kind, content

    def _wait(self, seconds: float, events: int) -> None:
        poll = select.poll()
        with suppress(ValueError):  # closed: the next call says so
            poll.register(self._socket, events)
            poll.poll(max(0.0, 1000 * seconds))
