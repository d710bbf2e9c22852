"""One line in a terminal that says what a command does, where that takes a while, and how far it has come.

`cli/main.py` puts every command that has a `DOING` under `working`; whoever prints meanwhile, a warning of a
library too, finds the line gone; and a command that can count says so with `progress`:

    with progress("reading runs") as tell:
        for number, path in enumerate(paths):
            tell(number, len(paths))
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from flightlog.cli.limits import CliLimits

_ERASED = "\r\x1b[K"

Tell = Callable[[int, int | None], None]
"""Is told how many are done, and of how many if that is known."""


class ProgressLine:
    """`flightlog: reading runs, 1,200 of 5,000, 3 s …`, on a terminal, from the second second on; gone at the
    end.

    `at_work` says how far the reading of what is being read has come, such as `43% of the events in tasks`.
    Drawn by a thread of its own, so telling it costs nothing. Never raises: a terminal that went away is
    nobody to tell. All methods may be called from any thread.
    """

    def __init__(
        self,
        stream: TextIO,
        doing: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        at_work: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._stream, self._doing, self._clock, self._at_work = stream, doing, clock, at_work
        self._done: int | None = None
        self._of: int | None = None
        self._began = self._quiet_since = clock()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._shown = self._mid_line = False
        self._thread = threading.Thread(target=self._draw_on, name="flightlog-progress", daemon=True)

    def start(self) -> None:
        """Draw from now on, in a thread."""
        with suppress(RuntimeError):  # no thread to be had: no line
            self._thread.start()

    def is_open(self) -> bool:
        """Whether it is not closed yet."""
        return not self._ended.is_set()

    def close(self) -> None:
        """Take the line away for good."""
        self._ended.set()
        with self._lock:
            self._erase()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    @contextmanager
    def aside(self, text: str = "") -> Iterator[None]:
        """Within it the line is gone and stays so, for somebody to print `text`; it comes back after a second
        of silence.

        Not while the last line printed is unfinished: it would be erased with ours.
        """
        with self._lock:
            self._erase()
            try:
                yield
            finally:
                self._quiet_since = self._clock()
                if text:
                    self._mid_line = not text.endswith("\n")

    @contextmanager
    def doing(self, what: str) -> Iterator[Tell]:
        """Within it the line says this, and how many are done once that was told."""
        before = self._doing, self._done, self._of
        self._doing, self._done, self._of = what, None, None
        try:
            yield self.tell
        finally:
            self._doing, self._done, self._of = before

    def tell(self, done: int, of: int | None = None) -> None:
        """So many are done."""
        self._done, self._of = done, of

    def draw(self) -> None:
        """Draw the line as it is now, if it is time."""
        with self._lock:
            now = self._clock()
            if self._ended.is_set() or self._mid_line or now - self._quiet_since < CliLimits.progress_after_s:
                return
            self._write(f"{_ERASED}{self._text(now, self._columns() - 1)}")
            self._shown = True

    def _draw_on(self) -> None:
        wait = CliLimits.progress_after_s
        while not self._ended.wait(wait):
            self.draw()
            wait = CliLimits.progress_interval_s

    def _text(self, now: float, columns: int) -> str:
        """The line, without how far the reading is where there is no room for it."""
        doing, done, of = self._doing, self._done, self._of
        if done is None:
            said = doing.removesuffix(":")
        else:
            said = f"{doing} {done:,}" + ("" if of is None else f" of {of:,}")
        reading = self._at_work()
        utf8 = "utf" in (getattr(self._stream, "encoding", None) or "utf-8").lower()
        end = f", {now - self._began:.0f} s {'…' if utf8 else '...'}"
        whole = f"flightlog: {said}, {reading}{end}"
        return whole if reading and len(whole) <= columns else f"flightlog: {said}{end}"[:columns]

    def _columns(self) -> int:
        """Of the terminal: a line that is longer would wrap, and only its end be erased."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _erase(self) -> None:
        if self._shown:
            self._write(_ERASED)
            self._shown = False

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


class _Beside:
    """A stream to the line's terminal: what anybody writes there finds the line gone."""

    def __init__(self, stream: TextIO, line: ProgressLine) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        with self._line.aside(text):
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for text in lines:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_line: ProgressLine | None = None
"""The line of the command that runs in this process, where there is somebody to read it."""


@contextmanager
def working(doing: str | None) -> Iterator[None]:
    """Within it a line says what is done, where standard error is a terminal that can take a line back.

    Nothing for None, as of commands that show something by themselves for as long as they run.
    """
    global _line
    if doing is None or _line is not None or not _can_show(sys.stderr):
        yield
        return
    stdout, stderr = sys.stdout, sys.stderr
    from flightlog.store.read.lines import asked_about, at_work

    line = _line = ProgressLine(stderr, doing, at_work=at_work)
    sys.stderr = _Beside(stderr, line)
    if stdout is not None and stdout.isatty():
        sys.stdout = _Beside(stdout, line)
    line.start()
    try:
        with asked_about(line.is_open):
            yield
    finally:
        _line = None
        line.close()
        sys.stdout, sys.stderr = stdout, stderr


def _ignore(_done: int, _of: int | None = None) -> None:
    """Where nobody looks."""


@contextmanager
def progress(doing: str) -> Iterator[Tell]:
    """Within it the command's line says this; gives what is told how many are done, and of how many."""
    if _line is None:
        yield _ignore
        return
    with _line.doing(doing) as tell:
        yield tell


def end_progress() -> None:
    """No line from now on: the command goes on, but there is nothing to wait for."""
    if _line is not None:
        _line.close()


def _can_show(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False
