"""Open descriptors with an identity: a number is used and closed only while it means what was opened.

A program may close descriptors that are not its own. A daemon closes all of them, `os.closerange` a range.
The kernel then gives the same numbers to the next files that the program opens. So nothing that Flightlog
keeps open in the user's process is known by its number alone: what it means is checked before each use, and a
number that means something else is forgotten, never used and never closed. Whoever kept it opens its file
again, or counts the loss.

The number itself is a second line of defence. The kernel gives out the lowest one that is free, so
descriptors that are kept move up to numbers that a program gets only with hundreds of files open, or by
asking for that very number.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import compress, cycle, repeat
from operator import eq
from typing import Any, TypeVar

T = TypeVar("T")

_USUAL_LIMIT = 1024
"""What most systems let a process open. Kept descriptors take numbers from three quarters of it on, and
duplicates that exist for one call from seven eighths on."""
_MAP_FIXED = 0x10
_LOST = "the program closed a descriptor of Flightlog's"
_ATTEMPTS = 20
"""How often a file is opened that is lost each time before it is read."""
_PIECE = 1 << 16
_ENTRY_LENGTH_AT, _ENTRY_NAME_AT = 16, 19
"""Where an entry of a folder says its length, and where its name begins, as `getdents64` writes them."""

_MARKS = range(33, 65)
_marks = cycle(_MARKS) if hasattr(fcntl, "F_SETSIG") else repeat(0)

Identity = tuple[int, int, int]
"""Device and inode of a file, and the mark of one opening of it; 0 where there are no marks."""


class Descriptor:
    """One open descriptor that this process keeps. Closed by `close`, or when nobody refers to it any more.

    The identity is the file's device and inode, and on Linux a mark on the open file itself, which tells
    apart another `open` of the same file, an inode number that was used again, and the many descriptors that
    share one inode (epoll). A duplicate made by `fork` or `dup` is the same open file and counts as ours.

    What remains: another thread may close a number and open a file of its own between the check and the
    system call that follows it. Because of the high number that takes a program that has hundreds of files
    open, or one that asks for that very number (`os.dup2`). So writing goes by a duplicate, which exists for
    that one write only: a program would have to see its number, and ask for it, within that time. Its number
    is none that a kept descriptor had: a program that closes those, and takes their numbers, does not meet
    it.
    """

    __slots__ = ("identity", "number")

    def __init__(
        self, fd: int, is_it: Callable[[Descriptor], bool] = lambda _made: True, *, brief: bool = False
    ) -> None:
        """Keep a descriptor that was just made; its number changes. OSError where it is closed by now.

        `is_it` tells whether it is what was made, in case another thread has closed the low number and got it
        since. A `brief` one is closed in a moment.
        """
        self.number = -1
        number, mark = _move_up(fd, _lowest_brief() if brief else _lowest_kept())
        self.identity = (*_file_of(number), mark)
        if number != fd:
            self.number = number
        if not is_it(self):
            raise OSError(errno.EBADF, _LOST)
        self.number = number
        if number != fd:
            _close(fd, self.identity)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        flags: int = os.O_RDONLY,
        mode: int = 0o644,
        *,
        brief: bool = False,
    ) -> Descriptor:
        """Open a file; no program that this one starts inherits it. Raises OSError.

        Where it is only read, it is opened for appending, too, which means nothing then. That tells it from
        the same file as the program opens it, in case the program has got the low number.
        """
        odd = os.O_APPEND if flags & os.O_ACCMODE == os.O_RDONLY else 0
        fd = os.open(path, flags | odd | os.O_CLOEXEC, mode)

        def is_it(made: Descriptor) -> bool:
            found = _direct_calls()[0](made.number, fcntl.F_GETFL, 0)
            if odd and not found & odd:
                return False
            is_there = False
            try:
                there = os.stat(path)  # noqa: PTH116 - ten times as fast, and samplers open many files
                is_there = (there.st_dev, there.st_ino) == made.file
            finally:
                if odd and not is_there and found & os.O_ACCMODE == os.O_RDONLY:
                    _close(fd, made.identity)  # nobody else opens like this: the file was moved or replaced
            return is_there

        return cls(fd, is_it, brief=brief)

    def still_ours(self) -> bool:
        """Whether `number` still means what was opened; if not, it is forgotten, and is -1."""
        if self.number >= 0 and means(self.number, self.identity):
            return True
        self.number = -1
        return False

    @property
    def fd(self) -> int:
        """The number, after a check; raises OSError where it means something else."""
        if not self.still_ours():
            raise OSError(errno.EBADF, _LOST)
        return self.number

    def read_start(self, size: int) -> bytes:
        """The first bytes of the file, for whoever reads it often and checks what it gets; raises OSError.

        The mark alone is checked, at a third of the cost. Another file with the same mark can only be one of
        Flightlog's.
        """
        number, identity = self.number, self.identity
        return os.pread(number if identity[2] and _has_mark(number, identity) else self.fd, size, 0)

    def check_mark(self) -> None:
        """Raise OSError where the number means something else by now; of one that was opened a moment ago."""
        if self.number < 0 or not _has_mark(self.number, self.identity):
            raise OSError(errno.EBADF, _LOST)

    @property
    def file(self) -> tuple[int, int]:
        """Device and inode of the file that was opened."""
        return self.identity[:2]

    def detach(self) -> int:
        """The number, which somebody else closes from now on."""
        number, self.number = self.number, -1
        return number

    def duplicate(self) -> Descriptor:
        """Another number for the same open file, which nobody else has seen yet; raises OSError."""
        made = type(self).__new__(type(self))
        made.number, made.identity = -1, self.identity
        number = _direct_calls()[0](self.fd, fcntl.F_DUPFD_CLOEXEC, _lowest_kept())
        if number < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if not _has_mark(number, self.identity):  # it changed hands between the check and the duplication
            os.close(number)
            self.number = -1
            raise OSError(errno.EBADF, _LOST)
        made.number = number
        return made

    def write(self, data: bytes | memoryview) -> int:
        """Write by a duplicate, of which the program cannot know; gives the bytes written. Raises OSError.

        Where no number is free, it is written by the number that is kept.
        """
        number = _direct_calls()[0](self.number, fcntl.F_DUPFD_CLOEXEC, _lowest_brief())
        if number < 0:
            return os.write(self.fd, data)
        try:
            if not means(number, self.identity):  # a duplicate of what the program has opened since
                os.close(number)
                self.number = -1
                raise OSError(errno.EBADF, _LOST)
            return os.write(number, data)
        finally:
            _close(number, self.identity)

    def take(self, number: int) -> bool:
        """Be known by this very number from now on, if nobody has it; whether it is so."""
        taken = _direct_calls()[0](self.fd, fcntl.F_DUPFD_CLOEXEC, number)
        if taken != number:
            if taken >= 0:
                os.close(taken)
            return False
        self.close()
        self.number = number
        return True

    def close(self, *, just_opened: bool = False) -> None:
        """Close it if it is still ours. May be called again; raises nothing.

        `just_opened` is for one that was opened a moment ago: the mark alone then tells that it is ours,
        which saves a system call that hands over the interpreter.
        """
        fd, self.number = self.number, -1
        is_ours = _has_mark if just_opened and self.identity[2] else means
        if fd < 0 or not is_ours(fd, self.identity):
            return
        duplicate = _direct_calls()[0](fd, fcntl.F_DUPFD_CLOEXEC, _lowest_brief())
        _close(fd, self.identity)
        # The program may have asked for that very number meanwhile.
        if duplicate >= 0 and _has_mark(duplicate, self.identity):
            with suppress(OSError):
                os.close(duplicate)  # where the disk is slow, this is what takes its time

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Descriptor], tuple[Any, Identity]]:
        """Pass it to a process that `multiprocessing` spawns just now; otherwise it cannot be pickled."""
        from multiprocessing.context import assert_spawning
        from multiprocessing.reduction import DupFd

        assert_spawning(self)
        return _passed, (DupFd(self.fd), self.identity)


def _passed(number: Any, identity: Identity) -> Descriptor:
    """In the spawned process. Raises OSError where the number meant something else when it was passed."""
    return Descriptor(number.detach(), lambda made: made.file == identity[:2])


def identify(number: int) -> Identity:
    """What a number means that somebody else keeps, for `means`; raises OSError."""
    return (*_file_of(number), _mark(number))


def is_open(number: int) -> bool:
    """Whether a number means anything now."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def read_bytes(path: str | os.PathLike[str], flags: int = os.O_RDONLY, most: int = sys.maxsize) -> bytes:
    """The content of a file that is open for a moment only, by a descriptor with an identity; raises OSError.

    `Path.read_bytes` would read, and close, whatever its number means by then. One that the program closes
    meanwhile is opened again. No more than `most` bytes are read.
    """
    return _use_briefly(path, flags, lambda file: _read_to_the_end(file, most))


