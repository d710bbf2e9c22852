"""A way home for worker processes on the engine's host that the engine did not launch: a named socket.

What was written into it survives the death of the worker that wrote it: the kernel keeps it.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from flightlog.core.descriptors import Descriptor
from flightlog.engines.execute import Started
from flightlog.engines.wire import Frame, Frames, frame

BEGAN, CHUNK, LEFT = b"B", b"P", b"L"
_CREDENTIALS = struct.Struct("3i")

Hear = Callable[[int, bytes, bytes], None]
"""Called with the sender's process id, the kind of a message and what it says."""


class AttemptStart(Struct, frozen=True, array_like=True):
    """An attempt began, and where; what `BEGAN` says."""

    serial: int
    started: Started
    facts: dict[str, Any]
    """Name, host and process of the worker."""


class ChannelServer:
    """The engine's side: a named socket that only this user can open. One thread at a time, in which `hear`
    is called.

    `fd` is readable when there is something for `listen` to take. `gone` is called with the process id of a
    peer that has closed its connection. `OSError` where no socket can be made.
    """

    def __init__(self, hear: Hear, gone: Callable[[int], None] = lambda _pid: None) -> None:
        self._hear, self._on_gone = hear, gone
        self._folder = tempfile.mkdtemp(prefix="flightlog-")
        self.path = str(Path(self._folder) / "channel")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._selector = selectors.DefaultSelector()
        try:
            self._socket.bind(self.path)
            self._socket.listen(256)
            self._socket.setblocking(False)
        except OSError:
            self.close()
            raise
        self._selector.register(self._socket, selectors.EVENT_READ, None)

    @property
    def fd(self) -> int:
        """Readable when a worker connects or sends something: an epoll descriptor, or what takes its
        place.
        """
        fileno: Callable[[], int] = getattr(self._selector, "fileno", self._socket.fileno)
        return fileno()

    def listen(self) -> None:
        """Take everything that has been said so far, without waiting."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                if key.data is None:
                    self._admit()
                else:
                    self._take(key.data)

    def dismiss(self, timeout_s: float) -> bool:
        """Tell all peers that it is over, and wait until each has gone, listening; whether all went in
        time.

        What a peer does then is its own business: it says `LEFT` when that is done.
        """
        peers = [key.data for key in self._selector.get_map().values() if key.data is not None]
        for peer in peers:
            with suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
        by = time.monotonic() + timeout_s
        while (rest := by - time.monotonic()) > 0 and not all(peer.left or peer.gone for peer in peers):
            self._selector.select(rest)
            self.listen()
        return all(peer.left or peer.gone for peer in peers)

    def close(self) -> None:
        """No worker can connect any more."""
        with suppress(OSError, RuntimeError):
            for key in list((self._selector.get_map() or {}).values()):
                key.fileobj.close()  # type: ignore[union-attr] # sockets, all of them
        self._socket.close()
        self._selector.close()
        for remove, path in ((os.unlink, self.path), (os.rmdir, self._folder)):
            with suppress(OSError):
                remove(path)

    def _admit(self) -> None:
        with suppress(OSError):
            peer, _ = self._socket.accept()
            peer.setblocking(False)
            self._selector.register(peer, selectors.EVENT_READ, ChannelPeer(peer))

    def _take(self, peer: ChannelPeer) -> None:
        for message in peer.said():
            if message.kind == LEFT:
                peer.left = True
            else:
                self._hear(peer.pid, message.kind, message.body)
        if peer.gone:
            self._selector.unregister(peer.socket)
            peer.socket.close()
            self._on_gone(peer.pid)


class ChannelPeer:
    """A connected worker."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self.gone, self.left = end, False, False
        self._frames = Frames()
        self.pid: int = 0
        if hasattr(socket, "SO_PEERCRED"):
            found = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            self.pid = _CREDENTIALS.unpack(found)[0]

    def said(self) -> Iterator[Frame]:
        """Whole messages that have come; what is not whole yet is kept."""
        try:
            while data := self.socket.recv(1 << 18):
                yield from self._frames.feed(data)
            self.gone = True
        except BlockingIOError:
            pass
        except OSError:
            self.gone = True


class ChannelClient:
    """A worker's side: connects at the first message. `OSError` where nobody listens. Thread-safe.

    A task that closes all descriptors closes this connection, too: it is opened again, and no message gets
    into what has its number by then. `dismissed` is called on a thread of its own when the engine is over, in
    whatever way.
    """

    def __init__(self, path: str, dismissed: Callable[[], None]) -> None:
        self._path, self._dismissed = path, dismissed
        self._lock = threading.Lock()
        self._end: Descriptor | None = None
        self._pid = 0

    def tell(self, kind: bytes, text: bytes) -> None:
        """Say something; it will be heard even if this process is killed at once."""
        with self._lock:
            # A forked child is another peer.
            if self._end is None or self._pid != os.getpid() or not self._end.still_ours():
                self._end, self._pid = self._open(), os.getpid()
            rest = memoryview(frame(kind, body=text))
            try:
                while rest:
                    rest = rest[self._end.write(rest) :]
            except OSError:
                self._end.close()
                self._end = None
                raise

    def _open(self) -> Descriptor:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(None)
            one.connect(self._path)
            end = Descriptor(one.detach())
        threading.Thread(target=self._wait, args=(end,), name="flightlog-channel", daemon=True).start()
        return end

    def _wait(self, end: Descriptor) -> None:
        """The engine never says anything, so what can be read is its end."""
        with suppress(OSError):
            while os.read(end.fd, 64):
                pass
            if self._end is end or self._end is None:
                self._dismissed()
                self.tell(LEFT, b"")
        with self._lock:
            if self._end is end:
                self._end = None
        end.close()
