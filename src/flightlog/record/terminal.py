"""A terminal in front of a terminal, so that a command's output can pass through here and is still one to it."""

from __future__ import annotations

import os
import termios
from typing import Any

_INPUT, _OUTPUT, _CONTROL, _LOCAL, _CHARACTERS = 0, 1, 2, 3, 6
"""Places in what `termios.tcgetattr` gives."""


class Screen:
    """A pseudo-terminal that stands in for the terminal `real`: same size, same modes, output as it is written.

    What is written to `slave` can be read from `master` byte for byte, for its output processing is off: the real
    terminal does that once, not twice. A program that draws on its output and reads keys from the real terminal
    (curses does) sets modes on `slave`; `follow` hands them to the real one, and `restore` takes them back.
    """

    def __init__(self, real: int) -> None:
        self._real = real
        self.master, self.slave = os.openpty()
        for fd in (self.master, self.slave):
            os.set_inheritable(fd, False)
        modes = termios.tcgetattr(real)
        modes[_OUTPUT] &= ~termios.OPOST
        termios.tcsetattr(self.slave, termios.TCSANOW, modes)
        self._modes = _shared(termios.tcgetattr(self.slave))
        self._before: list[Any] | None = None
        self.resize()

    def resize(self) -> bool:
        """Take over the size of the real terminal; whether it changed."""
        try:
            size = termios.tcgetwinsize(self._real)
            if termios.tcgetwinsize(self.master) == size:
                return False
            termios.tcsetwinsize(self.master, size)
        except (OSError, termios.error):  # hung up
            return False
        return True

    def follow(self) -> None:
        """Hand modes that the command has set on its output to the real terminal, from the foreground only."""
        try:
            modes = _shared(termios.tcgetattr(self.master))
            if modes == self._modes or os.tcgetpgrp(self._real) != os.getpgrp():
                return
            self._modes = modes
            real = termios.tcgetattr(self._real)
            if self._before is None:
                self._before = [*real]
            real[_INPUT], real[_CONTROL], real[_LOCAL], real[_CHARACTERS] = modes[:4]
            real[_OUTPUT] = modes[4] | (real[_OUTPUT] & termios.OPOST)
            termios.tcsetattr(self._real, termios.TCSANOW, real)
        except (OSError, termios.error):  # hung up, or not the terminal of this session
            return

    def restore(self) -> None:
        """Give the real terminal the modes it had before `follow` changed them."""
        if self._before is None:
            return
        try:
            if os.tcgetpgrp(self._real) == os.getpgrp():
                termios.tcsetattr(self._real, termios.TCSANOW, self._before)
        except (OSError, termios.error):
            return


def _shared(modes: list[Any]) -> list[Any]:
    """The modes that both terminals have in common; whether output is processed at all is not one of them."""
    output = modes[_OUTPUT] & ~termios.OPOST
    return [modes[_INPUT], modes[_CONTROL], modes[_LOCAL], modes[_CHARACTERS], output]