def folder_names(path: str | os.PathLike[str]) -> list[str]:
    """The names in a folder, as `os.listdir`, by a descriptor with an identity; raises OSError."""
    if _folder_reader() is None:
        return os.listdir(path)  # noqa: PTH208 - names are enough
    return _use_briefly(path, os.O_RDONLY | os.O_DIRECTORY, _read_folder)


def get_ready() -> None:
    """Import what this module needs, so that it can be used in the middle of another import."""
    _direct_calls()
    _folder_reader()


def retried(attempt: Callable[[], T]) -> T:
    """What the attempt gives. It is made again where it loses its descriptor: the program closed it, or the
    file was replaced while it was opened. Raises OSError.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            return attempt()
        except OSError as error:
            if error.errno != errno.EBADF or not left:
                raise
    raise AssertionError("unreachable")


def _use_briefly(path: str | os.PathLike[str], flags: int, use: Callable[[Descriptor], T]) -> T:
    def attempt() -> T:
        file = Descriptor.open(path, flags, brief=True)
        try:
            return use(file)
        finally:
            file.close(just_opened=True)

    return retried(attempt)


def _read_to_the_end(file: Descriptor, most: int) -> bytes:
    pieces: list[bytes] = []
    size, wanted = 0, _PIECE
    while size < most and (more := os.pread(file.number, min(wanted, most - size), size)):
        pieces.append(more)
        size += len(more)
        wanted = max(wanted, size)
    file.check_mark()  # at the end: what is ours now was ours all the time
    return b"".join(pieces)


def _read_folder(file: Descriptor) -> list[str]:
    import ctypes

    read = _folder_reader()
    assert read is not None
    names: list[str] = []
    buffer = ctypes.create_string_buffer(_PIECE)
    while (size := read(file.number, buffer, _PIECE)) > 0:
        entries, at = buffer.raw[:size], 0
        while at < size:
            length = int.from_bytes(entries[at + _ENTRY_LENGTH_AT : at + _ENTRY_LENGTH_AT + 2], sys.byteorder)
            name = entries[at + _ENTRY_NAME_AT : at + length].split(b"\0", 1)[0]
            if name not in (b".", b".."):
                names.append(os.fsdecode(name))
            at += length
    if size < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    file.check_mark()
    return names


@cache
def _folder_reader() -> Callable[[int, object, int], int] | None:
    """`getdents64`, which lets other threads run; None where the system has no such function."""
    with suppress(ImportError, OSError, AttributeError):
        if sys.platform == "linux":
            import ctypes

            libc = ctypes.CDLL(None, use_errno=True)
            libc.getdents64.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
            libc.getdents64.restype = ctypes.c_ssize_t
            return libc.getdents64
    return None


def make_pipe() -> tuple[Descriptor, Descriptor]:
    """The reading end and the writing end of a new pipe; raises OSError."""
    low = os.pipe()
    reader = Descriptor(low[0], lambda made: made.file == _file_of(low[1]))  # both ends have one inode
    return reader, Descriptor(low[1], lambda made: made.file == reader.file)


def map_file(fd: int, size: int) -> mmap.mmap:
    """A file's first bytes as shared memory, by a map object that keeps no descriptor. Raises OSError.

    Before Python 3.13 a map duplicates the descriptor, to a low number, and closes that number when it goes,
    whatever it means by then. There, memory without a file is mapped, and the file's pages are put in its
    place.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, trackfd=False)
    memory = mmap.mmap(-1, size)
    _put_in_place(memory, fd)
    return memory


