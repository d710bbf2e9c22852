"""Messages between an engine and its worker processes, over a pair of sockets.

A message is a frame: its length, its kind, the number of the attempt it is about, a head and a body. Short
frames travel in a packet of their own, which the kernel hands to exactly one reader; so the engine can take
back what its worker has not read yet, and know that nobody else has it. Where there are no packets, frames
travel in a stream and nothing can be taken back.

Both ends are descriptors with an identity. A program or a task that closes its end, and gets the number again
for a socket of its own, gets no frame into it; that end is `lost` then.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from flightlog.core.descriptors import Descriptor, map_file
from flightlog.engines.limits import EngineLimits

_HEADER = struct.Struct("=QcQI")
_NOTE = struct.Struct("=Q")
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


def _socket_pair() -> tuple[Descriptor, Descriptor, bool, int]:
    """Two connected sockets that never wait, whether packets stay whole, and the largest packet: about a
    quarter of the socket's buffer, as it refuses those that are larger than that.
    """
    packets = True
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        packets = False
        ours, theirs = socket.socketpair()
    room = [one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 4 for one in (ours, theirs)]
    size = min(EngineLimits.max_packet_bytes, *room)
    for one in (ours, theirs):
        one.setblocking(False)
    return Descriptor(ours.detach()), Descriptor(theirs.detach()), packets, size


def _parts(message: bytes, size: int) -> Iterator[memoryview]:
    """The message in packets of at most this many bytes."""
    view = memoryview(message)
    return (view[start : start + size] for start in range(0, len(view), size))


def _make_notes(size: int) -> Descriptor | None:
    """Memory without a name that two processes can map; None where there is no such thing."""
    with suppress(OSError, AttributeError):
        made = Descriptor(os.memfd_create("flightlog-notes"))
        os.ftruncate(made.fd, size)
        return made
    return None


def _map_notes(memory: Descriptor | None, size: int) -> mmap.mmap | None:
    with suppress(OSError):
        return None if memory is None else map_file(memory.fd, size)
    return None


def _read_now(end: Descriptor, buffer: bytearray) -> int:
    """Read into a buffer from a socket that never waits; gives the bytes read. Raises OSError.

    No other thread of the program's runs between the check and the system call: the result of a task that was
    just received often has the program go on, and close descriptors, at this very moment.
    """
    number, read = end.fd, _direct_read()
    if read is None:
        return os.readv(number, [buffer])
    size = read(number, buffer)
    if size == -errno.EAGAIN:
        raise BlockingIOError  # at each end of what has arrived: no text is made for it
    if size < 0:
        raise OSError(-size, os.strerror(-size))
    return size


@cache
def _direct_read() -> Callable[[int, bytearray], int] | None:
    """`read` that keeps the interpreter meanwhile, and gives the negative error code; None where it is not to
    be had.
    """
    try:
        import ctypes

        libc = ctypes.PyDLL(None, use_errno=True)
        call, char = libc.read, ctypes.c_char
        call.argtypes, call.restype = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_ssize_t
    except (ImportError, OSError, AttributeError):
        return None

    def read(number: int, buffer: bytearray) -> int:
        size: int = call(number, ctypes.addressof(char.from_buffer(buffer)), len(buffer))
        return size if size >= 0 else -ctypes.get_errno()

    return read


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


class SocketEnd:
    """One end of a connection, and memory that both share for `threads` notes."""

    def __init__(self, end: Descriptor, size: int, memory: Descriptor | None, threads: int) -> None:
        self._end, self._size, self._memory, self._threads = end, size, memory, threads
        self._notes = _map_notes(memory, threads * _NOTE.size)
        self._frames = Frames()
        self._buffer = bytearray(EngineLimits.max_packet_bytes)
        self.lost = False
        """Whether something in this process closed this end: then nothing more is sent or received."""

    def still_ours(self) -> bool:
        """Whether this end is open and ours; where not, it is `lost` from now on."""
        self.lost = self.lost or not self._end.still_ours()
        return not self.lost

    def _read(self) -> Iterator[Frame] | None:
        """The frames that are complete with what has arrived; None where no more can come from the other end,
        or this one is lost. Raises `BlockingIOError` where nothing has arrived.
        """
        try:
            size = _read_now(self._end, self._buffer)
        except BlockingIOError:
            raise
        except OSError as error:
            self._check(error)
            return None
        return self._frames.feed(memoryview(self._buffer)[:size]) if size else None

    def _check(self, error: OSError) -> None:
        """Take note of what the error means: the other end is gone, or this one is lost. Raises any other
        error.
        """
        if not isinstance(error, _ENDED) and self.still_ours():
            raise error


class EngineEnd(SocketEnd):
    """The engine's end: never waits. One thread at a time.

    `threads` is how many attempts the worker executes at once.
    """

    def __init__(self, threads: int = 1) -> None:
        ours, self._theirs, self.packets, size = _socket_pair()
        super().__init__(ours, size, _make_notes(threads * _NOTE.size), threads)
        self.number = ours.number
        """The descriptor to wait on, as long as it is not `lost`."""
        self._out: deque[memoryview] = deque()
        self.ended = False
        """Whether the worker says nothing more."""

    def descriptors(self) -> tuple[Descriptor, Descriptor]:
        """Both ends, as far as they are open here."""
        return self._end, self._theirs

    def worker_end(self) -> WorkerEnd:
        """The other end, which travels to the worker; `worker_has_it` is called then."""
        return WorkerEnd(self._theirs, self._size, self._memory, self._threads)

    def worker_has_it(self) -> None:
        """The worker has its own copy of its end now; without packets there is no use for ours."""
        if self._memory is not None:
            self._memory.close()
        if not self.packets:
            self._theirs.close()

    def can_take_back(self, message: bytes) -> bool:
        """Whether this frame could be had back while the worker has not read it."""
        return self.packets and len(message) <= EngineLimits.max_revocable_frame_bytes

    def send(self, message: bytes) -> bool:
        """Send a frame, as much of it as the socket takes now; whether nothing is left for `flush`."""
        self._out.extend(_parts(message, self._size))
        return self.flush()

    def flush(self) -> bool:
        """Send what is left; whether nothing more is. What is left for a worker that is gone is dropped."""
        try:
            while self._out:
                part = self._out[0]
                sent = os.write(self._end.fd, part)
                if sent < len(part):
                    self._out[0] = part[sent:]
                else:
                    self._out.popleft()
        except BlockingIOError:
            return False
        except OSError as error:
            self._check(error)
            self._out.clear()  # its process tells where it is gone
        return True

    def receive(self) -> Iterator[Frame]:
        """The frames that have arrived; sets `ended` once there can be no more."""
        with suppress(BlockingIOError):
            while not self.ended and not self.lost:
                frames = self._read()
                self.ended = frames is None and not self.lost
                yield from frames or ()

    def take_back(self) -> int | None:
        """The number of the attempt whose frame the worker has not read and will not; None if there is
        none.
        """
        if not self.packets:
            return None
        try:
            packet = os.read(self._theirs.fd, EngineLimits.max_packet_bytes)
        except OSError:
            return None
        return next((message.serial for message in Frames().feed(packet)), None)

    def begun(self, serials: Sequence[int]) -> set[int]:
        """Which of these attempts, in the order they were sent, the worker has begun, whether it could tell
        or not.

        A worker takes them in their order, so all before one that it noted have begun, too. Where it cannot
        note anything, all may have.
        """
        if self._notes is None:
            return set(serials)
        noted = {serial for (serial,) in _NOTE.iter_unpack(self._notes)}
        return set(serials[: max((at for at, serial in enumerate(serials, 1) if serial in noted), default=0)])

    def close(self) -> None:
        """Let both ends go."""
        self._end.close()
        self._theirs.close()


class WorkerEnd(SocketEnd):
    """The worker's end: waits. `receive` on one thread, `send` on one at a time."""

    def __init__(self, theirs: Descriptor, size: int, memory: Descriptor | None, threads: int) -> None:
        super().__init__(theirs, size, memory, threads)
        self._arrived: deque[Frame] = deque()

    def __reduce__(self) -> tuple[type[WorkerEnd], tuple[Any, ...]]:
        return WorkerEnd, (self._end, self._size, self._memory, self._threads)

    def arrived(self) -> None:
        """It is with the worker now."""
        if self._memory is not None:
            self._memory.close()

    @property
    def number(self) -> int:
        """The descriptor to wait on; -1 where it is lost."""
        return self._end.number

    def note(self, serial: int, lane: int = 0) -> None:
        """Note in memory shared with the engine that an attempt begins in this thread of the worker's."""
        if self._notes is not None:
            _NOTE.pack_into(self._notes, lane * _NOTE.size, serial)

    def receive(self, *, wait: bool = True) -> Frame | None:
        """The next frame; None at the end of the engine, or if there is none yet and it is not to be waited
        for.
        """
        while not self._arrived:
            try:
                frames = self._read()
            except BlockingIOError:
                if not wait:
                    return None
                self._wait(select.POLLIN)
                continue
            if frames is None:
                return None
            self._arrived.extend(frames)
        return self._arrived.popleft()

    def send(self, message: bytes) -> bool:
        """Send frames, all of them; False if the engine is gone or this end is lost."""
        try:
            for part in _parts(message, self._size):
                rest = part
                while rest:
                    try:
                        rest = rest[os.write(self._end.fd, rest) :]
                    except BlockingIOError:
                        self._wait(select.POLLOUT)
        except OSError as error:
            self._check(error)
            return False
        return True

    def _wait(self, what: int) -> None:
        """Wait until there is something to receive, or room to send; a second at most."""
        if (number := self._end.number) >= 0:
            poll = select.poll()
            poll.register(number, what)
            poll.poll(EngineLimits.worker_check_interval_s * 1000)
