"""Messages on a socket: a length, then the content. Whoever dies within one costs a job, never the reader."""

import select
import socket
import struct
from contextlib import suppress

from tuner.errors import TunerError

LENGTH = struct.Struct("!Q")
#: Longest message of a job: one that returns more by mistake fails.
MOST_BYTES = 4_000_000
READ_BYTES = 1 << 16


class MessageError(TunerError):
    """What is sent, or what arrives, is no message."""


def pack(content: bytes) -> bytes:
    """Return a message."""
    return LENGTH.pack(len(content)) + content


def receive(connection: socket.socket) -> bytes:
    """Return the content of a message of the parent, and wait for it.

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
    """The parent's end of a socket: half a message is not waited for.

    Args:
        connection: The socket; the channel closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._received = connection, bytearray()

    def send(self, content: bytes, *descriptors: int) -> None:
        """Send what is packed, after descriptors if any; where the other end is gone, `listen` says so."""
        with suppress(OSError):
            if descriptors:
                socket.send_fds(self._socket, [b"d"], list(descriptors))
            self._socket.sendall(content)

    def listen(self, seconds: float) -> list[bytes] | None:
        """Return the messages that have arrived whole; None where nothing arrives for so long.

        Raises:
            EOFError: The other end is closed.
            MessageError: What begins is no message.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(1000 * seconds):
            return None
        try:
            arrived = self._socket.recv(READ_BYTES)
        except OSError:
            arrived = b""
        if not arrived:
            raise EOFError
        self._received += arrived
        return list(iter(self._next, None))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _next(self) -> bytes | None:
        if len(self._received) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._received)
        if length > MOST_BYTES:
            raise MessageError(f"its process sent what is no message, or one of {length:,} bytes")
        end = LENGTH.size + length
        if len(self._received) < end:
            return None
        content = bytes(self._received[LENGTH.size : end])
        del self._received[:end]
        return content