def _put_in_place(memory: mmap.mmap, fd: int) -> None:
    """Map a file's pages where the memory of a map object lies. Raises OSError."""
    try:
        import ctypes
    except ImportError:
        raise OSError(errno.ENOSYS, "without ctypes files cannot be mapped safely") from None
    libc = ctypes.CDLL(None, use_errno=True)
    map_pages, unmap = libc.mmap, libc.munmap
    map_pages.restype = ctypes.c_void_p
    map_pages.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    failed = ctypes.c_void_p(-1).value
    access = mmap.PROT_READ | mmap.PROT_WRITE
    elsewhere = map_pages(None, len(memory), access, mmap.MAP_SHARED, fd, 0)
    if elsewhere == failed:  # what is refused here leaves the memory as it was
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    unmap(elsewhere, len(memory))
    first = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(first)
    del first  # a map that lends its memory cannot be closed
    if map_pages(address, len(memory), access, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) == failed:
        error = ctypes.get_errno()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # what lies there now is unknown: never unmap it
        raise OSError(error, os.strerror(error))


def _file_of(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def means(fd: int, identity: Identity) -> bool:
    """Whether a number means what has this identity. The mark comes last: reading it lets no other thread
    run.
    """
    try:
        if _file_of(fd) != identity[:2]:
            return False
    except OSError:
        return False
    return _has_mark(fd, identity)


def _has_mark(fd: int, identity: Identity) -> bool:
    return identity[2] == 0 or _direct_calls()[0](fd, fcntl.F_GETSIG, 0) == identity[2]


@cache
def _lowest_kept() -> int:
    """Looked up once: where a program lowers its limit later, no number is free, which is dealt with."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _USUAL_LIMIT if soft == resource.RLIM_INFINITY else min(soft, _USUAL_LIMIT)
    return limit * 3 // 4


def _lowest_brief() -> int:
    return _lowest_kept() * 7 // 6


def _move_up(fd: int, lowest: int) -> tuple[int, int]:
    """A high number for an open file, the old one where there is none; and the mark it has from now on.

    The mark is the signal that would announce input (`F_SETSIG`). None is ever sent, as that takes `O_ASYNC`.
    """
    number = _direct_calls()[0](fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    if number < 0:
        number = fd
    return number, _mark(number)


def _mark(number: int) -> int:
    """Mark an open file; 0 where that cannot be done. One that another process has marked and shares keeps
    its mark.
    """
    control, mark = _direct_calls()[0], next(_marks)
    if mark and (found := control(number, fcntl.F_GETSIG, 0)) in _MARKS:
        return found
    return mark if mark and control(number, fcntl.F_SETSIG, mark) >= 0 else 0


def _close(number: int, identity: Identity) -> None:
    """Close a number that is not the only one of its file, if it still means that. No other thread runs
    meanwhile.

    On Linux the check and the closing are one expression without any Python bytecode between them, since
    another thread may run after each bytecode.
    """
    control, close = _direct_calls()
    mark = identity[2]
    if mark:
        has_it = map(eq, map(control, (number,), (fcntl.F_GETSIG,), (0,)), (mark,))
        deque(map(close, compress((number,), has_it)), 0)
    elif means(number, identity):
        close(number)


@cache
def _direct_calls() -> tuple[Callable[[int, int, int], int], Callable[[int], int]]:
    """`fcntl` and `close`, which give -1 where they fail. On Linux no other Python thread runs meanwhile."""
    with suppress(ImportError, OSError, AttributeError):
        if sys.platform == "linux":
            import ctypes

            libc = ctypes.PyDLL(None)
            libc.fcntl.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long]
            return libc.fcntl, libc.close

    def control(fd: int, command: int, value: int) -> int:
        try:
            return fcntl.fcntl(fd, command, value)
        except OSError:
            return -1

    def close(fd: int) -> int:
        try:
            os.close(fd)
        except OSError:
            return -1
        return 0

    return control, close
