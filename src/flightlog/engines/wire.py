"""Messages between an engine and its worker processes, over a pair of sockets.

A message is a frame: its length, its kind, the number of the attempt it is about, a head and a body. Short frames
travel in a packet of their own, which the kernel hands to exactly one reader; so the engine can take back what its
worker has not read yet, and know that nobody else has it. Where there are no packets, frames travel in a stream and
nothing can be taken back.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

PACKET = 1 << 16
"""Largest packet, in bytes; longer frames travel in several."""
SHORT = 1 << 15
"""Frames up to this many bytes can be taken back."""
_HEADER = struct.Struct("=QcQI")
_ENDED = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError)


class Frame(NamedTuple):
    """One message."""

    kind: bytes
    serial: int
    head: bytes
    body: bytes


def frame(kind: bytes, serial: int = 0, head: bytes = b"", body: bytes = b"") -> bytes:
    """A message as it travels."""
    return b"".join((_HEADER.pack(len(head) + len(body), kind, serial, len(head)), head, body))


def _socket_pair() -> tuple[socket.socket, socket.socket, bool]:
    """Two connected sockets, and whether packets sent over them stay whole."""
    try:
        return (*socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET), True)
    except OSError:
        return (*socket.socketpair(), False)


def _parts(message: bytes, over: socket.socket) -> Iterator[memoryview]:
    """The message in packets that the socket takes: it refuses those larger than its buffer."""
    size = PACKET
    if len(message) > 4096:
        size = min(PACKET, over.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 4)
    view = memoryview(message)
    return (view[start : start + size] for start in range(0, len(view), size))


class Frames:
    """Puts frames together again from what arrives, however it was cut."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that are complete with these bytes, in order."""
        if self._rest:
            self._rest += data
            data = memoryview(bytes(self._rest)) if self._complete() else b""
            if not data:
                return
            self._rest.clear()
        view = memoryview(data)
        while len(view) >= _HEADER.size:
            length, kind, serial, head = _HEADER.unpack_from(view)
            end = _HEADER.size + length
            if len(view) < end:
                break
            middle = _HEADER.size + head
            yield Frame(kind, serial, bytes(view[_HEADER.size : middle]), bytes(view[middle:end]))
            view = view[end:]
        self._rest += view

    def _complete(self) -> bool:
        if len(self._rest) < _HEADER.size:
            return False
        return len(self._rest) >= _HEADER.size + int(_HEADER.unpack_from(self._rest)[0])


class EngineEnd:
    """The engine's end: never waits. One thread at a time."""

    def __init__(self) -> None:
        self.socket, self.theirs, self.packets = _socket_pair()
        self.socket.setblocking(False)
        self._frames = Frames()
        self._buffer = bytearray(PACKET)
        self._out: deque[memoryview] = deque()
        self.ended = False

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self.socket.fileno()

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """Both ends, as far as they are open here."""
        return self.socket, self.theirs

    def worker_has_it(self) -> None:
        """The worker has its own copy of `theirs` now; without packets there is no use for ours."""
        if not self.packets:
            self.theirs.close()

    def can_take_back(self, message: bytes) -> bool:
        """Whether this frame could be had back while the worker has not read it."""
        return self.packets and len(message) <= SHORT

    def send(self, message: bytes) -> bool:
        """Send a frame, as much of it as the socket takes now; whether nothing is left for `flush`."""
        self._out.extend(_parts(message, self.socket))
        return self.flush()

    def flush(self) -> bool:
        """Send what is left; whether nothing more is. What is left for a worker that is gone is dropped."""
        try:
            while self._out:
                part = self._out[0]
                sent = self.socket.send(part)
                if sent < len(part):
                    self._out[0] = part[sent:]
                else:
                    self._out.popleft()
        except BlockingIOError:
            return False
        except _ENDED:
            self._out.clear()  # its process tells that it is gone
        return True

    def receive(self) -> Iterator[Frame]:
        """The frames that have arrived; sets `ended` once there can be no more."""
        view = memoryview(self._buffer)
        while not self.ended:
            try:
                size = self.socket.recv_into(view)
            except BlockingIOError:
                return
            except _ENDED:
                size = 0
            if size == 0:
                self.ended = True
            yield from self._frames.feed(view[:size])

    def take_back(self) -> int | None:
        """The number of the attempt whose frame the worker has not read and will not; None if there is none."""
        if not self.packets:
            return None
        try:
            packet = self.theirs.recv(PACKET, socket.MSG_DONTWAIT)
        except OSError:
            return None
        return next((message.serial for message in Frames().feed(packet)), None)

    def close(self) -> None:
        """Let both ends go."""
        self.socket.close()
        self.theirs.close()


class WorkerEnd:
    """The worker's end: waits. `receive` on one thread, `send` on one at a time."""

    def __init__(self, theirs: socket.socket) -> None:
        self._socket = theirs
        self._frames = Frames()
        self._arrived: deque[Frame] = deque()
        self._buffer = bytearray(PACKET)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def receive(self, *, wait: bool = True) -> Frame | None:
        """The next frame; None at the end of the engine, or if there is none yet and it is not to be waited for."""
        view = memoryview(self._buffer)
        while not self._arrived:
            try:
                size = self._socket.recv_into(view, 0, 0 if wait else socket.MSG_DONTWAIT)
            except (BlockingIOError, *_ENDED):
                return None
            if size == 0:
                return None
            self._arrived.extend(self._frames.feed(view[:size]))
        return self._arrived.popleft()

    def send(self, message: bytes) -> bool:
        """Send frames, all of them; False if the engine is gone."""
        try:
            for part in _parts(message, self._socket):
                rest = part
                while rest:
                    rest = rest[self._socket.send(rest) :]
        except _ENDED:
            return False
        return True
