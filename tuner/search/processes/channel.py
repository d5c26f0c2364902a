"""Messages on a socket: a length, then the content. Whoever dies within one costs a job, never the reader."""

import select
import socket
import struct
from contextlib import suppress

LENGTH = struct.Struct("!Q")
READ_BYTES = 1 << 16


def pack(content: bytes) -> bytes:
    """Return a message."""
    return LENGTH.pack(len(content)) + content


def receive(connection: socket.socket) -> bytes:
    """Return the content of a message of the parent, and wait for it; EOFError where the parent is gone."""
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
    """The parent's end of a socket, which closes it: half a message is not waited for."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._received = connection, bytearray()

    def send(self, content: bytes, *descriptors: int) -> None:
        """Send what is packed, after descriptors if any; where the other end is gone, `listen` says so."""
        with suppress(OSError):
            if descriptors:
                socket.send_fds(self._socket, [b"d"], list(descriptors))
            self._socket.sendall(content)

    def listen(self, seconds: float) -> list[bytes] | None:
        """Return the messages that have arrived whole; None where nothing arrives for so long, EOFError at the end."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(1000 * seconds):
            return None
        arrived = b""
        with suppress(OSError):
            arrived = self._socket.recv(READ_BYTES)
        if not arrived:
            raise EOFError
        self._received += arrived
        messages = []
        while len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                break
            messages.append(bytes(self._received[LENGTH.size : end]))
            del self._received[:end]
        return messages

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
