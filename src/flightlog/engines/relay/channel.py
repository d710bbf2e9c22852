"""A way home for worker processes on the engine's host that the engine did not launch: a named socket.

What was written into it survives the death of the worker that wrote it: the kernel keeps it.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from flightlog.core.descriptors import Descriptor
from flightlog.engines.contract import Outcome, Work
from flightlog.engines.execute import Started, execute
from flightlog.engines.wire import Frame, Frames, frame

if TYPE_CHECKING:
    from flightlog.engines.event_loop import EventLoop

log = logging.getLogger("flightlog")

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


Start = TypeVar("Start", bound=AttemptStart)
encode = msgspec.msgpack.Encoder().encode


_lost: list[ChannelServer] = []
"""Those that the program closed: their numbers may be others' by now, and are not ours to close."""


class ChannelServer:
    """The engine's side: a named socket that only this user can open. One thread at a time, in which `hear`
    is called.

    `gone` is called with the process id of a peer that has closed its connection. Where no socket can be
    made, or the program closes it, that is logged, and nothing is heard from then on: what workers say with
    the ends of attempts still comes.
    """

    path: str | None = None
    """Where workers connect; None where they cannot."""

    def __init__(self, hear: Hear, gone: Callable[[int], None] = lambda _pid: None) -> None:
        self._hear, self._on_gone = hear, gone
        self._unwatch: Callable[[], None] = lambda: None
        try:
            with ExitStack() as made:
                self._selector = made.enter_context(selectors.DefaultSelector())
                self._socket = made.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                self._folder = tempfile.mkdtemp(prefix="flightlog-")
                made.callback(shutil.rmtree, self._folder, ignore_errors=True)
                path = f"{self._folder}/channel"
                self._socket.bind(path)
                self._socket.listen(256)
                self._socket.setblocking(False)
                self._selector.register(self._socket, selectors.EVENT_READ, None)
                self._made = made.pop_all()
        except OSError as error:
            log.warning("no socket for workers can be made (%s): starts of tasks are told late", error)
        else:
            self.path = path

    def watch(self, loop: EventLoop, owner: object) -> None:
        """Have the loop call `listen` when a worker connects or says something."""
        if self.path is not None:
            # An epoll descriptor, or what takes its place.
            number: int = getattr(self._selector, "fileno", self._socket.fileno)()
            loop.watch(number, owner, lambda _events: self.listen())
            self._unwatch = partial(loop.unwatch, number, owner)

    def listen(self) -> None:
        """Take everything that has been said so far, without waiting."""
        if self.path is None:
            return
        try:
            self._listen()
        except OSError as error:
            log.warning("the program closed the socket of workers (%s): starts of tasks are told late", error)
            self.path = None
            self._unwatch()
            _lost.append(self)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
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
        if self.path is None:
            return True
        peers = [key.data for key in self._selector.get_map().values() if key.data is not None]
        for peer in peers:
            with suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
        by = time.monotonic() + timeout_s
        with suppress(OSError):  # the program closed it
            while (rest := by - time.monotonic()) > 0 and not all(peer.left or peer.gone for peer in peers):
                self._selector.select(rest)
                self._listen()
        return all(peer.left or peer.gone for peer in peers)

    def close(self) -> None:
        """No worker can connect any more."""
        if self.path is None:  # never made, lost, or closed already
            return
        self.path = None
        with suppress(OSError, RuntimeError):
            for key in list((self._selector.get_map() or {}).values()):
                key.fileobj.close()  # type: ignore[union-attr] # sockets, all of them
        with suppress(OSError):
            self._made.close()

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


def execute_and_tell(
    work: Work,
    *,
    worker: str,
    alone: bool,
    dumps: Callable[[Any], bytes],
    start: Callable[[Started], Start],
    tell: Callable[[bytes, bytes], None],
) -> tuple[list[Start], Outcome]:
    """Execute an attempt in this process, and tell the engine at once that it began; gives what was told, to
    be told once more with the end, and the outcome.
    """
    said: list[Start] = []

    def begun(started: Started) -> None:
        said.append(start(started))
        with suppress(Exception):  # the task runs all the same; its start is told with its end
            tell(BEGAN, encode(said[0]))

    return said, execute(work, worker=worker, alone=alone, started=begun, dumps=dumps)


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
    """A worker's side: connects at the first message. `OSError` where nobody listens, or there is no path.
    Thread-safe.

    A task that closes all descriptors closes this connection, too: it is opened again, and no message gets
    into what has its number by then. `dismissed` is called on a thread of its own when the engine is over, in
    whatever way.
    """

    def __init__(self, path: str | None, dismissed: Callable[[], None]) -> None:
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
        if self._path is None:
            raise OSError("there is no way to the engine from here")
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
